//! The rules of a policy for one pool, as its plan asks them.

use std::collections::HashSet;

use jiff::Timestamp;
use mco_api::rollout_policy::{PoolRolloutStatus, RolloutPolicy};
use mco_api::vocabulary::annotations::CONFIRM_DEADLINE;

use super::super::budget::len;
use super::super::decide::cannot_start;
use super::super::node::NodeView;
use super::super::plan::HeldReason;
use super::super::target::RolloutTarget;
use super::super::view::{PoolView, RolloutView};
use super::budgets::BudgetCounts;
use super::confirm;
use super::control::{PoolControl, RolloutControl};
use super::failures::{self, FailureCount};
use super::hold::{PolicyCause, PolicyHold};
use super::window::Window;
use super::{gates, key, name_of, order, recorded, text, wave};
use crate::config::disruption::DisruptionLevel;
use crate::rollout::holds;

/// The rules for the nodes of one pool that wait for their update.
pub(in crate::rollout) struct PoolRules<'v, 'a> {
    view: &'v RolloutView<'a>,
    policy: &'a RolloutPolicy,
    target: RolloutTarget,
    recorded: Option<&'a PoolRolloutStatus>,
    /// Holds every node.
    hold: Option<PolicyHold>,
    /// Holds nodes whose change interrupts something.
    window: Option<PolicyHold>,
    wave: wave::CurrentWave<'v>,
    /// How many more nodes may be started before as many are under way as may fail.
    left: Option<i64>,
    failures: FailureCount,
    budgets: BudgetCounts<'a>,
}

/// Returns the target of a pool's nodes: the pool's own, or the previous config if the policy has given the own up.
pub(in crate::rollout) fn effective_target(
    view: &RolloutView<'_>,
    pool: &PoolView<'_>,
    target: RolloutTarget,
) -> RolloutTarget {
    let policies = view.policies.of_pool(pool.pool);
    let [policy] = policies.as_slice() else {
        return target;
    };
    let recorded = recorded(policy, pool.name, &target);
    match recorded.and_then(|recorded| recorded.reverted.as_ref()) {
        Some(reverted) => RolloutTarget {
            config: reverted.to.clone(),
            image: None,
        },
        None => target,
    }
}

/// Returns how long a node of the pool may take to be healthy with a new config, as it is passed to the node: by the
/// policy, or by an annotation of the pool.
pub(in crate::rollout) fn confirm_deadline<'v>(
    view: &'v RolloutView<'_>,
    pool: &PoolView<'v>,
) -> Option<&'v str> {
    let by_policy = match view.policies.of_pool(pool.pool).as_slice() {
        [policy] => policy
            .spec
            .confirm
            .as_ref()
            .map(|confirm| confirm.deadline.as_str()),
        _ => None,
    };
    let annotations = pool.pool.metadata.annotations.as_ref();
    let by_pool = || annotations?.get(CONFIRM_DEADLINE).map(String::as_str);
    by_policy
        .or_else(by_pool)
        .filter(|deadline| text::parse_duration(deadline).is_some())
}

/// The state of the rollout of one pool under a policy, from which rules and status are derived.
pub(super) struct RolloutState<'v, 'a> {
    pub recorded: Option<&'a PoolRolloutStatus>,
    pub control: PoolControl,
    pub failures: FailureCount,
    pub wave: wave::CurrentWave<'v>,
    /// Nodes whose desired config is the target.
    pub sent: usize,
}

impl<'v, 'a> RolloutState<'v, 'a> {
    pub(super) fn of(
        policy: &'a RolloutPolicy,
        pool: &'v PoolView<'_>,
        target: &RolloutTarget,
        now: Timestamp,
    ) -> Self {
        let recorded = recorded(policy, pool.name, target);
        let control = RolloutControl::of(policy).of_pool(pool.name, target);
        let failures = FailureCount::of(policy, &pool.members, target, (recorded, &control), now);
        let skipped = |node: &NodeView<'_>| is_skipped(recorded, node.name);
        let can_start = |node: &NodeView<'_>| {
            cannot_start(node).is_none() && holds::of_node(node.node).is_empty() && !skipped(node)
        };
        let nodes = (pool.members.as_slice(), pool.unadopted.as_slice());
        let wave = wave::current(policy, nodes, target, recorded, &control, can_start);
        let sent = pool.members.iter().filter(|node| node.is_sent_to(target)).count();
        Self {
            recorded,
            control,
            failures,
            wave,
            sent,
        }
    }
}

fn is_skipped(recorded: Option<&PoolRolloutStatus>, node: &str) -> bool {
    recorded.is_some_and(|recorded| recorded.skipped.iter().any(|note| note.node == node))
}

impl<'v, 'a> PoolRules<'v, 'a> {
    /// Returns the rules for a pool; `None` without a policy. `own_target` is the pool's own target, `target` the one
    /// that its nodes are sent to.
    pub(in crate::rollout) fn of(
        view: &'v RolloutView<'a>,
        pool: &'v PoolView<'_>,
        own_target: &RolloutTarget,
        target: &RolloutTarget,
        started: &HashSet<String>,
    ) -> Option<Self> {
        let policies = view.policies.of_pool(pool.pool);
        let policy: &'a RolloutPolicy = policies.first()?;
        let now = view.policies.now();
        let is_reverted = own_target != target;
        let state = RolloutState::of(policy, pool, own_target, now);
        let conflict = (policies.len() > 1).then(|| {
            let names: Vec<&str> = policies.iter().map(|policy| name_of(policy)).collect();
            PolicyHold::new(
                name_of(policy),
                PolicyCause::Conflict,
                format!(
                    "waits because RolloutPolicies {} select the pool; change a poolSelector",
                    names.join(", ")
                ),
            )
        });
        let mut rules = Self {
            view,
            policy,
            target: target.clone(),
            recorded: state.recorded,
            hold: conflict,
            window: None,
            left: None,
            budgets: BudgetCounts::default(),
            wave: state.wave.clone(),
            failures: state.failures.clone(),
        };
        if is_reverted {
            // The way back is a recovery: only the budgets apply.
            rules.wave.index = policy.spec.waves.len();
            rules.wave.startable = pool.members.iter().map(|node| node.name).collect();
        } else {
            rules.hold = rules
                .hold
                .take()
                .or_else(|| hold(view, policy, pool, own_target, &state));
            rules.window = window(policy, now);
            let allowed = failures::allowed(policy, pool.members.len());
            let taken = state.failures.failed.len() + state.failures.under_way;
            rules.left = allowed.map(|allowed| allowed - len(taken));
        }
        let waiting = waiting(pool, target);
        rules.budgets = BudgetCounts::new(view, policy, &waiting, started);
        Some(rules)
    }

    /// Returns the nodes whose drain took too long and that keep their config.
    pub(in crate::rollout) fn is_skipped(&self, node: &NodeView<'_>) -> bool {
        is_skipped(self.recorded, node.name)
    }

    pub(in crate::rollout) fn skipped(&self, node: &NodeView<'_>) -> HeldReason {
        let notes = self
            .recorded
            .map_or(&[][..], |recorded| recorded.skipped.as_slice());
        let why = notes.iter().find(|note| note.node == node.name);
        let why = why.map_or("", |note| note.message.as_str());
        let message = format!("skipped until the next config: {why}");
        HeldReason::Policy(PolicyHold::new(
            name_of(self.policy),
            PolicyCause::Skipped,
            message,
        ))
    }

    /// Returns the nodes that do not count against the pool's own limit.
    pub(in crate::rollout) fn quarantined(&self, pool: &'v PoolView<'_>) -> HashSet<&'v str> {
        if self.policy.spec.drain.is_none() {
            return HashSet::new();
        }
        let now = self.view.policies.now();
        let members = pool.members.iter();
        members
            .filter(|node| failures::is_quarantined(self.policy, node, now))
            .map(|node| node.name)
            .collect()
    }

    /// Returns the updated nodes that are not confirmed, and why. They count against the pool's own limit.
    pub(in crate::rollout) fn unconfirmed(&self, pool: &'v PoolView<'_>) -> Vec<(&'v str, String)> {
        let objections = pool.members.iter().filter_map(|node| {
            let objection = confirm::objection(self.policy, node, &self.target)?;
            Some((node.name, objection))
        });
        objections.collect()
    }

    /// Decides whether the update agent of a node may reboot it, and counts it: windows and budgets apply, and what is
    /// about the config of the pool does not.
    pub(in crate::rollout) fn admits_reboot(&mut self, node: &NodeView<'_>) -> bool {
        self.window.is_none() && self.budgets.admit(node, DisruptionLevel::Reboot).is_ok()
    }

    /// Decides whether a node that fits into the pool's budget is started, and counts it.
    pub(in crate::rollout) fn admit(&mut self, node: &NodeView<'_>) -> Result<(), HeldReason> {
        let held = |cause, message: String| {
            Err(HeldReason::Policy(PolicyHold::new(
                name_of(self.policy),
                cause,
                message,
            )))
        };
        if let Some(hold) = &self.hold {
            return Err(HeldReason::Policy(hold.clone()));
        }
        let cost = self.view.policies.cost(node, &self.target, self.recorded);
        if let Some(window) = self.window.as_ref().filter(|_| cost > DisruptionLevel::None) {
            return Err(HeldReason::Policy(window.clone()));
        }
        if !self.wave.startable.contains(node.name) {
            let current = wave::label(self.policy, self.wave.index);
            return held(PolicyCause::Wave, format!("waits for {current}"));
        }
        if self.left.is_some_and(|left| left <= 0) {
            let (failed, under_way) = (self.failures.failed.len(), self.failures.under_way);
            let message = format!(
                "waits because {failed} failed and {under_way} being updated are as many as maxFailures allows"
            );
            return held(PolicyCause::Failures, message);
        }
        if let Err(message) = self.budgets.admit(node, cost) {
            return held(PolicyCause::Budget, message);
        }
        self.left = self.left.map(|left| left - 1);
        self.failures.under_way += 1;
        Ok(())
    }
}

/// Returns the waves of the nodes in the queue of a pool and how many nodes are updated at once, if all goes well.
/// `None` without a policy.
pub(in crate::rollout) fn forecast<'q>(
    view: &RolloutView<'_>,
    pool: &'q PoolView<'_>,
    target: &RolloutTarget,
    queue: &[&str],
) -> Option<(Vec<Vec<&'q str>>, i64)> {
    let policies = view.policies.of_pool(pool.pool);
    let [policy] = policies.as_slice() else {
        return None;
    };
    let state = RolloutState::of(policy, pool, target, view.policies.now());
    let queued: HashSet<&str> = queue.iter().copied().collect();
    let nodes = pool
        .members
        .iter()
        .filter(|node| queued.contains(node.name))
        .collect();
    // Nodes that this plan starts are members of the current wave already.
    let starting = state
        .wave
        .startable
        .iter()
        .filter(|node| !queued.contains(**node))
        .count();
    let current = (state.wave.index, state.wave.sent + starting);
    let members = pool.members.len();
    let waves = wave::forecast(policy, members, current, nodes);
    Some((waves, super::budgets::concurrency(policy, members)))
}

/// Returns the nodes that are not being updated and do not have the target.
fn waiting<'v>(pool: &'v PoolView<'_>, target: &RolloutTarget) -> HashSet<&'v str> {
    let waiting = pool
        .members
        .iter()
        .filter(|node| !node.is_sent_to(target) && !failures::is_under_way(node, target));
    let startable = waiting.filter(|node| cannot_start(node).is_none());
    startable.map(|node| node.name).collect()
}

/// Returns what holds the rollout of the pool as a whole.
pub(super) fn hold(
    view: &RolloutView<'_>,
    policy: &RolloutPolicy,
    pool: &PoolView<'_>,
    target: &RolloutTarget,
    state: &RolloutState<'_, '_>,
) -> Option<PolicyHold> {
    let now = view.policies.now();
    let new = |cause, message: String| PolicyHold::new(name_of(policy), cause, message);
    if let Err(invalid) = super::admit_policy(policy, view.policies.all.iter().copied())
        && let Some(problem) = invalid.problems.first()
        && problem.path != "spec.after"
    {
        return Some(new(
            PolicyCause::Invalid,
            format!("waits because its policy is invalid: {problem}"),
        ));
    }
    if state.control.aborted {
        return Some(new(
            PolicyCause::Aborted,
            format!("aborted: no further node is updated to {}", key(target)),
        ));
    }
    if let Some(halted) = halted(policy, pool, &state.failures) {
        return Some(new(PolicyCause::Halted, halted));
    }
    if let Some(before) = order::waits_for(view, policy) {
        return Some(new(PolicyCause::After, before));
    }
    if let Some(soak) = soak(policy, state, now) {
        return Some(soak);
    }
    if let Some(blocked) = &state.wave.blocked {
        return Some(new(PolicyCause::Wave, blocked.clone()));
    }
    if state.wave.is_complete {
        let label = wave::label(policy, state.wave.index);
        return Some(new(PolicyCause::Wave, format!("waits for the end of {label}")));
    }
    let counts = (state.failures.under_way, state.sent);
    let gate = gates::hold(policy, state.recorded, counts, now)?;
    Some(new(PolicyCause::Gate, gate.message).until(gate.until))
}

/// Returns `halted: 2 of 2 allowed failures, worker-3 and worker-9: ...`.
pub(super) fn halted(policy: &RolloutPolicy, pool: &PoolView<'_>, count: &FailureCount) -> Option<String> {
    let allowed = failures::allowed(policy, pool.members.len())?;
    let failed = count.failed.len();
    let noun = if allowed == 1 { "failure" } else { "failures" };
    (len(failed) >= allowed).then(|| {
        format!(
            "halted: {failed} of {allowed} allowed {noun}, {}",
            count.describe()
        )
    })
}

/// Returns the soak time after the last completed wave, while it lasts.
fn soak(policy: &RolloutPolicy, state: &RolloutState<'_, '_>, now: Timestamp) -> Option<PolicyHold> {
    let recorded = state.recorded?;
    let last = recorded.completed_waves.len().checked_sub(1)?;
    let is_promoted = usize::try_from(state.control.promoted).is_ok_and(|promoted| promoted > last);
    let wave = policy.spec.waves.get(last).filter(|_| !is_promoted)?;
    let completed = recorded.completed_waves.get(last)?;
    // A wave without nodes has shown nothing, so there is nothing to observe.
    let soak = text::parse_duration(&wave.soak).filter(|_| completed.nodes > 0)?;
    let until = completed
        .at
        .0
        .checked_add(soak)
        .ok()
        .filter(|until| *until > now)?;
    let message = format!("soaks after {}", wave::label(policy, last));
    Some(PolicyHold::new(name_of(policy), PolicyCause::Soak, message).until(Some(until)))
}

/// Returns the hold outside of all windows, until the next one opens.
pub(super) fn window(policy: &RolloutPolicy, now: Timestamp) -> Option<PolicyHold> {
    let windows: Vec<Window> = policy
        .spec
        .windows
        .iter()
        .filter_map(|window| Window::parse(window).ok())
        .collect();
    if windows.iter().any(|window| window.open_until(now).is_some()) {
        return None;
    }
    let next = windows
        .iter()
        .filter_map(|window| Some((window.next_opening(now)?, window)))
        .min_by_key(|(opening, _)| *opening)?;
    let (opening, window) = next;
    let message = format!("waits for window {}", window.label());
    Some(PolicyHold::new(name_of(policy), PolicyCause::Window, message).until(Some(opening)))
}

/// Returns the hold outside of all windows, if the nodes of the pool wait for one: changes that interrupt nothing do
/// not, and nodes that are being updated are not held.
pub(super) fn window_of_pool(
    view: &RolloutView<'_>,
    policy: &RolloutPolicy,
    pool: &PoolView<'_>,
    target: &RolloutTarget,
    recorded: Option<&PoolRolloutStatus>,
) -> Option<PolicyHold> {
    let window = window(policy, view.policies.now())?;
    let mut unsent = pool
        .members
        .iter()
        .filter(|node| !node.is_sent_to(target))
        .peekable();
    unsent.peek()?;
    let mut startable = unsent.filter(|node| cannot_start(node).is_none());
    let passes = startable.any(|node| view.policies.cost(node, target, recorded) == DisruptionLevel::None);
    (!passes).then_some(window)
}

/// Returns when a window opens or closes next.
pub(super) fn next_window_change(policy: &RolloutPolicy, now: Timestamp) -> Option<Timestamp> {
    let windows = policy
        .spec
        .windows
        .iter()
        .filter_map(|window| Window::parse(window).ok());
    windows
        .flat_map(|window| [window.open_until(now), window.next_opening(now)])
        .flatten()
        .min()
}

/// Returns the end of the running soak time.
pub(super) fn soak_ends(
    policy: &RolloutPolicy,
    state: &RolloutState<'_, '_>,
    now: Timestamp,
) -> Option<Timestamp> {
    soak(policy, state, now)?.until
}
