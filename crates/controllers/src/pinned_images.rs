//! Tells each pool which PinnedImageSets its machines keep, as [`mco_core::rollout::pinned_images`] decides it. The pool's status is
//! written by the rollout alone, so what could not be decided is left here for it.

use std::collections::HashMap;
use std::sync::Arc;

use kube::api::Patch;
use mco_api::MachineConfigPool;
use mco_api::machine_config_pool::PinnedImageSetReference;
use mco_core::rollout::pinned_images::{self, Pinned};
use parking_lot::Mutex;
use serde_json::json;
use tracing::{info, warn};

use crate::cluster::Cluster;
use crate::error::{Error, is_not_found};
use crate::patches;
use crate::queue::Again;

const MANAGER: &str = "machine-config-controller-pinned-image-sets";

/// How it went, by pool.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    known: Mutex<HashMap<String, Result<(), String>>>,
}

impl Outcomes {
    pub fn of(&self, pool: &str) -> Option<Result<(), String>> {
        self.known.lock().get(pool).cloned()
    }

    pub fn forget(&self, pool: &str) {
        self.known.lock().remove(pool);
    }

    /// Says whether this is news.
    fn report(&self, pool: &str, outcome: Result<(), String>) -> bool {
        let mut known = self.known.lock();
        known.insert(pool.to_owned(), outcome.clone()) != Some(outcome)
    }
}

/// Writes the pool's list of sets if it is another.
pub(crate) async fn reconcile(cluster: Arc<Cluster>, name: String) -> Result<Again, Error> {
    let Some(pool) = cluster.pools.get(&name) else {
        return Ok(Again::OnChange);
    };
    let sets = cluster.pinned_image_sets.all();
    let decided = pinned_images::of_pool(&pool, sets.iter().map(|set| &set.metadata));
    let outcome = match decided {
        Ok(Pinned::LeftAlone) => Ok(()),
        Ok(Pinned::Sets(sets)) => {
            if sets != pool.spec.pinned_image_sets {
                write(&cluster, &name, &sets).await?;
            }
            Ok(())
        }
        Err(problem) => {
            warn!(pool = name, "which images are pinned stays as it is: {problem}");
            Err(problem.to_string())
        }
    };
    if cluster.pinned.report(&name, outcome) {
        cluster.queues.rollout.wake(name.as_str());
    }
    Ok(Again::OnChange)
}

async fn write(cluster: &Cluster, name: &str, sets: &[PinnedImageSetReference]) -> Result<(), Error> {
    let named: Vec<&str> = sets.iter().map(|set| set.name.as_str()).collect();
    info!(pool = name, sets = ?named, "the pool's machines keep other images");
    // Nothing at all where there are none, as in a pool that never had any.
    let sets = (!sets.is_empty()).then_some(sets);
    let patch = json!({"spec": {"pinnedImageSets": sets}});
    let pools = cluster.api::<MachineConfigPool>();
    match pools
        .patch(name, &patches::by(MANAGER), &Patch::Merge(patch))
        .await
    {
        Ok(written) => {
            cluster.pools.learn(written);
            Ok(())
        }
        // It left meanwhile.
        Err(problem) if is_not_found(&problem) => Ok(()),
        Err(problem) => Err(Error::api(format!("writing the image sets of pool {name}"))(
            problem,
        )),
    }
}
