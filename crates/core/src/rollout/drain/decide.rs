//! The controller's side of the annotation protocol: what one Node asks for now.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use mco_api::vocabulary::annotations::node as annotation;
use serde_json::{Value, json};

use super::cordon::{self, Cordon, CordonOrigin, DrainRecord};
use super::request::{DrainVerb, RequestError};
use crate::rollout::NodeAnnotations;

/// What to do for a node. Each variant that writes is one write, see [`Decision::patch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// All that was asked for is done.
    Nothing,
    /// Keep new work away and remember since when and by whom. Evicting comes with the next look at the node.
    Cordon(DrainRecord),
    /// Move its pods away.
    Evict(DrainRecord),
    /// Somebody let work in again after the drain. That is their right when an update has failed; remember that
    /// whatever cordon comes next is not ours.
    Disown(DrainRecord),
    /// Report the node as given back; lift the cordon if it is ours.
    Uncordon { request: String, lift: Lift },
}

/// What happens to the cordon of a node that is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lift {
    Cordon,
    /// There is none, or it is not ours to lift.
    Nothing,
}

/// How a drain ends once all pods are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completion {
    /// Tell the daemon. The write must fail if the node has changed since it was read.
    Report { request: String },
    /// New work was let in again meanwhile, or another request came; look at the node again.
    Overtaken,
}

/// What this node asks for now.
pub fn decide(node: &Node, now: Timestamp) -> Result<Decision, RequestError> {
    let Some(request) = pending(node) else {
        return Ok(left_over(node));
    };
    let verb = DrainVerb::of(request).ok_or_else(|| RequestError {
        node: node.metadata.name.clone().unwrap_or_default(),
        request: request.to_owned(),
    })?;
    Ok(match verb {
        DrainVerb::Drain => drain(node, request, now),
        DrainVerb::Uncordon => give_back(node, request),
    })
}

/// Whether the drain that `record` is about can be reported as done, by a fresh look at the node.
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

impl Decision {
    /// The merge patch of the Node; `None` for what writes nothing.
    pub fn patch(&self) -> Option<Value> {
        match self {
            Self::Nothing | Self::Evict(_) => None,
            // What was done before no longer holds. Were it left, a daemon that calls the drain off would find its
            // request to uncordon answered before anybody has read it.
            Self::Cordon(record) => Some(json!({
                "metadata": {"annotations": {
                    annotation::DRAIN_RECORD: record.to_annotation(),
                    annotation::LAST_APPLIED_DRAIN: null,
                }},
                "spec": {"unschedulable": true},
            })),
            Self::Disown(record) => Some(json!({
                "metadata": {"annotations": {annotation::DRAIN_RECORD: record.to_annotation()}},
            })),
            Self::Uncordon { request, lift } => {
                let annotations =
                    json!({annotation::LAST_APPLIED_DRAIN: request, annotation::DRAIN_RECORD: null});
                let mut patch = json!({"metadata": {"annotations": annotations}});
                if *lift == Lift::Cordon {
                    patch["spec"] = json!({"unschedulable": null});
                }
                Some(patch)
            }
        }
    }
}

impl Completion {
    /// The merge patch of the Node; `None` when nothing may be reported.
    pub fn patch(&self) -> Option<Value> {
        match self {
            Self::Overtaken => None,
            Self::Report { request } => {
                Some(json!({"metadata": {"annotations": {annotation::LAST_APPLIED_DRAIN: request}}}))
            }
        }
    }
}

fn drain(node: &Node, request: &str, now: Timestamp) -> Decision {
    let record = DrainRecord::of_node(node);
    let cordon = cordon::of_node(node);
    let of_this_request = record.as_ref().filter(|record| record.request == request);
    let origin = match cordon {
        // Whoever let work in again meanwhile is overruled: an update is under way.
        Cordon::None | Cordon::Ours => CordonOrigin::Made,
        Cordon::Foreign => CordonOrigin::Found,
    };
    match of_this_request {
        Some(record) if cordon != Cordon::None => Decision::Evict(record.clone()),
        _ => Decision::Cordon(DrainRecord {
            request: request.to_owned(),
            since: unfinished(node, record).map_or(now, |record| record.since),
            cordon: origin,
            waiting_for: None,
        }),
    }
}

/// A drain that has begun and not ended. Its clock goes on when the node is sent elsewhere meanwhile: whatever is in the
/// way of the one drain is in the way of the other, and somebody has to hear of it an hour after it began.
fn unfinished(node: &Node, record: Option<DrainRecord>) -> Option<DrainRecord> {
    record.filter(|record| last_applied(node) != record.request)
}

fn give_back(node: &Node, request: &str) -> Decision {
    Decision::Uncordon {
        request: request.to_owned(),
        lift: match cordon::of_node(node) {
            Cordon::Ours => Lift::Cordon,
            Cordon::None | Cordon::Foreign => Lift::Nothing,
        },
    }
}

/// What a record still asks for when no request does. A drain that was called off half-way ends with a request to
/// uncordon that may read exactly like the last one that was done, so it must not be taken for done.
fn left_over(node: &Node) -> Decision {
    let Some(record) = DrainRecord::of_node(node) else {
        return Decision::Nothing;
    };
    let done = last_applied(node);
    match DrainVerb::of(done) {
        Some(DrainVerb::Uncordon) => give_back(node, done),
        _ if record.cordon == CordonOrigin::Made && cordon::of_node(node) == Cordon::None => {
            Decision::Disown(DrainRecord {
                cordon: CordonOrigin::Found,
                ..record
            })
        }
        _ => Decision::Nothing,
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
