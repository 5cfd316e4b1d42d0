//! How long it takes to decide about a large cluster: 5,000 nodes in 20 pools.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use mco_api::MachineConfigPool;
use mco_core::rollout::pool_status::{PoolStatusInputs, report};
use mco_core::rollout::{RolloutView, plan, waves};
use serde_json::{Value, json};

const NODES: usize = 5_000;
const POOLS: usize = 20;

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn pools() -> Vec<MachineConfigPool> {
    let pool = |index: usize| {
        from(json!({
            "metadata": {"name": format!("pool-{index}")},
            "spec": {
                "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/pool-{index}"): ""}},
                "configuration": {"name": "new"},
                "maxUnavailable": "10%",
            },
        }))
    };
    (0..POOLS).map(pool).collect()
}

fn nodes() -> Vec<Node> {
    let node = |index: usize| {
        let current = if (index / POOLS).is_multiple_of(2) {
            "old"
        } else {
            "new"
        };
        from(json!({
            "metadata": {
                "name": format!("node-{index}"),
                "labels": {
                    format!("node-role.kubernetes.io/pool-{}", index % POOLS): "",
                    "topology.kubernetes.io/zone": format!("zone-{}", index % 3),
                },
                "annotations": {
                    "machineconfiguration.openshift.io/currentConfig": current,
                    "machineconfiguration.openshift.io/desiredConfig": current,
                    "machineconfiguration.openshift.io/state": "Done",
                },
            },
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
    };
    (0..NODES).map(node).collect()
}

fn rollout(criterion: &mut Criterion) {
    let (pools, nodes) = (pools(), nodes());
    let view = RolloutView::new(&pools, &nodes);
    let now = Time(Timestamp::UNIX_EPOCH);
    criterion.bench_function("sort 5,000 nodes into 20 pools", |b| {
        b.iter(|| RolloutView::new(black_box(&pools), black_box(&nodes)));
    });
    criterion.bench_function("plan 20 pools of 5,000 nodes", |b| {
        b.iter(|| plan(black_box(&view)));
    });
    criterion.bench_function("foretell 20 pools of 5,000 nodes", |b| {
        b.iter(|| waves(black_box(&view)));
    });
    criterion.bench_function("report 20 pools of 5,000 nodes", |b| {
        b.iter(|| {
            for pool in &view.pools {
                black_box(report(black_box(pool), &PoolStatusInputs::default(), &now));
            }
        });
    });
}

criterion_group! { name = benches; config = Criterion::default().sample_size(20); targets = rollout }
criterion_main!(benches);
