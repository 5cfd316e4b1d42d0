//! What a RolloutPolicy adds to a cordon: the node is taken out of load balancers and protected from the autoscaler.
//!
//! Both are marks that other clients may set for their own reasons, so the drain record remembers which of them are
//! ours, and only those are removed again.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use mco_api::rollout_policy::DrainRules;
use mco_api::vocabulary::annotations::SCALE_DOWN_DISABLED;
use mco_api::vocabulary::labels::node::EXCLUDE_FROM_LOAD_BALANCERS;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::rollout::policy::duration_of;

/// The value of both marks.
const TRUE: &str = "true";

/// What is done with a node when it is cordoned for a drain. The default is nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DrainPreparation {
    /// Exclude the node from external load balancers, and wait this long before the first eviction.
    pub exclude_from_load_balancers: Option<Duration>,
    /// Keep the cluster autoscaler from removing the node, which looks unused while it is drained.
    pub protect_from_autoscaler: bool,
}

/// The marks on a node that are ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DrainMarks {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub excluded_from_load_balancers: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub protected_from_autoscaler: bool,
}

impl DrainPreparation {
    pub fn of_rules(rules: Option<&DrainRules>) -> Self {
        let Some(rules) = rules else {
            return Self::default();
        };
        Self {
            exclude_from_load_balancers: duration_of(&rules.exclude_from_load_balancers),
            protect_from_autoscaler: rules.protect_from_autoscaler,
        }
    }

    /// Returns the marks that are ours once the node is cordoned: those of an earlier record, and those that are
    /// missing now.
    pub(super) fn marks(self, node: &Node, earlier: DrainMarks) -> DrainMarks {
        let excludes = self.exclude_from_load_balancers.is_some();
        DrainMarks {
            excluded_from_load_balancers: earlier.excluded_from_load_balancers
                || (excludes && label(node).is_none()),
            protected_from_autoscaler: earlier.protected_from_autoscaler
                || (self.protect_from_autoscaler && annotation(node).is_none()),
        }
    }

    /// Returns when evictions may begin. A node that was excluded before does not wait.
    pub(super) fn evict_after(self, node: &Node, now: Timestamp) -> Option<Timestamp> {
        let wait = self.exclude_from_load_balancers?;
        let waits = label(node).is_none() && !wait.is_zero();
        waits.then(|| now.checked_add(wait).ok()).flatten()
    }
}

impl DrainMarks {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the labels and annotations of the marks for a merge patch, each with this value.
    fn metadata(self, value: &Value) -> Value {
        let mut metadata = json!({});
        if self.excluded_from_load_balancers {
            metadata["labels"] = json!({EXCLUDE_FROM_LOAD_BALANCERS: value});
        }
        if self.protected_from_autoscaler {
            metadata["annotations"] = json!({SCALE_DOWN_DISABLED: value});
        }
        json!({"metadata": metadata})
    }

    /// Returns the merge patch that sets the marks.
    pub fn set(self) -> Value {
        self.metadata(&json!(TRUE))
    }

    /// Returns the marks of a record that the node still has as they were set. Another client may have changed them.
    #[must_use]
    pub fn present(self, node: &Node) -> Self {
        Self {
            excluded_from_load_balancers: self.excluded_from_load_balancers && label(node) == Some(TRUE),
            protected_from_autoscaler: self.protected_from_autoscaler && annotation(node) == Some(TRUE),
        }
    }

    /// Returns the merge patch that removes the marks.
    pub fn remove(self) -> Value {
        self.metadata(&Value::Null)
    }
}

fn label(node: &Node) -> Option<&str> {
    let labels = node.metadata.labels.as_ref()?;
    labels.get(EXCLUDE_FROM_LOAD_BALANCERS).map(String::as_str)
}

fn annotation(node: &Node) -> Option<&str> {
    let annotations = node.metadata.annotations.as_ref()?;
    annotations.get(SCALE_DOWN_DISABLED).map(String::as_str)
}
