//! Planning must stay cheap as clusters grow. Measured as a ratio, independent of the speed of the machine.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use mco_api::MachineConfigPool;
use mco_core::rollout::pool_status::{PoolStatusInputs, report};
use mco_core::rollout::{RolloutView, plan, waves};
use serde_json::json;

use crate::fixtures::*;

const POOLS: usize = 20;

fn cluster(nodes: usize) -> (Vec<MachineConfigPool>, Vec<Node>) {
    let pools = (0..POOLS).map(|index| pool(&format!("p{index}"), "v1", json!({"maxUnavailable": "10%"})));
    let nodes = (0..nodes).map(|index| {
        let zone = index % 3;
        let pool = index % POOLS;
        let state = ["v0/v0", "v0/v1 Working", "v1/v1", "v0/v0 cordoned"][index / POOLS % 4];
        node(&format!("n{index} {state} zone=z{zone} age={index} role=p{pool}"))
    });
    (pools.collect(), nodes.collect())
}

/// Returns the minimum of several runs, because other load only makes it slower.
fn best(mut work: impl FnMut()) -> Duration {
    (0..5)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .min()
        .unwrap()
}

#[test]
fn planning_eight_times_the_nodes_costs_about_eight_times_as_much() {
    let cost = |count: usize| {
        let (pools, nodes) = cluster(count);
        best(|| {
            let view = RolloutView::new(&pools, &nodes);
            let plan = plan(&view);
            assert_eq!(
                plan.pools
                    .iter()
                    .map(|plan| plan.held.len() + plan.sent().count())
                    .sum::<usize>(),
                count
            );
            assert_eq!(waves(&view).len(), POOLS);
            for pool in &view.pools {
                let inputs = PoolStatusInputs {
                    plan: plan.pool(pool.name),
                    ..PoolStatusInputs::default()
                };
                assert!(report(pool, &inputs, &time(0)).changed);
            }
        })
    };
    let (small, large) = (cost(625), cost(5_000));
    // Quadratic work would be sixty-four times as much.
    assert!(large < small * 24, "625 nodes: {small:?}, 5000 nodes: {large:?}");
}
