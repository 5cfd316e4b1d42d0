//! Allowed transitions of the workers' latency profile.
//!
//! The control plane's timeouts follow the profile, so kubelet intervals must not jump from one extreme to the other:
//! between `Default` and `LowUpdateSlowReaction` lies `MediumUpdateAverageReaction`. The profile in force is read
//! from the last generated MachineConfig, so that it survives a restart.

use mco_api::MachineConfig;
use mco_api::foreign::node::{Node, NodeSpec};
use mco_api::vocabulary::names;
use mco_ignition::resource;

use super::{KUBELET_CONF, KubeletConfiguration, latency};
use crate::config::go_duration;
use crate::config::manifest;

const DEFAULT: &str = "Default";
const LOW: &str = "LowUpdateSlowReaction";
const FREQUENCY: &str = "nodeStatusUpdateFrequency";
/// Maximum size of a kubelet.conf that is parsed; a complete one has a few kilobytes.
const LARGEST_CONF: usize = 1 << 20;

/// The effective node settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SettledProfile {
    /// The requested settings, but with the latency profile that stays in force.
    pub settings: Option<Node>,
    /// Why the requested profile is not in force.
    pub prohibited: Option<String>,
}

/// Resolves the requested settings against `present`, the latest MachineConfig generated for the workers from such
/// settings. Settings that never changed are not a transition: a cluster can be installed with any profile.
pub fn settle(asked: Option<&Node>, present: Option<&MachineConfig>) -> SettledProfile {
    let follow = || SettledProfile {
        settings: asked.cloned(),
        prohibited: None,
    };
    let Some(from) = present.and_then(in_force) else {
        return follow();
    };
    let to = asked.map_or("", |node| node.spec.worker_latency_profile.as_str());
    let was_changed = asked.is_none_or(|node| node.metadata.generation.unwrap_or(1) > 1);
    if !was_changed || !is_prohibited(from, to) {
        return follow();
    }
    let mut settings = asked
        .cloned()
        .unwrap_or_else(|| Node::new(names::SINGLETON, NodeSpec::default()));
    from.clone_into(&mut settings.spec.worker_latency_profile);
    SettledProfile {
        settings: Some(settings),
        prohibited: Some(skipped(from, to)),
    }
}

/// Whether a direct transition between two profiles is prohibited.
pub fn is_prohibited(from: &str, to: &str) -> bool {
    let is_default = |profile: &str| matches!(profile, "" | DEFAULT);
    (is_default(from) && to == LOW) || (from == LOW && is_default(to))
}

/// Returns the message for a prohibited transition.
pub fn skipped(from: &str, to: &str) -> String {
    format!(
        "Skipping the Update Node event, name: {}, transition not allowed from old WorkerLatencyProfile: {from:?} to new \
         WorkerLatencyProfile: {to:?}",
        names::SINGLETON
    )
}

/// Returns the message for node settings that are ignored because of their name.
pub fn misnamed(name: &str) -> String {
    format!(
        "The node.config.openshift.io {name:?} is invalid: metadata.name Invalid value: {name:?} : must be {:?}",
        names::SINGLETON
    )
}

/// Returns the profile a MachineConfig was generated with, judging by its kubelet.conf; `None` if that is missing or
/// invalid.
fn in_force(config: &MachineConfig) -> Option<&'static str> {
    let files = config
        .spec
        .config
        .as_ref()?
        .pointer("/storage/files")?
        .as_array()?;
    let file = files.iter().find(|file| file["path"] == KUBELET_CONF)?;
    let text = |key: &str| file.pointer(key).and_then(|value| value.as_str());
    let contents = resource::decode(
        text("/contents/source"),
        text("/contents/compression"),
        LARGEST_CONF,
    )
    .ok()?;
    let value = manifest::value(std::str::from_utf8(&contents).ok()?).ok()?;
    let configuration = KubeletConfiguration::decode(&value).ok()?;
    let frequency = go_duration::parse(configuration.text(FREQUENCY));
    let profiles = [DEFAULT, "MediumUpdateAverageReaction", LOW];
    let same = |profile: &&&str| latency(profile).and_then(go_duration::parse) == frequency;
    // An interval set by the templates belongs to no profile.
    Some(profiles.iter().find(same).copied().unwrap_or(DEFAULT))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{KubeletBase, Latency, for_node};
    use super::*;
    use crate::config::feature_gates::FeatureGates;

    const MEDIUM: &str = "MediumUpdateAverageReaction";

    fn node(profile: &str, generation: i64) -> Node {
        let mut node: Node = serde_json::from_value(json!({
            "metadata": {"name": "cluster"}, "spec": {"workerLatencyProfile": profile, "cgroupMode": "v2"},
        }))
        .unwrap();
        node.metadata.generation = Some(generation);
        node
    }

    fn made_with(profile: &str) -> MachineConfig {
        let node = node(profile, 1);
        let base = KubeletBase {
            role: "worker",
            kubelet_conf: "nodeStatusUpdateFrequency: 10s\n",
            feature_gates: &FeatureGates::default(),
            node: Some(&node),
            latency: Latency::FollowsProfile,
            version: "v",
        };
        for_node(base, Vec::new()).unwrap().config
    }

    #[test]
    fn kubelets_never_jump_between_the_shortest_and_the_longest_interval() {
        for (present, asked, in_force, reported) in [
            (
                "",
                LOW,
                DEFAULT,
                Some("\"Default\" to new WorkerLatencyProfile: \"LowUpdateSlowReaction\""),
            ),
            (
                DEFAULT,
                LOW,
                DEFAULT,
                Some("\"Default\" to new WorkerLatencyProfile: \"LowUpdateSlowReaction\""),
            ),
            (
                LOW,
                "",
                LOW,
                Some("\"LowUpdateSlowReaction\" to new WorkerLatencyProfile: \"\""),
            ),
            (
                LOW,
                DEFAULT,
                LOW,
                Some("\"LowUpdateSlowReaction\" to new WorkerLatencyProfile: \"Default\""),
            ),
            ("", MEDIUM, MEDIUM, None),
            (MEDIUM, LOW, LOW, None),
            (LOW, MEDIUM, MEDIUM, None),
            (MEDIUM, DEFAULT, DEFAULT, None),
            (LOW, LOW, LOW, None),
            ("", "", "", None),
        ] {
            let settled = settle(Some(&node(asked, 2)), Some(&made_with(present)));
            let settings = settled.settings.unwrap();
            assert_eq!(
                settings.spec.worker_latency_profile, in_force,
                "{present:?} to {asked:?}"
            );
            assert_eq!(settings.spec.cgroup_mode, "v2", "everything else is followed");
            let message = settled.prohibited;
            let expected = reported.map(|reported| {
                format!("Skipping the Update Node event, name: cluster, transition not allowed from old WorkerLatencyProfile: {reported}")
            });
            assert_eq!(message, expected, "{present:?} to {asked:?}");
        }
    }

    #[test]
    fn a_cluster_is_installed_with_any_profile_and_removed_settings_are_no_way_around() {
        let low = node(LOW, 1);
        assert_eq!(
            settle(Some(&low), None).settings.as_ref(),
            Some(&low),
            "nothing was made yet"
        );
        assert_eq!(
            settle(Some(&low), Some(&made_with(""))).settings.as_ref(),
            Some(&low),
            "it never changed"
        );
        let settled = settle(None, Some(&made_with(LOW)));
        assert_eq!(settled.settings.unwrap().spec.worker_latency_profile, LOW);
        assert!(settled.prohibited.is_some());
        assert_eq!(settle(None, Some(&made_with(MEDIUM))), SettledProfile::default());
        assert_eq!(
            settle(Some(&node(LOW, 2)), Some(&MachineConfig::default())).prohibited,
            None,
            "what has no kubelet.conf proves nothing"
        );
    }
}
