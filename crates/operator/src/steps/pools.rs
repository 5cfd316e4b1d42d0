//! The pools that every cluster has.

use std::collections::BTreeMap;

use kube::api::{ListParams, Patch, PatchParams};
use mco_api::vocabulary::topology;
use mco_api::{MachineConfig, MachineConfigPool};
use mco_core::{offline, pools};
use serde_json::json;

use crate::cluster::{Cluster, ClusterError, failed};
use crate::cluster_operator;
use crate::facts::Facts;

/// Creates the pools that are missing. Of those that exist only the labels are ours: the rest is the user's.
pub async fn required(cluster: &Cluster, facts: &Facts) -> Result<(), ClusterError> {
    for name in names(facts) {
        let wanted = offline::built_in_pool(name);
        let Some(found) = cluster.find::<MachineConfigPool>(name).await? else {
            cluster.create_if_absent(&wanted).await?;
            continue;
        };
        let missing = missing_labels(&found, &wanted);
        if !missing.is_empty() {
            let patch = Patch::Merge(json!({"metadata": {"labels": missing}}));
            let api = cluster.all::<MachineConfigPool>();
            let answer = api.patch(name, &PatchParams::default(), &patch).await;
            answer.map_err(failed("updating", || format!("MachineConfigPool {name}")))?;
        }
    }
    Ok(())
}

/// All pools, by name.
pub async fn all(cluster: &Cluster) -> Result<Vec<MachineConfigPool>, ClusterError> {
    let pools = cluster
        .all::<MachineConfigPool>()
        .list(&ListParams::default())
        .await;
    let mut pools = pools
        .map_err(failed("listing", || "MachineConfigPools".to_owned()))?
        .items;
    pools.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    Ok(pools)
}

/// The annotations of the rendered configs that required pools report.
pub async fn reported(
    cluster: &Cluster,
    pools: &[MachineConfigPool],
) -> Result<cluster_operator::Reported, ClusterError> {
    let configs = cluster.all::<MachineConfig>();
    let mut reported = cluster_operator::Reported::new();
    for name in cluster_operator::reported_configs(pools) {
        let found = configs
            .get_metadata_opt(&name)
            .await
            .map_err(failed("reading", || format!("MachineConfig {name}")))?;
        if let Some(found) = found {
            reported.insert(name, found.metadata.annotations.unwrap_or_default());
        }
    }
    Ok(reported)
}

/// The pools that a cluster must have.
pub fn names(facts: &Facts) -> Vec<&'static str> {
    let mut names = vec![pools::MASTER, pools::WORKER];
    if has_arbiters(facts) {
        names.push(pools::ARBITER);
    }
    names
}

/// A cluster has arbiters if its description says so, or if its nodes do.
fn has_arbiters(facts: &Facts) -> bool {
    let infrastructure = facts.infrastructure.as_ref();
    let status = infrastructure.and_then(|infrastructure| infrastructure.status.as_ref());
    let declared =
        status.is_some_and(|status| status.control_plane_topology == topology::HIGHLY_AVAILABLE_ARBITER);
    declared || facts.has_arbiters
}

fn missing_labels<'a>(
    found: &MachineConfigPool,
    wanted: &'a MachineConfigPool,
) -> BTreeMap<&'a str, &'a str> {
    let has = |key: &str| {
        let labels = found.metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(key))
    };
    let wanted = wanted.metadata.labels.iter().flatten();
    wanted
        .filter(|(key, _)| !has(key))
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}
