//! Pools, nodes and their progress as one person may see them: one watch per kind, while somebody looks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use mco_api::{MachineConfigNode, MachineConfigPool};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::latest::{Follower, Latest};
use mco_client::cluster::ReadError;
use mco_client::snapshot::Snapshot;

/// How long the first page waits for the first complete state.
const FIRST_STATE: Duration = Duration::from_secs(10);
/// A tab that is open asks more often; a session may last a day after the last one was closed.
const IDLE: Duration = Duration::from_mins(2);
/// Trouble that is not told again is over: failed watches are tried again at least twice as often.
const TROUBLE_LASTS: Duration = Duration::from_mins(1);

const POOLS: &str = "list the pools";
const NODES: &str = "list the nodes";
const PROGRESS: &str = "list the MachineConfigNodes";
const KINDS: usize = 3;

pub struct Mirror {
    shared: Arc<Shared>,
    _watching: DropGuard,
}

impl Mirror {
    pub fn open(client: Client) -> Self {
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            latest: Latest::default(),
            watched: Mutex::default(),
            asked: watch::Sender::new(Instant::now()),
        });
        let following = follow(client, Arc::clone(&shared));
        tokio::spawn(stop.clone().run_until_cancelled_owned(following));
        Self {
            shared,
            _watching: stop.drop_guard(),
        }
    }

    /// The latest state; waits a moment if there has not been any.
    pub async fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.ask();
        let mut changes = self.shared.latest.changes();
        let complete =
            async { while !self.shared.watched.lock().is_complete() && changes.changed().await.is_ok() {} };
        // Whoever has waited so long sees what there is.
        let _ = tokio::time::timeout(FIRST_STATE, complete).await;
        self.shared.latest.get(|| self.shared.make()).await
    }

    pub fn follower(&self) -> Follower<Snapshot> {
        Follower::new(&self.shared.latest)
    }

    /// Waits for a state that this follower has not seen.
    pub async fn next(&self, follower: &mut Follower<Snapshot>) -> Arc<Snapshot> {
        self.shared.ask();
        let make = || {
            self.shared.ask();
            self.shared.make()
        };
        follower.next(&self.shared.latest, make).await
    }
}

struct Shared {
    latest: Latest<Snapshot>,
    watched: Mutex<Watched>,
    /// When somebody last wanted to know.
    asked: watch::Sender<Instant>,
}

/// What the watches have told; nothing while nobody looks.
#[derive(Default)]
struct Watched {
    stores: Option<Stores>,
    /// The kinds of which everything is known or refused, with what was wrong and when.
    heard: BTreeMap<&'static str, Option<(Instant, String)>>,
}

#[derive(Clone)]
struct Stores {
    pools: Store<MachineConfigPool>,
    nodes: Store<Node>,
    progress: Store<MachineConfigNode>,
}

impl Watched {
    fn is_complete(&self) -> bool {
        self.heard.len() == KINDS
    }

    fn learn(&mut self, news: Heard) {
        match news {
            Heard::Something => {}
            Heard::All(attempt) => {
                self.heard.insert(attempt, None);
            }
            Heard::Trouble(attempt, message) => {
                let trouble = message.map(|message| (Instant::now(), message));
                self.heard.insert(attempt, trouble);
            }
        }
    }
}

impl Shared {
    fn ask(&self) {
        self.asked.send_replace(Instant::now());
    }

    fn make(&self) -> Option<Snapshot> {
        let watched = self.watched.lock();
        if !watched.is_complete() {
            return None;
        }
        let stores = watched.stores.clone()?;
        let trouble = watched.heard.values().flatten();
        let trouble = trouble.filter(|(at, _)| at.elapsed() < TROUBLE_LASTS);
        let trouble = trouble.map(|(_, message)| message.clone()).collect();
        drop(watched);
        let (pools, nodes, progress) = (
            stores.pools.state(),
            stores.nodes.state(),
            stores.progress.state(),
        );
        Some(Snapshot {
            trouble,
            ..Snapshot::of(&pools, &nodes, &progress, Timestamp::now())
        })
    }
}

/// Watches whenever somebody looks, for ever.
async fn follow(client: Client, shared: Arc<Shared>) {
    let mut asked = shared.asked.subscribe();
    loop {
        let idle = async {
            loop {
                let last = *asked.borrow_and_update();
                if tokio::time::timeout_at(last + IDLE, asked.changed())
                    .await
                    .is_err()
                {
                    return;
                }
            }
        };
        tokio::select! {
            () = watch(&client, &shared) => {}
            () = idle => {}
        }
        *shared.watched.lock() = Watched::default();
        if asked.changed().await.is_err() {
            return;
        }
    }
}

/// Takes in what happens; it is put together elsewhere, when somebody asks.
async fn watch(client: &Client, shared: &Shared) {
    let (pools, pool_changes) = watched(client, POOLS);
    let (nodes, node_changes) = watched(client, NODES);
    let (progress, progress_changes) = watched(client, PROGRESS);
    shared.watched.lock().stores = Some(Stores {
        pools,
        nodes,
        progress,
    });
    let mut changes = std::pin::pin!(
        stream::select(pool_changes, stream::select(node_changes, progress_changes)).ready_chunks(4096)
    );
    while let Some(news) = changes.next().await {
        let mut watched = shared.watched.lock();
        for one in news {
            watched.learn(one);
        }
        drop(watched);
        shared.latest.touch();
    }
}

/// One kind's part in what a change of anything means.
enum Heard {
    Something,
    /// Everything there was has been told.
    All(&'static str),
    Trouble(&'static str, Option<String>),
}

fn watched<K>(client: &Client, attempt: &'static str) -> (Store<K>, impl Stream<Item = Heard> + Send + use<K>)
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let (store, writer) = reflector::store();
    let events = watcher(Api::<K>::all(client.clone()), watcher::Config::default())
        .modify(|object: &mut K| object.meta_mut().managed_fields = None)
        .default_backoff();
    let heard = reflector::reflector(writer, events).map(move |event| match event {
        Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => Heard::Something,
        Ok(_) => Heard::All(attempt),
        Err(error) => trouble(error, attempt),
    });
    (store, heard)
}

fn trouble(error: watcher::Error, attempt: &'static str) -> Heard {
    match error {
        // Not every cluster has them, and who may see nodes may not see these.
        watcher::Error::InitialListFailed(_) if attempt == PROGRESS => Heard::Trouble(attempt, None),
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
            Heard::Trouble(attempt, Some(ReadError::new(error, attempt).to_string()))
        }
        // A watch that ends is taken up again; only if that fails is there something to tell.
        watcher::Error::WatchFailed(_)
        | watcher::Error::WatchError(_)
        | watcher::Error::NoResourceVersion => Heard::Something,
    }
}
