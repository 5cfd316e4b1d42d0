//! What a cluster at rest looks like.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use mco_api::{MachineConfig, MachineConfigPool};
use mco_core::config::pools::config_selector;
use mco_core::rollout::NodeView;

use crate::world::World;

pub const POOLS: [&str; 2] = ["master", "worker"];
/// The drain record, which is removed with the cordon.
const RECORD: &str = "machineconfiguration.openshift.io/drain-record";

/// Returns what differs from a cluster at rest.
pub fn unfinished(world: &World) -> Option<String> {
    let mut targets = BTreeMap::new();
    let configs = world.objects::<MachineConfig>("machineconfigs.machineconfiguration.openshift.io");
    for name in POOLS {
        let Some(pool) = world.pool(name) else {
            return Some(format!("pool {name} cannot be read"));
        };
        if let Some(reason) = unrendered(&pool, &configs).or_else(|| outdated(&pool)) {
            return Some(format!("pool {name}: {reason}"));
        }
        targets.insert(name, pool.target_name().to_owned());
    }
    let nodes = world.objects::<Node>("nodes");
    nodes.iter().find_map(|node| unfinished_node(node, &targets))
}

/// Compares the sources of the target with the configs that exist. A controller that has missed one would otherwise
/// converge on the target before it.
fn unrendered(pool: &MachineConfigPool, configs: &[MachineConfig]) -> Option<String> {
    let selector = match config_selector(pool) {
        Ok(selector) => selector,
        Err(error) => return Some(error.to_string()),
    };
    let selected = configs
        .iter()
        .filter(|config| selector.matches(config.metadata.labels.as_ref()))
        .filter_map(|config| config.metadata.name.as_deref());
    let selected: BTreeSet<&str> = selected.collect();
    let source = &pool.spec.configuration.source;
    let rendered: BTreeSet<&str> = source
        .iter()
        .filter_map(|source| source.name.as_deref())
        .collect();
    if selected.is_empty() {
        return Some("it selects no MachineConfig".to_owned());
    }
    let difference: Vec<&str> = selected.symmetric_difference(&rendered).copied().collect();
    let is_different = !difference.is_empty();
    is_different.then(|| {
        format!(
            "its target is not rendered from the MachineConfigs that exist; different: {}",
            difference.join(", ")
        )
    })
}

fn outdated(pool: &MachineConfigPool) -> Option<String> {
    let status = pool.status.clone().unwrap_or_default();
    let is_observed = Some(status.observed_generation) == pool.metadata.generation;
    let is_updated = status.updated_machine_count == status.machine_count;
    let is_finished = is_observed && is_updated && !pool.target_name().is_empty();
    (!is_finished).then(|| {
        let (updated, all) = (status.updated_machine_count, status.machine_count);
        format!("{updated} of {all} machines are updated")
    })
}

fn unfinished_node(node: &Node, targets: &BTreeMap<&str, String>) -> Option<String> {
    let view = NodeView::new(node);
    let is_master = view.label("node-role.kubernetes.io/master").is_some();
    let target = &targets[if is_master { "master" } else { "worker" }];
    if view.current_config != target || view.state != "Done" {
        let (state, config) = (view.state, view.current_config);
        return Some(format!("node {} is {state} with {config}", view.name));
    }
    if view.is_unschedulable() {
        return Some(format!("node {} is still cordoned", view.name));
    }
    let has_record = view.annotation(RECORD).is_some();
    has_record.then(|| format!("node {} still has a drain record", view.name))
}
