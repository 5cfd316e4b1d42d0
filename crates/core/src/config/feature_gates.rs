//! The feature gates of a release.

use std::collections::BTreeMap;

use mco_api::ControllerConfig;
use mco_api::foreign::feature_gate::{FeatureGate, FeatureGateDetails};
use mco_api::vocabulary::annotations;
use thiserror::Error;

/// All feature gates of a release, enabled or disabled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeatureGates {
    gates: BTreeMap<String, bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FeatureGateError {
    #[error(
        "FeatureGate {name:?}: status.featureGates has no entry for version {wanted:?}; it has {}",
        list(.available)
    )]
    VersionMissing {
        name: String,
        wanted: String,
        available: Vec<String>,
    },
}

fn list(versions: &[String]) -> String {
    if versions.is_empty() {
        "none at all".to_owned()
    } else {
        versions.join(", ")
    }
}

/// The version of a development build in other implementations.
const UNRELEASED: &str = "0.0.1-snapshot";

impl FeatureGates {
    /// Returns the gates of the requested release, else the ControllerConfig's, else those of a development build,
    /// else the only version in the object. Without an object there are no gates.
    pub fn in_force(
        object: Option<&FeatureGate>,
        controller_config: &ControllerConfig,
        asked_for: Option<&str>,
    ) -> Result<Self, FeatureGateError> {
        let Some(object) = object else {
            return Ok(Self::default());
        };
        if let Some(version) = asked_for {
            return Self::of_version(object, version);
        }
        let annotated = controller_config.metadata.annotations.as_ref();
        let annotated = annotated.and_then(|all| all.get(annotations::RELEASE_IMAGE_VERSION));
        let wanted = annotated.map_or(UNRELEASED, String::as_str);
        Self::of_version(object, wanted).or_else(|error| Self::of_only_version(object).ok_or(error))
    }

    /// Returns the gates of one version.
    pub fn of_version(object: &FeatureGate, version: &str) -> Result<Self, FeatureGateError> {
        let details = object
            .status
            .as_ref()
            .and_then(|status| status.of_version(version));
        details
            .map(Self::from_details)
            .ok_or_else(|| FeatureGateError::VersionMissing {
                name: object.metadata.name.clone().unwrap_or_default(),
                wanted: version.to_owned(),
                available: versions(object),
            })
    }

    /// Returns the gates of the object's only version; `None` if it has several.
    pub fn of_only_version(object: &FeatureGate) -> Option<Self> {
        match object.status.as_ref()?.feature_gates.as_slice() {
            [details] => Some(Self::from_details(details)),
            _ => None,
        }
    }

    fn from_details(details: &FeatureGateDetails) -> Self {
        let enabled = details.enabled.iter().map(|gate| (gate.name.clone(), true));
        let disabled = details.disabled.iter().map(|gate| (gate.name.clone(), false));
        Self {
            gates: enabled.chain(disabled).collect(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, bool)> {
        self.gates.iter().map(|(name, on)| (name.as_str(), *on))
    }

    /// Whether there are no feature gates, as on a cluster without them.
    pub fn is_empty(&self) -> bool {
        self.gates.is_empty()
    }

    /// Whether the release has the gate and disables it. A cluster without feature gates disables none.
    pub fn is_disabled(&self, name: &str) -> bool {
        self.gates.get(name) == Some(&false)
    }

    /// Whether the release has the gate and enables it.
    pub fn is_enabled(&self, name: &str) -> bool {
        self.gates.get(name).copied().unwrap_or_default()
    }
}

fn versions(object: &FeatureGate) -> Vec<String> {
    let all = object.status.iter().flat_map(|status| &status.feature_gates);
    all.map(|details| details.version.clone()).collect()
}

impl<S: Into<String>> FromIterator<(S, bool)> for FeatureGates {
    fn from_iter<I: IntoIterator<Item = (S, bool)>>(gates: I) -> Self {
        Self {
            gates: gates.into_iter().map(|(name, on)| (name.into(), on)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn gates_belong_to_a_version() {
        let one = json!({"version": "1", "enabled": [{"name": "A"}], "disabled": [{"name": "B"}]});
        let two = json!({"version": "2", "disabled": [{"name": "A"}]});
        let object = |versions: &[&serde_json::Value]| -> FeatureGate {
            serde_json::from_value(
                json!({"metadata": {"name": "cluster"}, "status": {"featureGates": versions}}),
            )
            .unwrap()
        };
        let both = object(&[&one, &two]);
        assert!(FeatureGates::of_version(&both, "1").unwrap().is_enabled("A"));
        assert!(!FeatureGates::of_version(&both, "2").unwrap().is_enabled("A"));
        assert!(
            !FeatureGates::of_version(&both, "2")
                .unwrap()
                .is_enabled("unheard of")
        );
        assert_eq!(
            FeatureGates::of_version(&both, "3").unwrap_err().to_string(),
            "FeatureGate \"cluster\": status.featureGates has no entry for version \"3\"; it has 1, 2"
        );
        assert_eq!(FeatureGates::of_only_version(&both), None);
        let only = FeatureGates::of_only_version(&object(&[&one])).unwrap();
        assert_eq!(only.iter().collect::<Vec<_>>(), [("A", true), ("B", false)]);
    }

    /// The source of every gate that this crate asks for.
    fn gates_in(directory: &std::path::Path, found: &mut std::collections::BTreeSet<String>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                gates_in(&path, found);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for line in text.lines().filter(|line| line.contains("GATE: &str = \"")) {
                let name = line.split('"').nth(1).unwrap().to_owned();
                // A constant of another kind: the object's name in a message.
                if !name.contains(' ') && !name.ends_with('\\') {
                    found.insert(name);
                }
            }
        }
    }

    #[test]
    fn the_documentation_lists_every_feature_gate() {
        let mut known = std::collections::BTreeSet::new();
        gates_in(
            &std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
            &mut known,
        );
        let page = std::fs::read_to_string(mco_testkit::repository_root().join("docs/install.md")).unwrap();
        let section = page.split("## Feature gates").nth(1).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let rows = section
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        assert_eq!(
            rows.map(str::to_owned).collect::<std::collections::BTreeSet<_>>(),
            known
        );
    }
}
