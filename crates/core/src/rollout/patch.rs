//! The patch that executes a plan's actions for a node in one write.

use k8s_openapi::api::core::v1::{Node, Taint};
use mco_api::vocabulary::annotations::{CONFIRM_DEADLINE, REBOOT_LOCK, REBOOT_REQUEST, node as annotation};
use mco_api::vocabulary::taints::{self, effect};
use serde_json::{Map, Value, json};

use super::plan::NodeAction;
use super::reboot_lock;

/// Returns a merge patch of the Node for all these actions together; `None` if it would change nothing.
///
/// Taints are one list with other writers, so a patch that changes it carries the resource version it is based on,
/// and fails with a conflict after a concurrent write.
pub fn merge_patch<'p>(node: &Node, actions: impl IntoIterator<Item = &'p NodeAction>) -> Option<Value> {
    let mut patch = NodePatch::of(node);
    for action in actions {
        match action {
            NodeAction::SetDesired {
                config,
                image,
                confirm_deadline,
                ..
            } => {
                patch.annotate(CONFIRM_DEADLINE, confirm_deadline.as_deref());
                patch.annotate(annotation::DESIRED_CONFIG, Some(config));
                patch.annotate(annotation::DESIRED_IMAGE, image.as_deref());
            }
            NodeAction::SetControlPlaneTopology { topology, .. } => {
                patch.annotate(annotation::CONTROL_PLANE_TOPOLOGY, Some(topology));
            }
            NodeAction::GrantReboot { .. } => {
                patch.annotate(REBOOT_LOCK, Some(reboot_lock::GRANTED));
                patch.annotate(REBOOT_REQUEST, None);
            }
            NodeAction::SetConfirmDeadline { deadline, .. } => {
                patch.annotate(CONFIRM_DEADLINE, deadline.as_deref());
            }
            NodeAction::JoinPool { labels, .. } => {
                patch.annotate(annotation::CUSTOM_POOL_LABELS_APPLIED, Some(""));
                for (key, value) in labels {
                    patch.label(key, value);
                }
            }
            NodeAction::AddUpdateTaint { .. } => patch.taint(),
            NodeAction::RemoveUpdateTaint { .. } => patch.untaint(),
        }
    }
    patch.finish()
}

struct NodePatch<'a> {
    node: &'a Node,
    annotations: Map<String, Value>,
    labels: Map<String, Value>,
    taints: Vec<Taint>,
    taints_changed: bool,
}

impl<'a> NodePatch<'a> {
    fn of(node: &'a Node) -> Self {
        Self {
            node,
            annotations: Map::new(),
            labels: Map::new(),
            taints: node
                .spec
                .as_ref()
                .and_then(|spec| spec.taints.clone())
                .unwrap_or_default(),
            taints_changed: false,
        }
    }

    fn annotate(&mut self, key: &str, value: Option<&str>) {
        let present = self
            .node
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(key));
        if present.map(String::as_str) != value {
            self.annotations.insert(key.to_owned(), json!(value));
        }
    }

    fn label(&mut self, key: &str, value: &str) {
        let present = self.node.metadata.labels.as_ref().and_then(|all| all.get(key));
        if present.map(String::as_str) != Some(value) {
            self.labels.insert(key.to_owned(), json!(value));
        }
    }

    fn taint(&mut self) {
        let is_there = |taint: &Taint| taint.key == taints::UPDATE_IN_PROGRESS;
        if !self.taints.iter().any(is_there) {
            self.taints.push(Taint {
                key: taints::UPDATE_IN_PROGRESS.to_owned(),
                effect: effect::PREFER_NO_SCHEDULE.to_owned(),
                ..Taint::default()
            });
            self.taints_changed = true;
        }
    }

    fn untaint(&mut self) {
        let before = self.taints.len();
        self.taints
            .retain(|taint| taint.key != taints::UPDATE_IN_PROGRESS);
        self.taints_changed |= self.taints.len() != before;
    }

    fn finish(self) -> Option<Value> {
        let mut metadata = Map::new();
        if !self.annotations.is_empty() {
            metadata.insert("annotations".to_owned(), self.annotations.into());
        }
        if !self.labels.is_empty() {
            metadata.insert("labels".to_owned(), self.labels.into());
        }
        if !self.taints_changed {
            return (!metadata.is_empty()).then(|| json!({"metadata": metadata}));
        }
        if let Some(version) = &self.node.metadata.resource_version {
            metadata.insert("resourceVersion".to_owned(), json!(version));
        }
        let taints = Some(self.taints).filter(|taints| !taints.is_empty());
        Some(json!({"metadata": metadata, "spec": {"taints": taints}}))
    }
}
