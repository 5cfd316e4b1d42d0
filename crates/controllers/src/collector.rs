//! Throws away rendered configs that nobody uses, and keeps those that somebody does from being thrown away.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, Patch};
use mco_api::MachineConfig;
use mco_api::vocabulary::finalizers::RENDERED_CONFIG_IN_USE;
use mco_core::config::rendered_configs;
use mco_core::config::retention::{self, Step};
use serde_json::{Value, json};
use tracing::{debug, info};

use crate::cluster::Cluster;
use crate::error::{Error, is_not_found};
use crate::patches;
use crate::queue::Again;

const MANAGER: &str = "machine-config-controller-collector";
/// Whatever was missed is found after this long.
const AGAIN: Duration = Duration::from_mins(10);

/// Looks at all rendered configs.
pub(crate) async fn reconcile(cluster: Arc<Cluster>) -> Result<Again, Error> {
    let steps: Vec<(String, Step)> = {
        let (nodes, pools, builds) = (cluster.nodes.all(), cluster.pools.all(), cluster.os_builds.all());
        let configs = cluster.config_metadata.all();
        let used = rendered_configs::in_use(
            nodes.iter().map(Arc::as_ref),
            pools.iter().map(Arc::as_ref),
            builds.iter().map(Arc::as_ref),
        );
        let metadata = configs.iter().map(|config| &config.metadata);
        let steps = retention::steps(metadata, &used, cluster.options.kept_configs);
        steps
            .into_iter()
            .map(|(name, step)| (name.to_owned(), step))
            .collect()
    };
    for (name, step) in steps {
        match step {
            Step::Protect => set_protection(&cluster, &name, true).await?,
            Step::Release => set_protection(&cluster, &name, false).await?,
            Step::Delete => {
                set_protection(&cluster, &name, false).await?;
                delete(&cluster, &name).await?;
            }
        }
    }
    Ok(Again::After(AGAIN))
}

async fn set_protection(cluster: &Cluster, name: &str, protect: bool) -> Result<(), Error> {
    let Some(config) = cluster.config_metadata.get(name) else {
        return Ok(());
    };
    let before = config.metadata.finalizers.clone().unwrap_or_default();
    let mut after = before.clone();
    after.retain(|finalizer| finalizer != RENDERED_CONFIG_IN_USE);
    if protect {
        after.push(RENDERED_CONFIG_IN_USE.to_owned());
    }
    if after == before {
        return Ok(());
    }
    let patch: Value = json!({"metadata": {
        "finalizers": after,
        "resourceVersion": config.metadata.resource_version,
    }});
    let configs = cluster.api::<MachineConfig>();
    match configs
        .patch_metadata(name, &patches::by(MANAGER), &Patch::Merge(patch))
        .await
    {
        Ok(written) => {
            debug!(config = name, protect, "the rendered config is marked");
            cluster.config_metadata.learn(written);
            Ok(())
        }
        Err(problem) if is_not_found(&problem) => Ok(()),
        Err(problem) => Err(Error::api(format!("marking MachineConfig {name}"))(problem)),
    }
}

async fn delete(cluster: &Cluster, name: &str) -> Result<(), Error> {
    match cluster
        .api::<MachineConfig>()
        .delete(name, &DeleteParams::default())
        .await
    {
        Ok(_) => info!(config = name, "deleted; nobody uses it and there are newer ones"),
        Err(problem) if is_not_found(&problem) => {}
        Err(problem) => return Err(Error::api(format!("deleting MachineConfig {name}"))(problem)),
    }
    Ok(())
}
