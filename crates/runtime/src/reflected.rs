//! kube's reflector, for readers that write nothing they read.

use std::fmt::Debug;
use std::sync::Arc;

use futures::{FutureExt as _, Stream, StreamExt as _};
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt as _, reflector};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// The objects of one kind as a watch reports them, without write-through.
#[derive(Debug)]
pub struct Reflected<K>
where
    K: Resource<DynamicType = ()> + 'static,
{
    reader: reflector::Store<K>,
}

impl<K> Reflected<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Starts no task: the objects change when the returned stream is polled. It yields once per event of the watch,
    /// after the event was applied, and the errors between which the watch backs off. `transform` removes from each
    /// object what no reader needs.
    pub fn watch(
        api: Api<K>,
        transform: impl FnMut(&mut K) + Send + 'static,
    ) -> (
        Self,
        impl Stream<Item = Result<(), watcher::Error>> + Send + 'static,
    ) {
        let (reader, writer) = reflector::store();
        let events = watcher(api, watcher::Config::default())
            .default_backoff()
            .modify(transform)
            .reflect(writer)
            .map(|event| event.map(|_| ()));
        (Self { reader }, events)
    }

    /// Returns all objects, ordered by name; `None` until the first list is complete.
    pub fn listed(&self) -> Option<Vec<Arc<K>>> {
        if !matches!(self.reader.wait_until_ready().now_or_never(), Some(Ok(()))) {
            return None;
        }
        let mut all = self.reader.state();
        all.sort_by_cached_key(|object| object.meta().name.clone());
        Some(all)
    }
}
