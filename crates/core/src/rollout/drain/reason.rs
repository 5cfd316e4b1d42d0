//! The Node's `reason` annotation while a drain is pending. The annotation belongs to the daemon, which writes it
//! when it fails and when it is done; while it waits for the drain it is empty, and only then the controller may
//! write it. The controller only removes its own text.

use k8s_openapi::api::core::v1::Node;
use mco_api::vocabulary::annotations::node as annotation;
use mco_api::vocabulary::node_state;
use serde_json::{Value, json};

use super::cordon::DrainRecord;

/// Returns the merge patch that sets the reason to the drain's blocker, or removes it; `None` if nothing changes. The
/// write must fail if the node has changed since: the daemon may have written its own reason.
pub fn reason_patch(node: &Node, waiting_for: Option<&str>) -> Option<Value> {
    let annotations = node.metadata.annotations.as_ref();
    let text_of = |key: &str| {
        annotations
            .and_then(|all| all.get(key))
            .map_or("", String::as_str)
    };
    let current = text_of(annotation::REASON);
    let told = DrainRecord::of_node(node).and_then(|record| record.waiting_for);
    let is_ours = told.is_some_and(|told| sentence(&told) == current);
    let may_speak = text_of(annotation::STATE) == node_state::WORKING && (current.is_empty() || is_ours);
    let wanted = match waiting_for {
        Some(what) if may_speak => sentence(what),
        _ if is_ours => String::new(),
        _ => return None,
    };
    (wanted != current).then(|| json!({"metadata": {"annotations": {annotation::REASON: wanted}}}))
}

/// Returns the daemon's failure message, with the drain's blocker appended unless it already contains it.
pub fn with_obstacle(failure: &str, waiting_for: Option<&str>) -> String {
    match waiting_for.map(sentence) {
        Some(obstacle) if failure.is_empty() => obstacle,
        Some(obstacle) if !failure.contains(&obstacle) => format!("{failure}; {obstacle}"),
        _ => failure.to_owned(),
    }
}

fn sentence(what: &str) -> String {
    format!("the drain waits for {what}")
}
