//! Whose cordon it is. Nodes do not say who made them unschedulable, so the controller leaves a record when it does,
//! and lifts only what the record says is its own. The record also carries the start of the drain, so that no clock
//! starts again when the controller does.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use mco_api::vocabulary::annotations::node as annotation;
use serde::{Deserialize, Serialize};

use super::request::Verb;

/// Who keeps new work away from a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cordon {
    /// Nobody; the node takes work.
    None,
    /// The controller, for an update.
    Ours,
    /// A person or another program. Never to be lifted by us.
    Foreign,
}

/// What the controller remembers about a drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainRecord {
    /// The request this is about.
    pub request: String,
    /// When the work on it began.
    pub since: Timestamp,
    /// Whether the node was cordoned for it, or was found so.
    pub cordon: CordonOrigin,
    /// What keeps the drain from finishing, once something does.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting_for: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CordonOrigin {
    /// The controller cordoned the node.
    Made,
    /// The node was cordoned already, or somebody has lifted our cordon since.
    Found,
}

impl DrainRecord {
    pub fn of_node(node: &Node) -> Option<Self> {
        Self::of_annotations(node.metadata.annotations.as_ref()?)
    }

    fn of_annotations(annotations: &BTreeMap<String, String>) -> Option<Self> {
        serde_json::from_str(annotations.get(annotation::DRAIN_RECORD)?).ok()
    }

    /// What the drain waits for that a node with these annotations asks for; `None` when it is finished or nothing is in
    /// its way.
    pub fn obstacle(annotations: &BTreeMap<String, String>) -> Option<String> {
        let asked = annotations.get(annotation::DESIRED_DRAIN)?;
        let pending = annotations.get(annotation::LAST_APPLIED_DRAIN) != Some(asked);
        Self::of_annotations(annotations)
            .filter(|record| pending && record.request == *asked)?
            .waiting_for
    }

    /// The annotation's value.
    pub fn to_annotation(&self) -> String {
        serde_json::json!(self).to_string()
    }
}

/// Whose cordon a node has.
///
/// Without a record, a finished drain that nobody has asked to undo is taken for the work of a predecessor that kept
/// none: it cordoned the node. Everything else without a record is somebody else's. (Somebody who lifts our cordon and
/// makes their own before the controller has looked cannot be told from us.)
pub fn of_node(node: &Node) -> Cordon {
    let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable);
    if !unschedulable.unwrap_or(false) {
        return Cordon::None;
    }
    let annotations = node.metadata.annotations.as_ref();
    match DrainRecord::of_node(node).map(|record| record.cordon) {
        Some(CordonOrigin::Made) => Cordon::Ours,
        Some(CordonOrigin::Found) => Cordon::Foreign,
        None => {
            let last = annotations.and_then(|all| all.get(annotation::LAST_APPLIED_DRAIN));
            match last.and_then(|request| Verb::of(request)) {
                Some(Verb::Drain) => Cordon::Ours,
                _ => Cordon::Foreign,
            }
        }
    }
}
