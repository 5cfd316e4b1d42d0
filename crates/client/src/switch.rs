//! Switching between implementations, and back: which nodes are not settled, which pools to pause, which overrides
//! stop the cluster version operator from managing them, and which of our changes no other controller removes.
//!
//! Pure; the commands `mco switch` read and write.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::MachineConfigPool;
use mco_api::vocabulary::annotations::{
    NODE_VALUES, PAUSED_FOR_SWITCH, SECRET_FILES, SWITCH_OVERRIDES, node as annotation,
};
use mco_api::vocabulary::finalizers::RENDERED_CONFIG_IN_USE;
use mco_api::vocabulary::names::{self, component};
use mco_api::vocabulary::node_state;
use serde::Serialize;
use serde_json::{Value, json};

use mco_core::rollout::NodeView;
use mco_core::rollout::drain::{Cordon, cordon};

/// A node with an update, drain or failure in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnsettledNode {
    pub node: String,
    pub why: String,
}

/// Returns the nodes that are being updated or drained, or that report a failure. A node without a daemon has nothing to
/// settle.
pub fn unsettled<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Vec<UnsettledNode> {
    let nodes = nodes.into_iter().map(NodeView::new);
    nodes
        .filter_map(|node| {
            Some(UnsettledNode {
                why: why_unsettled(&node)?,
                node: node.name.to_owned(),
            })
        })
        .collect()
}

fn why_unsettled(node: &NodeView<'_>) -> Option<String> {
    let has_daemon = !node.state.is_empty() || !node.desired_config.is_empty();
    if !has_daemon {
        return None;
    }
    let desired_drain = node.annotation(annotation::DESIRED_DRAIN).unwrap_or_default();
    let last_drain = node
        .annotation(annotation::LAST_APPLIED_DRAIN)
        .unwrap_or_default();
    if desired_drain != last_drain {
        let config = node.desired_config;
        return Some(if desired_drain.starts_with(annotation::drain::UNCORDON) {
            "waits until it is uncordoned".to_owned()
        } else {
            format!("is being drained for {config}")
        });
    }
    if !(node.config_is_done() && node.image_is_done()) {
        return Some(format!(
            "is being updated from {} to {}",
            node.current_config, node.desired_config
        ));
    }
    if node.state != node_state::DONE {
        let reason = match node.reason {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        return Some(format!("is {}{reason}", node.state));
    }
    (node.cordon() == Cordon::Ours).then(|| "is cordoned by its last update".to_owned())
}

/// Returns the MachineConfigs that another implementation renders into something else: it would write their placeholders
/// to nodes, and remove their files with Secrets.
pub fn not_portable<'a>(configs: impl IntoIterator<Item = &'a ObjectMeta>) -> Vec<String> {
    let differs = |config: &&ObjectMeta| {
        let annotation = |key: &str| config.annotations.as_ref()?.get(key).map(String::as_str);
        annotation(SECRET_FILES).is_some_and(|value| !value.is_empty())
            || annotation(NODE_VALUES) == Some("true")
    };
    let configs = configs.into_iter().filter(differs);
    configs.filter_map(|config| config.name.clone()).collect()
}

/// Returns the merge patch that pauses a pool; `None` if it is paused.
pub fn pause(pool: &MachineConfigPool) -> Option<Value> {
    (!pool.spec.paused).then(|| {
        json!({
            "metadata": {"annotations": {PAUSED_FOR_SWITCH: "true"}},
            "spec": {"paused": true},
        })
    })
}

/// Returns the merge patch that resumes a pool that [`pause`] has paused; `None` for a pool that an administrator
/// paused.
pub fn resume(pool: &MachineConfigPool) -> Option<Value> {
    let annotations = pool.metadata.annotations.as_ref();
    annotations?.get(PAUSED_FOR_SWITCH)?;
    Some(json!({
        "metadata": {"annotations": {PAUSED_FOR_SWITCH: null}},
        "spec": {"paused": false},
    }))
}

/// Returns the merge patch that removes our finalizer from a MachineConfig; `None` if it does not have it.
pub fn release(metadata: &ObjectMeta) -> Option<Value> {
    let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
    let others: Vec<&String> = finalizers
        .iter()
        .filter(|finalizer| *finalizer != RENDERED_CONFIG_IN_USE)
        .collect();
    (others.len() < finalizers.len())
        .then(|| json!({"metadata": {"finalizers": others, "resourceVersion": metadata.resource_version}}))
}

/// Returns the merge patch that removes our drain controller's annotations from a node; `None` if it has none. The
/// drain itself continues: other implementations need no record.
pub fn clear_drain(node: &Node) -> Option<Value> {
    let record = cordon::DrainRecord::of_node(node)?;
    let mut patch = record.marks.present(node).remove();
    patch["metadata"]["annotations"][annotation::DRAIN_RECORD] = Value::Null;
    Some(patch)
}

/// Returns the objects that the cluster version operator must not manage: the operator's Deployment, and the Services
/// and ServiceMonitors, whose ports differ.
fn unmanaged() -> Vec<Value> {
    let components = [
        component::OPERATOR,
        component::CONTROLLER,
        component::DAEMON,
        component::SERVER,
    ];
    let mut unmanaged = vec![("apps", "Deployment", component::OPERATOR)];
    for name in components {
        unmanaged.push(("", "Service", name));
        unmanaged.push(("monitoring.coreos.com", "ServiceMonitor", name));
    }
    let entry = |(group, kind, name): (&str, &str, &str)| json!({"group": group, "kind": kind, "name": name, "namespace": names::NAMESPACE, "unmanaged": true});
    unmanaged.into_iter().map(entry).collect()
}

/// Returns the merge patch of a ClusterVersion that adds the overrides, and records which ones were added; `None` if
/// all are present.
pub fn add_overrides(cluster_version: &Value) -> Option<Value> {
    let present = overrides(cluster_version);
    let added: Vec<Value> = unmanaged()
        .into_iter()
        .filter(|entry| !present.contains(entry))
        .collect();
    if added.is_empty() {
        return None;
    }
    // An administrator's override of the same object is replaced, and therefore not recorded for removal.
    let same_object = |one: &Value, other: &Value| {
        ["group", "kind", "name", "namespace"]
            .iter()
            .all(|key| one[key] == other[key])
    };
    let kept = present
        .iter()
        .filter(|entry| !added.iter().any(|new| same_object(new, entry)));
    let all: Vec<&Value> = kept.chain(&added).collect();
    let noted: Vec<&Value> = added
        .iter()
        .filter(|new| !present.iter().any(|entry| same_object(new, entry)))
        .collect();
    Some(json!({
        "metadata": {
            "annotations": {SWITCH_OVERRIDES: json!(noted).to_string()},
            "resourceVersion": cluster_version["metadata"]["resourceVersion"],
        },
        "spec": {"overrides": all},
    }))
}

/// Returns the merge patch of a ClusterVersion that removes the overrides which [`add_overrides`] has added; `None`
/// if it has added none.
pub fn remove_overrides(cluster_version: &Value) -> Option<Value> {
    let noted = cluster_version["metadata"]["annotations"][SWITCH_OVERRIDES].as_str()?;
    let noted: BTreeSet<String> = serde_json::from_str::<Vec<Value>>(noted)
        .unwrap_or_default()
        .iter()
        .map(ToString::to_string)
        .collect();
    let mut left = overrides(cluster_version);
    left.retain(|entry| !noted.contains(&entry.to_string()));
    let left = if left.is_empty() { Value::Null } else { json!(left) };
    Some(json!({
        "metadata": {
            "annotations": {SWITCH_OVERRIDES: null},
            "resourceVersion": cluster_version["metadata"]["resourceVersion"],
        },
        "spec": {"overrides": left},
    }))
}

fn overrides(cluster_version: &Value) -> Vec<Value> {
    let overrides = cluster_version["spec"]["overrides"].as_array();
    overrides.cloned().unwrap_or_default()
}

/// Returns an object that can be created again: without the fields that the API server and other controllers add.
pub fn portable(object: &Value) -> Value {
    let mut portable = object.clone();
    if let Some(members) = portable.as_object_mut() {
        members.remove("status");
    }
    if let Some(metadata) = portable["metadata"].as_object_mut() {
        for added in [
            "creationTimestamp",
            "generation",
            "managedFields",
            "ownerReferences",
            "resourceVersion",
            "selfLink",
            "uid",
        ] {
            metadata.remove(added);
        }
    }
    portable
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> String {
        format!("machineconfiguration.openshift.io/{name}")
    }

    fn node(annotations: &[(&str, &str)], unschedulable: bool) -> Node {
        let annotations: serde_json::Map<String, Value> = annotations
            .iter()
            .map(|(name, value)| (key(name), json!(value)))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "n", "annotations": annotations}, "spec": {"unschedulable": unschedulable}}))
        .unwrap()
    }

    #[test]
    fn placeholders_would_be_written_by_another_implementation() {
        let config = |name: &str, key: &str, value: &str| ObjectMeta {
            name: Some(name.to_owned()),
            annotations: Some([(key.to_owned(), value.to_owned())].into()),
            ..ObjectMeta::default()
        };
        let all = [
            config("50-secret", SECRET_FILES, "[]"),
            config("50-values", NODE_VALUES, "true"),
            config("50-off", NODE_VALUES, "false"),
            config("50-other", "example.com/a", "true"),
        ];
        assert_eq!(not_portable(&all), ["50-secret", "50-values"]);
    }

    #[test]
    fn nodes_that_are_in_the_middle_of_something() {
        let done = [("currentConfig", "a"), ("desiredConfig", "a"), ("state", "Done")];
        let with = |more: &[(&'static str, &'static str)]| [&done[..], more].concat();
        for (name, annotations, unschedulable, expected) in [
            ("up to date", with(&[]), false, None),
            ("without a daemon", vec![], false, None),
            ("cordoned by a person", with(&[]), true, None),
            (
                "draining",
                with(&[
                    ("desiredConfig", "b"),
                    ("state", "Working"),
                    ("desiredDrain", "drain-b"),
                ]),
                true,
                Some("is being drained for b"),
            ),
            (
                "applying",
                with(&[("desiredConfig", "b"), ("state", "Working")]),
                false,
                Some("is being updated from a to b"),
            ),
            (
                "to be uncordoned",
                with(&[("desiredDrain", "uncordon-a"), ("lastAppliedDrain", "drain-a")]),
                true,
                Some("waits until it is uncordoned"),
            ),
            (
                "degraded",
                with(&[("state", "Degraded"), ("reason", "disk full")]),
                false,
                Some("is Degraded: disk full"),
            ),
        ] {
            let found = unsettled([&node(&annotations, unschedulable)]);
            let found: Vec<&str> = found.iter().map(|one| one.why.as_str()).collect();
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{name}");
        }
    }

    #[test]
    fn a_pool_that_an_administrator_paused_stays_paused() {
        let pool = |paused: bool, annotated: bool| -> MachineConfigPool {
            let annotations = if annotated {
                json!({PAUSED_FOR_SWITCH: "true"})
            } else {
                json!({})
            };
            serde_json::from_value(json!({"metadata": {"name": "worker", "annotations": annotations},
                "spec": {"paused": paused}}))
            .unwrap()
        };
        assert!(pause(&pool(false, false)).is_some());
        assert_eq!(pause(&pool(true, false)), None);
        assert_eq!(resume(&pool(true, false)), None);
        assert_eq!(resume(&pool(true, true)).unwrap()["spec"]["paused"], false);
    }

    #[test]
    fn only_our_finalizer_is_released() {
        let metadata = |finalizers: &[&str]| -> ObjectMeta {
            serde_json::from_value(
                json!({"name": "rendered-worker-1", "resourceVersion": "3", "finalizers": finalizers}),
            )
            .unwrap()
        };
        assert_eq!(release(&metadata(&[])), None);
        assert_eq!(release(&metadata(&["example.com/backup"])), None);
        assert_eq!(
            release(&metadata(&["example.com/backup", RENDERED_CONFIG_IN_USE])),
            Some(json!({"metadata": {"finalizers": ["example.com/backup"], "resourceVersion": "3"}}))
        );
    }

    #[test]
    fn overrides_are_added_and_removed_and_those_of_administrators_stay() {
        let entry = |name: &str, unmanaged: bool| json!({"group": "", "kind": "Service", "name": name, "namespace": names::NAMESPACE, "unmanaged": unmanaged});
        let mine =
            json!({"group": "", "kind": "ConfigMap", "name": "x", "namespace": "y", "unmanaged": true});
        let daemon = entry("machine-config-daemon", true);
        let before = json!({"metadata": {"resourceVersion": "1"}, "spec": {"overrides":
            [mine, daemon, entry("machine-config-server", false)]}});
        let patch = add_overrides(&before).unwrap();
        assert_eq!(patch["spec"]["overrides"].as_array().map(Vec::len), Some(10));
        let after = json!({"metadata": patch["metadata"], "spec": patch["spec"]});
        assert_eq!(add_overrides(&after), None);
        let back = remove_overrides(&after).unwrap();
        assert_eq!(
            back["spec"]["overrides"],
            json!([mine, daemon, entry("machine-config-server", true)]),
            "what was there is not removed"
        );
        assert_eq!(remove_overrides(&before), None);
        let empty = json!({"metadata": {}, "spec": {}});
        let patch = add_overrides(&empty).unwrap();
        let after = json!({"metadata": patch["metadata"], "spec": patch["spec"]});
        assert_eq!(
            remove_overrides(&after).unwrap()["spec"]["overrides"],
            Value::Null
        );
    }
}
