//! One attempt to drain a node: requests evictions, retries refused ones, and waits until the pods are deleted.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{EvictParams, ListParams};
use kube::{Api, Client};
use mco_api::vocabulary::{labels, names};
use mco_core::rollout::drain::pods::{full_name, is_controller, overstays};
use mco_core::rollout::drain::{
    Blocker, Budgets, Completion, DrainPolicy, DrainRecord, Eviction, Obstacle, OtherController, complete,
    pace,
};
use mco_core::rollout::node_progress::UpdatePhase;
use mco_runtime::{Lenient, is_not_found, list_lenient};
use tokio::time::Instant;
use tracing::{debug, info};

use super::{progress, record_blockers};
use crate::context::Context;
use crate::error::Error;

/// Evictions that are requested at the same time, per node.
const CONCURRENT_EVICTIONS: usize = 16;
/// Pods are deleted within moments or within their grace period, so only the first poll is early.
const FIRST_POLL: Duration = Duration::from_millis(100);
const LATER_POLLS: Duration = Duration::from_secs(1);
/// How many blocking pods are named on the node.
const BLOCKERS_SHOWN: usize = 3;
/// Messages of admission webhooks can be long, and every component reads Nodes.
const MAX_REFUSAL: usize = 300;

/// The result of an attempt.
#[derive(Debug)]
pub(super) enum AttemptResult {
    Drained,
    /// The daemon requests something else, or another client uncordoned the node.
    Superseded,
    Blocked(Vec<Blocker>),
}

pub(super) struct DrainAttempt<'a> {
    ctx: &'a Context,
    client: Client,
    node: &'a str,
    record: DrainRecord,
    deadline: Instant,
    /// The last response for each pod.
    requested: HashMap<String, EvictionState>,
    /// DaemonSets by `namespace/name`, and whether they exist.
    daemon_sets: HashMap<String, bool>,
}

#[derive(Debug, Clone)]
enum EvictionState {
    /// The pod may use its whole grace period; another request changes nothing.
    Accepted,
    Refused {
        retry_at: Instant,
        refusal: EvictionRefusal,
    },
}

/// One round of eviction requests.
struct Round<'p> {
    requests: usize,
    /// All pods whose eviction is refused, now or in an earlier round.
    refused: Vec<&'p Pod>,
}

enum EvictionResponse {
    Accepted,
    NotFound,
    Refused(EvictionRefusal),
}

/// Why the API server refused an eviction.
#[derive(Debug, Clone)]
struct EvictionRefusal {
    code: u16,
    text: String,
}

impl<'a> DrainAttempt<'a> {
    pub fn new(ctx: &'a Context, node: &'a str, record: &DrainRecord) -> Self {
        let client = ctx.options.drain_client.as_ref().unwrap_or(&ctx.client);
        Self {
            ctx,
            client: client.clone(),
            node,
            record: record.clone(),
            deadline: Instant::now() + ctx.options.drain.attempt,
            requested: HashMap::new(),
            daemon_sets: HashMap::new(),
        }
    }

    pub async fn run(mut self) -> Result<AttemptResult, Error> {
        let mut is_first = true;
        let mut refusals: Vec<Blocker> = Vec::new();
        loop {
            if self.is_superseded() {
                return Ok(AttemptResult::Superseded);
            }
            let pods = self.pods().await?;
            self.find_daemon_sets(&pods).await?;
            let other_controller = self.other_controller(&pods).await?;
            let policy = DrainPolicy::default();
            let eviction = Eviction::of_pods(&pods, policy, other_controller, |namespace, name| {
                let key = format!("{namespace}/{name}");
                self.daemon_sets.get(&key).copied().unwrap_or(true)
            });
            if eviction.is_finished() {
                if let Some(kept) = eviction.kept_controller {
                    let pod = full_name(kept);
                    info!(
                        node = self.node,
                        pod, "kept the controller: none is ready on another node"
                    );
                }
                return Ok(AttemptResult::Drained);
            }
            if is_first {
                let names: Vec<String> = eviction.evict.iter().map(|pod| full_name(pod)).collect();
                info!(node = self.node, pods = names.join(", "), "evicting pods");
                let phases = [UpdatePhase::Cordoned, progress::draining(&self.record)];
                progress::report(self.ctx, self.node, &phases).await;
            }
            let Round { requests, refused } = self.request_evictions(&eviction.evict).await;
            if requests > 0 {
                refusals = self.refusals(&refused).await?;
            }
            refusals.retain(|blocker| refused.iter().any(|pod| full_name(pod) == blocker.pod));
            let blockers: Vec<Blocker> = self
                .overstaying(&eviction.leaving)
                .chain(refusals.iter().cloned())
                .collect();
            let alarming = pace(self.record.since, self.ctx.now()).is_alarming();
            let metrics = &self.ctx.options.metrics;
            metrics.drain(self.node, alarming, blockers.len());
            let what = describe(&blockers);
            record_blockers(self.ctx, self.node, &mut self.record, what).await?;
            let now = Instant::now();
            if now >= self.deadline {
                return Ok(AttemptResult::Blocked(blockers));
            }
            let only_refused = eviction.leaving.is_empty() && refused.len() == eviction.evict.len();
            let pause = match (is_first, only_refused) {
                (true, false) => FIRST_POLL,
                (false, false) => LATER_POLLS.min(self.ctx.options.drain.eviction_retry),
                // No pod is being deleted before the next request.
                (_, true) => self.ctx.options.drain.eviction_retry,
            };
            is_first = false;
            self.wait_until(self.deadline.min(now + pause)).await;
        }
    }

    async fn pods(&self) -> Result<Vec<Pod>, Error> {
        let pods: Api<Lenient<Pod>> = Api::all(self.client.clone());
        let selector = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        let listed = list_lenient(&pods, &selector)
            .await
            .map_err(Error::api(format!("listing the pods of node {}", self.node)))?;
        match listed.unreadable.first() {
            // Without it, the drain would end while the pod is still running.
            Some(pod) => Err(Error::Invalid(format!("draining node {}: {pod}", self.node))),
            None => Ok(listed.items),
        }
    }

    /// Finds a controller that can complete the drain, if one of the pods is a controller.
    async fn other_controller(&self, pods: &[Pod]) -> Result<OtherController, Error> {
        if !pods.iter().any(is_controller) {
            return Ok(OtherController::Ready);
        }
        let api: Api<Lenient<Pod>> = Api::namespaced(self.client.clone(), names::NAMESPACE);
        let selector = format!("{}={}", labels::APP, names::component::CONTROLLER);
        let listed = list_lenient(&api, &ListParams::default().labels(&selector)).await;
        let controllers = listed.map_err(Error::api("listing the pods of the controller"))?;
        Ok(OtherController::than_on(self.node, &controllers.logged()))
    }

    /// Requests the eviction of every pod that is due. A refusal does not stop the others.
    async fn request_evictions<'p>(&mut self, pods: &[&'p Pod]) -> Round<'p> {
        let now = Instant::now();
        let client = &self.client;
        let requests: Vec<_> = pods
            .iter()
            .copied()
            .filter(|pod| match self.requested.get(&full_name(pod)) {
                None => true,
                Some(EvictionState::Accepted) => false,
                Some(EvictionState::Refused { retry_at, .. }) => *retry_at <= now,
            })
            .map(|pod| async move { (full_name(pod), evict(client, pod).await) })
            .collect();
        let responses: Vec<(String, EvictionResponse)> = futures::stream::iter(requests)
            .buffer_unordered(CONCURRENT_EVICTIONS)
            .collect()
            .await;
        let sent = responses.len();
        for (pod, response) in responses {
            let outcome = match response {
                EvictionResponse::Accepted | EvictionResponse::NotFound => EvictionState::Accepted,
                EvictionResponse::Refused(refusal) => EvictionState::Refused {
                    retry_at: now + self.ctx.options.drain.eviction_retry,
                    refusal: self.unless_repeated(&pod, refusal),
                },
            };
            self.requested.insert(pod, outcome);
        }
        let is_refused = |pod: &&Pod| {
            matches!(
                self.requested.get(&full_name(pod)),
                Some(EvictionState::Refused { .. })
            )
        };
        let refused = pods.iter().copied().filter(is_refused).collect();
        Round {
            requests: sent,
            refused,
        }
    }

    /// Returns the earlier refusal with the same code: messages may contain a request id or a time, and each change
    /// would be reported again.
    fn unless_repeated(&self, pod: &str, refusal: EvictionRefusal) -> EvictionRefusal {
        match self.requested.get(pod) {
            Some(EvictionState::Refused { refusal: before, .. }) if before.code == refusal.code => {
                before.clone()
            }
            _ => refusal,
        }
    }

    /// Returns what blocks the refused pods: their disruption budgets, or the message of the API server where no
    /// budget blocks.
    async fn refusals(&self, refused: &[&Pod]) -> Result<Vec<Blocker>, Error> {
        let namespaces: BTreeSet<&str> = refused
            .iter()
            .filter_map(|pod| pod.metadata.namespace.as_deref())
            .collect();
        let mut budgets: Vec<PodDisruptionBudget> = Vec::new();
        for namespace in namespaces {
            let api: Api<Lenient<PodDisruptionBudget>> = Api::namespaced(self.client.clone(), namespace);
            let listed = list_lenient(&api, &ListParams::default())
                .await
                .map_err(Error::api(format!(
                    "listing the disruption budgets of {namespace}"
                )))?;
            budgets.extend(listed.logged());
        }
        let (by_budget, otherwise): (Vec<&Pod>, Vec<&Pod>) = refused
            .iter()
            .partition(|pod| self.refusal(pod).is_some_and(EvictionRefusal::is_by_budget));
        let mut blockers = Budgets::new(&budgets).blockers(self.node, by_budget.iter().copied());
        let named: BTreeSet<String> = blockers.iter().map(|blocker| blocker.pod.clone()).collect();
        for pod in by_budget.into_iter().chain(otherwise) {
            let name = full_name(pod);
            if let Some(refusal) = self.refusal(pod).filter(|_| !named.contains(&name)) {
                blockers.push(Blocker {
                    node: self.node.to_owned(),
                    pod: name,
                    obstacle: Obstacle::Refused {
                        answer: refusal.text.clone(),
                    },
                });
            }
        }
        Ok(blockers)
    }

    /// Returns pods that are still there although their grace period is over.
    fn overstaying(&self, leaving: &[&Pod]) -> impl Iterator<Item = Blocker> {
        let now = self.ctx.now();
        leaving.iter().filter_map(move |pod| {
            Some(Blocker {
                node: self.node.to_owned(),
                pod: full_name(pod),
                obstacle: overstays(pod, now)?,
            })
        })
    }

    fn refusal(&self, pod: &Pod) -> Option<&EvictionRefusal> {
        match self.requested.get(&full_name(pod)) {
            Some(EvictionState::Refused { refusal, .. }) => Some(refusal),
            _ => None,
        }
    }

    async fn find_daemon_sets(&mut self, pods: &[Pod]) -> Result<(), Error> {
        for pod in pods {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let owners = pod.metadata.owner_references.iter().flatten();
            for owner in owners.filter(|owner| owner.kind == "DaemonSet" && owner.controller == Some(true)) {
                let key = format!("{namespace}/{}", owner.name);
                if self.daemon_sets.contains_key(&key) {
                    continue;
                }
                let api: Api<DaemonSet> = Api::namespaced(self.client.clone(), namespace);
                let found = api
                    .get_metadata_opt(&owner.name)
                    .await
                    .map_err(Error::api(format!("reading DaemonSet {key}")))?;
                self.daemon_sets.insert(key, found.is_some());
            }
        }
        Ok(())
    }

    /// Waits, but returns early when the daemon requests something else.
    async fn wait_until(&self, end: Instant) {
        loop {
            let enqueued = self.ctx.queues.drain.enqueued_during_reconcile();
            if self.is_superseded() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep_until(end) => return,
                () = enqueued => {}
            }
        }
    }

    /// Returns true if the node no longer requests this drain or is no longer cordoned.
    fn is_superseded(&self) -> bool {
        let Some(node) = self.ctx.stores.nodes.get(self.node) else {
            return true;
        };
        complete(&node, &self.record) == Completion::Overtaken
    }
}

impl EvictionRefusal {
    fn new(problem: kube::Error) -> Self {
        let (code, text) = match problem {
            kube::Error::Api(status) => (status.code, status.message.clone()),
            other => (0, other.to_string()),
        };
        let text = match text.char_indices().nth(MAX_REFUSAL) {
            Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
            None => text,
        };
        Self { code, text }
    }

    /// Several budgets for one pod are reported as an internal error, which blocks like an exhausted budget.
    fn is_by_budget(&self) -> bool {
        self.code == 429 || self.code == 500 && self.text.contains("PodDisruptionBudget")
    }
}

async fn evict(client: &Client, pod: &Pod) -> EvictionResponse {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    match pods.evict(name, &EvictParams::default()).await {
        Ok(_) => {
            debug!(pod = %full_name(pod), "eviction accepted");
            EvictionResponse::Accepted
        }
        Err(problem) if is_not_found(&problem) => EvictionResponse::NotFound,
        Err(problem) => EvictionResponse::Refused(EvictionRefusal::new(problem)),
    }
}

/// Describes what the drain waits for; `None` while nothing blocks it.
fn describe(blockers: &[Blocker]) -> Option<String> {
    let mut what: Vec<String> = blockers.iter().map(Blocker::what).collect();
    what.sort();
    let more = what.len().saturating_sub(BLOCKERS_SHOWN);
    what.truncate(BLOCKERS_SHOWN);
    let text = what.join(", ");
    match (text.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(text),
        (false, more) => Some(format!("{text} and {more} more pods")),
    }
}
