//! What an uninstall has to restore in the users' and the cluster's own objects: annotations, taint and cordon of nodes,
//! and finalizers that no controller would remove any more.
//!
//! Pure; `mco uninstall` reads and writes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::NodeAdoption;
use mco_api::vocabulary::annotations::{CONFIRM_DEADLINE, DRIFT, DRIFT_POLICY};
use mco_api::vocabulary::taints::UPDATE_IN_PROGRESS;
use mco_core::rollout::drain::{Cordon, DrainRecord};
use mco_core::rollout::{NodeAnnotations, NodeView};
use serde_json::{Map, Value, json};

/// The prefixes of our annotations on nodes.
const ANNOTATION_GROUPS: [&str; 2] = ["machineconfiguration.openshift.io", "mco.dev"];
/// Annotations that administrators write.
const SETTINGS: [&str; 1] = [DRIFT_POLICY];

/// Returns the merge patch that removes our annotations, our taint and our cordon from a node; `None` if it has none.
/// Labels stay, because workloads select nodes by them, and so do the administrators' own cordons and settings.
pub fn clean_node(node: &Node) -> Option<Value> {
    let marks = DrainRecord::of_node(node).map(|record| record.marks.present(node));
    let marks = marks.unwrap_or_default().remove();
    let mut metadata = marks["metadata"].as_object().cloned().unwrap_or_default();
    let mut spec = Map::new();
    let annotations = node.metadata.annotations.iter().flatten();
    let mut removed: Map<String, Value> = annotations
        .filter(|(key, _)| is_ours(key))
        .map(|(key, _)| (key.clone(), Value::Null))
        .collect();
    if let Some(Value::Object(marks)) = metadata.remove("annotations") {
        removed.extend(marks);
    }
    if !removed.is_empty() {
        metadata.insert("annotations".to_owned(), removed.into());
    }
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    let taints = taints.unwrap_or_default();
    let kept: Vec<_> = taints
        .iter()
        .filter(|taint| taint.key != UPDATE_IN_PROGRESS)
        .collect();
    if kept.len() < taints.len() {
        spec.insert("taints".to_owned(), json!(kept));
    }
    if NodeView::new(node).cordon() == Cordon::Ours {
        spec.insert("unschedulable".to_owned(), Value::Null);
    }
    if metadata.is_empty() && spec.is_empty() {
        return None;
    }
    // Taints and cordon are shared with other writers: after a concurrent write the decision has to be made again.
    metadata.insert(
        "resourceVersion".to_owned(),
        json!(node.metadata.resource_version),
    );
    let mut patch = json!({"metadata": metadata});
    if !spec.is_empty() {
        patch["spec"] = spec.into();
    }
    Some(patch)
}

fn is_ours(key: &str) -> bool {
    let group = key.split_once('/').map_or("", |(group, _)| group);
    (ANNOTATION_GROUPS.contains(&group) || [DRIFT, CONFIRM_DEADLINE].contains(&key))
        && !SETTINGS.contains(&key)
}

/// Returns the nodes that were adopted and not released: without a daemon nothing restores what they had before.
pub fn adopted(nodes: &[Node], adoptions: &[NodeAdoption]) -> Vec<String> {
    let managed: BTreeSet<&str> = nodes
        .iter()
        .filter(|node| NodeAnnotations::of_node(node).current_config.is_some())
        .filter_map(|node| node.metadata.name.as_deref())
        .collect();
    let mut names: Vec<String> = adoptions
        .iter()
        .filter(|adoption| {
            let phase = adoption.status.as_ref().map(|status| status.phase.as_str());
            // The last request of an adopted node may have failed.
            matches!(phase, Some("Adopted" | "Failed"))
        })
        .filter_map(|adoption| adoption.metadata.name.clone())
        .filter(|name| managed.contains(name.as_str()))
        .collect();
    names.sort_unstable();
    names
}

/// Returns the merge patch that removes the finalizers of a KubeletConfig or ContainerRuntimeConfig that name the
/// MachineConfigs generated from it; `None` if it has none.
pub fn release_settings(metadata: &ObjectMeta) -> Option<Value> {
    let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
    let is_generated = |name: &str| {
        name.starts_with("99-")
            && (name.contains("-generated-kubelet") || name.contains("-generated-containerruntime"))
    };
    let others: Vec<&String> = finalizers.iter().filter(|name| !is_generated(name)).collect();
    (others.len() < finalizers.len())
        .then(|| json!({"metadata": {"finalizers": others, "resourceVersion": metadata.resource_version}}))
}

/// Returns whether a kubelet that terminates pods is likely to respond: the node exists and is Ready.
pub fn has_kubelet(pod: &Pod, ready: &BTreeSet<String>) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    node.is_some_and(|node| ready.contains(node))
}

/// Returns the names of the nodes whose kubelet reports Ready, cordoned ones included.
pub fn ready_nodes(nodes: &[Node]) -> BTreeSet<String> {
    let ready = nodes.iter().filter(|node| is_ready(node));
    ready.filter_map(|node| node.metadata.name.clone()).collect()
}

/// Returns whether a node's kubelet reports Ready, regardless of cordons.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn nodes_that_were_adopted_and_not_released_are_named() {
        let managed = json!({"machineconfiguration.openshift.io/currentConfig": "a"});
        let nodes: Vec<Node> = ["adopted", "failed", "installed", "compared"]
            .map(|name| node(json!({"metadata": {"name": name, "annotations": managed}})))
            .into();
        let released = node(json!({"metadata": {"name": "released"}}));
        let nodes: Vec<Node> = nodes.into_iter().chain([released]).collect();
        let adoptions: Vec<NodeAdoption> = [
            ("failed", "Failed"),
            ("adopted", "Adopted"),
            ("compared", "Compared"),
            ("released", "Released"),
            ("deleted", "Adopted"),
        ]
        .map(|(name, phase)| {
            let value = json!({"metadata": {"name": name}, "spec": {}, "status": {"phase": phase}});
            serde_json::from_value(value).unwrap()
        })
        .into();
        assert_eq!(adopted(&nodes, &adoptions), ["adopted", "failed"]);
    }

    #[test]
    fn a_node_keeps_what_is_not_ours() {
        let record = json!({"since": "2026-01-01T00:00:00Z", "request": "drain-b", "cordon": "made",
                "marks": {"excludedFromLoadBalancers": true, "protectedFromAutoscaler": true}})
        .to_string();
        let ours = node(json!({
            "metadata": {"name": "n", "resourceVersion": "7", "labels": {
                "node.kubernetes.io/exclude-from-external-load-balancers": "true",
            }, "annotations": {
                "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
                "mco.dev/confirm-deadline": "15m",
                "machineconfiguration.openshift.io/currentConfig": "a",
                "machineconfiguration.openshift.io/drain-record": record,
                "machineconfiguration.openshift.io/drift-policy": "heal",
                "mco.dev/drift": "[]",
                "node.alpha.kubernetes.io/ttl": "0",
            }},
            "spec": {"unschedulable": true, "taints": [
                {"key": "UpdateInProgress", "effect": "PreferNoSchedule"},
                {"key": "dedicated", "effect": "NoSchedule"},
            ]},
        }));
        let patch = clean_node(&ours).unwrap();
        assert_eq!(
            patch["metadata"],
            json!({"resourceVersion": "7", "labels": {
                "node.kubernetes.io/exclude-from-external-load-balancers": null,
            }, "annotations": {
                "cluster-autoscaler.kubernetes.io/scale-down-disabled": null,
                "mco.dev/confirm-deadline": null,
                "machineconfiguration.openshift.io/currentConfig": null,
                "machineconfiguration.openshift.io/drain-record": null,
                "mco.dev/drift": null,
            }})
        );
        assert_eq!(
            patch["spec"],
            json!({"unschedulable": null, "taints": [{"key": "dedicated", "effect": "NoSchedule"}]})
        );
        let foreign = node(json!({
            "metadata": {"name": "n", "annotations": {"node.alpha.kubernetes.io/ttl": "0"}},
            "spec": {"unschedulable": true, "taints": [{"key": "dedicated", "effect": "NoSchedule"}]},
        }));
        assert_eq!(clean_node(&foreign), None);
    }

    #[test]
    fn only_finalizers_that_name_generated_configs_are_removed() {
        let metadata = |finalizers: &[&str]| -> ObjectMeta {
            serde_json::from_value(json!({"name": "x", "resourceVersion": "3", "finalizers": finalizers}))
                .unwrap()
        };
        assert_eq!(release_settings(&metadata(&["example.com/backup"])), None);
        assert_eq!(
            release_settings(&metadata(&[
                "99-worker-generated-kubelet-1",
                "example.com/backup",
                "99-infra-generated-containerruntime",
            ])),
            Some(json!({"metadata": {"finalizers": ["example.com/backup"], "resourceVersion": "3"}}))
        );
    }

    #[test]
    fn pods_of_nodes_that_do_not_respond() {
        let state = |name: &str, ready: &str| {
            node(
                json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}),
            )
        };
        let ready = ready_nodes(&[state("up", "True"), state("down", "Unknown")]);
        let pod = |node: Value| -> Pod {
            serde_json::from_value(
                json!({"metadata": {"name": "p"}, "spec": {"containers": [], "nodeName": node}}),
            )
            .unwrap()
        };
        assert!(has_kubelet(&pod(json!("up")), &ready));
        assert!(!has_kubelet(&pod(json!("down")), &ready));
        assert!(!has_kubelet(&pod(json!("deleted")), &ready));
        assert!(!has_kubelet(&pod(Value::Null), &ready));
    }
}
