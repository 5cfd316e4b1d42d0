//! Reboots by the update agents of nodes share the budget with updates.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use mco_api::RolloutPolicy;
use mco_core::rollout::patch::merge_patch;
use mco_core::rollout::{PoolPlan, RolloutView, plan};
use serde_json::json;

use crate::fixtures::*;

const NOW: &str = "2026-11-18T12:00:00Z";

fn annotated(line: &str, key: &str, value: &str) -> Node {
    let mut node = node(line);
    let annotations = node.metadata.annotations.get_or_insert_default();
    annotations.insert(key.to_owned(), value.to_owned());
    node
}

fn asks(line: &str) -> Node {
    annotated(line, "mco.dev/reboot-request", NOW)
}

fn locked(line: &str) -> Node {
    annotated(line, "mco.dev/hold.fleetlock", "its update agent may reboot it")
}

fn decided(nodes: &[Node], limit: i64, policies: &[RolloutPolicy]) -> PoolPlan {
    let now: Timestamp = NOW.parse().unwrap();
    let pool = pool("worker", "v2", json!({"maxUnavailable": limit}));
    let view = RolloutView::new([&pool], nodes).with_policies(policies, now, None);
    plan(&view).pool("worker").unwrap().clone()
}

fn policy(spec: serde_json::Value) -> RolloutPolicy {
    let mut spec = spec;
    spec["poolSelector"] = json!({});
    from(json!({"metadata": {"name": "p"}, "spec": spec}))
}

#[test]
fn a_reboot_takes_the_place_of_an_update_and_the_other_way_round() {
    let done = "n1 v2/v2 age=1";
    for (name, nodes, limit, expected) in [
        (
            "one of two that ask",
            vec![asks("n0 v2/v2"), asks(done)],
            1,
            "reboot:n0",
        ),
        (
            "both",
            vec![asks("n0 v2/v2"), asks(done)],
            2,
            "reboot:n0 reboot:n1",
        ),
        ("another reboots", vec![locked("n0 v2/v2"), asks(done)], 1, ""),
        (
            "another is updated",
            vec![node("n0 v1/v2 Working"), asks(done)],
            1,
            "",
        ),
        (
            "another is not ready",
            vec![node("n0 v2/v2 NotReady"), asks(done)],
            1,
            "",
        ),
        (
            "an update is started first",
            vec![node("n0 v1/v1"), asks(done)],
            1,
            "taint:n0",
        ),
        (
            "it is being updated itself",
            vec![asks("n0 v1/v2 Working")],
            2,
            "",
        ),
        ("it is cordoned", vec![asks("n0 v2/v2 cordoned")], 2, ""),
        (
            "it asked long ago",
            vec![annotated(
                "n0 v2/v2",
                "mco.dev/reboot-request",
                "2026-11-18T11:59:00Z",
            )],
            1,
            "",
        ),
        (
            "by a clock of the future",
            vec![annotated(
                "n0 v2/v2",
                "mco.dev/reboot-request",
                "2026-11-18T12:59:00Z",
            )],
            1,
            "",
        ),
        (
            "no time",
            vec![annotated("n0 v2/v2", "mco.dev/reboot-request", "yes")],
            1,
            "",
        ),
    ] {
        assert_eq!(chores(&decided(&nodes, limit, &[])), expected, "{name}");
    }
    // A node whose agent may reboot it is not updated meanwhile, and holds its place.
    let nodes = [locked("n0 v1/v1"), node("n1 v1/v1 age=1")];
    assert_eq!(sent(&decided(&nodes, 1, &[])), "");
    assert_eq!(sent(&decided(&nodes, 2, &[])), "n1");
}

#[test]
fn windows_and_budgets_of_a_policy_hold_for_reboots_too() {
    let nodes = [
        asks("n0 v2/v2 zone=a"),
        asks("n1 v2/v2 age=1 zone=a"),
        asks("n2 v2/v2 age=2 zone=b"),
    ];
    let closed = policy(json!({"windows": [{"from": "22:00", "to": "04:00"}]}));
    assert_eq!(chores(&decided(&nodes, 3, &[closed])), "");
    let zones = policy(json!({"budgets": [{"maxUnavailable": 1, "groupBy": "topology.kubernetes.io/zone"}]}));
    assert_eq!(chores(&decided(&nodes, 3, &[zones])), "reboot:n0 reboot:n2");
    let open = policy(json!({"windows": [{"from": "10:00", "to": "14:00"}]}));
    assert_eq!(
        chores(&decided(&nodes, 3, &[open])),
        "reboot:n0 reboot:n1 reboot:n2"
    );
}

#[test]
fn a_granted_request_is_a_hold() {
    let nodes = [asks("n0 v2/v2")];
    let plan = decided(&nodes, 1, &[]);
    let patch = merge_patch(&nodes[0], &plan.actions).unwrap();
    assert_eq!(
        patch,
        json!({"metadata": {"annotations": {
            "mco.dev/hold.fleetlock": "its update agent may reboot it",
            "mco.dev/reboot-request": null,
        }}})
    );
}
