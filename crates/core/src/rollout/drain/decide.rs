//! The controller's side of the drain annotation protocol: the next action that a Node requests.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use mco_api::vocabulary::annotations::node as annotation;
use serde_json::{Value, json};

use super::cordon::{self, Cordon, CordonOrigin, DrainRecord};
use super::preparation::{DrainMarks, DrainPreparation};
use super::request::{DrainVerb, RequestError};
use crate::rollout::NodeAnnotations;

/// The next action for a node. Each variant that writes is one write, see [`Decision::patch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainDecision {
    /// All requests are completed.
    Nothing,
    /// Cordon the node and record the start and origin. Eviction follows in the next reconcile.
    Cordon(DrainRecord),
    /// Evict its pods.
    Evict(DrainRecord),
    /// Another client uncordoned the node after the drain, which is legitimate when an update has failed. Record that
    /// any later cordon is not ours.
    Disown(DrainRecord),
    /// Report the uncordon request as completed; remove the cordon if it is ours.
    Uncordon {
        request: String,
        lift: Lift,
        /// What is removed together with the cordon.
        marks: DrainMarks,
    },
}

/// The change to the cordon of a node whose uncordon was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lift {
    Cordon,
    /// There is none, or it is not ours to remove.
    Nothing,
}

/// The outcome of a drain once all pods are evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completion {
    /// Report completion to the daemon. The write must fail if the node has changed since it was read.
    Report { request: String },
    /// The node was uncordoned meanwhile, or has another request; reconcile it again.
    Overtaken,
}

/// Returns the next action that this node requests.
pub fn decide(
    node: &Node,
    preparation: DrainPreparation,
    now: Timestamp,
) -> Result<DrainDecision, RequestError> {
    let Some(request) = pending(node) else {
        return Ok(left_over(node));
    };
    let verb = DrainVerb::of(request).ok_or_else(|| RequestError {
        node: node.metadata.name.clone().unwrap_or_default(),
        request: request.to_owned(),
    })?;
    Ok(match verb {
        DrainVerb::Drain => drain(node, request, preparation, now),
        DrainVerb::Uncordon => uncordon(node, request),
    })
}

/// Returns whether the drain of `record` can be reported as completed, judging by the node's latest state.
pub fn complete(node: &Node, record: &DrainRecord) -> Completion {
    let same_request = pending(node) == Some(record.request.as_str());
    if same_request && cordon::of_node(node) != Cordon::None {
        Completion::Report {
            request: record.request.clone(),
        }
    } else {
        Completion::Overtaken
    }
}

impl DrainDecision {
    /// Returns the merge patch of the Node; `None` for actions without a write.
    pub fn patch(&self) -> Option<Value> {
        match self {
            Self::Nothing | Self::Evict(_) => None,
            // Resets the last applied request. Otherwise a daemon that cancels the drain would find its uncordon
            // request already answered before the controller has read it.
            Self::Cordon(record) => {
                let mut patch = record.marks.set();
                patch["metadata"]["annotations"][annotation::DRAIN_RECORD] = json!(record.to_annotation());
                patch["metadata"]["annotations"][annotation::LAST_APPLIED_DRAIN] = Value::Null;
                patch["spec"] = json!({"unschedulable": true});
                Some(patch)
            }
            Self::Disown(record) => Some(json!({
                "metadata": {"annotations": {annotation::DRAIN_RECORD: record.to_annotation()}},
            })),
            Self::Uncordon { request, lift, marks } => {
                let mut patch = marks.remove();
                patch["metadata"]["annotations"][annotation::LAST_APPLIED_DRAIN] = json!(request);
                patch["metadata"]["annotations"][annotation::DRAIN_RECORD] = Value::Null;
                if *lift == Lift::Cordon {
                    patch["spec"] = json!({"unschedulable": null});
                }
                Some(patch)
            }
        }
    }
}

impl Completion {
    /// Returns the merge patch of the Node; `None` if nothing may be reported.
    pub fn patch(&self) -> Option<Value> {
        match self {
            Self::Overtaken => None,
            Self::Report { request } => {
                Some(json!({"metadata": {"annotations": {annotation::LAST_APPLIED_DRAIN: request}}}))
            }
        }
    }
}

fn drain(node: &Node, request: &str, preparation: DrainPreparation, now: Timestamp) -> DrainDecision {
    let record = DrainRecord::of_node(node);
    let cordon = cordon::of_node(node);
    let of_this_request = record.as_ref().filter(|record| record.request == request);
    let origin = match cordon {
        // An uncordon by another client meanwhile is overruled: an update is in progress.
        Cordon::None | Cordon::Ours => CordonOrigin::Made,
        Cordon::Foreign => CordonOrigin::Found,
    };
    match of_this_request {
        Some(record) if cordon != Cordon::None => DrainDecision::Evict(record.clone()),
        _ => {
            // Load balancers were waited for by the drain that goes on under another request.
            let marks = record.as_ref().map(|record| record.marks).unwrap_or_default();
            let waits = record.as_ref().and_then(|record| record.evict_after);
            DrainDecision::Cordon(DrainRecord {
                request: request.to_owned(),
                since: unfinished(node, record).map_or(now, |record| record.since),
                cordon: origin,
                waiting_for: None,
                marks: preparation.marks(node, marks),
                evict_after: waits.or_else(|| preparation.evict_after(node, now)),
            })
        }
    }
}

/// Returns the record of a drain that has started and not completed. Its timeout continues when the node gets another
/// target meanwhile: a blocker of the one drain also blocks the other, and must be reported an hour after the start.
fn unfinished(node: &Node, record: Option<DrainRecord>) -> Option<DrainRecord> {
    record.filter(|record| last_applied(node) != record.request)
}

fn uncordon(node: &Node, request: &str) -> DrainDecision {
    DrainDecision::Uncordon {
        request: request.to_owned(),
        lift: match cordon::of_node(node) {
            Cordon::Ours => Lift::Cordon,
            Cordon::None | Cordon::Foreign => Lift::Nothing,
        },
        marks: DrainRecord::of_node(node)
            .map(|record| record.marks.present(node))
            .unwrap_or_default(),
    }
}

/// Returns the action for a record without a pending request. A cancelled drain ends with an uncordon request that
/// may equal the last completed one, so it must not count as completed.
fn left_over(node: &Node) -> DrainDecision {
    let Some(record) = DrainRecord::of_node(node) else {
        return DrainDecision::Nothing;
    };
    let done = last_applied(node);
    match DrainVerb::of(done) {
        Some(DrainVerb::Uncordon) => uncordon(node, done),
        _ if record.cordon == CordonOrigin::Made && cordon::of_node(node) == Cordon::None => {
            DrainDecision::Disown(DrainRecord {
                cordon: CordonOrigin::Found,
                ..record
            })
        }
        _ => DrainDecision::Nothing,
    }
}

fn pending(node: &Node) -> Option<&str> {
    NodeAnnotations::of_node(node).pending_drain_request()
}

fn last_applied(node: &Node) -> &str {
    NodeAnnotations::of_node(node)
        .last_applied_drain
        .unwrap_or_default()
}
