//! The cluster as one user sees it, shared by all tabs of the user: watches, and short-lived caches of what is too
//! large to watch.
//!
//! All requests use the client of the user. Memory does not grow with the number of connections.

mod latest;
mod watches;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{ListParams, Patch, PostParams};
use kube::{Api, Client};
use mco_api::vocabulary::annotations::ADOPTION_REQUEST;
use mco_api::{MachineConfig, MachineConfigPool, NodeAdoption};
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::config::rules::AdministratorRules;
use mco_core::rollout::NodeAnnotations;
use mco_runtime::FieldManager;
use serde_json::json;
use tokio::sync::Mutex;

pub use latest::ValueFollower;
use mco_client::cluster::{self, ClusterSources, ReadError, to_read_error};
use mco_client::snapshot::Snapshot;
use watches::ClusterWatches;

use crate::views::adoption::AdoptionState;

/// The field manager of the writes that a user requests on a page.
const FIELD_MANAGER: FieldManager = FieldManager::new("mco-console");

/// The age up to which cached MachineConfigs are used, so that concurrent pages cause one request.
const FRESH: Duration = Duration::from_secs(2);
/// Rendered configs in the cache; they are immutable, and a rollout has two per pool.
const CONFIGS: usize = 12;
const EVENTS: u32 = 200;

/// The view of one user.
pub struct Hub {
    client: Client,
    pub user: String,
    /// Whether the user may pause and resume pools.
    pub may_steer: bool,
    watches: ClusterWatches,
    sources: Mutex<Option<(Instant, Arc<ClusterSources>)>>,
    rules: Mutex<Option<(Instant, AdministratorRules)>>,
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
    /// Looks up the user of a client and starts the watches. Fails if the cluster rejects the credentials.
    pub async fn open(client: Client) -> Result<Self, ReadError> {
        let user = user_name(&client).await?;
        let may_steer = may_patch_pools(&client).await;
        Ok(Self {
            watches: ClusterWatches::open(client.clone()),
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

    /// Returns the latest state; waits for the first one within a deadline.
    pub async fn snapshot(&self) -> Arc<Snapshot> {
        self.watches.snapshot().await
    }

    pub fn follower(&self) -> ValueFollower<Snapshot> {
        self.watches.follower()
    }

    /// Waits for a state that the follower has not seen; returns at once for a new follower.
    pub async fn changed(&self, follower: &mut ValueFollower<Snapshot>) {
        self.watches.next(follower).await;
    }

    /// Returns the inputs of configs, with at most one request at a time.
    pub async fn sources(&self) -> Result<Arc<ClusterSources>, ReadError> {
        let mut cached = self.sources.lock().await;
        if let Some((at, sources)) = cached.as_ref()
            && at.elapsed() < FRESH
        {
            return Ok(Arc::clone(sources));
        }
        let sources = Arc::new(cluster::sources(&self.client).await?);
        *cached = Some((Instant::now(), Arc::clone(&sources)));
        Ok(sources)
    }

    /// Returns the disruption rules, or the default ones if the user may not read them.
    pub async fn rules(&self) -> AdministratorRules {
        let mut cached = self.rules.lock().await;
        if let Some((at, rules)) = cached.as_ref()
            && at.elapsed() < FRESH
        {
            return rules.clone();
        }
        let rules = cluster::rules(&self.client).await.unwrap_or_default();
        *cached = Some((Instant::now(), rules.clone()));
        rules
    }

    /// Returns a rendered config; its name identifies its content.
    pub async fn rendered(&self, name: &str) -> Result<Option<Arc<ParsedConfig>>, ReadError> {
        let mut cached = self.configs.lock().await;
        if let Some((_, entry)) = cached.iter().find(|(cached, _)| cached == name) {
            return Ok(Some(Arc::clone(entry)));
        }
        let Some(config) = self.config(name).await? else {
            return Ok(None);
        };
        let entry = Arc::new(ParsedConfig::applicable(config).map_err(Box::new)?);
        cached.push_front((name.to_owned(), Arc::clone(&entry)));
        cached.truncate(CONFIGS);
        Ok(Some(entry))
    }

    /// Returns the current version of a MachineConfig.
    pub async fn config(&self, name: &str) -> Result<Option<MachineConfig>, ReadError> {
        let api: Api<MachineConfig> = Api::all(self.client.clone());
        to_read_error(api.get_opt(name).await, &format!("read MachineConfig {name}"))
    }

    /// Returns the events of a node, the latest first.
    pub async fn events(&self, node: &str) -> Result<Vec<Event>, ReadError> {
        let api: Api<Event> = Api::all(self.client.clone());
        let about = format!("involvedObject.kind=Node,involvedObject.name={node}");
        let list = api
            .list(&ListParams::default().fields(&about).limit(EVENTS))
            .await;
        let mut events = to_read_error(list, "list the events")?.items;
        events.sort_by_key(|event| std::cmp::Reverse(time_of(event)));
        Ok(events)
    }

    /// Returns what is known about the adoption of a node; `None` if there is no such node.
    pub async fn adoption(&self, node: &str) -> Result<Option<AdoptionState>, ReadError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let found = to_read_error(nodes.get_opt(node).await, &format!("read node {node}"))?;
        let Some(found) = found else {
            return Ok(None);
        };
        let adoptions: Api<NodeAdoption> = Api::all(self.client.clone());
        let status = to_read_error(
            adoptions.get_opt(node).await,
            &format!("read NodeAdoption {node}"),
        )?;
        let annotations = NodeAnnotations::of_node(&found);
        Ok(Some(AdoptionState {
            status: status.and_then(|adoption| adoption.status),
            pending: annotations.adoption_request.map(str::to_owned),
            is_managed: annotations.current_config.is_some(),
        }))
    }

    /// Requests to compare, adopt or release a node with the rights of the user.
    pub async fn request_adoption(&self, node: &str, request: &str) -> Result<(), ReadError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let value = format!("{request} {}", Timestamp::now().as_microsecond());
        let patch = Patch::Merge(json!({"metadata": {"annotations": {ADOPTION_REQUEST: value}}}));
        let changed = nodes.patch(node, &FIELD_MANAGER.patch_params(), &patch).await;
        to_read_error(changed, &format!("annotate node {node}")).map(|_| ())
    }

    /// Pauses or resumes a pool with the rights of the user.
    pub async fn set_paused(&self, pool: &str, paused: bool) -> Result<(), ReadError> {
        let api: Api<MachineConfigPool> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
        let changed = api.patch(pool, &FIELD_MANAGER.patch_params(), &patch).await;
        to_read_error(changed, &format!("change pool {pool}")).map(|_| ())
    }
}

/// Returns the time of the last occurrence of an event.
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

async fn user_name(client: &Client) -> Result<String, ReadError> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    match api
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
    {
        // Clusters before 1.28 lack the review; a list verifies the credentials instead.
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let pools: Api<MachineConfigPool> = Api::all(client.clone());
            to_read_error(
                pools.list(&ListParams::default().limit(1)).await,
                "list the pools",
            )?;
            Ok(String::new())
        }
        review => {
            let review = to_read_error(review, "log in")?;
            let user = review.status.and_then(|status| status.user_info);
            Ok(user.and_then(|user| user.username).unwrap_or_default())
        }
    }
}

async fn may_patch_pools(client: &Client) -> bool {
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut review = SelfSubjectAccessReview::default();
    review.spec.resource_attributes = Some(ResourceAttributes {
        verb: Some("patch".to_owned()),
        group: Some("machineconfiguration.openshift.io".to_owned()),
        resource: Some("machineconfigpools".to_owned()),
        ..ResourceAttributes::default()
    });
    let reviewed = api.create(&PostParams::default(), &review).await;
    reviewed
        .ok()
        .and_then(|review| review.status)
        .is_some_and(|status| status.allowed)
}
