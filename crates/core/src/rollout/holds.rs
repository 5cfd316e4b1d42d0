//! Annotations of a Node with which any client holds its update back: `mco.dev/hold.<name>`.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use k8s_openapi::jiff::Timestamp;
use mco_api::vocabulary::annotations::HOLD_PREFIX;
use serde::{Deserialize, Serialize};

use super::policy::in_words;

/// One annotation that holds a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeHold {
    /// The rest of the annotation's key.
    pub name: String,
    /// The annotation's value, which may name a reason.
    pub reason: String,
    /// When it was set, by the record of its writer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub since: Option<Timestamp>,
}

/// Returns the holds of a node, by name.
pub fn of_node(node: &Node) -> Vec<NodeHold> {
    let annotations = node.metadata.annotations.iter().flatten();
    let holds = annotations.filter_map(|(key, value)| {
        let name = key.strip_prefix(HOLD_PREFIX)?;
        let since = node
            .metadata
            .managed_fields
            .iter()
            .flatten()
            .filter(|entry| owns(entry, key))
            .filter_map(|entry| Some(entry.time.as_ref()?.0))
            .max();
        Some(NodeHold {
            name: name.to_owned(),
            reason: value.clone(),
            since,
        })
    });
    holds.collect()
}

/// Whether the entry records a writer of any hold.
pub fn owns_a_hold(entry: &ManagedFieldsEntry) -> bool {
    annotations_of(entry).is_some_and(|fields| {
        let mut keys = fields.keys();
        keys.any(|key| {
            key.strip_prefix("f:")
                .is_some_and(|key| key.starts_with(HOLD_PREFIX))
        })
    })
}

fn owns(entry: &ManagedFieldsEntry, key: &str) -> bool {
    annotations_of(entry).is_some_and(|fields| fields.contains_key(&format!("f:{key}")))
}

fn annotations_of(entry: &ManagedFieldsEntry) -> Option<&serde_json::Map<String, serde_json::Value>> {
    let fields = &entry.fields_v1.as_ref()?.0;
    fields.get("f:metadata")?.get("f:annotations")?.as_object()
}

impl NodeHold {
    /// Formats the hold with its age.
    pub fn at(&self, now: Timestamp) -> String {
        let age = self
            .since
            .map(|since| format!(" for {}", in_words(now.duration_since(since))));
        let reason = if self.reason.is_empty() {
            String::new()
        } else {
            format!(": {}", self.reason)
        };
        format!("{HOLD_PREFIX}{}{}{reason}", self.name, age.unwrap_or_default())
    }
}

impl std::fmt::Display for NodeHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{HOLD_PREFIX}{}", self.name)?;
        if let Some(since) = self.since {
            write!(f, " since {since:.0}")?;
        }
        if self.reason.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.reason)
        }
    }
}
