//! Which MachineConfigs are rendered configs, of which pool, and which of them are in use. The only definition of
//! both, shared by admission, garbage collection, rendering and the clients.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::vocabulary::annotations::node as annotation;
use mco_api::vocabulary::names::RENDERED_PREFIX;
use mco_api::{MachineConfigPool, MachineOSBuild};

pub(crate) const OWNER_KIND: &str = "MachineConfigPool";

/// Returns the pool that a MachineConfig was rendered for; `None` if it is not a rendered config.
pub fn pool_of(metadata: &ObjectMeta) -> Option<&str> {
    let name = metadata.name.as_deref()?;
    let owner = metadata
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true) && owner.kind == OWNER_KIND)?;
    is_name(name).then_some(owner.name.as_str())
}

/// Whether a name has the form of a rendered config's, for callers that only have the name.
pub fn is_name(name: &str) -> bool {
    name.starts_with(RENDERED_PREFIX)
}

/// Returns the configs that a node uses: its current and its desired one.
pub fn used_by_node(node: &ObjectMeta) -> impl Iterator<Item = &str> {
    let keys = [annotation::CURRENT_CONFIG, annotation::DESIRED_CONFIG];
    let annotations = node.annotations.as_ref();
    let names = keys
        .into_iter()
        .filter_map(move |key| annotations.and_then(|all| all.get(key)));
    names.map(String::as_str).filter(|name| !name.is_empty())
}

/// Returns the configs that a pool uses: those in its spec and in its status.
pub fn used_by_pool(pool: &MachineConfigPool) -> impl Iterator<Item = &str> {
    let target = Some(&pool.spec.configuration);
    let reported = pool.status.as_ref().map(|status| &status.configuration);
    let both = target.into_iter().chain(reported);
    both.filter_map(|one| one.reference.name.as_deref())
        .filter(|name| !name.is_empty())
}

/// Returns the config that an OS image is built from.
pub fn used_by_build(build: &MachineOSBuild) -> impl Iterator<Item = &str> {
    let name = build.spec.machine_config.name.as_str();
    Some(name).filter(|name| !name.is_empty()).into_iter()
}

/// Returns the names of all rendered configs in use.
pub fn in_use<'a>(
    nodes: impl IntoIterator<Item = &'a Node>,
    pools: impl IntoIterator<Item = &'a MachineConfigPool>,
    builds: impl IntoIterator<Item = &'a MachineOSBuild>,
) -> BTreeSet<&'a str> {
    let nodes = nodes.into_iter().flat_map(|node| used_by_node(&node.metadata));
    let pools = pools.into_iter().flat_map(used_by_pool);
    let builds = builds.into_iter().flat_map(used_by_build);
    nodes.chain(pools).chain(builds).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_pools_and_builds_use_configs() {
        let node: Node = serde_json::from_value(json!({"metadata": {"annotations": {
            annotation::CURRENT_CONFIG: "a", annotation::DESIRED_CONFIG: "b"}}}))
        .unwrap();
        let pool: MachineConfigPool = serde_json::from_value(json!({"metadata": {"name": "p"},
            "spec": {"configuration": {"name": "c"}}, "status": {"configuration": {"name": "d"}}}))
        .unwrap();
        let build: MachineOSBuild =
            serde_json::from_value(json!({"spec": {"machineConfig": {"name": "e"}}})).unwrap();
        let empty = MachineConfigPool::default();
        assert_eq!(
            in_use([&node], [&pool, &empty], [&build]),
            ["a", "b", "c", "d", "e"].into()
        );
    }
}
