//! Empties nodes and gives them back, as their daemons ask: [`mco_core::rollout::drain`] decides, this writes and evicts.
//!
//! Everything that must survive a restart is on the Node: since when, for which request, whose cordon it is.

mod evict;
mod progress;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::Patch;
use mco_api::vocabulary::annotations::node as annotation;
use mco_api::vocabulary::events;
use mco_core::rollout::drain::{self, Completion, Decision, DrainRecord, Lift, Pace, decide, pace};
use mco_core::rollout::node_progress::Phase;
use mco_core::rollout::patch::merge_patch;
use mco_core::rollout::{Action, Event, NodeView};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::cluster::Cluster;
use crate::error::{Class, Error, is_not_found};
use crate::events::Reporter;
use crate::patches;
use crate::queue::Again;
use evict::Attempt;

const MANAGER: &str = drain::cordon::DRAIN_MANAGER;

/// Does what the node's daemon asks for, as far as it goes now.
pub(crate) async fn reconcile(cluster: Arc<Cluster>, name: String) -> Result<Again, Error> {
    let Some(mut node) = cluster.nodes.get(&name) else {
        cluster.options.metrics.forget_drain(&name);
        return Ok(Again::OnChange);
    };
    loop {
        let decision = decide(&node, cluster.now()).map_err(|problem| Error::Invalid(problem.to_string()))?;
        match &decision {
            Decision::Nothing => return Ok(Again::OnChange),
            Decision::Cordon(record) => {
                info!(node = name, request = record.request, cordon = ?record.cordon, "keeping new work away");
                let patch = without_reason(&node, decision.patch());
                // Whose cordon it is was decided from what the node said, so it must still say that. Each other round
                // needs somebody else's write, so this ends.
                node = match write_unchanged(&cluster, &node, patch.unwrap_or_default()).await? {
                    Guarded::Written(node) | Guarded::Changed(node) => node,
                    Guarded::Gone => return Ok(Again::OnChange),
                };
            }
            Decision::Disown(_) => {
                info!(
                    node = name,
                    "somebody lets work onto the node again; its next cordon is theirs"
                );
                write(&cluster, &node, decision.patch()).await?;
                return Ok(Again::OnChange);
            }
            Decision::Uncordon { request, lift } => {
                return give_back(&cluster, &node, &decision, request, *lift).await;
            }
            Decision::Evict(record) => return empty(&cluster, node, record).await,
        }
    }
}

/// Reports a drain that is under way in a MachineConfigNode that was created after it began, or just now. An older one
/// gets the report from the drain itself.
pub(crate) async fn report_under_way(cluster: &Cluster, node: &Node, created: Option<Timestamp>) {
    let Ok(Decision::Evict(record)) = decide(node, cluster.now()) else {
        return;
    };
    // Creation times have whole seconds.
    if created.is_none_or(|created| created.as_second() >= record.since.as_second()) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let phases = [Phase::Cordoned, progress::draining(&record)];
        progress::report(cluster, name, &phases).await;
    }
}

/// Moves the node's pods away for as long as one attempt lasts.
async fn empty(cluster: &Cluster, node: Arc<Node>, record: &DrainRecord) -> Result<Again, Error> {
    let name = node.metadata.name.clone().unwrap_or_default();
    match Attempt::new(cluster, &name, record).run().await {
        Ok(evict::Ended::Empty) => finish(cluster, &name, record).await,
        // Something else is asked for now; the change itself has woken this node.
        Ok(evict::Ended::Overtaken) => Ok(Again::After(Duration::ZERO)),
        Ok(evict::Ended::Blocked(blockers)) => {
            cluster.options.metrics.drain(
                &name,
                pace(record.since, cluster.now()).is_alarming(),
                blockers.len(),
            );
            // An attempt asks budgets every few seconds, so the next one may follow at once until it is clear that
            // something blocks for good.
            let again = match warn_if_slow(cluster, &node, record, &blockers) {
                Pace::Fresh => Duration::ZERO,
                pace @ (Pace::Slow | Pace::Overdue) => pace.retry_after(),
            };
            Ok(Again::After(again))
        }
        Err(problem) => {
            let pace = warn_if_slow(cluster, &node, record, &[&problem]);
            // The attempt ended before it was known which pods are in the way.
            cluster.options.metrics.drain(&name, pace.is_alarming(), 0);
            Err(problem)
        }
    }
}

/// Tells people about a drain that takes long, however its last attempt ended.
fn warn_if_slow(cluster: &Cluster, node: &Node, record: &DrainRecord, obstacles: &[impl Display]) -> Pace {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let pace = pace(record.since, cluster.now());
    if let Some(event) = pace.event(name, obstacles) {
        warn!(node = name, "{}", event.message);
        cluster.events.tell(Reporter::Rollout, node, event);
    }
    pace
}

/// All pods are gone: tells the daemon, unless somebody let work in again meanwhile.
async fn finish(cluster: &Cluster, name: &str, record: &DrainRecord) -> Result<Again, Error> {
    let Some(mut node) = cluster.nodes.get(name) else {
        return Ok(Again::OnChange);
    };
    loop {
        let completion = drain::complete(&node, record);
        if completion == Completion::Overtaken {
            return Ok(Again::After(Duration::ZERO));
        }
        let Some(patch) = without_reason(&node, completion.patch()) else {
            return Ok(Again::OnChange);
        };
        // Before the daemon hears that it may go on, and reports its own next step.
        let phases = [Phase::Cordoned, Phase::Draining, Phase::Drained];
        progress::report(cluster, name, &phases).await;
        node = match write_unchanged(cluster, &node, patch).await? {
            Guarded::Written(_) => break,
            Guarded::Changed(node) => node,
            Guarded::Gone => return Ok(Again::OnChange),
        };
    }
    let took = Duration::try_from(cluster.now().duration_since(record.since)).unwrap_or_default();
    info!(
        node = name,
        request = record.request,
        seconds = took.as_secs(),
        "the node is drained"
    );
    cluster.options.metrics.drained(name, took);
    Ok(Again::OnChange)
}

async fn give_back(
    cluster: &Cluster,
    node: &Arc<Node>,
    decision: &Decision,
    request: &str,
    lift: Lift,
) -> Result<Again, Error> {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let patch = match (decision.patch(), arrives(cluster, node, request)) {
        // The last thing about this update, so the mark of nodes that wait for one goes with it.
        (Some(patch), Some(untaint)) => Some(patches::both(patch, untaint)),
        (patch, _) => patch,
    };
    let patch = match drain::reason_patch(node, None) {
        Some(_) => without_reason(node, patch).map(|patch| patches::both(patch, precondition(node))),
        None => patch,
    };
    if patch.is_some() {
        // Before the daemon hears it, and reports that the update is over.
        progress::report(cluster, name, &[Phase::Uncordoned]).await;
    }
    if write(cluster, node, patch).await?.is_some() {
        match lift {
            Lift::Cordon => info!(node = name, request, "the node takes work again"),
            Lift::Nothing => info!(
                node = name,
                request, "the node is given back; its cordon is not ours to lift"
            ),
        }
        cluster.options.metrics.forget_drain(name);
    }
    Ok(Again::OnChange)
}

/// What takes the update's taint from a node that arrives at its pool's target.
fn arrives(cluster: &Cluster, node: &Node, request: &str) -> Option<Value> {
    let pool = cluster.members.home(node.metadata.name.as_deref()?).pool?;
    let pool = cluster.pools.get(&pool)?;
    let view = NodeView::new(node);
    let target = pool.target_name();
    let arrives = !target.is_empty()
        && view.desired_config == target
        && request == annotation::drain::uncordon(target)
        && !pool.spec.paused;
    let action = Action::RemoveUpdateTaint {
        node: view.name.to_owned(),
    };
    arrives.then(|| merge_patch(node, [&action])).flatten()
}

/// Writes a node and returns it as it is then; none if it is gone or there is nothing to write.
async fn write(
    cluster: &Cluster,
    node: &Arc<Node>,
    patch: Option<Value>,
) -> Result<Option<Arc<Node>>, Error> {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let Some(patch) = patch else {
        return Ok(None);
    };
    let written = cluster
        .api::<Node>()
        .patch(name, &patches::by(MANAGER), &Patch::Merge(patch))
        .await;
    match written {
        Ok(written) => {
            cluster.nodes.learn(written.clone());
            Ok(Some(Arc::new(written)))
        }
        Err(problem) if is_not_found(&problem) => Ok(None),
        Err(problem) => Err(Error::api(format!("writing node {name}"))(problem)),
    }
}

/// How a write ended that must not happen to another node than the one that was looked at.
enum Guarded {
    Written(Arc<Node>),
    /// It has changed meanwhile; this is what it is now.
    Changed(Arc<Node>),
    Gone,
}

async fn write_unchanged(cluster: &Cluster, node: &Arc<Node>, patch: Value) -> Result<Guarded, Error> {
    let guarded = patches::both(patch, precondition(node));
    match write(cluster, node, Some(guarded)).await {
        Ok(Some(written)) => Ok(Guarded::Written(written)),
        Ok(None) => Ok(Guarded::Gone),
        Err(problem) if problem.class() == Class::Conflict => {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            let read = cluster.api::<Node>().get_opt(name).await;
            let Some(now) = read.map_err(Error::api(format!("reading node {name}")))? else {
                return Ok(Guarded::Gone);
            };
            cluster.nodes.learn(now.clone());
            Ok(Guarded::Changed(Arc::new(now)))
        }
        Err(problem) => Err(problem),
    }
}

fn precondition(node: &Node) -> Value {
    json!({"metadata": {"resourceVersion": node.metadata.resource_version}})
}

/// A patch that also takes back what we have made the node's reason say.
fn without_reason(node: &Node, patch: Option<Value>) -> Option<Value> {
    match (patch, drain::reason_patch(node, None)) {
        (Some(patch), Some(reason)) => Some(patches::both(patch, reason)),
        (patch, _) => patch,
    }
}

/// Remembers on the node what its drain waits for, so that people see it there, in the pool's status and in plans.
async fn tell_obstacle(
    cluster: &Cluster,
    name: &str,
    record: &mut DrainRecord,
    waiting_for: Option<String>,
) -> Result<(), Error> {
    if record.waiting_for == waiting_for {
        return Ok(());
    }
    let Some(mut node) = cluster.nodes.get(name) else {
        return Ok(());
    };
    if let Some(what) = &waiting_for {
        warn!(node = name, "the drain waits for {what}");
        let message = format!("node {name}: the drain waits for {what}");
        let event = Event::warning(events::drain::DRAIN_BLOCKED, message);
        cluster.events.tell(Reporter::Rollout, node.as_ref(), event);
    }
    record.waiting_for = waiting_for;
    let patch = json!({"metadata": {"annotations": {annotation::DRAIN_RECORD: record.to_annotation()}}});
    loop {
        let Some(reason) = drain::reason_patch(&node, record.waiting_for.as_deref()) else {
            write(cluster, &node, Some(patch)).await?;
            break;
        };
        match write_unchanged(cluster, &node, patches::both(patch.clone(), reason)).await? {
            Guarded::Changed(now) if drain::complete(&now, record) != Completion::Overtaken => node = now,
            Guarded::Changed(_) | Guarded::Written(_) | Guarded::Gone => break,
        }
    }
    progress::report(cluster, name, &[progress::draining(record)]).await;
    Ok(())
}
