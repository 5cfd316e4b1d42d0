//! The Node's `reason` annotation while a drain is pending. The annotation belongs to the daemon, which writes it
//! when it fails and when it is done; while it waits for the drain it is empty, and only then the controller may
//! write it. The controller only removes its own text.

use k8s_openapi::api::core::v1::Node;
use mco_api::vocabulary::annotations::node as annotation;
use mco_api::vocabulary::node_state;
use serde_json::{Value, json};

use crate::rollout::NodeAnnotations;
use crate::rollout::messages::drain_waits_for;

/// Returns the merge patch that sets the reason to the drain's blocker, or removes it; `None` if nothing changes. The
/// write must fail if the node has changed since: the daemon may have written its own reason.
pub fn reason_patch(node: &Node, waiting_for: Option<&str>) -> Option<Value> {
    let annotations = NodeAnnotations::of_node(node);
    let current = annotations.reason;
    let reported = annotations.drain_record().and_then(|record| record.waiting_for);
    let is_ours = reported.is_some_and(|obstacle| drain_waits_for(&obstacle) == current);
    let may_speak = annotations.state == node_state::WORKING && (current.is_empty() || is_ours);
    let wanted = match waiting_for {
        Some(what) if may_speak => drain_waits_for(what),
        _ if is_ours => String::new(),
        _ => return None,
    };
    (wanted != current).then(|| json!({"metadata": {"annotations": {annotation::REASON: wanted}}}))
}

/// Returns the daemon's failure message, with the drain's blocker appended unless it already contains it.
pub fn with_obstacle(failure: &str, waiting_for: Option<&str>) -> String {
    match waiting_for.map(drain_waits_for) {
        Some(obstacle) if failure.is_empty() => obstacle,
        Some(obstacle) if !failure.contains(&obstacle) => format!("{failure}; {obstacle}"),
        _ => failure.to_owned(),
    }
}
