//! What is not kept of watched objects, because nobody here reads it and a cluster has thousands of them.

use k8s_openapi::api::core::v1::Node;
use mco_api::MachineConfigNode;
use mco_api::vocabulary::annotations;
use mco_api::vocabulary::conditions::machine_config_node as condition;

/// The beginning of all annotations that we read.
const OWN_ANNOTATIONS: &str = "machineconfiguration.openshift.io/";

pub(crate) fn nothing<K>(_: &mut K) {}

/// The list of a node's images alone is larger than everything else about it.
pub(crate) fn node(node: &mut Node) {
    if let Some(annotations) = &mut node.metadata.annotations {
        annotations.retain(|key, _| key.starts_with(OWN_ANNOTATIONS));
        annotations.remove(annotations::node::LAST_SYNCED_CONTROLLER_CONFIG);
    }
    if let Some(status) = &mut node.status {
        let mut conditions = status.conditions.take();
        for condition in conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
            condition.message = None;
        }
        *status = k8s_openapi::api::core::v1::NodeStatus {
            conditions,
            ..k8s_openapi::api::core::v1::NodeStatus::default()
        };
    }
}

/// A pool's status shows failures and images; the steps are for people, who read the object itself.
pub(crate) fn machine_config_node(node: &mut MachineConfigNode) {
    if let Some(status) = &mut node.status {
        status
            .conditions
            .retain(|entry| entry.type_ == condition::NODE_DEGRADED);
        status.irreconcilable_changes.clear();
        status.internal_release_image = None;
    }
}
