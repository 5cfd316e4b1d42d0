//! The objects that decide which images a node pre-pulls.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::Pin;

use futures::{Stream, StreamExt as _};
use kube::Resource;
use kube::api::Api;
use kube::runtime::watcher;
use mco_api::{MachineConfigPool, PinnedImageSet};
use mco_core::rollout::pinned_images_on_node::{self, ImageSet};
use mco_runtime::{Reflected, object_name};
use serde::de::DeserializeOwned;

use super::facts::NodeFacts;

/// PinnedImageSets, and pools while there are sets. Both are kept without what this node does not read, because every node
/// keeps them.
pub(super) struct Sources {
    client: kube::Client,
    sets: Watched<PinnedImageSet>,
    pools: Option<Watched<MachineConfigPool>>,
}

impl Sources {
    pub fn new(client: kube::Client) -> Self {
        Self {
            sets: Watched::new(client.clone(), |set| set.metadata.managed_fields = None),
            client,
            pools: None,
        }
    }

    /// Waits for the next change and applies it. Cancel-safe.
    pub async fn changed(&mut self) {
        let pools = &mut self.pools;
        let next_pool = async {
            match pools {
                Some(pools) => pools.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.sets.next() => self.watch_pools_if_needed(),
            () = next_pool => {}
        }
    }

    fn watch_pools_if_needed(&mut self) {
        let sets = self.sets.objects.listed();
        if sets.is_none_or(|sets| sets.is_empty()) {
            self.pools = None;
        } else if self.pools.is_none() {
            self.pools = Some(Watched::new(self.client.clone(), |pool| *pool = essence(pool)));
        }
    }

    /// Returns the image sets of the node; `None` until all objects are listed.
    pub fn wanted(&self, facts: &NodeFacts) -> Option<Vec<ImageSet>> {
        let sets = self.sets.objects.listed()?;
        if sets.is_empty() {
            return Some(Vec::new());
        }
        let pools = self.pools.as_ref()?.objects.listed()?;
        let sets: BTreeMap<String, ImageSet> = sets
            .iter()
            .map(|set| {
                (
                    object_name(&set.metadata).to_owned(),
                    ImageSet::from(set.as_ref()),
                )
            })
            .collect();
        pinned_images_on_node::wanted(&facts.labels, pools.iter().map(AsRef::as_ref), &sets)
    }
}

/// Returns a pool with only the fields that select nodes and image sets.
fn essence(pool: &MachineConfigPool) -> MachineConfigPool {
    let mut essence = MachineConfigPool::default();
    essence.metadata.name.clone_from(&pool.metadata.name);
    essence.spec.node_selector.clone_from(&pool.spec.node_selector);
    essence
        .spec
        .pinned_image_sets
        .clone_from(&pool.spec.pinned_image_sets);
    essence
}

struct Watched<K>
where
    K: Resource<DynamicType = ()> + 'static,
{
    objects: Reflected<K>,
    events: Pin<Box<dyn Stream<Item = Result<(), watcher::Error>> + Send>>,
    interrupted: bool,
}

impl<K> Watched<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    fn new(client: kube::Client, transform: fn(&mut K)) -> Self {
        let (objects, events) = Reflected::watch(Api::all(client), transform);
        Self {
            objects,
            events: Box::pin(events),
            interrupted: false,
        }
    }

    /// Applies the next event. The watch resumes by itself after an error, so the first one of a series is logged.
    async fn next(&mut self) {
        match self.events.next().await {
            Some(Ok(())) => self.interrupted = false,
            Some(Err(error)) if !self.interrupted => {
                self.interrupted = true;
                tracing::warn!(kind = %K::kind(&()), %error, "watch interrupted; retrying");
            }
            Some(Err(_)) | None => {}
        }
    }
}
