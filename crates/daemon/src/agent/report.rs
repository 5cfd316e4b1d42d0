//! The annotations that the daemon writes to its Node. A value of `None` removes the annotation.

use std::collections::BTreeMap;

use mco_api::vocabulary::annotations::{DRIFT, HOOKS, STAGED_CONFIG, node as annotation};
use mco_api::vocabulary::node_state;
use mco_core::rollout::NodeAnnotations;
use mco_core::rollout::hooks::{self, HookResult};
use serde_json::json;

use super::on_disk::OnDisk;

/// The limit for reasons, because every client of the Node fetches them.
const LONGEST_REASON: usize = 2000;
/// The limit for the list of differences, for the same reason.
const LONGEST_LIST: usize = 16 << 10;

pub type NodeReport = BTreeMap<&'static str, Option<String>>;

/// The severity of a failed update, as reported in the node's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeFailure {
    /// A retry may succeed.
    Degraded,
    /// The change is not reconcilable.
    Unreconcilable,
}

/// Returns the annotations of a node that is updating. A failing node keeps its state until it is done.
pub fn working(node: &NodeAnnotations) -> NodeReport {
    if node.is_failing() {
        return NodeReport::new();
    }
    NodeReport::from([(annotation::STATE, Some(node_state::WORKING.to_owned()))])
}

/// Whether the Node already has the state and reason of a report.
pub(super) fn is_on_node(report: &NodeReport, node: &NodeAnnotations) -> bool {
    let has = |key: &str, value: &str| report.get(key).and_then(Option::as_deref) == Some(value);
    has(annotation::STATE, &node.state) && has(annotation::REASON, &node.reason)
}

/// Returns the annotations of a failing node. `differences` are those of a drifted node, all of them.
pub fn degraded(failure: NodeFailure, reason: &str, differences: &[String]) -> NodeReport {
    let state = match failure {
        NodeFailure::Degraded => node_state::DEGRADED,
        NodeFailure::Unreconcilable => node_state::UNRECONCILABLE,
    };
    NodeReport::from([
        (annotation::STATE, Some(state.to_owned())),
        (annotation::REASON, Some(shortened(reason))),
        (DRIFT, listed(differences)),
    ])
}

/// Returns the differences as a JSON list, as many as the limit allows.
fn listed(differences: &[String]) -> Option<String> {
    let mut size = 0;
    let shown = differences.iter().take_while(|one| {
        size += one.len();
        size <= LONGEST_LIST
    });
    let shown: Vec<&String> = shown.collect();
    (!shown.is_empty()).then(|| json!(shown).to_string())
}

pub(super) fn shortened(reason: &str) -> String {
    reason.chars().take(LONGEST_REASON).collect()
}

/// Returns the annotation with the reason why a staged deployment was lost; empty if none was lost.
pub fn finalization_failure(text: &str) -> NodeReport {
    NodeReport::from([(annotation::OSTREE_FINALIZE_STAGED_FAILURE, Some(text.to_owned()))])
}

/// Returns the annotations of a node that is up to date, according to its disk.
pub fn done(disk: &OnDisk) -> NodeReport {
    let mut report = NodeReport::from([
        (annotation::STATE, Some(node_state::DONE.to_owned())),
        (annotation::REASON, Some(String::new())),
        (annotation::CURRENT_CONFIG, disk.config.clone()),
        (annotation::CURRENT_IMAGE, disk.image.clone()),
        (DRIFT, None),
        (STAGED_CONFIG, None),
    ]);
    if disk.image.is_none() {
        report.insert(annotation::DESIRED_IMAGE, None);
    }
    report
}

/// Returns the annotations that a new Node registers with: those it was installed with, otherwise those derived from
/// its disk.
pub fn introduction(installed: Option<&BTreeMap<String, String>>, disk: &OnDisk) -> BTreeMap<String, String> {
    if let Some(installed) = installed {
        return installed.clone();
    }
    let entries = [
        (annotation::CURRENT_CONFIG, &disk.config),
        (annotation::CURRENT_IMAGE, &disk.image),
    ];
    entries
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)))
        .collect()
}

/// Returns the annotation with the results of the hooks of the last update.
pub fn hooks(results: &[HookResult]) -> NodeReport {
    NodeReport::from([(HOOKS, Some(hooks::annotation(results, LONGEST_LIST)))])
}

/// Returns the annotation with the config whose OS is staged before the node's turn.
pub fn staged_ahead(config: &str) -> NodeReport {
    NodeReport::from([(STAGED_CONFIG, Some(config.to_owned()))])
}

pub fn request_drain(config: &str) -> NodeReport {
    NodeReport::from([(annotation::DESIRED_DRAIN, Some(annotation::drain::drain(config)))])
}

pub fn request_uncordon(config: &str) -> NodeReport {
    NodeReport::from([(
        annotation::DESIRED_DRAIN,
        Some(annotation::drain::uncordon(config)),
    )])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_node_stays_failing_until_it_is_done() {
        let node = |state: &str| NodeAnnotations {
            state: state.to_owned(),
            ..NodeAnnotations::default()
        };
        assert!(working(&node("Degraded")).is_empty());
        assert!(working(&node("Unreconcilable")).is_empty());
        assert_eq!(
            working(&node("Done"))[annotation::STATE].as_deref(),
            Some("Working")
        );
        let disk = OnDisk {
            config: Some("a".to_owned()),
            image: None,
        };
        let report = done(&disk);
        assert_eq!(report[annotation::STATE].as_deref(), Some("Done"));
        assert_eq!(report[annotation::REASON].as_deref(), Some(""));
        assert_eq!(report[annotation::CURRENT_IMAGE], None);
        assert_eq!(report[annotation::DESIRED_IMAGE], None);
    }

    #[test]
    fn all_differences_of_a_drifted_node_are_listed_within_a_limit() {
        let differences: Vec<String> = (0..30).map(|n| format!("difference {n}")).collect();
        let list = degraded(NodeFailure::Degraded, "x", &differences)[DRIFT]
            .clone()
            .unwrap();
        assert_eq!(serde_json::from_str::<Vec<String>>(&list).unwrap(), differences);
        let many = vec!["d".repeat(100); 1000];
        let list = degraded(NodeFailure::Degraded, "x", &many)[DRIFT]
            .clone()
            .unwrap();
        assert!(list.len() < 20_000, "{}", list.len());
        assert_eq!(
            degraded(NodeFailure::Degraded, "another failure", &[])[DRIFT],
            None
        );
    }

    #[test]
    fn reasons_are_cut_between_characters() {
        let report = degraded(NodeFailure::Degraded, &"ä".repeat(3000), &[]);
        assert_eq!(
            report[annotation::REASON]
                .as_ref()
                .map(|reason| reason.chars().count()),
            Some(2000)
        );
    }

    #[test]
    fn what_a_node_was_installed_with_comes_before_what_its_disk_has() {
        let disk = OnDisk {
            config: Some("disk".to_owned()),
            image: None,
        };
        let installed = BTreeMap::from([(annotation::CURRENT_CONFIG.to_owned(), "installed".to_owned())]);
        assert_eq!(
            introduction(Some(&installed), &disk)[annotation::CURRENT_CONFIG],
            "installed"
        );
        let own = introduction(None, &disk);
        assert_eq!(
            own,
            BTreeMap::from([(annotation::CURRENT_CONFIG.to_owned(), "disk".to_owned())])
        );
    }
}
