//! The objects behind a status, kept up to date by watches.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Client, Resource, ResourceExt as _};
use mco_api::{MachineConfigNode, MachineConfigPool};
use mco_client::overview::{PoolOverview, overview};
use mco_core::rollout::View;
use serde::de::DeserializeOwned;

/// Debounce of changes, which come in bursts.
const SETTLE: Duration = Duration::from_millis(250);

/// A watch event.
enum Change {
    Pool(Box<Event<MachineConfigPool>>),
    Node(Box<Event<Node>>),
    Progress(Box<Event<MachineConfigNode>>),
    Lost(String),
}

/// The current pools, nodes and their progress.
pub struct Live {
    changes: BoxStream<'static, Change>,
    pools: Mirror<MachineConfigPool>,
    nodes: Mirror<Node>,
    progress: Mirror<MachineConfigNode>,
    /// The watch error because of which the state may be stale.
    pub lost: Option<String>,
}

impl Live {
    pub fn new(client: &Client) -> Self {
        let pools = watched(client, Change::Pool);
        let nodes = watched(client, Change::Node);
        let progress = watched(client, Change::Progress);
        Self {
            changes: stream::select_all([pools, nodes, progress]).boxed(),
            pools: Mirror::default(),
            nodes: Mirror::default(),
            progress: Mirror::default(),
            lost: None,
        }
    }

    /// Waits for the next burst of changes, or for `longest`.
    pub async fn changed(&mut self, longest: Duration) {
        let Ok(Some(first)) = tokio::time::timeout(longest, self.changes.next()).await else {
            return;
        };
        self.learn(first);
        let settled = tokio::time::sleep(SETTLE);
        tokio::pin!(settled);
        loop {
            tokio::select! {
                () = &mut settled => return,
                change = self.changes.next() => match change {
                    Some(change) => self.learn(change),
                    None => return,
                },
            }
        }
    }

    /// Returns the state of every pool, or `None` before the first lists are complete.
    pub fn overview(&self, now: Timestamp) -> Option<Vec<PoolOverview>> {
        let (pools, nodes) = (self.pools.complete()?, self.nodes.complete()?);
        let view = View::new(pools.values(), nodes.values());
        Some(overview(&view, self.progress.known.values(), now))
    }

    fn learn(&mut self, change: Change) {
        match change {
            Change::Pool(event) => self.pools.learn(*event),
            Change::Node(event) => self.nodes.learn(*event),
            Change::Progress(event) => self.progress.learn(*event),
            Change::Lost(why) => {
                self.lost = Some(why);
                return;
            }
        }
        self.lost = None;
    }
}

fn watched<K>(client: &Client, change: fn(Box<Event<K>>) -> Change) -> BoxStream<'static, Change>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    watch(Api::<K>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .map(move |event| match event {
            Ok(event) => change(Box::new(event)),
            Err(error) => Change::Lost(error.to_string()),
        })
        .boxed()
}

/// The objects of one kind.
struct Mirror<K> {
    known: BTreeMap<String, K>,
    /// The list that is being received.
    incoming: BTreeMap<String, K>,
    is_complete: bool,
}

impl<K> Default for Mirror<K> {
    fn default() -> Self {
        Self {
            known: BTreeMap::new(),
            incoming: BTreeMap::new(),
            is_complete: false,
        }
    }
}

impl<K: Resource> Mirror<K> {
    fn learn(&mut self, event: Event<K>) {
        match event {
            Event::Init => self.incoming.clear(),
            Event::InitApply(object) => {
                self.incoming.insert(object.name_any(), object);
            }
            Event::InitDone => {
                self.known = std::mem::take(&mut self.incoming);
                self.is_complete = true;
            }
            Event::Apply(object) => {
                self.known.insert(object.name_any(), object);
            }
            Event::Delete(object) => {
                self.known.remove(&object.name_any());
            }
        }
    }

    fn complete(&self) -> Option<&BTreeMap<String, K>> {
        self.is_complete.then_some(&self.known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_shows_a_list_only_when_it_is_complete() {
        let node = |name: &str| -> Node {
            serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).unwrap()
        };
        let mut mirror = Mirror::default();
        mirror.learn(Event::Init);
        mirror.learn(Event::InitApply(node("a")));
        assert!(mirror.complete().is_none());
        mirror.learn(Event::InitDone);
        mirror.learn(Event::Apply(node("b")));
        mirror.learn(Event::Delete(node("a")));
        assert_eq!(mirror.complete().unwrap().keys().collect::<Vec<_>>(), ["b"]);
        mirror.learn(Event::Init);
        assert_eq!(
            mirror.complete().unwrap().len(),
            1,
            "the old list is used until the new one is complete"
        );
    }
}
