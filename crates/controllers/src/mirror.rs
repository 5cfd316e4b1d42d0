//! A local copy of one kind of the cluster's objects, shared by all reconcilers: one watch, however many look.
//!
//! The copy also takes in what our own writes answered, so that a decision never rests on a state from before the last
//! write. It decides nothing; who is told about which change is the business of [`crate::wiring`].

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Debug};
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use kube::Resource;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use parking_lot::RwLock;
use tokio::sync::watch;
use tracing::{debug, warn};

/// An object before and after. At least one of them is there.
pub(crate) struct Change<'a, K> {
    pub old: Option<&'a Arc<K>>,
    pub new: Option<&'a Arc<K>>,
}

impl<'a, K> Change<'a, K> {
    /// The object as it is, or as it was last.
    pub fn latest(&self) -> Option<&'a Arc<K>> {
        self.new.or(self.old)
    }
}

type Tell<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;

pub(crate) struct Mirror<K> {
    state: RwLock<State<K>>,
    ready: watch::Sender<bool>,
    trim: fn(&mut K),
    tell: Tell<K>,
}

struct State<K> {
    objects: HashMap<String, Arc<K>>,
    /// While a list arrives: what our own writes answered since it began, which it may not know yet.
    learned: Option<HashSet<String>>,
}

impl<K> Debug for Mirror<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror")
            .field("objects", &self.state.read().objects.len())
            .field("ready", &*self.ready.borrow())
            .finish_non_exhaustive()
    }
}

impl<K> Mirror<K>
where
    K: Resource + Clone + Debug + Send + Sync + 'static,
{
    /// `trim` takes away what nobody reads, before it is kept. `tell` hears of every change.
    pub fn new(trim: fn(&mut K), tell: impl Fn(&Change<'_, K>) + Send + Sync + 'static) -> Self {
        Self {
            state: RwLock::new(State {
                objects: HashMap::new(),
                learned: None,
            }),
            ready: watch::Sender::new(false),
            trim,
            tell: Box::new(tell),
        }
    }

    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        self.state.read().objects.get(key).cloned()
    }

    /// All objects, in no order.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.state.read().objects.values().cloned().collect()
    }

    /// Copies of all objects, by name.
    pub fn sorted(&self) -> Vec<K> {
        let mut all: Vec<K> = self.all().iter().map(|object| K::clone(object)).collect();
        all.sort_by_cached_key(key_of);
        all
    }

    pub fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    pub async fn wait_until_ready(&self) {
        let mut ready = self.ready.subscribe();
        // The sender lives as long as this mirror.
        let _ = ready.wait_for(|ready| *ready).await;
    }

    /// Takes in the answer to a write of ours. Never brings back an object that is gone.
    pub fn learn(&self, object: K) {
        self.put(object, Origin::OwnWrite);
    }

    /// Follows the objects for ever.
    pub async fn follow(&self, events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send) {
        let events = events.default_backoff();
        let mut events = std::pin::pin!(events);
        let mut arriving = Vec::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => {
                    arriving.clear();
                    self.state.write().learned = Some(HashSet::new());
                }
                Ok(Event::InitApply(object)) => arriving.push(self.trimmed(object)),
                Ok(Event::InitDone) => self.replace(std::mem::take(&mut arriving)),
                Ok(Event::Apply(object)) => self.put(object, Origin::Watch),
                Ok(Event::Delete(object)) => self.remove(&object),
                // A cluster that does not know the kind has no objects of it.
                Err(problem) if is_unknown_kind(&problem) => {
                    debug!(kind = %kind::<K>(), "the cluster does not know this kind");
                    self.replace(Vec::new());
                }
                Err(problem) => warn!(kind = %kind::<K>(), "cannot watch: {problem}"),
            }
        }
    }

    fn trimmed(&self, mut object: K) -> K {
        (self.trim)(&mut object);
        object
    }

    fn put(&self, object: K, origin: Origin) {
        let object = Arc::new(self.trimmed(object));
        let key = key_of(object.as_ref());
        let old = {
            let mut state = self.state.write();
            let old = state.objects.get(&key).cloned();
            match &old {
                Some(old) if !is_newer(object.as_ref(), old.as_ref()) => return,
                None if origin == Origin::OwnWrite => return,
                _ => state.objects.insert(key.clone(), Arc::clone(&object)),
            };
            if let Some(learned) = state.learned.as_mut().filter(|_| origin == Origin::OwnWrite) {
                learned.insert(key);
            }
            old
        };
        (self.tell)(&Change {
            old: old.as_ref(),
            new: Some(&object),
        });
    }

    fn remove(&self, object: &K) {
        let key = key_of(object);
        let old = self.state.write().objects.remove(&key);
        if let Some(old) = &old {
            (self.tell)(&Change {
                old: Some(old),
                new: None,
            });
        }
    }

    /// Takes a complete list in place of what is known, and tells about the difference. The list wins even over what seems
    /// to be later: an API server that was restored from a backup counts from there again. Only what was learned while it
    /// arrived may really be later.
    fn replace(&self, listed: Vec<K>) {
        let mut listed: HashMap<String, Arc<K>> = listed
            .into_iter()
            .map(|object| (key_of(&object), Arc::new(object)))
            .collect();
        let before = {
            let mut state = self.state.write();
            let learned = state.learned.take().unwrap_or_default();
            for (key, known) in &state.objects {
                let Some(object) = listed.get_mut(key) else {
                    continue;
                };
                let is_same = object.meta().resource_version == known.meta().resource_version;
                if is_same || (learned.contains(key) && !is_newer(object.as_ref(), known.as_ref())) {
                    *object = Arc::clone(known);
                }
            }
            std::mem::replace(&mut state.objects, listed.clone())
        };
        for (key, new) in &listed {
            let old = before.get(key);
            if old.is_none_or(|old| !Arc::ptr_eq(old, new)) {
                (self.tell)(&Change { old, new: Some(new) });
            }
        }
        for (key, old) in &before {
            if !listed.contains_key(key) {
                (self.tell)(&Change {
                    old: Some(old),
                    new: None,
                });
            }
        }
        // Not before everybody has heard of everything: who sees half of a pool's nodes takes the budget twice.
        self.ready.send_replace(true);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Watch,
    OwnWrite,
}

/// `namespace/name`, or the name of what has no namespace.
pub(crate) fn key_of<K: Resource>(object: &K) -> String {
    let meta = object.meta();
    let name = meta.name.as_deref().unwrap_or_default();
    match &meta.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// Whether `object` is a later state than `known`. Resource versions of one resource are numbers that grow; what is none
/// is believed.
fn is_newer<K: Resource>(object: &K, known: &K) -> bool {
    let version = |object: &K| -> Option<u64> { object.meta().resource_version.as_ref()?.parse().ok() };
    match (version(object), version(known)) {
        (Some(new), Some(old)) => new > old,
        _ => true,
    }
}

fn is_unknown_kind(problem: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(source)
    | watcher::Error::WatchStartFailed(source)
    | watcher::Error::WatchFailed(source)) = problem
    else {
        return false;
    };
    crate::error::is_not_found(source)
}

fn kind<K>() -> &'static str {
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

    fn mirror() -> (Mirror<Node>, Arc<Mutex<Vec<String>>>) {
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let notes = Arc::clone(&told);
        let version = |node: Option<&Arc<Node>>| {
            node.and_then(|node| node.metadata.resource_version.clone())
                .unwrap_or_else(|| "-".to_owned())
        };
        let mirror = Mirror::new(
            |_| {},
            move |change: &Change<'_, Node>| {
                let name = change
                    .latest()
                    .map(|node| key_of(node.as_ref()))
                    .unwrap_or_default();
                notes
                    .lock()
                    .push(format!("{name} {}>{}", version(change.old), version(change.new)));
            },
        );
        (mirror, told)
    }

    #[tokio::test]
    async fn a_watch_that_lags_behind_our_own_writes_changes_nothing() {
        let (mirror, told) = mirror();
        let events = [
            Ok(Event::Init),
            Ok(Event::InitApply(node("a", 1))),
            Ok(Event::InitDone),
        ];
        mirror.follow(futures::stream::iter(events)).await;
        mirror.learn(node("a", 5));
        mirror
            .follow(futures::stream::iter([
                Ok(Event::Apply(node("a", 3))),
                Ok(Event::Apply(node("a", 5))),
                Ok(Event::Apply(node("a", 6))),
            ]))
            .await;
        assert_eq!(*told.lock(), ["a ->1", "a 1>5", "a 5>6"]);
    }

    #[tokio::test]
    async fn a_write_answered_after_the_object_was_deleted_does_not_bring_it_back() {
        let (mirror, told) = mirror();
        let events = [Ok(Event::Apply(node("a", 1))), Ok(Event::Delete(node("a", 3)))];
        mirror.follow(futures::stream::iter(events)).await;
        mirror.learn(node("a", 2));
        assert!(mirror.get("a").is_none());
        assert_eq!(*told.lock(), ["a ->1", "a 1>-"]);
    }

    #[tokio::test]
    async fn a_new_list_tells_what_was_missed() {
        let (mirror, told) = mirror();
        assert!(!*mirror.ready.borrow());
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
        mirror
            .follow(list(vec![node("a", 1), node("b", 1), node("c", 1)]))
            .await;
        assert!(*mirror.ready.borrow());
        told.lock().clear();
        mirror
            .follow(list(vec![node("a", 1), node("b", 2), node("d", 2)]))
            .await;
        let mut told = told.lock().clone();
        told.sort();
        assert_eq!(told, ["b 1>2", "c 1>-", "d ->2"]);
        assert_eq!(mirror.len(), 3);
    }

    #[tokio::test]
    async fn after_a_restore_the_list_counts_and_not_the_future_that_is_gone() {
        let (mirror, told) = mirror();
        let events = [Ok(Event::Apply(node("a", 50))), Ok(Event::Apply(node("b", 3)))];
        mirror.follow(futures::stream::iter(events)).await;
        mirror.learn(node("b", 60));
        told.lock().clear();
        let events = [
            Ok(Event::Init),
            Ok(Event::InitApply(node("a", 7))),
            Ok(Event::InitApply(node("b", 3))),
            Ok(Event::InitDone),
            Ok(Event::Apply(node("a", 8))),
        ];
        mirror.follow(futures::stream::iter(events)).await;
        let mut told = told.lock().clone();
        told.sort();
        assert_eq!(told, ["a 50>7", "a 7>8", "b 60>3"]);
    }

    #[tokio::test]
    async fn what_was_written_while_a_list_arrived_is_not_taken_back_by_it() {
        let (mirror, told) = mirror();
        let first = [Ok(Event::Apply(node("a", 1))), Ok(Event::Apply(node("b", 1)))];
        mirror.follow(futures::stream::iter(first)).await;
        told.lock().clear();
        let events = futures::stream::iter(0..4).map(|step| {
            Ok(match step {
                0 => Event::Init,
                1 => Event::InitApply(node("a", 4)),
                2 => {
                    mirror.learn(node("a", 5));
                    mirror.learn(node("b", 2));
                    Event::InitApply(node("b", 6))
                }
                _ => Event::InitDone,
            })
        });
        mirror.follow(events).await;
        let mut told = told.lock().clone();
        told.sort();
        assert_eq!(told, ["a 1>5", "b 1>2", "b 2>6"]);
    }

    #[tokio::test]
    async fn nobody_may_decide_before_everything_was_told() {
        let ready: Arc<Mutex<Option<watch::Receiver<bool>>>> = Arc::default();
        let (asked, told) = (Arc::clone(&ready), Arc::new(Mutex::new(Vec::new())));
        let notes = Arc::clone(&told);
        let mirror = Mirror::new(
            |_| {},
            move |_: &Change<'_, Node>| {
                let ready = asked.lock().as_ref().map(|ready| *ready.borrow());
                notes.lock().push(ready);
            },
        );
        *ready.lock() = Some(mirror.ready.subscribe());
        let events = [
            Ok(Event::Init),
            Ok(Event::InitApply(node("a", 1))),
            Ok(Event::InitApply(node("b", 1))),
            Ok(Event::InitDone),
        ];
        mirror.follow(futures::stream::iter(events)).await;
        assert_eq!(*told.lock(), [Some(false), Some(false)]);
        mirror.wait_until_ready().await;
    }
}
