//! Removes from watched objects what no controller reads, because a cluster has thousands of them.

use k8s_openapi::api::core::v1::{Node, NodeSystemInfo};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use kube::Resource;
use mco_api::MachineConfigNode;
use mco_api::vocabulary::annotations;
use mco_api::vocabulary::conditions::machine_config_node as condition;
use mco_core::rollout::drain::cordon;
use mco_core::rollout::holds;
use serde_json::json;

/// The prefix of most annotations of Nodes that the controllers read.
const OWN_ANNOTATIONS: &str = "machineconfiguration.openshift.io/";
/// The others, besides holds.
const OTHER_ANNOTATIONS: [&str; 4] = [
    annotations::ADOPTION_REQUEST,
    annotations::CONFIRM_DEADLINE,
    annotations::REBOOT_REQUEST,
    annotations::SCALE_DOWN_DISABLED,
];

/// Removes the managed fields.
pub(crate) fn without_managed_fields<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}

/// Keeps labels, our annotations, spec, conditions and the versions of kubelet and runtime of a Node; its list of images alone is larger than everything
/// else. Of the managed fields only the owner of the cordon is kept, see [`cordon::of_node`].
pub(crate) fn node(node: &mut Node) {
    let entries = node.metadata.managed_fields.take().unwrap_or_default();
    let owners: Vec<ManagedFieldsEntry> = entries
        .into_iter()
        .filter_map(
            |entry| match (cordon::owns_unschedulable(&entry), holds::owns_a_hold(&entry)) {
                (false, false) => None,
                (true, false) => Some(ManagedFieldsEntry {
                    manager: entry.manager,
                    fields_v1: Some(FieldsV1(json!({"f:spec": {"f:unschedulable": {}}}))),
                    ..ManagedFieldsEntry::default()
                }),
                // The time of a hold is shown; few nodes have one.
                (_, true) => Some(entry),
            },
        )
        .collect();
    node.metadata.managed_fields = (!owners.is_empty()).then_some(owners);
    if let Some(annotations) = &mut node.metadata.annotations {
        annotations.retain(|key, _| {
            let has_prefix = key.starts_with(OWN_ANNOTATIONS) || key.starts_with(annotations::HOLD_PREFIX);
            has_prefix || OTHER_ANNOTATIONS.contains(&key.as_str())
        });
        annotations.remove(annotations::node::LAST_SYNCED_CONTROLLER_CONFIG);
    }
    if let Some(status) = &mut node.status {
        let mut conditions = status.conditions.take();
        for condition in conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
            condition.message = None;
        }
        let node_info = status.node_info.take().map(|info| NodeSystemInfo {
            kubelet_version: info.kubelet_version,
            container_runtime_version: info.container_runtime_version,
            ..NodeSystemInfo::default()
        });
        *status = k8s_openapi::api::core::v1::NodeStatus {
            conditions,
            node_info,
            ..k8s_openapi::api::core::v1::NodeStatus::default()
        };
    }
}

/// Keeps what a pool's status shows, which is updates, failures and pinned images.
pub(crate) fn machine_config_node(node: &mut MachineConfigNode) {
    without_managed_fields(node);
    if let Some(status) = &mut node.status {
        let kept = [condition::UPDATED, condition::NODE_DEGRADED];
        status
            .conditions
            .retain(|entry| kept.contains(&entry.type_.as_str()));
        status.irreconcilable_changes.clear();
        status.internal_release_image = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests to release a node were removed here, so that it was still updated.
    #[test]
    fn annotations_that_decide_about_a_node_are_kept() {
        let kept = [
            "machineconfiguration.openshift.io/currentConfig",
            "mco.dev/hold.storage",
            "mco.dev/hold.fleetlock",
            "mco.dev/adoption-request",
            "mco.dev/confirm-deadline",
            "mco.dev/reboot-request",
            "cluster-autoscaler.kubernetes.io/scale-down-disabled",
        ];
        let mut object = Node::default();
        let all = kept.iter().chain(&["mco.dev/drift", "example.com/other"]);
        object.metadata.annotations = Some(all.map(|key| ((*key).to_owned(), "x".to_owned())).collect());
        node(&mut object);
        let left = object.metadata.annotations.unwrap_or_default();
        assert!(kept.iter().all(|key| left.contains_key(*key)), "{left:?}");
        assert_eq!(left.len(), kept.len(), "{left:?}");
    }
}
