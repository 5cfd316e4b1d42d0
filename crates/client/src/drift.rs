//! Config drift of nodes as reported in the cluster: which file, what differs, since when, and which MachineConfig
//! sets it.
//!
//! Only based on the reports of the nodes' daemons; no disk is accessed here.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use mco_api::MachineConfigNode;
use mco_api::vocabulary::annotations::{DRIFT, node as annotation};
use mco_api::vocabulary::conditions::{machine_config_node as type_, status};
use mco_api::vocabulary::events::daemon;
use mco_core::config::diff::{self, ContentsSummary};
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::rollout::messages::{DriftCause, DriftHealed, UnexpectedState, quoted};
use mco_core::rollout::{NodeView, RolloutView};
use serde::Serialize;

use crate::advice;
use crate::timeline::time_of;

/// One node with config drift.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    pub node: String,
    pub pool: String,
    /// The rendered config that the node was compared with.
    pub config: String,
    /// The path or user of the first difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The difference, without the subject.
    pub difference: String,
    /// The other differences, as the node lists them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<FurtherDifference>,
    /// The number of differences that are not listed.
    pub more: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The file as the config defines it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<WantedFile>,
    /// The MachineConfig that sets it; see [`Drift::with_source`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_by: Option<String>,
    /// The daemon's original message.
    pub complaint: String,
    /// Whether the node was installed from a rendered config. On any other node the config may replace files that were
    /// there before, so applying it by force is no advice.
    pub was_installed: bool,
}

/// A difference besides the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FurtherDifference {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub difference: String,
}

/// Metadata of a file that can be shown without revealing its contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WantedFile {
    pub size: usize,
    pub sha256: String,
    pub mode: String,
}

/// A file that a daemon restored automatically.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Healed {
    pub node: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    pub what: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DriftReport {
    /// By pool, in rollout order.
    pub drifted: Vec<Drift>,
    /// Files that daemons restored, as far as events are retained; the latest last.
    pub healed: Vec<Healed>,
}

/// Returns the drift that the nodes report. `configs` are the available rendered configs by name.
pub fn report(
    view: &RolloutView<'_>,
    progress: &[MachineConfigNode],
    events: &[Event],
    configs: &BTreeMap<String, ParsedConfig>,
) -> DriftReport {
    let progress: HashMap<&str, &MachineConfigNode> = progress
        .iter()
        .filter_map(|object| Some((object.metadata.name.as_deref()?, object)))
        .collect();
    let mut drifted = Vec::new();
    for pool in &view.pools {
        for node in pool.members.iter().filter(|node| node.is_degraded()) {
            let progress = progress.get(node.name).copied();
            drifted.extend(of_node(pool.name, node, progress, events, configs));
        }
    }
    DriftReport {
        drifted,
        healed: healed(events),
    }
}

impl Drift {
    #[must_use]
    pub fn with_source(mut self, machine_config: Option<String>) -> Self {
        self.set_by = machine_config;
        self
    }
}

fn of_node(
    pool: &str,
    node: &NodeView<'_>,
    progress: Option<&MachineConfigNode>,
    events: &[Event],
    configs: &BTreeMap<String, ParsedConfig>,
) -> Option<Drift> {
    let complaint = node.reason;
    if !advice::is_drift(complaint) {
        return None;
    }
    let observed = parse_reason(complaint);
    let others = others(node);
    let more = observed.more.saturating_sub(others.len());
    let wanted = observed.subject.as_deref().and_then(|path| {
        let config = configs.get(node.current_config)?;
        wanted_file(config, path)
    });
    Some(Drift {
        node: node.name.to_owned(),
        pool: pool.to_owned(),
        config: node.current_config.to_owned(),
        subject: observed.subject,
        difference: observed.difference,
        others,
        more,
        since: since(node.name, complaint, progress, events),
        wanted,
        set_by: None,
        complaint: complaint.to_owned(),
        was_installed: node.annotation(annotation::FIRST_PIVOT_CONFIG).is_some(),
    })
}

/// Returns the differences that the node lists, without the first, which is its reason.
fn others(node: &NodeView<'_>) -> Vec<FurtherDifference> {
    let listed = node.annotation(DRIFT).unwrap_or_default();
    let listed: Vec<String> = serde_json::from_str(listed).unwrap_or_default();
    let further = listed.iter().skip(1).map(|cause| {
        let (subject, difference) = parse_cause(cause);
        FurtherDifference { subject, difference }
    });
    further.collect()
}

fn wanted_file(config: &ParsedConfig, path: &str) -> Option<WantedFile> {
    let mut files = config.ignition.storage.files.iter();
    let file = files.find(|file| file.path == path)?;
    let ContentsSummary { size, sha256 } = diff::contents(file);
    Some(WantedFile {
        size,
        sha256,
        mode: diff::mode(file),
    })
}

/// Returns since when a node reports the drift: from its own report if it is about this drift, else from the first
/// matching event.
fn since(
    node: &str,
    complaint: &str,
    progress: Option<&MachineConfigNode>,
    events: &[Event],
) -> Option<Timestamp> {
    let conditions = progress.and_then(|progress| progress.status.as_ref());
    let condition = conditions.and_then(|status| {
        status
            .conditions
            .iter()
            .find(|condition| condition.type_ == type_::NODE_DEGRADED && condition.status == status::TRUE)
    });
    let observed = events.iter().filter(|event| {
        event.involved_object.kind.as_deref() == Some("Node")
            && event.involved_object.name.as_deref() == Some(node)
            && event.message.as_deref() == Some(complaint)
    });
    condition
        .map(|condition| condition.last_transition_time.0)
        .or_else(|| observed.filter_map(time_of).min())
}

#[derive(Debug, PartialEq, Eq)]
struct ParsedComplaint {
    subject: Option<String>,
    difference: String,
    more: usize,
}

/// Parses the reason that a daemon reports.
fn parse_reason(complaint: &str) -> ParsedComplaint {
    let (cause, more) = match UnexpectedState::parse(complaint) {
        Some(state) => (state.cause, state.more),
        None => (complaint.to_owned(), 0),
    };
    let (subject, difference) = parse_cause(&cause);
    ParsedComplaint {
        subject,
        difference,
        more,
    }
}

/// Returns the path or user of a difference, if it names one, and what differs.
fn parse_cause(cause: &str) -> (Option<String>, String) {
    match DriftCause::parse(cause) {
        Some(DriftCause::Content { path }) => (Some(path), "its contents are different".to_owned()),
        Some(DriftCause::Missing { path }) => (Some(path), "it is missing".to_owned()),
        Some(DriftCause::Attribute {
            attribute,
            path,
            expected,
            received,
        }) => {
            let what = attribute.name();
            (
                Some(path),
                format!("its {what} is {received} instead of {expected}"),
            )
        }
        None => (quoted(cause), cause.to_owned()),
    }
}

fn healed(events: &[Event]) -> Vec<Healed> {
    let mut healed: Vec<Healed> = events
        .iter()
        .filter(|event| event.reason.as_deref() == Some(daemon::CONFIG_DRIFT_DETECTED))
        .filter_map(|event| {
            Some(Healed {
                node: event.involved_object.name.clone()?,
                at: time_of(event),
                what: DriftHealed::parse(event.message.as_deref()?)?.cause,
            })
        })
        .collect();
    healed.sort_by_key(|one| one.at);
    healed
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use mco_api::{MachineConfig, MachineConfigPool};
    use serde_json::{Value, json};

    use super::*;

    fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn node(name: &str, state: &str, reason: &str) -> Node {
        let prefix = "machineconfiguration.openshift.io";
        object(
            json!({"metadata": {"name": name, "labels": {"node-role.kubernetes.io/worker": ""}, "annotations": {
                format!("{prefix}/currentConfig"): "rendered-worker-1",
                format!("{prefix}/desiredConfig"): "rendered-worker-1",
                format!("{prefix}/state"): state,
                format!("{prefix}/reason"): reason,
            }}}),
        )
    }

    #[test]
    fn a_daemons_sentence_is_taken_apart() {
        for (complaint, subject, difference, more) in [
            (
                "content mismatch for file \"/etc/chrony.conf\"",
                Some("/etc/chrony.conf"),
                "its contents are different",
                0,
            ),
            (
                "unexpected on-disk state validating against rendered-worker-1 (abc): content mismatch for file \"/etc/a\" (and 2 more)",
                Some("/etc/a"),
                "its contents are different",
                2,
            ),
            (
                "could not stat file \"/etc/a b\": lstat /etc/a b: no such file or directory; possible root cause: x",
                Some("/etc/a b"),
                "it is missing",
                0,
            ),
            (
                "mode mismatch for file: \"/etc/a\"; expected: -rw-r--r--; received: -rw-------",
                Some("/etc/a"),
                "its mode is -rw------- instead of -rw-r--r--",
                0,
            ),
            (
                "target mismatch for link \"/etc/l\"; expected: a; received: b",
                Some("/etc/l"),
                "its target is b instead of a",
                0,
            ),
            (
                "content mismatch for file \"/etc/\\u{1b}[31m\"",
                Some("/etc/\\u{1b}[31m"),
                "its contents are different",
                0,
            ),
            ("something new", None, "something new", 0),
        ] {
            let observed = parse_reason(complaint);
            assert_eq!(observed.subject.as_deref(), subject, "{complaint}");
            assert_eq!(
                (observed.difference.as_str(), observed.more),
                (difference, more),
                "{complaint}"
            );
        }
    }

    #[test]
    fn every_difference_that_a_node_lists_is_reported() {
        let pools: [MachineConfigPool; 1] = [object(json!({"metadata": {"name": "worker"},
            "spec": {"nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}}}))];
        let cause = |n: usize| format!("content mismatch for file \"/etc/{n}\"");
        let reason = UnexpectedState {
            config: "rendered-worker-1".to_owned(),
            cause: cause(0),
            more: 29,
            root_cause: None,
        };
        let mut drifted = node("a", "Degraded", &reason.to_string());
        let listed: Vec<String> = (0..20).map(cause).collect();
        let annotations = drifted.metadata.annotations.as_mut().unwrap();
        annotations.insert(DRIFT.to_owned(), json!(listed).to_string());
        let nodes = [drifted];
        let report = report(&RolloutView::new(&pools, &nodes), &[], &[], &BTreeMap::new());
        let drift = &report.drifted[0];
        assert_eq!(drift.subject.as_deref(), Some("/etc/0"));
        assert_eq!((drift.others.len(), drift.more), (19, 10));
        assert_eq!(drift.others[18].subject.as_deref(), Some("/etc/19"));
    }

    #[test]
    fn a_report_names_the_node_the_file_the_time_and_what_should_be_there() {
        let pools: [MachineConfigPool; 1] = [object(json!({"metadata": {"name": "worker"},
            "spec": {"nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}}}))];
        let nodes = [
            node("a", "Done", ""),
            node("b", "Degraded", "content mismatch for file \"/etc/x\""),
            node("c", "Degraded", "failed to drain node: c after 1 hour"),
        ];
        let config: MachineConfig = object(
            json!({"metadata": {"name": "rendered-worker-1"}, "spec": {"config": {
                "ignition": {"version": "3.5.0"},
                "storage": {"files": [{"path": "/etc/x", "mode": 420, "contents": {"source": "data:,hello"}}]},
            }}}),
        );
        let configs = BTreeMap::from([(
            "rendered-worker-1".to_owned(),
            ParsedConfig::applicable(config).unwrap(),
        )]);
        let events: [Event; 2] = [
            object(
                json!({"metadata": {}, "involvedObject": {"kind": "Node", "name": "b"}, "reason": "ConfigDriftDetected",
                "message": "content mismatch for file \"/etc/x\"", "lastTimestamp": "2026-01-01T00:00:00Z"}),
            ),
            object(
                json!({"metadata": {}, "involvedObject": {"kind": "Node", "name": "a"}, "reason": "ConfigDriftDetected",
                "message": DriftHealed { cause: "content mismatch for file \"/etc/y\"".to_owned(), more: 0 }.to_string(), "lastTimestamp": "2026-01-01T00:00:01Z"}),
            ),
        ];
        let report = report(&RolloutView::new(&pools, &nodes), &[], &events, &configs);
        assert_eq!(report.drifted.len(), 1);
        let drift = &report.drifted[0];
        assert_eq!((drift.node.as_str(), drift.pool.as_str()), ("b", "worker"));
        assert_eq!(drift.since, Some("2026-01-01T00:00:00Z".parse().unwrap()));
        let wanted = drift.wanted.as_ref().unwrap();
        assert_eq!((wanted.size, wanted.mode.as_str()), (5, "0644"));
        assert_eq!(report.healed.len(), 1);
        assert_eq!(report.healed[0].what, "content mismatch for file \"/etc/y\"");
    }
}
