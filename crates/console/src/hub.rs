//! One person's view of the cluster, shared by all their tabs: one watch per kind, one snapshot, a few short-lived copies
//! of what is too large to watch.
//!
//! Everything is asked with that person's own client. Nothing here grows with the number of connections.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use mco_api::{MachineConfig, MachineConfigNode, MachineConfigPool};
use mco_core::comparison::Entry;
use mco_core::disruption::Policy;
use serde_json::json;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cluster::{self, ReadError, Sources, explained};
use crate::snapshot::Snapshot;

/// Changes come in groups; twice a second is as fast as a person can read.
const SETTLE: Duration = Duration::from_millis(400);
/// Times such as "for 3 minutes" go on without any change.
const REFRESH: Duration = Duration::from_secs(10);
/// How long the first page waits for the first complete state.
const FIRST_STATE: Duration = Duration::from_secs(10);
/// How old an answer about MachineConfigs may be. Many tabs asking at once cost one request.
const FRESH: Duration = Duration::from_secs(2);
/// Rendered configs kept; they never change, and a rollout has two per pool.
const CONFIGS: usize = 12;
const EVENTS: u32 = 200;

/// What one person sees.
pub struct Hub {
    client: Client,
    pub user: String,
    /// Whether this person may pause and resume pools.
    pub may_steer: bool,
    state: watch::Receiver<Arc<Snapshot>>,
    sources: Mutex<Option<(Instant, Arc<Sources>)>>,
    policy: Mutex<Option<(Instant, Policy)>>,
    configs: Mutex<VecDeque<(String, Arc<Entry>)>>,
    _watching: DropGuard,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Hub {
    /// Finds out who the client is and starts to watch. Fails if the cluster does not know them.
    pub async fn open(client: Client) -> Result<Self, ReadError> {
        let user = who(&client).await?;
        let may_steer = may_patch_pools(&client).await;
        let stop = CancellationToken::new();
        let (sender, state) = watch::channel(Arc::new(Snapshot::default()));
        tokio::spawn(
            stop.clone()
                .run_until_cancelled_owned(follow(client.clone(), sender)),
        );
        Ok(Self {
            client,
            user,
            may_steer,
            state,
            sources: Mutex::default(),
            policy: Mutex::default(),
            configs: Mutex::default(),
            _watching: stop.drop_guard(),
        })
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The latest state; waits a moment if there has not been any.
    pub async fn snapshot(&self) -> Arc<Snapshot> {
        let mut state = self.state.clone();
        let first = state.wait_for(|snapshot| snapshot.complete);
        match tokio::time::timeout(FIRST_STATE, first).await {
            Ok(Ok(snapshot)) => Arc::clone(&snapshot),
            _ => self.state.borrow().clone(),
        }
    }

    /// Tells when there is a new state.
    pub fn changes(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.state.clone()
    }

    /// What configs are made from. Asks at most once at a time, however many pages wait.
    pub async fn sources(&self) -> Result<Arc<Sources>, ReadError> {
        let mut kept = self.sources.lock().await;
        if let Some((at, sources)) = kept.as_ref()
            && at.elapsed() < FRESH
        {
            return Ok(Arc::clone(sources));
        }
        let sources = Arc::new(cluster::sources(&self.client).await?);
        *kept = Some((Instant::now(), Arc::clone(&sources)));
        Ok(sources)
    }

    /// Disruption policies, or the default ones for people who may not see them.
    pub async fn policy(&self) -> Policy {
        let mut kept = self.policy.lock().await;
        if let Some((at, policy)) = kept.as_ref()
            && at.elapsed() < FRESH
        {
            return policy.clone();
        }
        let policy = cluster::policy(&self.client).await.unwrap_or_default();
        *kept = Some((Instant::now(), policy.clone()));
        policy
    }

    /// A rendered config, whose name stands for its content.
    pub async fn rendered(&self, name: &str) -> Result<Option<Arc<Entry>>, ReadError> {
        let mut kept = self.configs.lock().await;
        if let Some((_, entry)) = kept.iter().find(|(known, _)| known == name) {
            return Ok(Some(Arc::clone(entry)));
        }
        let Some(config) = self.config(name).await? else {
            return Ok(None);
        };
        let entry = Arc::new(Entry::new(config).map_err(Box::new)?);
        kept.push_front((name.to_owned(), Arc::clone(&entry)));
        kept.truncate(CONFIGS);
        Ok(Some(entry))
    }

    /// Any MachineConfig, as it is now.
    pub async fn config(&self, name: &str) -> Result<Option<MachineConfig>, ReadError> {
        let api: Api<MachineConfig> = Api::all(self.client.clone());
        explained(api.get_opt(name).await, &format!("read MachineConfig {name}"))
    }

    /// What was said about a node, the latest first.
    pub async fn events(&self, node: &str) -> Result<Vec<Event>, ReadError> {
        let api: Api<Event> = Api::all(self.client.clone());
        let about = format!("involvedObject.kind=Node,involvedObject.name={node}");
        let list = api
            .list(&ListParams::default().fields(&about).limit(EVENTS))
            .await;
        let mut events = explained(list, "list the events")?.items;
        events.sort_by_key(|event| std::cmp::Reverse(time_of(event)));
        Ok(events)
    }

    /// Pauses or resumes a pool, if the cluster lets this person.
    pub async fn set_paused(&self, pool: &str, paused: bool) -> Result<(), ReadError> {
        let api: Api<MachineConfigPool> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
        let changed = api.patch(pool, &PatchParams::default(), &patch).await;
        explained(changed, &format!("change pool {pool}")).map(|_| ())
    }
}

/// When something was last said.
pub fn time_of(event: &Event) -> Option<Timestamp> {
    let last = event
        .series
        .as_ref()
        .and_then(|series| series.last_observed_time.as_ref());
    last.map(|time| time.0)
        .or_else(|| event.last_timestamp.as_ref().map(|time| time.0))
        .or_else(|| event.event_time.as_ref().map(|time| time.0))
        .or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

async fn who(client: &Client) -> Result<String, ReadError> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    match api
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
    {
        // Clusters before 1.28 cannot tell; whether the credentials are good shows with the first list.
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let pools: Api<MachineConfigPool> = Api::all(client.clone());
            explained(
                pools.list(&ListParams::default().limit(1)).await,
                "list the pools",
            )?;
            Ok(String::new())
        }
        review => {
            let review = explained(review, "log in")?;
            let user = review.status.and_then(|status| status.user_info);
            Ok(user.and_then(|user| user.username).unwrap_or_default())
        }
    }
}

async fn may_patch_pools(client: &Client) -> bool {
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut question = SelfSubjectAccessReview::default();
    question.spec.resource_attributes = Some(ResourceAttributes {
        verb: Some("patch".to_owned()),
        group: Some("machineconfiguration.openshift.io".to_owned()),
        resource: Some("machineconfigpools".to_owned()),
        ..ResourceAttributes::default()
    });
    let answer = api.create(&PostParams::default(), &question).await;
    answer
        .ok()
        .and_then(|answer| answer.status)
        .is_some_and(|status| status.allowed)
}

const PROGRESS: &str = "list the MachineConfigNodes";

/// One kind's part in what a change of anything means.
enum Heard {
    Something,
    /// Everything there was has been told.
    All(&'static str),
    Trouble(&'static str, Option<String>),
}

/// Trouble that is not told again is over: failed watches are tried again at least twice as often.
const TROUBLE_LASTS: Duration = Duration::from_mins(1);

/// Watches three kinds and puts together what they say, for ever.
async fn follow(client: Client, state: watch::Sender<Arc<Snapshot>>) {
    let (pools, pool_changes) = watched::<MachineConfigPool>(&client, "list the pools");
    let (nodes, node_changes) = watched::<Node>(&client, "list the nodes");
    let (progress, progress_changes) = watched::<MachineConfigNode>(&client, PROGRESS);
    let mut changes = std::pin::pin!(
        stream::select(pool_changes, stream::select(node_changes, progress_changes)).ready_chunks(4096)
    );
    let mut heard: BTreeMap<&'static str, Option<(Instant, String)>> = BTreeMap::new();
    loop {
        let news = tokio::select! {
            news = changes.next() => news.unwrap_or_default(),
            () = tokio::time::sleep(REFRESH) => Vec::new(),
        };
        for one in news {
            match one {
                Heard::Something => {}
                Heard::All(attempt) => {
                    heard.insert(attempt, None);
                }
                Heard::Trouble(attempt, message) => {
                    heard.insert(attempt, message.map(|message| (Instant::now(), message)));
                }
            }
        }
        for trouble in heard.values_mut() {
            *trouble = trouble.take().filter(|(at, _)| at.elapsed() < TROUBLE_LASTS);
        }
        if heard.len() < 3 {
            continue;
        }
        let (pools, nodes, progress) = (pools.state(), nodes.state(), progress.state());
        let mut snapshot = Snapshot::of(&pools, &nodes, &progress, Timestamp::now());
        snapshot.trouble = heard
            .values()
            .flatten()
            .map(|(_, message)| message.clone())
            .collect();
        state.send_if_modified(|current| {
            let changed = **current != snapshot;
            if changed {
                *current = Arc::new(snapshot);
            }
            changed
        });
        tokio::time::sleep(SETTLE).await;
    }
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
