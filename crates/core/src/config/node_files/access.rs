//! Which node may have the Secrets of which config.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::MachineConfigPool;

use crate::config::pools::{Membership, NodePools};
use crate::config::rendered_configs;

/// Returns why a node does not get the values of a rendered config's Secrets; nothing if it does.
///
/// What a node may have follows from its labels and from its pool, which its daemon cannot write, and not from its own
/// annotations, which it can.
pub fn check_access(
    node: &ObjectMeta,
    pools: &[MachineConfigPool],
    config: &ObjectMeta,
) -> Result<(), String> {
    let name = node.name.as_deref().unwrap_or_default();
    let wanted = config.name.as_deref().unwrap_or_default();
    let selectors = NodePools::new(pools);
    let Membership::Member { pool, .. } = selectors.of_node(node.labels.as_ref()) else {
        return Err(format!("node {name} belongs to no pool"));
    };
    if rendered_configs::pool_of(config) != Some(pool) {
        return Err(format!(
            "MachineConfig {wanted} was not rendered for pool {pool} of node {name}"
        ));
    }
    let mut pools = pools
        .iter()
        .filter(|candidate| candidate.metadata.name.as_deref() == Some(pool));
    let is_used = pools.any(|pool| rendered_configs::used_by_pool(pool).any(|used| used == wanted));
    if is_used {
        Ok(())
    } else {
        Err(format!(
            "pool {pool} of node {name} does not use MachineConfig {wanted} any more"
        ))
    }
}
