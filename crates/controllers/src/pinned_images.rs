//! Writes into each pool which PinnedImageSets apply to its nodes, as [`mco_core::rollout::pinned_images`] decides. A
//! pool's status has one writer, the rollout, so errors are recorded here for it.

use std::collections::HashMap;
use std::sync::Arc;

use mco_api::machine_config_pool::PinnedImageSetReference;
use mco_core::rollout::pinned_images::{self, PinnedImages};
use mco_runtime::{FieldManager, Requeue};
use parking_lot::Mutex;
use serde_json::json;
use tracing::{info, warn};

use crate::context::Context;
use crate::error::Error;

const MANAGER: FieldManager = FieldManager::new("machine-config-controller-pinned-image-sets");

/// The result of the last reconcile of each pool.
#[derive(Debug, Default)]
pub(crate) struct PinnedImageResults {
    by_pool: Mutex<HashMap<String, Result<(), String>>>,
}

impl PinnedImageResults {
    pub fn of_pool(&self, pool: &str) -> Option<Result<(), String>> {
        self.by_pool.lock().get(pool).cloned()
    }

    pub fn remove(&self, pool: &str) {
        self.by_pool.lock().remove(pool);
    }

    /// Records a result. Returns true if it differs from the last one.
    fn record(&self, pool: &str, result: Result<(), String>) -> bool {
        let mut by_pool = self.by_pool.lock();
        by_pool.insert(pool.to_owned(), result.clone()) != Some(result)
    }
}

/// Writes the pool's list of sets if it has changed.
pub(crate) async fn reconcile(ctx: Arc<Context>, name: String) -> Result<Requeue, Error> {
    let Some(pool) = ctx.stores.pools.get(&name) else {
        return Ok(Requeue::OnChange);
    };
    let sets = ctx.stores.pinned_image_sets.all();
    let decided = pinned_images::of_pool(&pool, sets.iter().map(|set| &set.metadata));
    let result = match decided {
        Ok(PinnedImages::LeftAlone) => Ok(()),
        Ok(PinnedImages::Sets(sets)) => {
            if sets != pool.spec.pinned_image_sets {
                write(&ctx, &name, &sets).await?;
            }
            Ok(())
        }
        Err(problem) => {
            warn!(pool = name, "spec.pinnedImageSets not updated: {problem}");
            Err(problem.to_string())
        }
    };
    if ctx.pinned_images.record(&name, result) {
        ctx.queues.rollout.enqueue(name);
    }
    Ok(Requeue::OnChange)
}

async fn write(ctx: &Context, name: &str, sets: &[PinnedImageSetReference]) -> Result<(), Error> {
    let names: Vec<&str> = sets.iter().map(|set| set.name.as_str()).collect();
    info!(pool = name, sets = ?names, "updating the pool's pinned image sets");
    // An empty list is removed, as in a pool that never had one.
    let sets = (!sets.is_empty()).then_some(sets);
    let patch = json!({"spec": {"pinnedImageSets": sets}});
    let written = ctx.stores.pools.patch(&ctx.api(), name, MANAGER, &patch).await;
    written.map_err(Error::api(format!("writing the image sets of pool {name}")))?;
    Ok(())
}
