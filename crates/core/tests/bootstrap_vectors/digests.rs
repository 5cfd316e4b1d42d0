//! Clusters of which only digests were recorded: names, and a digest of every file, of every unit and of the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use mco_core::config::render::RenderIdentity;
use mco_core::pipeline::bootstrap::BootstrapCluster;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{assemble, check_folder};

/// The digests of one rendered config.
#[derive(Debug, Default, PartialEq, Eq)]
struct Digests {
    files: BTreeMap<String, String>,
    units: BTreeMap<String, String>,
    rest: String,
}

impl Digests {
    fn recorded(value: &Value) -> Self {
        let texts = |key: &str| {
            let entries = value[key].as_object().into_iter().flatten();
            entries
                .map(|(name, digest)| (name.clone(), digest.as_str().unwrap().to_owned()))
                .collect()
        };
        Self {
            files: texts("files"),
            units: texts("units"),
            rest: value["rest"].as_str().unwrap().to_owned(),
        }
    }

    fn of(mut spec: Value) -> Self {
        let mut digests = Self::default();
        let files = spec
            .pointer_mut("/config/storage/files")
            .and_then(Value::as_array_mut);
        for file in files.into_iter().flatten() {
            let path = file["path"].as_str().unwrap().to_owned();
            let contents = file
                .as_object_mut()
                .unwrap()
                .remove("contents")
                .unwrap_or_default();
            let text = |key: &str| contents.get(key).and_then(Value::as_str);
            let decoded =
                mco_ignition::resource::decode(text("source"), text("compression"), 1 << 24).unwrap();
            digests.files.insert(path, sha256(&decoded));
        }
        let systemd = spec.pointer_mut("/config/systemd").and_then(Value::as_object_mut);
        let units = systemd.and_then(|systemd| systemd.remove("units"));
        for unit in units.iter().filter_map(Value::as_array).flatten() {
            let name = unit["name"].as_str().unwrap().to_owned();
            digests.units.insert(name, sha256(sorted(unit).as_bytes()));
        }
        digests.rest = sha256(sorted(&spec).as_bytes());
        digests
    }

    /// Returns the parts that differ.
    fn differences(&self, recorded: &Self) -> String {
        let mut text = String::new();
        for (what, ours, theirs) in [
            ("file", &self.files, &recorded.files),
            ("unit", &self.units, &recorded.units),
        ] {
            let names: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
            for name in names {
                let found = match (ours.get(name), theirs.get(name)) {
                    (Some(ours), Some(theirs)) if ours == theirs => continue,
                    (Some(_), Some(_)) => "differs",
                    (Some(_), None) => "is not expected",
                    (None, _) => "is missing",
                };
                let _ = write!(text, "\n    {what} {name} {found}");
            }
        }
        if self.rest != recorded.rest {
            text.push_str("\n    the rest of the spec differs");
        }
        text
    }
}

/// Serializes JSON with sorted keys, regardless of the order in the JSON library.
fn sorted(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(sorted).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(map) => {
            let entries: BTreeMap<&String, &Value> = map.iter().collect();
            let entries: Vec<String> = entries
                .into_iter()
                .map(|(key, value)| format!("{}:{}", Value::String(key.clone()), sorted(value)))
                .collect();
            format!("{{{}}}", entries.join(","))
        }
        leaf => leaf.to_string(),
    }
}

fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn check_digests(case: &Path, cluster: &BootstrapCluster) -> Result<(), String> {
    let expected: Value = serde_json::from_slice(&fs::read(case.join("expected.json")).unwrap()).unwrap();
    let mut expected: BTreeMap<String, Digests> = expected["rendered"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.clone(), Digests::recorded(value)))
        .collect();
    let mut failure = String::new();
    for outcome in cluster.render(RenderIdentity {
        controller_version: "was-not-built-properly",
        release_version: "",
    }) {
        let rendered = outcome.rendered().map_err(ToString::to_string)?;
        let prefix = format!("rendered-{}-", outcome.name());
        let found = expected.keys().find(|name| name.starts_with(&prefix)).cloned();
        let Some((name, recorded)) = found.and_then(|name| expected.remove_entry(&name)) else {
            let _ = write!(failure, "\n  pool {} is not expected", outcome.name());
            continue;
        };
        let ours = Digests::of(serde_json::to_value(rendered.config.spec()).unwrap());
        if name != rendered.name() || ours != recorded {
            let _ = write!(
                failure,
                "\n  {} instead of {name}{}",
                rendered.name(),
                ours.differences(&recorded)
            );
        }
    }
    for name in expected.keys() {
        let _ = write!(failure, "\n  {name} is missing");
    }
    if failure.is_empty() { Ok(()) } else { Err(failure) }
}

#[test]
fn recorded_digests_are_reproduced() {
    check_folder("bootstrap2", |case, settings| {
        let outcome = assemble(case, settings);
        if case.join("error.txt").exists() {
            return match outcome {
                Ok(_) => Err("it must be rejected".to_owned()),
                Err(_) => Ok(()),
            };
        }
        check_digests(case, &outcome?)
    });
}
