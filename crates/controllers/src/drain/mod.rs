//! Cordons, drains and uncordons nodes on the request of their daemons: [`mco_core::rollout::drain`] decides, this
//! module writes and evicts.
//!
//! All state that must survive a restart is on the Node: the start of the drain, its request and the owner of the
//! cordon.

mod evict;
mod progress;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use mco_api::vocabulary::annotations::node as annotation;
use mco_api::vocabulary::events;
use mco_core::rollout::drain::{self, Completion, DrainDecision, DrainPace, DrainRecord, Lift, decide, pace};
use mco_core::rollout::node_progress::UpdatePhase;
use mco_core::rollout::patch::merge_patch;
use mco_core::rollout::{NodeAction, NodeView, PlannedEvent};
use mco_runtime::{ErrorClass, FieldManager, ReconcileError as _, Requeue, object_name, patch};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::context::Context;
use crate::error::Error;
use crate::events::Reporter;
use crate::policies;
use evict::{AttemptResult, DrainAttempt};

const MANAGER: FieldManager = FieldManager::new(drain::cordon::DRAIN_MANAGER);

/// Executes the drain or uncordon that the node's daemon requests.
pub(crate) async fn reconcile(ctx: Arc<Context>, name: String) -> Result<Requeue, Error> {
    let Some(mut node) = ctx.stores.nodes.get(&name) else {
        ctx.options.metrics.remove_drain(&name);
        return Ok(Requeue::OnChange);
    };
    loop {
        let decision = decide(&node, policies::drain_preparation(&ctx, &name), ctx.now())
            .map_err(|problem| Error::Invalid(problem.to_string()))?;
        match &decision {
            DrainDecision::Nothing => return Ok(Requeue::OnChange),
            DrainDecision::Cordon(record) => {
                info!(node = name, request = record.request, cordon = ?record.cordon, "cordoning the node");
                let patch = without_reason(&node, decision.patch());
                // The owner of the cordon was decided from this version of the node, so a newer one is decided again.
                // Every repetition needs a write of another client, so the loop ends.
                node = match write_unchanged(&ctx, &node, patch.unwrap_or_default()).await? {
                    GuardedWrite::Written(node) | GuardedWrite::Conflict(node) => node,
                    GuardedWrite::NotFound => return Ok(Requeue::OnChange),
                };
            }
            DrainDecision::Disown(_) => {
                info!(
                    node = name,
                    "another client uncordoned the node; a later cordon will not be ours"
                );
                write(&ctx, &node, decision.patch()).await?;
                return Ok(Requeue::OnChange);
            }
            DrainDecision::Uncordon { request, lift, .. } => {
                return uncordon(&ctx, &node, &decision, request, *lift).await;
            }
            DrainDecision::Evict(record) => return drain_node(&ctx, node, record).await,
        }
    }
}

/// Reports a running drain in a MachineConfigNode that was created after the drain began. An older one has the report
/// from the drain itself.
pub(crate) async fn report_running_drain(ctx: &Context, node: &Node, created: Option<Timestamp>) {
    let preparation = policies::drain_preparation(ctx, object_name(&node.metadata));
    let Ok(DrainDecision::Evict(record)) = decide(node, preparation, ctx.now()) else {
        return;
    };
    // Creation timestamps have whole seconds.
    if created.is_none_or(|created| created.as_second() >= record.since.as_second()) {
        let name = object_name(&node.metadata);
        let phases = [UpdatePhase::Cordoned, progress::draining(&record)];
        progress::report(ctx, name, &phases).await;
    }
}

/// Evicts the node's pods for the duration of one attempt.
async fn drain_node(ctx: &Context, node: Arc<Node>, record: &DrainRecord) -> Result<Requeue, Error> {
    let name = node.metadata.name.clone().unwrap_or_default();
    if let Some(wait) = record.evict_after.and_then(|after| remaining(ctx.now(), after)) {
        info!(
            node = name,
            seconds = wait.as_secs(),
            "waiting for load balancers before the first eviction"
        );
        return Ok(Requeue::After(wait));
    }
    match DrainAttempt::new(ctx, &name, record).run().await {
        Ok(AttemptResult::Drained) => finish(ctx, &name, record).await,
        // The request has changed; the new one is reconciled next.
        Ok(AttemptResult::Superseded) => Ok(Requeue::After(Duration::ZERO)),
        Ok(AttemptResult::Blocked(blockers)) => {
            ctx.options
                .metrics
                .drain(&name, pace(record.since, ctx.now()).is_alarming(), blockers.len());
            // An attempt retries evictions every few seconds, so the next attempt follows at once until the drain is
            // slow.
            let delay = match warn_if_slow(ctx, &node, record, &blockers) {
                DrainPace::Fresh => Duration::ZERO,
                pace @ (DrainPace::Slow | DrainPace::Overdue) => pace.retry_after(),
            };
            Ok(Requeue::After(delay))
        }
        Err(problem) => {
            let pace = warn_if_slow(ctx, &node, record, &[&problem]);
            // The attempt failed before the blocking pods were determined.
            ctx.options.metrics.drain(&name, pace.is_alarming(), 0);
            Err(problem)
        }
    }
}

/// Returns how long it is until then; `None` if it is over.
fn remaining(now: Timestamp, then: Timestamp) -> Option<Duration> {
    let wait = Duration::try_from(then.duration_since(now)).ok()?;
    (!wait.is_zero()).then_some(wait)
}

/// Records a warning about a drain that takes long, blocked or failed.
fn warn_if_slow(ctx: &Context, node: &Node, record: &DrainRecord, obstacles: &[impl Display]) -> DrainPace {
    let name = object_name(&node.metadata);
    let pace = pace(record.since, ctx.now());
    if let Some(event) = pace.event(name, obstacles) {
        warn!(node = name, "{}", event.message);
        ctx.events.record(Reporter::Rollout, node, event);
    }
    pace
}

/// Reports the completed drain to the daemon, unless the node was uncordoned meanwhile.
async fn finish(ctx: &Context, name: &str, record: &DrainRecord) -> Result<Requeue, Error> {
    let Some(mut node) = ctx.stores.nodes.get(name) else {
        return Ok(Requeue::OnChange);
    };
    loop {
        let completion = drain::complete(&node, record);
        if completion == Completion::Overtaken {
            return Ok(Requeue::After(Duration::ZERO));
        }
        let Some(patch) = without_reason(&node, completion.patch()) else {
            return Ok(Requeue::OnChange);
        };
        // Before the daemon can continue and report its own next step.
        let phases = [UpdatePhase::Cordoned, UpdatePhase::Draining, UpdatePhase::Drained];
        progress::report(ctx, name, &phases).await;
        node = match write_unchanged(ctx, &node, patch).await? {
            GuardedWrite::Written(_) => break,
            GuardedWrite::Conflict(node) => node,
            GuardedWrite::NotFound => return Ok(Requeue::OnChange),
        };
    }
    let took = Duration::try_from(ctx.now().duration_since(record.since)).unwrap_or_default();
    info!(
        node = name,
        request = record.request,
        seconds = took.as_secs(),
        "drained the node"
    );
    ctx.options.metrics.drained(name, took);
    Ok(Requeue::OnChange)
}

async fn uncordon(
    ctx: &Context,
    node: &Arc<Node>,
    decision: &DrainDecision,
    request: &str,
    lift: Lift,
) -> Result<Requeue, Error> {
    let name = object_name(&node.metadata);
    let patch = match (decision.patch(), untaint_patch(ctx, node, request)) {
        // This completes the update, so the update taint is removed in the same write.
        (Some(patch), Some(untaint)) => Some(patch::combine(patch, untaint)),
        (patch, _) => patch,
    };
    let patch = match drain::reason_patch(node, None) {
        Some(_) => without_reason(node, patch).map(|patch| patch::combine(patch, precondition(node))),
        None => patch,
    };
    if patch.is_some() {
        // Before the daemon can report that the update is complete.
        progress::report(ctx, name, &[UpdatePhase::Uncordoned]).await;
    }
    if write(ctx, node, patch).await?.is_some() {
        match lift {
            Lift::Cordon => info!(node = name, request, "uncordoned the node"),
            Lift::Nothing if is_cordoned(node) => info!(
                node = name,
                request, "completed the update; the node stays cordoned because another client cordoned it"
            ),
            Lift::Nothing => info!(
                node = name,
                request, "completed the update; the node was not cordoned"
            ),
        }
        ctx.options.metrics.remove_drain(name);
    }
    Ok(Requeue::OnChange)
}

fn is_cordoned(node: &Node) -> bool {
    let spec = node.spec.as_ref();
    spec.is_some_and(|spec| spec.unschedulable == Some(true))
}

/// Returns the patch that removes the update taint, if the request completes the update to the pool's target.
fn untaint_patch(ctx: &Context, node: &Node, request: &str) -> Option<Value> {
    let pool = ctx.membership.of_node(object_name(&node.metadata)).pool?;
    let pool = ctx.stores.pools.get(&pool)?;
    let view = NodeView::new(node);
    let target = pool.target_name();
    let completes = !target.is_empty()
        && view.desired_config == target
        && request == annotation::drain::uncordon(target)
        && !pool.spec.paused;
    let action = NodeAction::RemoveUpdateTaint {
        node: view.name.to_owned(),
    };
    completes.then(|| merge_patch(node, [&action])).flatten()
}

/// Writes a node and returns it as written; `None` if it does not exist or there is nothing to write.
async fn write(ctx: &Context, node: &Arc<Node>, patch: Option<Value>) -> Result<Option<Arc<Node>>, Error> {
    let name = object_name(&node.metadata);
    let Some(patch) = patch else {
        return Ok(None);
    };
    let written = ctx.stores.nodes.patch(&ctx.api(), name, MANAGER, &patch).await;
    written.map_err(Error::api(format!("writing node {name}")))
}

/// The result of a write that requires an unchanged node.
enum GuardedWrite {
    Written(Arc<Node>),
    /// Another client has written the node; this is its current version.
    Conflict(Arc<Node>),
    NotFound,
}

async fn write_unchanged(ctx: &Context, node: &Arc<Node>, patch: Value) -> Result<GuardedWrite, Error> {
    let guarded = patch::combine(patch, precondition(node));
    match write(ctx, node, Some(guarded)).await {
        Ok(Some(written)) => Ok(GuardedWrite::Written(written)),
        Ok(None) => Ok(GuardedWrite::NotFound),
        Err(problem) if problem.class() == ErrorClass::Conflict => {
            let name = object_name(&node.metadata);
            let read = ctx.api::<Node>().get_opt(name).await;
            let Some(current) = read.map_err(Error::api(format!("reading node {name}")))? else {
                return Ok(GuardedWrite::NotFound);
            };
            Ok(GuardedWrite::Conflict(ctx.stores.nodes.observe_write(current)))
        }
        Err(problem) => Err(problem),
    }
}

fn precondition(node: &Node) -> Value {
    json!({"metadata": {"resourceVersion": node.metadata.resource_version}})
}

/// Extends a patch to remove the reason that a blocked drain wrote on the node.
fn without_reason(node: &Node, patch: Option<Value>) -> Option<Value> {
    match (patch, drain::reason_patch(node, None)) {
        (Some(patch), Some(reason)) => Some(patch::combine(patch, reason)),
        (patch, _) => patch,
    }
}

/// Writes onto the node what blocks its drain, from where the pool's status and plans read it.
async fn record_blockers(
    ctx: &Context,
    name: &str,
    record: &mut DrainRecord,
    waiting_for: Option<String>,
) -> Result<(), Error> {
    if record.waiting_for == waiting_for {
        return Ok(());
    }
    let Some(mut node) = ctx.stores.nodes.get(name) else {
        return Ok(());
    };
    if let Some(what) = &waiting_for {
        warn!(node = name, "the drain waits for {what}");
        let message = format!("node {name}: the drain waits for {what}");
        let event = PlannedEvent::warning(events::drain::DRAIN_BLOCKED, message);
        ctx.events.record(Reporter::Rollout, node.as_ref(), event);
    }
    record.waiting_for = waiting_for;
    let patch = json!({"metadata": {"annotations": {annotation::DRAIN_RECORD: record.to_annotation()}}});
    loop {
        let Some(reason) = drain::reason_patch(&node, record.waiting_for.as_deref()) else {
            write(ctx, &node, Some(patch)).await?;
            break;
        };
        match write_unchanged(ctx, &node, patch::combine(patch.clone(), reason)).await? {
            GuardedWrite::Conflict(current) if drain::complete(&current, record) != Completion::Overtaken => {
                node = current;
            }
            GuardedWrite::Conflict(_) | GuardedWrite::Written(_) | GuardedWrite::NotFound => break,
        }
    }
    progress::report(ctx, name, &[progress::draining(record)]).await;
    Ok(())
}
