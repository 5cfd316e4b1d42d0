//! What a pool's machines go to: renders give it, and nobody else. A target that somebody else has written is not followed,
//! and is undone as soon as the pool has been rendered again, or at once when it cannot be.

use kube::api::Patch;
use mco_api::MachineConfigPool;
use mco_api::machine_config_pool::MachineConfigPoolConfiguration;
use mco_api::vocabulary::names;
use mco_core::config::rendered_configs;
use mco_core::rollout::Standing;
use serde_json::json;
use tracing::{info, warn};

use crate::cluster::Cluster;
use crate::error::Error;
use crate::name_of;
use crate::patches;

const MANAGER: &str = "machine-config-controller-render";

/// How long the pool's target is good for.
pub(crate) fn standing(cluster: &Cluster, pool: &MachineConfigPool, render: Render) -> Standing {
    match render {
        _ if !may_be_followed(cluster, pool) => Standing::Foreign,
        Render::Pending => Standing::MayChange,
        Render::Over => Standing::Final,
    }
}

/// Whether a pool is about to be rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Render {
    Pending,
    Over,
}

impl Render {
    /// To be asked before the pool is read: a render that is over by then is seen in the pool.
    pub fn of(cluster: &Cluster, pool: &str) -> Self {
        if cluster.queues.render.is_pending(pool) {
            Self::Pending
        } else {
            Self::Over
        }
    }
}

/// Whether nodes may be sent where the pool points. A pool that points nowhere sends nobody.
fn may_be_followed(cluster: &Cluster, pool: &MachineConfigPool) -> bool {
    let configuration = &pool.spec.configuration;
    configuration.name().is_empty() || cluster.renders.is_own(name_of(&pool.metadata), configuration)
}

/// Points the pool at what was rendered from its present sources.
pub(crate) async fn give(
    cluster: &Cluster,
    pool: &MachineConfigPool,
    configuration: MachineConfigPoolConfiguration,
) -> Result<(), Error> {
    let (name, to) = (name_of(&pool.metadata), configuration.name().to_owned());
    if pool.spec.configuration == configuration {
        own(cluster, name, configuration);
        return Ok(());
    }
    cluster.renders.gives(name, configuration.clone());
    let patch = Patch::Merge(json!({
        "spec": {"configuration": patches::between(&pool.spec.configuration, &configuration)}
    }));
    let written = cluster
        .api::<MachineConfigPool>()
        .patch(name, &patches::by(MANAGER), &patch)
        .await
        .map_err(Error::api(format!("pointing pool {name} at {to}")))?;
    if pool.target_name() != to {
        info!(
            pool = name,
            from = pool.target_name(),
            to,
            "the pool has a new target"
        );
    }
    own(cluster, name, configuration);
    cluster.pools.learn(written);
    Ok(())
}

/// The pool's present sources give no target, so the last good one stays: the one that we gave, or, if this process has
/// given none, the one that we found, because it was given by the process before. Who changed it while nobody looked and
/// nothing could be rendered cannot be told from that.
pub(crate) async fn stand_by(cluster: &Cluster, pool: &MachineConfigPool) -> Result<(), Error> {
    let name = name_of(&pool.metadata);
    let found = &pool.spec.configuration;
    if may_be_followed(cluster, pool) {
        return Ok(());
    }
    let rendered_for = |config: &str| {
        let config = cluster.config_metadata.get(config)?;
        rendered_configs::pool_of(&config.metadata).map(str::to_owned)
    };
    match cluster.renders.given(name) {
        Some(given) if rendered_for(given.name()).as_deref() == Some(name) => {
            warn!(
                pool = name,
                target = found.name(),
                "somebody gave the pool another target; it has its own again, and no node was sent there"
            );
            give(cluster, pool, given).await
        }
        None if rendered_for(found.name()).as_deref() == Some(name) => {
            own(cluster, name, found.clone());
            Ok(())
        }
        _ => {
            warn!(
                pool = name,
                target = found.name(),
                "no node is sent to a target that is not ours"
            );
            Ok(())
        }
    }
}

/// From now on this is the pool's target, and whoever waited for that goes on.
fn own(cluster: &Cluster, pool: &str, configuration: MachineConfigPoolConfiguration) {
    let is_news = !cluster.renders.is_own(pool, &configuration);
    cluster.renders.gave(pool, configuration);
    if is_news {
        cluster.queues.rollout.wake(pool);
        if pool == names::pool::MASTER {
            cluster.queues.rollout.wake(names::pool::ARBITER);
        }
    }
}
