//! One attempt to empty a node: asks for evictions, asks again where a budget says no, and waits for pods to leave.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{EvictParams, ListParams};
use kube::{Api, Client};
use mco_core::drain::pods::full_name;
use mco_core::drain::{Blocker, Budgets, Completion, DrainRecord, Eviction, Policy, complete, pace};
use mco_core::node_progress::Phase;
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

#[derive(Debug, Clone, Copy)]
enum Asked {
    /// It may take its whole grace period; asking again changes nothing.
    Accepted,
    /// A budget said no; it may be asked again from then on.
    Refused { again: Instant },
}

/// One round of questions.
struct Round<'p> {
    asked: usize,
    /// All pods that a budget keeps, also those that were asked for before.
    refused: Vec<&'p Pod>,
}

enum Answer {
    Accepted,
    Gone,
    Refused,
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
        let mut blockers: Vec<Blocker> = Vec::new();
        loop {
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
                progress::report(self.cluster, self.node, &[Phase::Cordoned, Phase::Draining]).await;
            }
            let Round { asked, refused } = self.ask(&eviction.evict).await?;
            if asked > 0 {
                blockers = self.blockers(&refused).await?;
                let what = describe(&blockers, &refused);
                tell_obstacle(self.cluster, self.node, &mut self.record, what).await?;
                let alarming = pace(self.record.since, self.cluster.now()).is_alarming();
                let metrics = &self.cluster.options.metrics;
                metrics.drain(self.node, alarming, refused.len());
            }
            if self.is_overtaken() {
                return Ok(Ended::Overtaken);
            }
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
            tokio::time::sleep(pause.min(self.deadline - now)).await;
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

    /// Asks for the eviction of every pod whose time has come.
    async fn ask<'p>(&mut self, pods: &[&'p Pod]) -> Result<Round<'p>, Error> {
        let now = Instant::now();
        let client = &self.client;
        let requests: Vec<_> = pods
            .iter()
            .copied()
            .filter(|pod| match self.asked.get(&full_name(pod)) {
                None => true,
                Some(Asked::Accepted) => false,
                Some(Asked::Refused { again }) => *again <= now,
            })
            .map(|pod| async move { (full_name(pod), evict(client, pod).await) })
            .collect();
        let answers: Vec<(String, Result<Answer, Error>)> = futures::stream::iter(requests)
            .buffer_unordered(EVICTIONS)
            .collect()
            .await;
        let asked = answers.len();
        for (pod, answer) in answers {
            let outcome = match answer? {
                Answer::Accepted | Answer::Gone => Asked::Accepted,
                Answer::Refused => Asked::Refused {
                    again: now + self.cluster.options.drain.eviction_retry,
                },
            };
            self.asked.insert(pod, outcome);
        }
        let mut refused = Vec::new();
        for pod in pods {
            if matches!(self.asked.get(&full_name(pod)), Some(Asked::Refused { .. })) {
                refused.push(*pod);
            }
        }
        Ok(Round { asked, refused })
    }

    /// The budgets behind the refusals.
    async fn blockers(&self, refused: &[&Pod]) -> Result<Vec<Blocker>, Error> {
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
        Ok(Budgets::new(&budgets).blockers(self.node, refused.iter().copied()))
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

    /// Whether the node still asks for this drain and still is cordoned, as far as the watch knows.
    fn is_overtaken(&self) -> bool {
        let Some(node) = self.cluster.nodes.get(self.node) else {
            return true;
        };
        complete(&node, &self.record) == Completion::Overtaken
    }
}

async fn evict(client: &Client, pod: &Pod) -> Result<Answer, Error> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    match pods.evict(name, &EvictParams::default()).await {
        Ok(_) => {
            debug!(pod = %full_name(pod), "eviction accepted");
            Ok(Answer::Accepted)
        }
        Err(problem) if is_not_found(&problem) => Ok(Answer::Gone),
        Err(kube::Error::Api(status)) if status.code == 429 => Ok(Answer::Refused),
        // Several budgets for one pod are answered so; that is as final as a budget that is used up.
        Err(kube::Error::Api(status))
            if status.code == 500 && status.message.contains("PodDisruptionBudget") =>
        {
            Ok(Answer::Refused)
        }
        Err(problem) => Err(Error::api(format!("evicting pod {}", full_name(pod)))(problem)),
    }
}

/// What the drain waits for, for people; none while nothing is in its way.
fn describe(blockers: &[Blocker], refused: &[&Pod]) -> Option<String> {
    let mut what: Vec<String> = blockers.iter().map(Blocker::what).collect();
    if what.is_empty() {
        // The budgets have changed since they said no.
        what = refused
            .iter()
            .map(|pod| format!("pod {}", full_name(pod)))
            .collect();
    }
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
