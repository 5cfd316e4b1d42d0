//! Garbage-collects unused rendered MachineConfigs, and protects used ones with a finalizer.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, Patch};
use mco_api::MachineConfig;
use mco_api::vocabulary::finalizers::RENDERED_CONFIG_IN_USE;
use mco_core::config::rendered_configs;
use mco_core::config::retention::{self, RetentionStep};
use mco_runtime::patch::unless_gone;
use mco_runtime::{FieldManager, Requeue};
use serde_json::{Value, json};
use tracing::{debug, info};

use crate::context::Context;
use crate::error::Error;

const MANAGER: FieldManager = FieldManager::new("machine-config-controller-collector");
/// A resync, for changes that enqueue nothing.
const RESYNC: Duration = Duration::from_mins(10);

/// Protects, releases and deletes rendered MachineConfigs as [`retention::steps`] decides.
pub(crate) async fn reconcile(ctx: Arc<Context>, (): ()) -> Result<Requeue, Error> {
    let stores = &ctx.stores;
    let unreadable = [
        stores.nodes.unreadable(),
        stores.pools.unreadable(),
        stores.os_builds.unreadable(),
    ]
    .concat();
    if let Some(object) = unreadable.first() {
        // It may use any config.
        debug!("no rendered config is deleted: {object}");
        return Ok(Requeue::After(RESYNC));
    }
    let steps: Vec<(String, RetentionStep)> = {
        let (nodes, pools, builds) = (stores.nodes.all(), stores.pools.all(), stores.os_builds.all());
        let configs = stores.config_metadata.all();
        let used = rendered_configs::in_use(
            nodes.iter().map(Arc::as_ref),
            pools.iter().map(Arc::as_ref),
            builds.iter().map(Arc::as_ref),
        );
        let metadata = configs.iter().map(|config| &config.metadata);
        let steps = retention::steps(metadata, &used, ctx.options.kept_configs);
        steps
            .into_iter()
            .map(|(name, step)| (name.to_owned(), step))
            .collect()
    };
    for (name, step) in steps {
        match step {
            RetentionStep::Protect => set_protection(&ctx, &name, Protection::Add).await?,
            RetentionStep::Release => set_protection(&ctx, &name, Protection::Remove).await?,
            RetentionStep::Delete => {
                set_protection(&ctx, &name, Protection::Remove).await?;
                delete(&ctx, &name).await?;
            }
        }
    }
    Ok(Requeue::After(RESYNC))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protection {
    Add,
    Remove,
}

async fn set_protection(ctx: &Context, name: &str, protection: Protection) -> Result<(), Error> {
    let Some(config) = ctx.stores.config_metadata.get(name) else {
        return Ok(());
    };
    let before = config.metadata.finalizers.clone().unwrap_or_default();
    let mut after = before.clone();
    after.retain(|finalizer| finalizer != RENDERED_CONFIG_IN_USE);
    if protection == Protection::Add {
        after.push(RENDERED_CONFIG_IN_USE.to_owned());
    }
    if after == before {
        return Ok(());
    }
    let patch: Value = json!({"metadata": {
        "finalizers": after,
        "resourceVersion": config.metadata.resource_version,
    }});
    let configs = ctx.api::<MachineConfig>();
    let written = configs
        .patch_metadata(name, &MANAGER.patch_params(), &Patch::Merge(patch))
        .await;
    let attempt = format!("updating the finalizers of MachineConfig {name}");
    if let Some(written) = unless_gone(written).map_err(Error::api(attempt))? {
        debug!(
            config = name,
            ?protection,
            "updated the rendered config's finalizer"
        );
        ctx.stores.config_metadata.observe_write(written);
    }
    Ok(())
}

async fn delete(ctx: &Context, name: &str) -> Result<(), Error> {
    let configs = ctx.api::<MachineConfig>();
    let deleted = unless_gone(configs.delete(name, &DeleteParams::default()).await)
        .map_err(Error::api(format!("deleting MachineConfig {name}")))?;
    if deleted.is_some() {
        info!(config = name, "deleted an unused rendered config");
    }
    Ok(())
}
