//! From a plan to writes: one per node, and none when nothing changes.

use mco_core::rollout::control_plane::only_control_plane_node;
use mco_core::rollout::patch::merge_patch;
use mco_core::rollout::{RolloutView, plan};
use serde_json::{Value, json};

use crate::fixtures::*;

fn patch_of(fleet: &str, target: &str) -> Option<Value> {
    let pools = [pool("worker", target, json!({}))];
    let nodes = nodes(fleet);
    let view = RolloutView::new(&pools, &nodes).with_topology(Some("SingleReplica"));
    let plan = plan(&view);
    let actions = plan.actions_by_node().remove("n").unwrap_or_default();
    merge_patch(&nodes[0], actions)
}

#[test]
fn taint_topology_and_target_go_in_one_write() {
    let expected = json!({
        "metadata": {
            "annotations": {key("desiredConfig"): "v1", key("controlPlaneTopology"): "SingleReplica"},
            "resourceVersion": "1",
        },
        "spec": {"taints": [{"key": "UpdateInProgress", "effect": "PreferNoSchedule"}]},
    });
    assert_eq!(patch_of("n v0/v0", "v1"), Some(expected));
}

#[test]
fn the_only_control_plane_node_is_marked_whatever_the_topology_is() {
    let pools = [pool("master", "v0", json!({}))];
    for (fleet, expected) in [
        ("m v0/v0 role=master; n v0/v0", Some("SingleReplica")),
        (
            "m v0/v0 role=master; n v0/v0 role=control-plane",
            Some("HighlyAvailable"),
        ),
    ] {
        let nodes = nodes(fleet);
        let view = RolloutView::new(&pools, &nodes)
            .with_topology(Some("HighlyAvailable"))
            .with_only_control_plane_node(only_control_plane_node(&nodes));
        let plan = plan(&view);
        let actions = plan.actions_by_node().remove("m").unwrap_or_default();
        let patch = merge_patch(&nodes[0], actions).unwrap();
        let topology = patch["metadata"]["annotations"][key("controlPlaneTopology")].as_str();
        assert_eq!(topology, expected, "{fleet}");
    }
}

#[test]
fn which_nodes_are_not_drained_follows_the_topology_that_is_about_to_be_annotated() {
    let pools = [pool("worker", "v0", json!({}))];
    let with = |fleet: &str, annotated: Option<&str>| {
        let mut nodes = nodes(fleet);
        for node in &mut nodes {
            let annotations = node.metadata.annotations.as_mut().unwrap();
            annotations.extend(annotated.map(|value| (key("controlPlaneTopology"), value.to_owned())));
        }
        nodes
    };
    let single = "m v0/v0 role=control-plane; n v0/v0";
    let two = "m v0/v0 role=control-plane; m2 v0/v0 role=control-plane";
    for (fleet, annotated, topology, expected) in [
        (single, None, Some("HighlyAvailable"), true),
        (two, Some("SingleReplica"), Some("HighlyAvailable"), false),
        (two, Some("SingleReplica"), None, true),
        (two, None, Some("SingleReplica"), true),
        (two, None, None, false),
    ] {
        let nodes = with(fleet, annotated);
        let view = RolloutView::new(&pools, &nodes)
            .with_topology(topology)
            .with_only_control_plane_node(only_control_plane_node(&nodes));
        assert_eq!(
            view.skips_drain(&nodes[0]),
            expected,
            "{fleet} {annotated:?} {topology:?}"
        );
    }
    // A worker never skips it.
    let nodes = with(single, Some("SingleReplica"));
    let view = RolloutView::new(&pools, &nodes).with_topology(Some("SingleReplica"));
    assert!(!view.skips_drain(&nodes[1]));
}

#[test]
fn only_our_own_taint_goes() {
    let expected = json!({
        "metadata": {"annotations": {key("controlPlaneTopology"): "SingleReplica"}, "resourceVersion": "1"},
        "spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]},
    });
    assert_eq!(patch_of("n v1/v1 tainted", "v1"), Some(expected));
}

#[test]
fn leaving_layering_removes_the_wish_for_an_image_and_leaves_the_rest_to_the_daemon() {
    let patch = patch_of("n v1/v1 image=i/i tainted", "v1").unwrap();
    let annotations = patch["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(annotations.get(&key("desiredImage")), Some(&json!(null)));
    assert_eq!(annotations.get(&key("currentImage")), None);
    assert_eq!(annotations.get(&key("desiredConfig")), None, "it is the same");
}

#[test]
fn a_node_that_is_as_it_should_be_is_not_written() {
    let pools = [pool("worker", "v1", json!({}))];
    let nodes = nodes("n v1/v1");
    assert_eq!(plan(&RolloutView::new(&pools, &nodes)).actions_by_node().len(), 0);
    assert_eq!(merge_patch(&nodes[0], []), None);
}
