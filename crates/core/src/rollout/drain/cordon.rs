//! Cordon ownership. The controller writes a record when it cordons a node, and only uncordons its own cordons. The
//! record also holds the start of the drain, so that timeouts survive a restart of the controller. Another
//! implementation writes no record; there the API server's managed fields name the client that cordoned the node.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::preparation::DrainMarks;
use super::request::DrainVerb;
use crate::rollout::NodeAnnotations;

/// The owner of a node's cordon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cordon {
    /// The node is not cordoned.
    None,
    /// The controller, for an update.
    Ours,
    /// An administrator or another program. Never uncordoned by us.
    Foreign,
}

/// The controller's record of a drain, stored in an annotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainRecord {
    /// The drain request of this record.
    pub request: String,
    /// The start of the drain.
    pub since: Timestamp,
    /// Whether the controller cordoned the node for the drain, or it was cordoned before.
    pub cordon: CordonOrigin,
    /// What blocks the drain, if anything does.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting_for: Option<String>,
    /// What was set on the node besides the cordon.
    #[serde(skip_serializing_if = "DrainMarks::is_empty", default)]
    pub marks: DrainMarks,
    /// When evictions may begin, if load balancers are waited for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evict_after: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CordonOrigin {
    /// The controller cordoned the node.
    Made,
    /// The node was already cordoned, or our cordon was removed by another client.
    Found,
}

impl DrainRecord {
    pub fn of_node(node: &Node) -> Option<Self> {
        NodeAnnotations::of_node(node).drain_record()
    }

    /// Parses the annotation's value; `None` if another version wrote something else.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Serializes the record as the annotation's value.
    pub fn to_annotation(&self) -> String {
        serde_json::json!(self).to_string()
    }
}

/// The field managers that cordon a node only to drain it for an update: the Go implementation's controller, its
/// daemon (in older releases), and our controller.
pub const UPDATE_MANAGERS: [&str; 3] = [
    "machine-config-controller",
    "machine-config-daemon",
    DRAIN_MANAGER,
];

/// The field manager of our drain controller's writes.
pub const DRAIN_MANAGER: &str = "machine-config-controller-drain";

/// Returns the owner of a node's cordon.
///
/// The API server's managed fields name the client that set `spec.unschedulable` last. A client other than the
/// update's makes the cordon foreign even with a record of ours, which is then left over from an earlier cordon. For
/// the update's own client the cordon is ours, unless our record shows that the node was cordoned before. This is
/// what finishes a drain that another implementation began: it cordons only for a drain request and keeps no record.
///
/// Without managed fields, a finished drain that no request has undone is attributed to another implementation; every
/// other cordon without a record is foreign.
pub fn of_node(node: &Node) -> Cordon {
    let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable);
    if !unschedulable.unwrap_or(false) {
        return Cordon::None;
    }
    let record = DrainRecord::of_node(node).map(|record| record.cordon);
    match (record, CordonClient::of_node(node)) {
        (Some(CordonOrigin::Found), _) | (_, CordonClient::Other) => Cordon::Foreign,
        (Some(CordonOrigin::Made), _) | (None, CordonClient::Update) => Cordon::Ours,
        (None, CordonClient::Unknown) => {
            let last = NodeAnnotations::of_node(node).last_applied_drain;
            match last.and_then(DrainVerb::of) {
                Some(DrainVerb::Drain) => Cordon::Ours,
                _ => Cordon::Foreign,
            }
        }
    }
}

/// Whether a managed fields entry owns `spec.unschedulable`.
pub fn owns_unschedulable(entry: &ManagedFieldsEntry) -> bool {
    let fields = entry.fields_v1.as_ref();
    fields.is_some_and(|fields| fields.0.pointer("/f:spec/f:unschedulable").is_some())
}

/// The kind of client that made a node unschedulable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CordonClient {
    /// A controller that cordons only for updates.
    Update,
    /// Any other client.
    Other,
    /// The node has no managed fields for it.
    Unknown,
}

impl CordonClient {
    fn of_node(node: &Node) -> Self {
        let entries = node.metadata.managed_fields.iter().flatten();
        let mut owners = entries.filter(|entry| owns_unschedulable(entry)).peekable();
        if owners.peek().is_none() {
            return Self::Unknown;
        }
        let is_update = |entry: &ManagedFieldsEntry| {
            let manager = entry.manager.as_deref().unwrap_or_default();
            UPDATE_MANAGERS.contains(&manager)
        };
        if owners.all(is_update) {
            Self::Update
        } else {
            Self::Other
        }
    }
}
