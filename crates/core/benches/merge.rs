//! How long it takes to check, merge and name a large pool: 200 MachineConfigs with 2,000 files between them.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use mco_api::{MachineConfig, MachineConfigPool};
use mco_core::config::merge::DefaultImages;
use mco_core::config::render::{RenderIdentity, render};
use mco_core::config::validate;
use serde_json::json;

const CONFIGS: usize = 200;
const FILES_EACH: usize = 10;

fn configs() -> Vec<Arc<MachineConfig>> {
    let config = |number: usize| {
        // Every second file is also in the next config, so that half of the merge is overriding.
        let files: Vec<_> = (0..FILES_EACH)
            .map(|file| {
                let path = format!("/etc/app/{:04}.conf", number * FILES_EACH / 2 + file);
                let body = format!("data:,number%20{number}%20file%20{file}%0A").repeat(1 + file % 3);
                json!({"path": path, "mode": 0o644, "contents": {"source": body}})
            })
            .collect();
        let value = json!({
            "metadata": {
                "name": format!("50-worker-{number:03}"),
                "labels": {"machineconfiguration.openshift.io/role": "worker"},
            },
            "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}}},
        });
        serde_json::from_value(value).unwrap()
    };
    (0..CONFIGS).map(|index| Arc::new(config(index))).collect()
}

fn merge(criterion: &mut Criterion) {
    let configs = configs();
    let checked: Vec<_> = configs
        .iter()
        .map(|config| validate::check(config).unwrap())
        .collect();
    let references: Vec<_> = checked.iter().collect();
    let pool = MachineConfigPool::new(
        "worker",
        mco_api::machine_config_pool::MachineConfigPoolSpec::default(),
    );
    criterion.bench_function("check 200 configs with 2,000 files", |b| {
        b.iter(|| {
            for config in &configs {
                black_box(validate::check(black_box(config)).unwrap());
            }
        });
    });
    criterion.bench_function("merge and name 200 configs with 2,000 files", |b| {
        b.iter(|| {
            render(
                &pool,
                black_box(&references),
                DefaultImages::default(),
                RenderIdentity::default(),
            )
            .unwrap()
        });
    });
}

criterion_group! { name = benches; config = Criterion::default().sample_size(20); targets = merge }
criterion_main!(benches);
