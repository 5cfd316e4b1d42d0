//! One attempt to empty a node: asks for evictions, asks again where the answer is no, and waits for pods to leave.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{EvictParams, ListParams};
use kube::{Api, Client};
use mco_core::rollout::drain::pods::{full_name, overstays};
use mco_core::rollout::drain::{
    Blocker, Budgets, Completion, DrainRecord, Eviction, Obstacle, Policy, complete, pace,
};
use mco_core::rollout::node_progress::Phase;
use tokio::time::Instant;
use tracing::{debug, info};

use super::{progress, tell_obstacle};
use crate::cluster::Cluster;
use crate::error::{Error, is_not_found};

/// Evictions that are asked for at once, per node.
const EVICTIONS: usize = 16;
/// Pods leave within moments or within their grace period; the first look comes early, the later ones do not hurry.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LATER_LOOKS: Duration = Duration::from_secs(1);
/// How many obstacles are written onto the node; more are not read.
const OBSTACLES_SHOWN: usize = 3;
/// What an admission policy says can be long, and the Node is read by everybody.
const LONGEST_ANSWER: usize = 300;

/// How an attempt ended.
#[derive(Debug)]
pub(super) enum Ended {
    Empty,
    /// The daemon asks for something else, or somebody let work in again.
    Overtaken,
    Blocked(Vec<Blocker>),
}

pub(super) struct Attempt<'a> {
    cluster: &'a Cluster,
    client: Client,
    node: &'a str,
    record: DrainRecord,
    deadline: Instant,
    /// What became of each pod that was asked for.
    asked: HashMap<String, Asked>,
    /// DaemonSets by `namespace/name`, and whether they exist.
    daemon_sets: HashMap<String, bool>,
}

#[derive(Debug, Clone)]
enum Asked {
    /// It may take its whole grace period; asking again changes nothing.
    Accepted,
    /// It may be asked again from then on.
    Refused { again: Instant, refusal: Refusal },
}

/// One round of questions.
struct Round<'p> {
    asked: usize,
    /// All pods that may not go, also those that were asked for before.
    refused: Vec<&'p Pod>,
}

enum Answer {
    Accepted,
    Gone,
    Refused(Refusal),
}

/// Why a pod may not go, as the API server says it.
#[derive(Debug, Clone)]
struct Refusal {
    code: u16,
    text: String,
}

impl<'a> Attempt<'a> {
    pub fn new(cluster: &'a Cluster, node: &'a str, record: &DrainRecord) -> Self {
        let client = cluster.options.drain_client.as_ref().unwrap_or(&cluster.client);
        Self {
            cluster,
            client: client.clone(),
            node,
            record: record.clone(),
            deadline: Instant::now() + cluster.options.drain.attempt,
            asked: HashMap::new(),
            daemon_sets: HashMap::new(),
        }
    }

    pub async fn run(mut self) -> Result<Ended, Error> {
        let mut first_look = true;
        let mut refusals: Vec<Blocker> = Vec::new();
        loop {
            if self.is_overtaken() {
                return Ok(Ended::Overtaken);
            }
            let pods = self.pods().await?;
            self.look_up_daemon_sets(&pods).await?;
            let eviction = Eviction::of_pods(&pods, Policy::default(), |namespace, name| {
                let key = format!("{namespace}/{name}");
                self.daemon_sets.get(&key).copied().unwrap_or(true)
            });
            if eviction.is_finished() {
                return Ok(Ended::Empty);
            }
            if first_look {
                let names: Vec<String> = eviction.evict.iter().map(|pod| full_name(pod)).collect();
                info!(node = self.node, pods = names.join(", "), "moving pods away");
                let phases = [Phase::Cordoned, progress::draining(&self.record)];
                progress::report(self.cluster, self.node, &phases).await;
            }
            let Round { asked, refused } = self.ask(&eviction.evict).await;
            if asked > 0 {
                refusals = self.refusals(&refused).await?;
            }
            refusals.retain(|blocker| refused.iter().any(|pod| full_name(pod) == blocker.pod));
            let blockers: Vec<Blocker> = self
                .overstaying(&eviction.leaving)
                .chain(refusals.iter().cloned())
                .collect();
            let alarming = pace(self.record.since, self.cluster.now()).is_alarming();
            let metrics = &self.cluster.options.metrics;
            metrics.drain(self.node, alarming, blockers.len());
            let what = describe(&blockers);
            tell_obstacle(self.cluster, self.node, &mut self.record, what).await?;
            let now = Instant::now();
            if now >= self.deadline {
                return Ok(Ended::Blocked(blockers));
            }
            let only_refused = eviction.leaving.is_empty() && refused.len() == eviction.evict.len();
            let pause = match (first_look, only_refused) {
                (true, false) => FIRST_LOOK,
                (false, false) => LATER_LOOKS.min(self.cluster.options.drain.eviction_retry),
                // Nothing leaves before somebody is asked again.
                (_, true) => self.cluster.options.drain.eviction_retry,
            };
            first_look = false;
            self.rest_until(self.deadline.min(now + pause)).await;
        }
    }

    async fn pods(&self) -> Result<Vec<Pod>, Error> {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let selector = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        let listed = pods
            .list(&selector)
            .await
            .map_err(Error::api(format!("listing the pods of node {}", self.node)))?;
        Ok(listed.items)
    }

    /// Asks for the eviction of every pod whose time has come. One that is refused, for whatever reason, keeps no other
    /// from going.
    async fn ask<'p>(&mut self, pods: &[&'p Pod]) -> Round<'p> {
        let now = Instant::now();
        let client = &self.client;
        let requests: Vec<_> = pods
            .iter()
            .copied()
            .filter(|pod| match self.asked.get(&full_name(pod)) {
                None => true,
                Some(Asked::Accepted) => false,
                Some(Asked::Refused { again, .. }) => *again <= now,
            })
            .map(|pod| async move { (full_name(pod), evict(client, pod).await) })
            .collect();
        let answers: Vec<(String, Answer)> = futures::stream::iter(requests)
            .buffer_unordered(EVICTIONS)
            .collect()
            .await;
        let asked = answers.len();
        for (pod, answer) in answers {
            let outcome = match answer {
                Answer::Accepted | Answer::Gone => Asked::Accepted,
                Answer::Refused(refusal) => Asked::Refused {
                    again: now + self.cluster.options.drain.eviction_retry,
                    refusal: self.as_before(&pod, refusal),
                },
            };
            self.asked.insert(pod, outcome);
        }
        let is_refused = |pod: &&Pod| matches!(self.asked.get(&full_name(pod)), Some(Asked::Refused { .. }));
        let refused = pods.iter().copied().filter(is_refused).collect();
        Round { asked, refused }
    }

    /// The same refusal in other words (some name the request or the time) is told once.
    fn as_before(&self, pod: &str, refusal: Refusal) -> Refusal {
        match self.asked.get(pod) {
            Some(Asked::Refused { refusal: before, .. }) if before.code == refusal.code => before.clone(),
            _ => refusal,
        }
    }

    /// What is behind the refusals: the budgets, or where none says no (any more), what the API server said.
    async fn refusals(&self, refused: &[&Pod]) -> Result<Vec<Blocker>, Error> {
        let namespaces: BTreeSet<&str> = refused
            .iter()
            .filter_map(|pod| pod.metadata.namespace.as_deref())
            .collect();
        let mut budgets: Vec<PodDisruptionBudget> = Vec::new();
        for namespace in namespaces {
            let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), namespace);
            let listed = api
                .list(&ListParams::default())
                .await
                .map_err(Error::api(format!(
                    "listing the disruption budgets of {namespace}"
                )))?;
            budgets.extend(listed.items);
        }
        let (by_budget, otherwise): (Vec<&Pod>, Vec<&Pod>) = refused
            .iter()
            .partition(|pod| self.refusal(pod).is_some_and(Refusal::is_by_budget));
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

    /// Pods that were asked to go long enough ago to be gone.
    fn overstaying(&self, leaving: &[&Pod]) -> impl Iterator<Item = Blocker> {
        let now = self.cluster.now();
        leaving.iter().filter_map(move |pod| {
            Some(Blocker {
                node: self.node.to_owned(),
                pod: full_name(pod),
                obstacle: overstays(pod, now)?,
            })
        })
    }

    fn refusal(&self, pod: &Pod) -> Option<&Refusal> {
        match self.asked.get(&full_name(pod)) {
            Some(Asked::Refused { refusal, .. }) => Some(refusal),
            _ => None,
        }
    }

    async fn look_up_daemon_sets(&mut self, pods: &[Pod]) -> Result<(), Error> {
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

    /// Waits, but not when the node asks for something else meanwhile.
    async fn rest_until(&self, end: Instant) {
        loop {
            let woken = self.cluster.queues.drain.woken_during_a_look();
            if self.is_overtaken() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep_until(end) => return,
                () = woken => {}
            }
        }
    }

    /// Whether the node still asks for this drain and still is cordoned, as far as the watch knows.
    fn is_overtaken(&self) -> bool {
        let Some(node) = self.cluster.nodes.get(self.node) else {
            return true;
        };
        complete(&node, &self.record) == Completion::Overtaken
    }
}

impl Refusal {
    fn new(problem: kube::Error) -> Self {
        let (code, text) = match problem {
            kube::Error::Api(status) => (status.code, status.message.clone()),
            other => (0, other.to_string()),
        };
        let text = match text.char_indices().nth(LONGEST_ANSWER) {
            Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
            None => text,
        };
        Self { code, text }
    }

    /// Several budgets for one pod are answered as a failure of the server; that is as final as a budget that is used
    /// up.
    fn is_by_budget(&self) -> bool {
        self.code == 429 || self.code == 500 && self.text.contains("PodDisruptionBudget")
    }
}

async fn evict(client: &Client, pod: &Pod) -> Answer {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    match pods.evict(name, &EvictParams::default()).await {
        Ok(_) => {
            debug!(pod = %full_name(pod), "eviction accepted");
            Answer::Accepted
        }
        Err(problem) if is_not_found(&problem) => Answer::Gone,
        Err(problem) => Answer::Refused(Refusal::new(problem)),
    }
}

/// What the drain waits for, for people; none while nothing is in its way.
fn describe(blockers: &[Blocker]) -> Option<String> {
    let mut what: Vec<String> = blockers.iter().map(Blocker::what).collect();
    what.sort();
    let more = what.len().saturating_sub(OBSTACLES_SHOWN);
    what.truncate(OBSTACLES_SHOWN);
    let text = what.join(", ");
    match (text.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(text),
        (false, more) => Some(format!("{text} and {more} more pods")),
    }
}
