//! A local copy of some of the cluster's objects.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::warn;

/// The objects of one kind, by name, as last seen.
#[derive(Debug)]
pub struct Mirror<K> {
    /// `None` until the first full list has come.
    objects: Mutex<Option<BTreeMap<String, K>>>,
}

impl<K> Mirror<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// Follows the objects for as long as `watches` lives, and says so through `changed`.
    pub fn start(
        api: Api<K>,
        config: watcher::Config,
        changed: Arc<Notify>,
        watches: &mut JoinSet<()>,
    ) -> Arc<Self> {
        let mirror = Arc::new(Self {
            objects: Mutex::new(None),
        });
        let copy = Arc::clone(&mirror);
        watches.spawn(async move {
            let mut events = watch(api, config).default_backoff().boxed();
            let mut arriving = BTreeMap::new();
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => {
                        if copy.take(event, &mut arriving) {
                            changed.notify_one();
                        }
                    }
                    Err(problem) => {
                        if is_unknown_kind(&problem) {
                            copy.replace(BTreeMap::new());
                            changed.notify_one();
                        } else {
                            warn!("cannot watch {}: {problem}", std::any::type_name::<K>());
                        }
                    }
                }
            }
        });
        mirror
    }

    /// Takes in one event. Says whether anything that can be seen from outside changed.
    fn take(&self, event: Event<K>, arriving: &mut BTreeMap<String, K>) -> bool {
        match event {
            Event::Init => arriving.clear(),
            Event::InitApply(object) => {
                arriving.insert(name(&object), object);
            }
            Event::InitDone => {
                self.replace(std::mem::take(arriving));
                return true;
            }
            Event::Apply(object) => {
                self.change(|objects| {
                    objects.insert(name(&object), object);
                });
                return true;
            }
            Event::Delete(object) => {
                self.change(|objects| {
                    objects.remove(&name(&object));
                });
                return true;
            }
        }
        false
    }

    fn replace(&self, objects: BTreeMap<String, K>) {
        *self.objects.lock().unwrap_or_else(PoisonError::into_inner) = Some(objects);
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, K>)) {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(objects) = objects.as_mut() {
            change(objects);
        }
    }

    /// All objects; `None` until they are known.
    pub fn all(&self) -> Option<Vec<K>> {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects
            .as_ref()
            .map(|objects| objects.values().cloned().collect())
    }
}

fn name<K: Resource>(object: &K) -> String {
    object.meta().name.clone().unwrap_or_default()
}

/// A cluster without this kind has no objects of it.
fn is_unknown_kind(problem: &watcher::Error) -> bool {
    matches!(
        problem,
        // The path itself is unknown then, so there is no Status with a reason.
        watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404
    )
}
