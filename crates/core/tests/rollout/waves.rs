//! The forecast rollout.

use mco_core::rollout::{RolloutView, waves};
use serde_json::json;

use crate::fixtures::*;

fn foretold(pools: &[mco_api::MachineConfigPool], fleet: &str, operator: Option<&str>) -> Vec<String> {
    let nodes = nodes(fleet);
    let view = RolloutView::new(pools, &nodes)
        .with_operator_node(operator)
        .with_topology(Some("HighlyAvailableArbiter"));
    waves(&view).iter().map(ToString::to_string).collect()
}

#[test]
fn the_order_of_all_nodes() {
    let two = json!({"maxUnavailable": 2});
    let cases = [
        (
            "one by one",
            json!({}),
            "a v0/v0; b v0/v0; c v0/v0",
            "wave 1: a|wave 2: b|wave 3: c",
        ),
        (
            "two by two",
            two.clone(),
            "a v0/v0; b v0/v0; c v0/v0",
            "wave 1: a, b|wave 2: c",
        ),
        (
            "one is under way",
            two.clone(),
            "a v0/v1 Working; b v0/v0; c v0/v0; d v0/v0",
            "in progress: a|wave 1: b|wave 2: c, d",
        ),
        (
            "one turns round",
            json!({}),
            "a v0/v0.5 Degraded; b v0/v0",
            "in progress: a|wave 1: b",
        ),
        (
            "a cordon takes room for good",
            two.clone(),
            "a v0/v0 cordoned; b v0/v0; c v0/v0",
            "wave 1: b|wave 2: c|node a waits because it is cordoned",
        ),
        (
            "a cordon takes all room",
            json!({}),
            "a v0/v0 cordoned; b v0/v0",
            "node a waits because it is cordoned|node b waits for its turn",
        ),
        (
            "paused",
            json!({"paused": true}),
            "a v0/v0",
            "node a waits because the pool is paused",
        ),
        (
            "no daemon yet, no room yet",
            json!({}),
            "a v0/v1 Working; b new; c v0/v0",
            "in progress: a|wave 1: b|wave 2: c",
        ),
        ("done", json!({}), "a v1/v1", ""),
    ];
    for (name, more, fleet, expected) in cases {
        let text = foretold(&[pool("worker", "v1", more)], fleet, None).concat();
        let lines: Vec<&str> = text.lines().skip(1).map(str::trim).collect();
        assert_eq!(lines.join("|"), expected, "{name}");
    }
}

#[test]
fn the_operators_node_last_and_arbiters_after_masters() {
    let pools = [pool("master", "v1", json!({})), pool("arbiter", "v1", json!({}))];
    let fleet = "a v0/v0 role=master; b v0/v0 role=master; c v0/v0 role=master; x v0/v0 role=arbiter";
    assert_eq!(
        foretold(&pools, fleet, Some("a")),
        [
            "pool arbiter: MachineConfig v1\n  after pool master:\n  wave 1: x\n",
            "pool master: MachineConfig v1\n  wave 1: b\n  wave 2: c\n  wave 3: a\n",
        ]
    );
}
