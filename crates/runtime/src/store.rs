//! A reflector with write-through: the objects of one kind, from one watch and from the component's own writes.
//!
//! kube's reflector shows a write only when the watch delivers it. A reconciler that runs before that would decide from
//! a state older than its own last write, and for example start more updates than the budget allows. Here the response
//! of each write is stored at once, and the watch never replaces it by an older version.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Debug};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tracing::{debug, error, warn};

use crate::lenient::{Lenient, UnreadableObject, UnreadableObjects};
use crate::patch::{self, FieldManager};
use crate::watch_backoff::{is_unserved_kind, with_backoff};

/// An object before and after a change. At least one of them is set.
#[derive(Debug)]
pub struct ObjectChange<'a, K> {
    pub old: Option<&'a Arc<K>>,
    pub new: Option<&'a Arc<K>>,
}

impl<'a, K> ObjectChange<'a, K> {
    /// Returns the object as it is, or as it was before it was deleted.
    pub fn latest(&self) -> Option<&'a Arc<K>> {
        self.new.or(self.old)
    }
}

/// What a store does with an object that cannot be decoded. It is reported in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnreadablePolicy {
    /// The object is left out until it can be decoded again.
    LeaveOut,
    /// The last version that could be decoded stays. Without one the store does not become ready.
    KeepLast,
}

type Handler<K> = Box<dyn Fn(&ObjectChange<'_, K>) + Send + Sync>;

/// The objects of one kind, as last seen.
pub struct Store<K> {
    state: RwLock<StoreState<K>>,
    /// Objects of the watch that are left out, because they cannot be decoded.
    unreadable: Mutex<UnreadableObjects>,
    unreadable_policy: UnreadablePolicy,
    ready: watch::Sender<bool>,
    transform: fn(&mut K),
    on_change: Handler<K>,
}

struct StoreState<K> {
    objects: HashMap<String, Arc<K>>,
    /// The first list was received.
    is_listed: bool,
    /// While a list is received: keys written by this process since it began, which the list may not contain yet.
    written: Option<HashSet<String>>,
}

impl<K> Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("objects", &self.state.read().objects.len())
            .field("ready", &*self.ready.borrow())
            .finish_non_exhaustive()
    }
}

impl<K> Store<K>
where
    K: Resource + Clone + Debug + Send + Sync + 'static,
{
    /// Creates an empty store. `transform` removes from each object what no reader needs, before it is stored.
    /// `on_change` is called after each change, outside the store's lock.
    pub fn new(
        transform: fn(&mut K),
        on_change: impl Fn(&ObjectChange<'_, K>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            state: RwLock::new(StoreState {
                objects: HashMap::new(),
                is_listed: false,
                written: None,
            }),
            unreadable: Mutex::default(),
            unreadable_policy: UnreadablePolicy::LeaveOut,
            ready: watch::Sender::new(false),
            transform,
            on_change: Box::new(on_change),
        }
    }

    /// Keeps the last version of an object that can no longer be decoded, and becomes ready only when every object was
    /// decoded once. For kinds whose absence has an effect: a pool that is left out would lose its nodes.
    #[must_use]
    pub fn keep_last_readable(mut self) -> Self {
        self.unreadable_policy = UnreadablePolicy::KeepLast;
        self
    }

    /// Returns the object with this key; see [`object_key`].
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        self.state.read().objects.get(key).cloned()
    }

    /// Returns all objects, in no order.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.state.read().objects.values().cloned().collect()
    }

    /// Returns copies of all objects, ordered by key.
    pub fn sorted(&self) -> Vec<K> {
        let mut all: Vec<K> = self.all().iter().map(|object| K::clone(object)).collect();
        all.sort_by_cached_key(object_key);
        all
    }

    /// Returns copies of all objects, ordered by key; `None` until the first list is complete.
    pub fn listed(&self) -> Option<Vec<K>> {
        self.is_ready().then(|| self.sorted())
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    /// Returns true if there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the objects that are left out, because they cannot be decoded.
    pub fn unreadable(&self) -> Vec<UnreadableObject> {
        self.unreadable.lock().all()
    }

    /// Returns true once the first list is complete and every handler has run for it.
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Waits until the first list is complete and every handler has run for it.
    pub async fn wait_until_ready(&self) {
        let mut ready = self.ready.subscribe();
        // It fails only when the sender is dropped, which lives as long as this store.
        let _ = ready.wait_for(|ready| *ready).await;
    }

    /// Applies the response of a write of this process, so that readers never see an older version. An object that the
    /// watch has reported as deleted does not come back. Returns the object as readers see it.
    pub fn observe_write(&self, object: K) -> Arc<K> {
        let object = Arc::new(self.transformed(object));
        self.put(&object, ChangeOrigin::OwnWrite);
        object
    }

    /// Sends a JSON merge patch and applies the response. Returns `None` if the object does not exist.
    pub async fn patch(
        &self,
        api: &Api<K>,
        name: &str,
        manager: FieldManager,
        patch: &impl Serialize,
    ) -> kube::Result<Option<Arc<K>>>
    where
        K: DeserializeOwned,
    {
        let written = patch::merge(api, name, manager, patch).await?;
        Ok(written.map(|written| self.observe_write(written)))
    }

    /// Sends a JSON merge patch to the status subresource and applies the response. Returns `None` if the object does
    /// not exist.
    pub async fn patch_status(
        &self,
        api: &Api<K>,
        name: &str,
        manager: FieldManager,
        patch: &impl Serialize,
    ) -> kube::Result<Option<Arc<K>>>
    where
        K: DeserializeOwned,
    {
        let written = patch::merge_status(api, name, manager, patch).await?;
        Ok(written.map(|written| self.observe_write(written)))
    }

    /// Applies the events of a watch until it ends, with backoff between failures. An object that cannot be decoded is
    /// reported, and left out until it can be decoded again (but see [`Store::keep_last_readable`]).
    pub async fn follow<E>(&self, events: impl Stream<Item = Result<Event<E>, watcher::Error>> + Send)
    where
        E: Into<Lenient<K>> + Send + 'static,
    {
        let mut events = std::pin::pin!(with_backoff(events));
        let (mut listed, mut unreadable) = (Vec::new(), Vec::new());
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => {
                    listed.clear();
                    unreadable.clear();
                    self.state.write().written = Some(HashSet::new());
                }
                Ok(Event::InitApply(object)) => match object.into().0 {
                    Ok(object) => listed.push(self.transformed(object)),
                    Err(object) => unreadable.push(object),
                },
                Ok(Event::InitDone) => {
                    self.unreadable.lock().replace(std::mem::take(&mut unreadable));
                    self.replace(std::mem::take(&mut listed));
                }
                Ok(Event::Apply(object)) => self.apply(object.into()),
                Ok(Event::Delete(object)) => {
                    let object: Lenient<K> = object.into();
                    self.unreadable.lock().remove(&object);
                    self.remove(&object_key(&object));
                    self.set_ready();
                }
                // A cluster without this kind has no objects of it.
                Err(problem) if is_unserved_kind(&problem) => {
                    debug!(kind = %kind::<K>(), "the cluster does not serve this kind");
                    self.replace(Vec::new());
                }
                Err(problem) => warn!(kind = %kind::<K>(), "watch failed: {problem}; retrying"),
            }
        }
    }

    fn transformed(&self, mut object: K) -> K {
        (self.transform)(&mut object);
        object
    }

    fn apply(&self, object: Lenient<K>) {
        match object.0 {
            Ok(object) => {
                self.unreadable.lock().remove(&object);
                self.put(&Arc::new(self.transformed(object)), ChangeOrigin::Watch);
                self.set_ready();
            }
            Err(unreadable) => {
                let key = unreadable.key();
                self.unreadable.lock().insert(unreadable);
                if self.unreadable_policy == UnreadablePolicy::LeaveOut {
                    self.remove(&key);
                }
            }
        }
    }

    fn put(&self, object: &Arc<K>, origin: ChangeOrigin) {
        let key = object_key(object.as_ref());
        let old = {
            let mut state = self.state.write();
            let old = state.objects.get(&key).cloned();
            match &old {
                Some(old) if !is_newer(object.as_ref(), old.as_ref()) => return,
                None if origin == ChangeOrigin::OwnWrite => return,
                _ => state.objects.insert(key.clone(), Arc::clone(object)),
            };
            if let Some(written) = state
                .written
                .as_mut()
                .filter(|_| origin == ChangeOrigin::OwnWrite)
            {
                written.insert(key);
            }
            old
        };
        self.notify(&ObjectChange {
            old: old.as_ref(),
            new: Some(object),
        });
    }

    fn remove(&self, key: &str) {
        let old = self.state.write().objects.remove(key);
        if let Some(old) = &old {
            self.notify(&ObjectChange {
                old: Some(old),
                new: None,
            });
        }
    }

    /// Replaces all objects by a complete list and calls the handler for each difference. The list wins even over a
    /// version that seems to be newer, because an API server that was restored from a backup reuses versions. Only
    /// objects written by this process while the list was received may really be newer.
    fn replace(&self, listed: Vec<K>) {
        let mut listed: HashMap<String, Arc<K>> = listed
            .into_iter()
            .map(|object| (object_key(&object), Arc::new(object)))
            .collect();
        let kept = match self.unreadable_policy {
            UnreadablePolicy::KeepLast => self.unreadable(),
            UnreadablePolicy::LeaveOut => Vec::new(),
        };
        let before = {
            let mut state = self.state.write();
            state.is_listed = true;
            for key in kept.iter().map(UnreadableObject::key) {
                if let Some(stored) = state.objects.get(&key) {
                    listed.insert(key, Arc::clone(stored));
                }
            }
            let written = state.written.take().unwrap_or_default();
            for (key, stored) in &state.objects {
                let Some(object) = listed.get_mut(key) else {
                    continue;
                };
                let is_same = object.meta().resource_version == stored.meta().resource_version;
                if is_same || (written.contains(key) && !is_newer(object.as_ref(), stored.as_ref())) {
                    *object = Arc::clone(stored);
                }
            }
            std::mem::replace(&mut state.objects, listed.clone())
        };
        for (key, new) in &listed {
            let old = before.get(key);
            if old.is_none_or(|old| !Arc::ptr_eq(old, new)) {
                self.notify(&ObjectChange { old, new: Some(new) });
            }
        }
        for (key, old) in &before {
            if !listed.contains_key(key) {
                self.notify(&ObjectChange {
                    old: Some(old),
                    new: None,
                });
            }
        }
        // Only after all handlers have run: a reconciler that sees half of a pool's nodes would spend the budget twice.
        self.set_ready();
    }

    /// Marks the store as ready if the first list is complete.
    fn set_ready(&self) {
        if self.is_ready() || !self.state.read().is_listed {
            return;
        }
        if self.unreadable_policy == UnreadablePolicy::LeaveOut || self.unreadable.lock().is_empty() {
            self.ready.send_replace(true);
        }
    }

    /// Calls the handler. A panic in it is counted and does not end the watch.
    fn notify(&self, change: &ObjectChange<'_, K>) {
        if catch_unwind(AssertUnwindSafe(|| (self.on_change)(change))).is_err() {
            mco_telemetry::count_panic("watch");
            let key = change.latest().map(|object| object_key(object.as_ref()));
            error!(kind = %kind::<K>(), ?key, "the handler of a change panicked");
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChangeOrigin {
    Watch,
    OwnWrite,
}

/// Returns the name of an object; empty before the API server has assigned one.
pub fn object_name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

/// Returns `namespace/name`, or the name of a cluster-scoped object.
pub fn object_key<K: Resource>(object: &K) -> String {
    key_of(object.meta())
}

pub(crate) fn key_of(meta: &ObjectMeta) -> String {
    let name = object_name(meta);
    match &meta.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// Returns true if `object` is a later version than `stored`. Resource versions of one resource are increasing
/// numbers; an object whose version is not a number counts as newer.
fn is_newer<K: Resource>(object: &K, stored: &K) -> bool {
    let version = |object: &K| -> Option<u64> { object.meta().resource_version.as_ref()?.parse().ok() };
    match (version(object), version(stored)) {
        (Some(new), Some(old)) => new > old,
        _ => true,
    }
}

pub(crate) fn kind<K>() -> &'static str {
    std::any::type_name::<K>().rsplit("::").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use parking_lot::Mutex;

    use super::*;

    fn node(name: &str, version: u32) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        node.metadata.resource_version = Some(version.to_string());
        node
    }

    fn store() -> (Store<Node>, Arc<Mutex<Vec<String>>>) {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&seen);
        let version = |node: Option<&Arc<Node>>| {
            node.and_then(|node| node.metadata.resource_version.clone())
                .unwrap_or_else(|| "-".to_owned())
        };
        let store = Store::new(
            |_| {},
            move |change: &ObjectChange<'_, Node>| {
                let name = change
                    .latest()
                    .map(|node| object_key(node.as_ref()))
                    .unwrap_or_default();
                log.lock()
                    .push(format!("{name} {}>{}", version(change.old), version(change.new)));
            },
        );
        (store, seen)
    }

    #[tokio::test]
    async fn a_watch_that_lags_behind_our_own_writes_changes_nothing() {
        let (store, seen) = store();
        let events = [
            Ok(Event::Init),
            Ok(Event::InitApply(node("a", 1))),
            Ok(Event::InitDone),
        ];
        store.follow(futures::stream::iter(events)).await;
        store.observe_write(node("a", 5));
        store
            .follow(futures::stream::iter([
                Ok(Event::Apply(node("a", 3))),
                Ok(Event::Apply(node("a", 5))),
                Ok(Event::Apply(node("a", 6))),
            ]))
            .await;
        assert_eq!(*seen.lock(), ["a ->1", "a 1>5", "a 5>6"]);
    }

    #[tokio::test]
    async fn a_write_answered_after_the_object_was_deleted_does_not_bring_it_back() {
        let (store, seen) = store();
        let events = [Ok(Event::Apply(node("a", 1))), Ok(Event::Delete(node("a", 3)))];
        store.follow(futures::stream::iter(events)).await;
        store.observe_write(node("a", 2));
        assert!(store.get("a").is_none());
        assert_eq!(*seen.lock(), ["a ->1", "a 1>-"]);
    }

    #[tokio::test]
    async fn an_object_that_becomes_unreadable_is_left_out_until_it_is_readable_again() {
        let raw = |value: serde_json::Value| serde_json::from_value::<Lenient<Node>>(value).unwrap();
        let good = |name: &str, version: &str| {
            raw(serde_json::json!({"metadata": {"name": name, "resourceVersion": version}}))
        };
        let bad = |name: &str, version: &str| {
            let metadata = serde_json::json!({"name": name, "resourceVersion": version});
            raw(serde_json::json!({"metadata": metadata, "status": {"addresses": [null]}}))
        };
        let keys = |store: &Store<Node>| store.sorted().iter().map(object_key).collect::<Vec<_>>();
        let left_out = |store: &Store<Node>| {
            let unreadable = store.unreadable();
            unreadable.iter().map(UnreadableObject::key).collect::<Vec<_>>()
        };
        let (store, seen) = store();
        let list = [
            Ok(Event::Init),
            Ok(Event::InitApply(good("a", "1"))),
            Ok(Event::InitApply(bad("b", "1"))),
            Ok(Event::InitApply(good("c", "1"))),
            Ok(Event::InitDone),
        ];
        store.follow(futures::stream::iter(list)).await;
        assert!(store.is_ready());
        assert_eq!(
            (keys(&store), left_out(&store)),
            (vec!["a".into(), "c".into()], vec!["b".into()])
        );
        let change = |event| futures::stream::iter([Ok(event)]);
        store.follow(change(Event::Apply(bad("a", "2")))).await;
        assert_eq!(keys(&store), ["c"]);
        store.follow(change(Event::Apply(good("b", "3")))).await;
        store.follow(change(Event::Delete(bad("a", "4")))).await;
        assert_eq!(
            (keys(&store), left_out(&store)),
            (vec!["b".into(), "c".into()], vec![])
        );
        let mut seen = seen.lock().clone();
        seen.sort();
        assert_eq!(seen, ["a ->1", "a 1>-", "b ->3", "c ->1"]);
    }

    #[tokio::test]
    async fn where_absence_has_an_effect_the_last_readable_version_stays() {
        let raw = |value: serde_json::Value| serde_json::from_value::<Lenient<Node>>(value).unwrap();
        let bad = || raw(serde_json::json!({"metadata": {"name": "a"}, "spec": []}));
        let list = |objects: Vec<Lenient<Node>>| {
            let listed = objects.into_iter().map(|object| Ok(Event::InitApply(object)));
            let events = [Ok(Event::Init)]
                .into_iter()
                .chain(listed)
                .chain([Ok(Event::InitDone)]);
            futures::stream::iter(events.collect::<Vec<_>>())
        };
        let store = store().0.keep_last_readable();
        store.follow(list(vec![bad()])).await;
        assert!(!store.is_ready(), "the object is not known yet");
        store
            .follow(futures::stream::iter([Ok(Event::Apply(node("a", 1)))]))
            .await;
        assert!(store.is_ready());
        store
            .follow(futures::stream::iter([Ok(Event::Apply(bad()))]))
            .await;
        store.follow(list(vec![bad()])).await;
        assert_eq!((store.len(), store.unreadable().len()), (1, 1));
        store
            .follow(futures::stream::iter([Ok(Event::Delete(bad()))]))
            .await;
        assert_eq!((store.len(), store.unreadable().len()), (0, 0));
    }

    #[tokio::test]
    async fn a_handler_that_panics_does_not_end_the_watch() {
        let store: Store<Node> = Store::new(
            |_| {},
            |change: &ObjectChange<'_, Node>| {
                assert!(
                    change
                        .latest()
                        .is_none_or(|node| object_key(node.as_ref()) != "bad")
                );
            },
        );
        let before = mco_telemetry::panics_of("watch");
        let events = [
            Ok(Event::Apply(node("bad", 1))),
            Ok(Event::Apply(node("good", 1))),
        ];
        store.follow(futures::stream::iter(events)).await;
        assert_eq!(store.len(), 2);
        assert_eq!(mco_telemetry::panics_of("watch"), before + 1);
    }

    #[tokio::test]
    async fn a_new_list_reports_what_was_missed() {
        let (store, seen) = store();
        assert!(!*store.ready.borrow());
        let list = |nodes: Vec<Node>| {
            let listed = nodes.into_iter().map(|node| Ok(Event::InitApply(node)));
            futures::stream::iter(
                [Ok(Event::Init)]
                    .into_iter()
                    .chain(listed)
                    .chain([Ok(Event::InitDone)])
                    .collect::<Vec<_>>(),
            )
        };
        store
            .follow(list(vec![node("a", 1), node("b", 1), node("c", 1)]))
            .await;
        assert!(*store.ready.borrow());
        seen.lock().clear();
        store
            .follow(list(vec![node("a", 1), node("b", 2), node("d", 2)]))
            .await;
        let mut seen = seen.lock().clone();
        seen.sort();
        assert_eq!(seen, ["b 1>2", "c 1>-", "d ->2"]);
        assert_eq!(store.len(), 3);
    }

    #[tokio::test]
    async fn after_a_restore_of_the_api_server_the_list_wins_over_newer_versions() {
        let (store, seen) = store();
        let events = [Ok(Event::Apply(node("a", 50))), Ok(Event::Apply(node("b", 3)))];
        store.follow(futures::stream::iter(events)).await;
        store.observe_write(node("b", 60));
        seen.lock().clear();
        let events = [
            Ok(Event::Init),
            Ok(Event::InitApply(node("a", 7))),
            Ok(Event::InitApply(node("b", 3))),
            Ok(Event::InitDone),
            Ok(Event::Apply(node("a", 8))),
        ];
        store.follow(futures::stream::iter(events)).await;
        let mut seen = seen.lock().clone();
        seen.sort();
        assert_eq!(seen, ["a 50>7", "a 7>8", "b 60>3"]);
    }

    #[tokio::test]
    async fn a_list_does_not_undo_a_write_that_was_made_while_it_was_received() {
        let (store, seen) = store();
        let first = [Ok(Event::Apply(node("a", 1))), Ok(Event::Apply(node("b", 1)))];
        store.follow(futures::stream::iter(first)).await;
        seen.lock().clear();
        let events = futures::stream::iter(0..4).map(|step| {
            Ok(match step {
                0 => Event::Init,
                1 => Event::InitApply(node("a", 4)),
                2 => {
                    store.observe_write(node("a", 5));
                    store.observe_write(node("b", 2));
                    Event::InitApply(node("b", 6))
                }
                _ => Event::InitDone,
            })
        });
        store.follow(events).await;
        let mut seen = seen.lock().clone();
        seen.sort();
        assert_eq!(seen, ["a 1>5", "b 1>2", "b 2>6"]);
    }

    #[tokio::test]
    async fn a_store_is_ready_only_after_every_handler_has_run() {
        let ready: Arc<Mutex<Option<watch::Receiver<bool>>>> = Arc::default();
        let (asked, seen) = (Arc::clone(&ready), Arc::new(Mutex::new(Vec::new())));
        let log = Arc::clone(&seen);
        let store = Store::new(
            |_| {},
            move |_: &ObjectChange<'_, Node>| {
                let ready = asked.lock().as_ref().map(|ready| *ready.borrow());
                log.lock().push(ready);
            },
        );
        *ready.lock() = Some(store.ready.subscribe());
        let events = [
            Ok(Event::Init),
            Ok(Event::InitApply(node("a", 1))),
            Ok(Event::InitApply(node("b", 1))),
            Ok(Event::InitDone),
        ];
        store.follow(futures::stream::iter(events)).await;
        assert_eq!(*seen.lock(), [Some(false), Some(false)]);
        store.wait_until_ready().await;
    }
}
