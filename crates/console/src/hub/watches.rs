//! Watches of pools, nodes, MachineConfigNodes, RolloutPolicies and image builds with the rights of one user, active
//! while the user has pages open.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher;
use kube::{Api, Client};
use mco_api::{MachineConfigNode, MachineConfigPool, MachineOSBuild, MachineOSConfig, RolloutPolicy};
use mco_client::cluster::ReadError;
use mco_client::snapshot::{ImageObjects, Snapshot};
use mco_runtime::{Reflected, UnreadableObject};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::latest::{LatestValue, ValueFollower};

/// How long a page waits for the initial lists.
const FIRST_STATE: Duration = Duration::from_secs(10);
/// Open tabs read more often; sessions outlive the last tab by hours.
const IDLE: Duration = Duration::from_mins(2);
/// An error that does not recur is over: failed watches are retried at least twice as often.
const ERROR_TTL: Duration = Duration::from_mins(1);

const POOLS: &str = "list the pools";
const NODES: &str = "list the nodes";
const PROGRESS: &str = "list the MachineConfigNodes";
const POLICIES: &str = "list the RolloutPolicies";
const IMAGE_CONFIGS: &str = "list the MachineOSConfigs";
const BUILDS: &str = "list the MachineOSBuilds";
const KINDS: usize = 6;
/// Not every cluster has these kinds, and users who may list nodes may lack the right to list them.
const OPTIONAL: [&str; 4] = [PROGRESS, POLICIES, IMAGE_CONFIGS, BUILDS];

/// The watches of one user and the snapshot that is computed from them.
pub struct ClusterWatches {
    shared: Arc<Shared>,
    _watching: DropGuard,
}

impl ClusterWatches {
    pub fn open(client: Client) -> Self {
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            latest: LatestValue::default(),
            watched: Mutex::default(),
            last_read: watch::Sender::new(Instant::now()),
        });
        let following = follow(client, Arc::clone(&shared));
        tokio::spawn(stop.clone().run_until_cancelled_owned(following));
        Self {
            shared,
            _watching: stop.drop_guard(),
        }
    }

    /// Returns the latest state; waits for the initial lists within a deadline.
    pub async fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.mark_read();
        let mut changes = self.shared.latest.changes();
        let complete =
            async { while !self.shared.watched.lock().is_complete() && changes.changed().await.is_ok() {} };
        // After the deadline the page shows what there is.
        let _ = tokio::time::timeout(FIRST_STATE, complete).await;
        self.shared.latest.get(|| self.shared.compute()).await
    }

    pub fn follower(&self) -> ValueFollower<Snapshot> {
        ValueFollower::new(&self.shared.latest)
    }

    /// Waits for a state that the follower has not seen.
    pub async fn next(&self, follower: &mut ValueFollower<Snapshot>) -> Arc<Snapshot> {
        self.shared.mark_read();
        let compute = || {
            self.shared.mark_read();
            self.shared.compute()
        };
        follower.next(&self.shared.latest, compute).await
    }
}

struct Shared {
    latest: LatestValue<Snapshot>,
    watched: Mutex<Watched>,
    /// When a page was last rendered.
    last_read: watch::Sender<Instant>,
}

/// The state of the watches; empty while they are stopped.
#[derive(Default)]
struct Watched {
    stores: Option<Stores>,
    /// The kinds that are listed or failed, with the time and text of the error.
    synced: BTreeMap<&'static str, Option<(Instant, String)>>,
}

#[derive(Clone)]
struct Stores {
    pools: Reflected<MachineConfigPool>,
    nodes: Reflected<Node>,
    progress: Reflected<MachineConfigNode>,
    policies: Reflected<RolloutPolicy>,
    image_configs: Reflected<MachineOSConfig>,
    builds: Reflected<MachineOSBuild>,
}

impl Stores {
    /// Returns the objects that no page shows, because they cannot be decoded.
    fn unreadable(&self) -> Vec<UnreadableObject> {
        [
            self.pools.unreadable(),
            self.nodes.unreadable(),
            self.progress.unreadable(),
            self.policies.unreadable(),
            self.image_configs.unreadable(),
            self.builds.unreadable(),
        ]
        .concat()
    }
}

impl Watched {
    fn is_complete(&self) -> bool {
        self.synced.len() == KINDS
    }

    fn observe(&mut self, update: WatchUpdate) {
        match update {
            WatchUpdate::Changed => {}
            WatchUpdate::Synced(attempt) => {
                self.synced.insert(attempt, None);
            }
            WatchUpdate::Failed(attempt, message) => {
                let trouble = message.map(|message| (Instant::now(), message));
                self.synced.insert(attempt, trouble);
            }
        }
    }
}

impl Shared {
    fn mark_read(&self) {
        self.last_read.send_replace(Instant::now());
    }

    fn compute(&self) -> Option<Snapshot> {
        let watched = self.watched.lock();
        if !watched.is_complete() {
            return None;
        }
        let stores = watched.stores.clone()?;
        let trouble = watched.synced.values().flatten();
        let trouble = trouble.filter(|(at, _)| at.elapsed() < ERROR_TTL);
        let failures = trouble.map(|(_, message)| message.clone());
        let left_out = stores.unreadable();
        let trouble = failures.chain(left_out.iter().map(ToString::to_string)).collect();
        drop(watched);
        let (pools, nodes, progress, policies) = (
            stores.pools.listed().unwrap_or_default(),
            stores.nodes.listed().unwrap_or_default(),
            stores.progress.listed().unwrap_or_default(),
            stores.policies.listed().unwrap_or_default(),
        );
        let image_configs = owned(stores.image_configs.listed());
        let builds = owned(stores.builds.listed());
        let images = ImageObjects {
            configs: &image_configs,
            builds: &builds,
        };
        Some(Snapshot {
            trouble,
            ..Snapshot::of(&pools, &nodes, &progress, &policies, images, Timestamp::now())
        })
    }
}

fn owned<K: Clone>(listed: Option<Vec<Arc<K>>>) -> Vec<K> {
    let listed = listed.unwrap_or_default().into_iter();
    listed.map(Arc::unwrap_or_clone).collect()
}

/// Runs the watches while pages are rendered, without end.
async fn follow(client: Client, shared: Arc<Shared>) {
    let mut reads = shared.last_read.subscribe();
    loop {
        let idle = async {
            loop {
                let last = *reads.borrow_and_update();
                if tokio::time::timeout_at(last + IDLE, reads.changed())
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
        if reads.changed().await.is_err() {
            return;
        }
    }
}

/// Applies the events of all watches. The snapshot is computed on demand.
async fn watch(client: &Client, shared: &Shared) {
    let (pools, pool_changes) = watched(client, POOLS);
    let (nodes, node_changes) = watched(client, NODES);
    let (progress, progress_changes) = watched(client, PROGRESS);
    let (policies, policy_changes) = watched(client, POLICIES);
    let (image_configs, image_config_changes) = watched(client, IMAGE_CONFIGS);
    let (builds, build_changes) = watched(client, BUILDS);
    shared.watched.lock().stores = Some(Stores {
        pools,
        nodes,
        progress,
        policies,
        image_configs,
        builds,
    });
    let images = stream::select(image_config_changes, build_changes);
    let others = stream::select(stream::select(progress_changes, policy_changes), images);
    let changes = stream::select(pool_changes, stream::select(node_changes, others));
    let mut changes = std::pin::pin!(changes.ready_chunks(4096));
    while let Some(updates) = changes.next().await {
        let mut watched = shared.watched.lock();
        for update in updates {
            watched.observe(update);
        }
        drop(watched);
        shared.latest.touch();
    }
}

/// An update of the watch of one kind.
enum WatchUpdate {
    Changed,
    /// The initial list is complete.
    Synced(&'static str),
    Failed(&'static str, Option<String>),
}

fn watched<K>(
    client: &Client,
    attempt: &'static str,
) -> (Reflected<K>, impl Stream<Item = WatchUpdate> + Send + use<K>)
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let (objects, events) = Reflected::watch(Api::all(client.clone()), |object: &mut K| {
        object.meta_mut().managed_fields = None;
    });
    let reader = objects.clone();
    let updates = events.map(move |event| match event {
        Ok(()) if reader.is_listed() => WatchUpdate::Synced(attempt),
        Ok(()) => WatchUpdate::Changed,
        Err(error) => failure(error, attempt),
    });
    (objects, updates)
}

fn failure(error: watcher::Error, attempt: &'static str) -> WatchUpdate {
    match error {
        watcher::Error::InitialListFailed(_) if OPTIONAL.contains(&attempt) => {
            WatchUpdate::Failed(attempt, None)
        }
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
            WatchUpdate::Failed(attempt, Some(ReadError::new(error, attempt).to_string()))
        }
        // An ended watch is restarted; only a failed restart is reported.
        watcher::Error::WatchFailed(_)
        | watcher::Error::WatchError(_)
        | watcher::Error::NoResourceVersion => WatchUpdate::Changed,
    }
}
