//! Watch filter of Nodes: which change requires a reconcile, so that heartbeats cost nothing, and which events it
//! causes.

use k8s_openapi::api::core::v1::Node;
use mco_api::vocabulary::annotations::{ADOPTION_REQUEST, REBOOT_REQUEST, node as annotation};
use mco_api::vocabulary::events;
use mco_api::vocabulary::labels::node as label;

use super::holds;
use super::node::NodeView;
use super::plan::PlannedEvent;

/// The annotations whose changes affect a rollout.
const WATCHED: [&str; 6] = [
    annotation::CURRENT_CONFIG,
    annotation::DESIRED_CONFIG,
    annotation::STATE,
    annotation::REASON,
    annotation::CURRENT_IMAGE,
    annotation::DESIRED_IMAGE,
];

/// Whether a change can affect the decision about any pool. For a node whose daemon has not reported only labels and
/// readiness matter, because it counts as a member from the start.
pub fn matter(old: &Node, new: &Node) -> bool {
    let (before, after) = (NodeView::new(old), NodeView::new(new));
    if after.label(label::OS) == Some(label::OS_WINDOWS) {
        return old.metadata.labels != new.metadata.labels;
    }
    let taints = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.clone());
    old.metadata.labels != new.metadata.labels
        || before.unready() != after.unready()
        || taints(old) != taints(new)
        || WATCHED
            .iter()
            .chain(&[annotation::DRAIN_RECORD, ADOPTION_REQUEST, REBOOT_REQUEST])
            .any(|key| before.annotation(key) != after.annotation(key))
        || holds::of_node(old) != holds::of_node(new)
}

/// Returns the events about a pool for changed annotations of a control-plane node.
pub fn annotation_events(old: &Node, new: &Node) -> Vec<PlannedEvent> {
    let (before, after) = (NodeView::new(old), NodeView::new(new));
    let changed = WATCHED
        .iter()
        .filter(|key| before.annotation(key) != after.annotation(key));
    changed
        .map(|key| {
            let message = match after.annotation(key) {
                Some(value) => format!("Node {} now has {key}={value}", after.name),
                None => format!("Node {} no longer has {key}", after.name),
            };
            PlannedEvent::normal(events::rollout::ANNOTATION_CHANGE, message)
        })
        .collect()
}
