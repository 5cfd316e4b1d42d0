//! Watch caches of the objects that decide which images a node pins.

use std::collections::BTreeMap;
use std::pin::Pin;

use futures::{Stream, StreamExt as _};
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use mco_api::{MachineConfigPool, PinnedImageSet};
use mco_core::rollout::kept_images::{self, ImageSet};

use super::facts::NodeFacts;

type Events<K> = Pin<Box<dyn Stream<Item = Result<Event<K>, watcher::Error>> + Send>>;

/// Caches of the sets and, while there are sets, of the pools.
pub(super) struct Sources {
    client: kube::Client,
    set_events: Events<PinnedImageSet>,
    sets: Copies<ImageSet>,
    pool_events: Option<Events<MachineConfigPool>>,
    pools: Copies<MachineConfigPool>,
}

impl Sources {
    pub fn new(client: kube::Client) -> Self {
        Self {
            set_events: events(client.clone()),
            client,
            sets: Copies::default(),
            pool_events: None,
            pools: Copies::default(),
        }
    }

    /// Waits for a watch event and applies it. Cancel-safe: no event is lost if the future is dropped.
    pub async fn news(&mut self) {
        let pool_events = &mut self.pool_events;
        let next_pool = async {
            match pool_events {
                Some(events) => events.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = self.set_events.next() => {
                self.sets.take(event, |set: &PinnedImageSet| ImageSet::from(set));
                self.follow_pools();
            }
            event = next_pool => self.pools.take(event, essence),
        }
    }

    fn follow_pools(&mut self) {
        if self.sets.known.is_empty() {
            self.pool_events = None;
            self.pools = Copies::default();
        } else if self.pool_events.is_none() {
            self.pool_events = Some(events(self.client.clone()));
        }
    }

    /// Returns the image sets the node should pin; `None` until the caches are complete.
    pub fn wanted(&self, facts: &NodeFacts) -> Option<Vec<ImageSet>> {
        if !self.sets.complete {
            return None;
        }
        if self.sets.known.is_empty() {
            return Some(Vec::new());
        }
        if !self.pools.complete {
            return None;
        }
        kept_images::wanted(&facts.labels, self.pools.known.values(), &self.sets.known)
    }
}

/// Returns the pool without the long fields that are not needed here, to keep the cache small.
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

fn events<K>(client: kube::Client) -> Events<K>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + 'static,
{
    Box::pin(watch(Api::all(client), watcher::Config::default()).default_backoff())
}

/// A cache of all objects of one kind, by name.
struct Copies<T> {
    known: BTreeMap<String, T>,
    /// Objects of an initial list that is not complete yet.
    arriving: BTreeMap<String, T>,
    complete: bool,
    interrupted: bool,
}

impl<T> Default for Copies<T> {
    fn default() -> Self {
        Self {
            known: BTreeMap::new(),
            arriving: BTreeMap::new(),
            complete: false,
            interrupted: false,
        }
    }
}

impl<T> Copies<T> {
    fn take<K: kube::Resource<DynamicType = ()>>(
        &mut self,
        event: Option<Result<Event<K>, watcher::Error>>,
        copy: impl Fn(&K) -> T,
    ) {
        let name = |object: &K| object.meta().name.clone().unwrap_or_default();
        match event {
            Some(Ok(Event::Init)) => self.arriving.clear(),
            Some(Ok(Event::InitApply(object))) => {
                self.arriving.insert(name(&object), copy(&object));
            }
            Some(Ok(Event::InitDone)) => {
                self.known = std::mem::take(&mut self.arriving);
                self.complete = true;
                self.interrupted = false;
            }
            Some(Ok(Event::Apply(object))) => {
                self.known.insert(name(&object), copy(&object));
                self.interrupted = false;
            }
            Some(Ok(Event::Delete(object))) => {
                self.known.remove(&name(&object));
            }
            // The watch reconnects by itself, so only the first error is logged.
            Some(Err(error)) if !self.interrupted => {
                self.interrupted = true;
                tracing::warn!(kind = %K::kind(&()), %error, "a watch was interrupted");
            }
            Some(Err(_)) | None => {}
        }
    }
}
