//! The target of a pool, `spec.configuration`. Only renders set it: a target that another client has written is not
//! rolled out, and is replaced by the next render, or by the last own target where rendering fails.

use mco_api::MachineConfigPool;
use mco_api::machine_config_pool::MachineConfigPoolConfiguration;
use mco_api::vocabulary::names;
use mco_core::config::rendered_configs;
use mco_core::rollout::TargetState;
use mco_runtime::{FieldManager, object_name, patch};
use serde_json::json;
use tracing::{info, warn};

use crate::context::Context;
use crate::error::Error;

const MANAGER: FieldManager = FieldManager::new("machine-config-controller-render");

/// Returns whether the pool's target is our own, and whether a render that may replace it is pending.
pub(crate) fn target_state(ctx: &Context, pool: &MachineConfigPool, render: PendingRender) -> TargetState {
    match render {
        _ if !is_own_or_empty(ctx, pool) => TargetState::NotOurs,
        PendingRender::Yes => TargetState::Rendering,
        PendingRender::No => TargetState::Settled,
    }
}

/// Whether a render of a pool is due or running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PendingRender {
    Yes,
    No,
}

impl PendingRender {
    /// Must be called before the pool is read: the result of a render that has ended by then is seen in the pool.
    pub fn of_pool(ctx: &Context, pool: &str) -> Self {
        if ctx.queues.render.is_pending(pool) {
            Self::Yes
        } else {
            Self::No
        }
    }
}

/// Returns true if nodes may be updated to the pool's target. A pool without a target updates no node.
fn is_own_or_empty(ctx: &Context, pool: &MachineConfigPool) -> bool {
    let configuration = &pool.spec.configuration;
    configuration.name().is_empty()
        || ctx
            .renders
            .is_own_target(object_name(&pool.metadata), configuration)
}

/// Sets the pool's target to what was rendered from its current sources.
pub(crate) async fn set_target(
    ctx: &Context,
    pool: &MachineConfigPool,
    configuration: MachineConfigPoolConfiguration,
) -> Result<(), Error> {
    let (name, to) = (object_name(&pool.metadata), configuration.name().to_owned());
    if pool.spec.configuration == configuration {
        adopt_target(ctx, name, configuration);
        return Ok(());
    }
    ctx.renders.begin_target(name, configuration.clone());
    let patch = json!({"spec": {"configuration": patch::diff(&pool.spec.configuration, &configuration)}});
    let written = ctx.stores.pools.patch(&ctx.api(), name, MANAGER, &patch).await;
    if written
        .map_err(Error::api(format!("pointing pool {name} at {to}")))?
        .is_none()
    {
        return Ok(());
    }
    if pool.target_name() != to {
        info!(
            pool = name,
            from = pool.target_name(),
            to,
            "set a new target for the pool"
        );
    }
    adopt_target(ctx, name, configuration);
    Ok(())
}

/// Keeps the last good target of a pool that cannot be rendered: the one that this process set, or, if it has set
/// none, the one that it found, which the process before has set. Whether another client has changed it between the
/// two processes cannot be determined.
pub(crate) async fn restore_last_target(ctx: &Context, pool: &MachineConfigPool) -> Result<(), Error> {
    let name = object_name(&pool.metadata);
    let found = &pool.spec.configuration;
    if is_own_or_empty(ctx, pool) {
        return Ok(());
    }
    let rendered_for = |config: &str| {
        let config = ctx.stores.config_metadata.get(config)?;
        rendered_configs::pool_of(&config.metadata).map(str::to_owned)
    };
    match ctx.renders.last_target(name) {
        Some(last) if rendered_for(last.name()).as_deref() == Some(name) => {
            warn!(
                pool = name,
                target = found.name(),
                "another client changed spec.configuration; restoring it, no node was updated to it"
            );
            set_target(ctx, pool, last).await
        }
        None if rendered_for(found.name()).as_deref() == Some(name) => {
            adopt_target(ctx, name, found.clone());
            Ok(())
        }
        _ => {
            warn!(
                pool = name,
                target = found.name(),
                "spec.configuration was not set by this controller; no node is updated to it"
            );
            Ok(())
        }
    }
}

/// Records the pool's target as ours, and enqueues the rollouts that depend on it.
fn adopt_target(ctx: &Context, pool: &str, configuration: MachineConfigPoolConfiguration) {
    let is_new = !ctx.renders.is_own_target(pool, &configuration);
    ctx.renders.commit_target(pool, configuration);
    if is_new {
        ctx.queues.rollout.enqueue(pool);
        if pool == names::pool::MASTER {
            ctx.queues.rollout.enqueue(names::pool::ARBITER);
        }
    }
}
