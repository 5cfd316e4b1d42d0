//! One person's view of the cluster, shared by all their tabs: what is watched, and a few short-lived copies of what is too
//! large to watch.
//!
//! Everything is asked with that person's own client. Nothing here grows with the number of connections.

mod latest;
mod mirror;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview};
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use mco_api::{MachineConfig, MachineConfigPool};
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::config::rules::Rules;
use serde_json::json;
use tokio::sync::Mutex;

pub use latest::Follower;
use mco_client::cluster::{self, ReadError, Sources, explained};
use mco_client::snapshot::Snapshot;
use mirror::Mirror;

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
    mirror: Mirror,
    sources: Mutex<Option<(Instant, Arc<Sources>)>>,
    rules: Mutex<Option<(Instant, Rules)>>,
    configs: Mutex<VecDeque<(String, Arc<ParsedConfig>)>>,
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
        Ok(Self {
            mirror: Mirror::open(client.clone()),
            client,
            user,
            may_steer,
            sources: Mutex::default(),
            rules: Mutex::default(),
            configs: Mutex::default(),
        })
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The latest state; waits a moment if there has not been any.
    pub async fn snapshot(&self) -> Arc<Snapshot> {
        self.mirror.snapshot().await
    }

    pub fn follower(&self) -> Follower<Snapshot> {
        self.mirror.follower()
    }

    /// Waits until there is something that the follower has not seen; the first time there is.
    pub async fn news(&self, follower: &mut Follower<Snapshot>) {
        self.mirror.next(follower).await;
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

    /// The rules about changes, or the default ones for people who may not see them.
    pub async fn rules(&self) -> Rules {
        let mut kept = self.rules.lock().await;
        if let Some((at, rules)) = kept.as_ref()
            && at.elapsed() < FRESH
        {
            return rules.clone();
        }
        let rules = cluster::rules(&self.client).await.unwrap_or_default();
        *kept = Some((Instant::now(), rules.clone()));
        rules
    }

    /// A rendered config, whose name stands for its content.
    pub async fn rendered(&self, name: &str) -> Result<Option<Arc<ParsedConfig>>, ReadError> {
        let mut kept = self.configs.lock().await;
        if let Some((_, entry)) = kept.iter().find(|(known, _)| known == name) {
            return Ok(Some(Arc::clone(entry)));
        }
        let Some(config) = self.config(name).await? else {
            return Ok(None);
        };
        let entry = Arc::new(ParsedConfig::applicable(config).map_err(Box::new)?);
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
