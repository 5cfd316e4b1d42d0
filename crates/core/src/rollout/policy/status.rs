//! The status of a policy: what is recorded between two plans.
//!
//! Everything else follows from the objects, so a lost status costs soak time and checks of gates, and nothing more.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use mco_api::rollout_policy::{
    CompletedWave, DrainTimeoutAction, FailureAction, NodeNote, NotificationEvent, PoolRolloutStatus,
    RevertedRollout, RolloutPhase, RolloutPolicy, RolloutPolicyStatus, SettledRollout,
};

use super::super::target::{RolloutTarget, TargetGate, gate};
use super::super::view::{PoolView, RolloutView};
use super::confirm;
use super::failures::{drain_deadline, had_failed, overdue_drain};
use super::hold::{PolicyCause, PolicyHold};
use super::rules::{self, RolloutState, halted};
use super::{key, pools_of, text, wave};

/// How many failed nodes a status names.
const FAILURES_SHOWN: usize = 10;
/// The API refuses a condition with a longer message, and then no status is written.
const LONGEST_CONDITION: usize = 32_768;

/// A change of a rollout that is announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyChange {
    pub pool: String,
    pub event: NotificationEvent,
    pub message: String,
}

/// The new status of a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyReport {
    pub status: RolloutPolicyStatus,
    pub changes: Vec<PolicyChange>,
    /// Whether some pool waits for a gate, so that gates are to be checked.
    pub needs_gates: bool,
    /// When time alone changes a decision.
    pub next: Option<Timestamp>,
}

/// Returns the new status of a policy of the view.
pub fn next_status(view: &RolloutView<'_>, policy: &RolloutPolicy) -> PolicyReport {
    let now = view.policies.now();
    let before = policy.status.clone().unwrap_or_default();
    let mut report = PolicyReport {
        status: RolloutPolicyStatus {
            observed_generation: policy.metadata.generation.unwrap_or_default(),
            gates: before.gates.clone(),
            conditions: before.conditions.clone(),
            ..RolloutPolicyStatus::default()
        },
        changes: Vec::new(),
        needs_gates: false,
        next: rules::next_window_change(policy, now),
    };
    report
        .status
        .gates
        .retain(|result| policy.spec.gates.iter().any(|gate| gate.name == result.name));
    for pool in pools_of(view, policy) {
        let old = before.pools.iter().find(|status| status.name == pool.name);
        let status = next_of_pool(view, policy, pool, &mut report);
        announce(policy, old, &status, &mut report.changes);
        report.status.pools.push(status);
    }
    summarize(view, policy, &mut report.status, now);
    report
}

fn earliest(next: &mut Option<Timestamp>, candidate: Option<Timestamp>, now: Timestamp) {
    let candidate = candidate.filter(|candidate| *candidate > now);
    *next = [*next, candidate].into_iter().flatten().min();
}

/// Times in a status have whole seconds; rounded up, a check of the same second does not count as a later one.
fn round_up(now: Timestamp) -> Time {
    let whole = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let up = if whole == now {
        Some(now)
    } else {
        whole.checked_add(SignedDuration::from_secs(1)).ok()
    };
    Time(up.unwrap_or(now))
}

fn next_of_pool(
    view: &RolloutView<'_>,
    policy: &RolloutPolicy,
    pool: &PoolView<'_>,
    report: &mut PolicyReport,
) -> PoolRolloutStatus {
    let now = view.policies.now();
    let TargetGate::Open(target) = gate(pool.pool, &pool.layering) else {
        return PoolRolloutStatus {
            name: pool.name.to_owned(),
            phase: RolloutPhase::Waiting,
            message: "waits for the pool's config".to_owned(),
            ..PoolRolloutStatus::default()
        };
    };
    let known = super::recorded(policy, pool.name, &target);
    let mut status = known.cloned().unwrap_or_else(|| PoolRolloutStatus {
        name: pool.name.to_owned(),
        target: key(&target),
        ..PoolRolloutStatus::default()
    });
    status.changes = view.policies.changes(policy, pool, &target, &status.changes);
    record_recovering(pool, &target, known.is_none(), &mut status);
    record_skipped(policy, pool, &target, &mut status, report, now);
    record_waves(policy, pool, &target, &mut status, now);
    // The rules see what was just recorded, as they will once it is written.
    let mut recorded = policy.clone();
    let all = recorded.status.get_or_insert_default();
    all.pools.retain(|other| other.name != pool.name);
    all.pools.push(status.clone());
    let state = RolloutState::of(&recorded, pool, &target, now);
    status.wave = u32::try_from(state.wave.index + 1).unwrap_or(u32::MAX);
    let is_idle = state.failures.under_way == 0;
    let sent = u32::try_from(state.sent).unwrap_or(u32::MAX);
    status.settled = match status.settled.take() {
        // Only gates depend on it, and a status that changes with every node costs a write per node.
        _ if !is_idle || policy.spec.gates.is_empty() => None,
        Some(settled) if settled.sent == sent => Some(settled),
        _ => Some(SettledRollout {
            at: round_up(now),
            sent,
        }),
    };
    status.failures = state
        .failures
        .failed
        .iter()
        .take(FAILURES_SHOWN)
        .cloned()
        .collect();
    earliest(&mut report.next, state.failures.next_deadline, now);
    let halted = halted(&recorded, pool, &state.failures);
    if let Some(message) = &halted
        && status.reverted.is_none()
    {
        status.reverted = revert(policy, pool, &target, message, now);
    }
    // A rollout that was done stays done when a node goes away later.
    let was_done = known.is_some_and(|known| known.phase == RolloutPhase::Done);
    let all_updated = pool.members.iter().all(|node| {
        let is_unconfirmed = || confirm::objection(policy, node, &target).is_some();
        node.is_updated_to(&target) && (was_done || !is_unconfirmed())
    });
    let hold = rules::hold(view, &recorded, pool, &target, &state)
        .or_else(|| rules::window_of_pool(view, policy, pool, &target, Some(&status)));
    earliest(&mut report.next, hold.as_ref().and_then(|hold| hold.until), now);
    let waits_for_gate = hold.as_ref().is_none_or(|hold| hold.cause == PolicyCause::Gate);
    let waits = pool.members.iter().any(|node| !node.is_sent_to(&target));
    report.needs_gates |= waits && waits_for_gate && status.reverted.is_none();
    (status.phase, status.message) = describe(
        policy,
        pool,
        &state,
        &status,
        hold,
        all_updated,
        PolicyHold::to_string,
    );
    status
}

/// Returns the phase of a rollout and its sentence. `phrase` formats what holds it.
pub(super) fn describe(
    policy: &RolloutPolicy,
    pool: &PoolView<'_>,
    state: &RolloutState<'_, '_>,
    status: &PoolRolloutStatus,
    hold: Option<PolicyHold>,
    all_updated: bool,
    phrase: impl Fn(&PolicyHold) -> String,
) -> (RolloutPhase, String) {
    if let Some(reverted) = &status.reverted {
        let message = format!("reverted to {}: {}", reverted.to, reverted.message);
        return (RolloutPhase::Reverted, message);
    }
    if all_updated {
        let mut message = format!("{} up to date", text::nodes(pool.members.len()));
        if !pool.unadopted.is_empty() {
            message = format!("{message}, {} not adopted", pool.unadopted.len());
        }
        return (RolloutPhase::Done, message);
    }
    if let Some(hold) = hold {
        let phase = match hold.cause {
            PolicyCause::Halted => RolloutPhase::Halted,
            PolicyCause::Aborted => RolloutPhase::Aborted,
            PolicyCause::Soak => RolloutPhase::Soaking,
            _ => RolloutPhase::Waiting,
        };
        return (phase, phrase(&hold));
    }
    let label = wave::label(policy, state.wave.index);
    if let Some(unconfirmed) = state
        .wave
        .unconfirmed
        .as_ref()
        .filter(|_| state.wave.startable.is_empty())
    {
        return (RolloutPhase::Progressing, format!("waits because {unconfirmed}"));
    }
    let message = match policy.spec.waves.len() {
        0 => "updating the nodes".to_owned(),
        _ => format!("updating the nodes of {label}"),
    };
    (RolloutPhase::Progressing, message)
}

/// Records every wave that is complete, one after the other: a wave without nodes is complete at once.
fn record_waves(
    policy: &RolloutPolicy,
    pool: &PoolView<'_>,
    target: &RolloutTarget,
    status: &mut PoolRolloutStatus,
    now: Timestamp,
) {
    let mut recorded = policy.clone();
    while status.completed_waves.len() < policy.spec.waves.len() {
        let all = recorded.status.get_or_insert_default();
        all.pools.retain(|other| other.name != pool.name);
        all.pools.push(status.clone());
        let state = RolloutState::of(&recorded, pool, target, now);
        let promoted = state.wave.index > status.completed_waves.len();
        if !promoted && !state.wave.is_complete {
            return;
        }
        // A soak time that is still running must end before the next wave counts.
        if !promoted && rules::soak_ends(&recorded, &state, now).is_some() {
            return;
        }
        let nodes = if promoted {
            promoted_nodes(policy, pool, target, status)
        } else {
            state.wave.sent
        };
        status.completed_waves.push(CompletedWave {
            nodes: u32::try_from(nodes).unwrap_or(u32::MAX),
            at: round_up(now),
        });
    }
}

/// Returns how many nodes a wave had that was not waited for.
fn promoted_nodes(
    policy: &RolloutPolicy,
    pool: &PoolView<'_>,
    target: &RolloutTarget,
    status: &PoolRolloutStatus,
) -> usize {
    let no_control = super::PoolControl::default();
    let nodes = (pool.members.as_slice(), pool.unadopted.as_slice());
    let wave = wave::current(policy, nodes, target, Some(status), &no_control, |_| false);
    wave.sent
}

/// Records the failures that nodes had before they were sent to the target, until they report another state.
fn record_recovering(
    pool: &PoolView<'_>,
    target: &RolloutTarget,
    is_new: bool,
    status: &mut PoolRolloutStatus,
) {
    let before = status.clone();
    let failed = pool.members.iter().filter(|node| node.is_degraded());
    let recovering = failed.filter(|node| is_new || !node.is_sent_to(target) || had_failed(&before, node));
    status.recovering = recovering
        .map(|node| NodeNote {
            node: node.name.to_owned(),
            message: node.reason.to_owned(),
        })
        .collect();
}

/// Records nodes whose drain took too long, if the policy skips them.
fn record_skipped(
    policy: &RolloutPolicy,
    pool: &PoolView<'_>,
    target: &RolloutTarget,
    status: &mut PoolRolloutStatus,
    report: &mut PolicyReport,
    now: Timestamp,
) {
    for node in pool.members.iter().filter(|node| node.is_sent_to(target)) {
        let Some(due) = drain_deadline(policy, DrainTimeoutAction::Skip, node) else {
            continue;
        };
        if due > now {
            earliest(&mut report.next, Some(due), now);
        } else if status.skipped.iter().all(|note| note.node != node.name) {
            status.skipped.push(NodeNote {
                node: node.name.to_owned(),
                message: overdue_drain(node),
            });
        }
    }
}

/// Returns the way back, if the policy reverts and the pool has completed another config before.
fn revert(
    policy: &RolloutPolicy,
    pool: &PoolView<'_>,
    target: &RolloutTarget,
    message: &str,
    now: Timestamp,
) -> Option<RevertedRollout> {
    let action = policy.spec.max_failures.as_ref()?.action;
    let previous = pool.pool.status.as_ref()?.configuration.name();
    // The image of the previous config is not recorded.
    let possible = !previous.is_empty() && previous != target.config && target.image.is_none();
    (action == FailureAction::Revert && possible).then(|| RevertedRollout {
        to: previous.to_owned(),
        at: Time(now),
        message: message.trim_start_matches("halted: ").to_owned(),
    })
}

fn announce(
    policy: &RolloutPolicy,
    old: Option<&PoolRolloutStatus>,
    new: &PoolRolloutStatus,
    changes: &mut Vec<PolicyChange>,
) {
    // A policy that was just written has started nothing.
    if old.is_none() {
        return;
    }
    let same_target = old.filter(|old| old.target == new.target);
    let was = same_target.map(|old| old.phase);
    let mut push = |event, message: String| {
        changes.push(PolicyChange {
            pool: new.name.clone(),
            event,
            message,
        });
    };
    if was == Some(new.phase)
        && same_target.is_some_and(|old| old.completed_waves.len() == new.completed_waves.len())
    {
        return;
    }
    if same_target.is_none() && new.phase != RolloutPhase::Done {
        push(
            NotificationEvent::Started,
            format!("the rollout of {} started", new.target),
        );
    }
    let waves = same_target.map_or(0, |old| old.completed_waves.len());
    for (index, completed) in new.completed_waves.iter().enumerate().skip(waves) {
        if completed.nodes > 0 {
            let label = wave::label(policy, index);
            let nodes = text::nodes(usize::try_from(completed.nodes).unwrap_or(usize::MAX));
            push(
                NotificationEvent::WaveCompleted,
                format!("{label} is updated: {nodes}"),
            );
        }
    }
    let stopped = |phase| matches!(phase, RolloutPhase::Halted | RolloutPhase::Aborted);
    match new.phase {
        RolloutPhase::Halted if was != Some(RolloutPhase::Halted) => {
            push(NotificationEvent::Halted, new.message.clone());
        }
        RolloutPhase::Reverted if was != Some(RolloutPhase::Reverted) => {
            push(NotificationEvent::Reverted, new.message.clone());
        }
        RolloutPhase::Done if was != Some(RolloutPhase::Done) => {
            push(NotificationEvent::Done, new.message.clone());
        }
        phase if was.is_some_and(stopped) && !stopped(phase) => {
            push(NotificationEvent::Resumed, new.message.clone());
        }
        _ => {}
    }
}

fn summarize(
    view: &RolloutView<'_>,
    policy: &RolloutPolicy,
    status: &mut RolloutPolicyStatus,
    now: Timestamp,
) {
    let worst = status.pools.iter().max_by_key(|pool| pool.phase);
    (status.phase, status.message) = match worst {
        None => (RolloutPhase::Done, "selects no pool".to_owned()),
        Some(pool) => (pool.phase, format!("pool {}: {}", pool.name, pool.message)),
    };
    let shared = pools_of(view, policy).find(|pool| view.policies.of_pool(pool.pool).len() > 1);
    let accepted = match (
        super::admit_policy(policy, view.policies.all.iter().copied()),
        shared,
    ) {
        (Err(invalid), _) => ("False", "Invalid", invalid.to_string()),
        (Ok(()), Some(pool)) => (
            "False",
            "Conflict",
            format!(
                "another RolloutPolicy selects pool {}; change a poolSelector",
                pool.name
            ),
        ),
        (Ok(()), None) => ("True", "Valid", String::new()),
    };
    let is_halted = matches!(status.phase, RolloutPhase::Halted | RolloutPhase::Reverted);
    let is_settled = status.phase == RolloutPhase::Done;
    let word = |holds: bool| if holds { "True" } else { "False" };
    let message = status.message.clone();
    let phase = format!("{:?}", status.phase);
    let wanted = [
        ("Accepted", accepted.0, accepted.1.to_owned(), accepted.2),
        ("Halted", word(is_halted), phase.clone(), message.clone()),
        ("Settled", word(is_settled), phase, message),
    ];
    let generation = policy.metadata.generation;
    for (type_, value, reason, message) in wanted {
        let old = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == type_);
        let since = old
            .filter(|old| old.status == value)
            .map(|old| old.last_transition_time.clone());
        let condition = Condition {
            type_: type_.to_owned(),
            status: value.to_owned(),
            reason,
            message: text::shortened(&message, LONGEST_CONDITION),
            observed_generation: generation,
            last_transition_time: since.unwrap_or(Time(now)),
        };
        status.conditions.retain(|condition| condition.type_ != type_);
        status.conditions.push(condition);
    }
}
