//! The rollout decision: which nodes are updated next. A pure function of the [`View`]; equal views result in equal
//! [`Plan`]s.
//!
//! Four rules explain most of it:
//! - *Starting* a node needs room in the budget, and a node counts once, regardless of how many problems it has.
//! - *Retargeting* a node that is already being updated, or that failed, needs no room: it holds its slot in the
//!   budget until it is done, and moving to the newest target immediately saves a second interruption.
//! - A node that holds a slot although it is available (its disk has drifted) takes no second one, and at most as
//!   many nodes are updated at once as the budget has slots.
//! - A cordon prevents a node from being started, not from being retargeted, and is never removed here.

use std::collections::HashSet;

use mco_api::vocabulary::annotations::{CONFIRM_DEADLINE, node as annotation};
use mco_api::vocabulary::events;
use mco_api::vocabulary::names::pool::MASTER;

use super::budget::{self, len};
use super::first_boot;
use super::holds;
use super::node::NodeView;
use super::plan::{
    Because, Held, HeldReason, NodeAction, PlannedEvent, PoolPlan, RolloutPlan, Taken, TakenBy,
    UnavailableBudget,
};
use super::policy::{self, PoolRules};
use super::reboot_lock;
use super::target::{RolloutTarget, TargetGate, gate};
use super::view::{PoolView, RolloutView, TargetState};
use super::voters;
use crate::rollout::drain::cordon::Cordon;
use crate::rollout::drain::with_obstacle;

/// Plans the next actions for all pools.
pub fn plan(view: &RolloutView<'_>) -> RolloutPlan {
    // The budgets of a policy are shared by its pools, so each plan counts what those before it start.
    let mut started = HashSet::new();
    let mut pools = Vec::new();
    for pool in &view.pools {
        let plan = plan_pool_after(view, pool, &started);
        started.extend(plan.sent().map(str::to_owned));
        pools.push(plan);
    }
    RolloutPlan {
        pools,
        contested: view.contested.clone(),
    }
}

/// Plans the next actions for one pool of the view.
pub fn plan_pool(view: &RolloutView<'_>, pool: &PoolView<'_>) -> PoolPlan {
    plan_pool_after(view, pool, &HashSet::new())
}

pub(super) fn plan_pool_after(
    view: &RolloutView<'_>,
    pool: &PoolView<'_>,
    started: &HashSet<String>,
) -> PoolPlan {
    let mut plan = plan_members(view, pool, started);
    for node in &pool.unadopted {
        let reason = if node.is_being_released() {
            HeldReason::Releasing
        } else {
            HeldReason::NotAdopted
        };
        plan.held.push(held(node, reason));
    }
    release(&mut plan, pool.unadopted.iter());
    plan
}

fn plan_members(view: &RolloutView<'_>, pool: &PoolView<'_>, started: &HashSet<String>) -> PoolPlan {
    let mut plan = PoolPlan {
        pool: pool.name.to_owned(),
        target: None,
        budget: UnavailableBudget::default(),
        actions: Vec::new(),
        held: Vec::new(),
        events: Vec::new(),
        problem: None,
    };
    if pool.selects_everything() {
        let message = format!(
            "MachineConfigPool {:?} is selecting all nodes. A non-empty selector is required.",
            pool.name
        );
        plan.events.push(PlannedEvent::warning(
            events::rollout::SELECTING_ALL,
            message.clone(),
        ));
        plan.problem = Some(message);
    }
    if pool.target_state == TargetState::NotOurs {
        return held_for(plan, pool, &HeldReason::ForeignTarget);
    }
    let target = match gate(pool.pool, &pool.layering) {
        TargetGate::Open(target) => target,
        TargetGate::NoTarget => return held_for(plan, pool, &HeldReason::NoTarget),
        TargetGate::Wait(why) => return held_for(plan, pool, &HeldReason::WaitingForImage(why)),
        TargetGate::Failed(why) => {
            plan.problem = Some(format!("MachineConfigPool {}: {why}", pool.name));
            return held_for(plan, pool, &HeldReason::WaitingForImage(why));
        }
    };
    let own_target = target;
    let target = policy::effective_target(view, pool, own_target.clone());
    plan.target = Some(target.clone());
    if pool.is_being_deleted() {
        return held_for(plan, pool, &HeldReason::PoolIsBeingDeleted);
    }
    if pool.is_paused() {
        return held_for(plan, pool, &HeldReason::Paused);
    }
    if let Some(objection) = pool
        .pool
        .spec
        .max_unavailable
        .as_ref()
        .and_then(budget::objection)
    {
        let message = format!("MachineConfigPool {}: {objection}", pool.name);
        plan.events.push(PlannedEvent::warning(
            events::rollout::FAILED_ROLLOUT,
            message.clone(),
        ));
        plan.problem = Some(message);
    }
    match pool.max_unavailable() {
        Ok(limit) => plan.budget.limit = limit,
        Err(_) => return held_for(plan, pool, &HeldReason::Problem),
    }
    let rules = PoolRules::of(view, pool, &own_target, &target, started);
    plan.budget.taken = taken(pool);
    if let Some(rules) = &rules {
        apply_to_budget(rules, pool, &mut plan.budget);
    }
    sync_taints_and_topology(&mut plan, view, pool, &target);
    let joining = view.unmanaged.iter();
    plan.actions
        .extend(joining.filter_map(|node| first_boot::join_from_no_pool(view, pool, node)));
    choose(&mut plan, view, pool, &target, rules, started);
    set_confirm_deadlines(&mut plan, view, pool);
    let announcement = plan.announcement(|_| true);
    plan.events.extend(announcement);
    plan
}

/// Takes quarantined nodes out of a budget, and adds nodes that are updated and not confirmed yet.
fn apply_to_budget(rules: &PoolRules<'_, '_>, pool: &PoolView<'_>, budget: &mut UnavailableBudget) {
    let quarantined = rules.quarantined(pool);
    budget
        .taken
        .retain(|taken| !quarantined.contains(taken.node.as_str()));
    for (node, why) in rules.unconfirmed(pool) {
        if budget.taken.iter().all(|taken| taken.node != node) {
            budget.taken.push(Taken {
                node: node.to_owned(),
                by: TakenBy::Update,
                why: Some(why),
            });
        }
    }
}

/// Passes the deadline for a healthy node on together with the target.
fn set_confirm_deadlines(plan: &mut PoolPlan, view: &RolloutView<'_>, pool: &PoolView<'_>) {
    let deadline = policy::confirm_deadline(view, pool);
    let sent: HashSet<&str> = plan.sent().collect();
    let changed = pool
        .members
        .iter()
        .filter(|node| sent.contains(node.name) && node.annotation(CONFIRM_DEADLINE) != deadline);
    let actions: Vec<NodeAction> = changed
        .map(|node| NodeAction::SetConfirmDeadline {
            node: node.name.to_owned(),
            deadline: deadline.map(str::to_owned),
        })
        .collect();
    plan.actions.extend(actions);
}

/// Holds all nodes for a reason, except for nodes that are up to date.
fn held_for(mut plan: PoolPlan, pool: &PoolView<'_>, reason: &HeldReason) -> PoolPlan {
    let target = plan.target.clone();
    plan.budget.taken = taken(pool);
    plan.held = pool
        .members
        .iter()
        .map(|node| match &target {
            Some(target) if node.is_sent_to(target) => held(node, arriving(node)),
            _ => held(node, reason.clone()),
        })
        .collect();
    if let Some(target) = &target {
        let arrived = pool.members.iter().filter(|node| node.is_updated_to(target));
        release(&mut plan, arrived);
    }
    plan
}

/// Removes the update taint of nodes that wait for nothing, also in pools that are held.
fn release<'n, 'a: 'n>(plan: &mut PoolPlan, nodes: impl Iterator<Item = &'n NodeView<'a>>) {
    let tainted = nodes.filter(|node| node.has_update_taint());
    plan.actions
        .extend(tainted.map(|node| NodeAction::RemoveUpdateTaint {
            node: node.name.to_owned(),
        }));
}

fn taken(pool: &PoolView<'_>) -> Vec<Taken> {
    let holders = pool.members.iter().filter(|node| node.holds_a_slot());
    holders
        .map(|node| Taken {
            node: node.name.to_owned(),
            by: match (node.is_in_flight(), node.is_degraded()) {
                (true, false) => TakenBy::Update,
                (true, true) => TakenBy::FailedUpdate,
                (false, _) => TakenBy::Other,
            },
            why: node.unready(),
        })
        .collect()
}

/// Adds the writes that do not consume budget: the soft taint while a node waits and is updated, and the
/// control-plane topology, by which daemons decide whether to drain.
fn sync_taints_and_topology(
    plan: &mut PoolPlan,
    view: &RolloutView<'_>,
    pool: &PoolView<'_>,
    target: &RolloutTarget,
) {
    for node in &pool.members {
        let name = || node.name.to_owned();
        if let Some(topology) = view.topology_of(node.name)
            && node.annotation(annotation::CONTROL_PLANE_TOPOLOGY) != Some(topology)
        {
            plan.actions.push(NodeAction::SetControlPlaneTopology {
                node: name(),
                topology: topology.to_owned(),
            });
        }
        if node.is_updated_to(target) {
            release(plan, [node].into_iter());
        } else if !node.is_sent_to(target) && !node.has_update_taint() {
            plan.actions.push(NodeAction::AddUpdateTaint { node: name() });
        }
    }
}

/// Sends nodes to the target and records for all others why they are held.
fn choose(
    plan: &mut PoolPlan,
    view: &RolloutView<'_>,
    pool: &PoolView<'_>,
    target: &RolloutTarget,
    mut rules: Option<PoolRules<'_, '_>>,
    started: &HashSet<String>,
) {
    let mut waiting: Vec<&NodeView<'_>> = Vec::new();
    for node in &pool.members {
        let joining = first_boot::join(view, pool, node);
        if let Some(joining) = joining.as_ref().filter(|joining| joining.is_already_there()) {
            plan.actions.push(joining.action(node.name));
        }
        let skipping = rules.as_ref().filter(|rules| rules.is_skipped(node));
        if let Some(rules) = skipping.filter(|_| !node.is_updated_to(target)) {
            if node.is_sent_to(target) && !node.current_config.is_empty() {
                plan.actions.push(skip(node));
            } else {
                plan.held.push(held(node, rules.skipped(node)));
            }
        } else if node.is_sent_to(target) {
            plan.held.push(held(node, arriving(node)));
        } else if node.is_in_flight() || node.was_sent_before_it_reported() {
            let because = if node.is_degraded() {
                Because::Repair
            } else {
                Because::Superseded
            };
            plan.actions.push(send(view, pool, node, target, because));
        } else if let Some(reason) = cannot_start(node) {
            plan.held.push(held(node, reason));
        } else if let holds @ [_, ..] = holds::of_node(node.node).as_slice() {
            plan.held.push(held(node, HeldReason::OnHold(holds.to_vec())));
        } else if let Some(joining) = joining.filter(|joining| !joining.is_already_there()) {
            plan.actions.push(joining.action(node.name));
            let reason = HeldReason::JoiningPool(joining.pool.to_owned());
            plan.held.push(held(node, reason));
        } else {
            waiting.push(node);
        }
    }
    let (limit, when_full) = voters::limit(view, pool, plan.budget.limit, started);
    plan.budget.limit = limit;
    let deferred = operator_node_to_defer(view, pool, &waiting);
    let mut used = len(plan.budget.taken.len());
    let idle = waiting.iter().filter(|node| node.holds_a_slot()).count();
    // Nodes that are unavailable, or will be because of the rollout. Nodes that only hold a slot until their turn,
    // because their daemon failed or has not reported, are still available, so they wait for these and not for each
    // other.
    let mut away = used - len(idle);
    let mut deferral_counts = false;
    for node in waiting {
        let holds = node.holds_a_slot();
        let fits = if holds { away < limit } else { used < limit };
        if deferred == Some(node.name) {
            deferral_counts = fits;
            plan.held.push(held(node, HeldReason::OperatorNode));
        } else if !fits {
            plan.held.push(held(node, when_full.clone()));
        } else if let Some(Err(reason)) = rules.as_mut().map(|rules| rules.admit(node)) {
            plan.held.push(held(node, reason));
        } else {
            used += i64::from(!holds);
            away += 1;
            plan.actions.push(send(view, pool, node, target, Because::Turn));
        }
    }
    grant_reboots(plan, view, pool, rules, limit - used);
    if let (true, Some(node)) = (deferral_counts, deferred) {
        plan.events.push(PlannedEvent::normal(
            events::rollout::DEFERRING_OPERATOR_NODE_UPDATE,
            format!("Deferring update of machine config operator node {node}"),
        ));
    }
}

/// Grants the requests of update agents while the budget has room.
fn grant_reboots(
    plan: &mut PoolPlan,
    view: &RolloutView<'_>,
    pool: &PoolView<'_>,
    mut rules: Option<PoolRules<'_, '_>>,
    mut room: i64,
) {
    let now = view.policies.now();
    let sent: HashSet<String> = plan.sent().map(str::to_owned).collect();
    let free = pool.members.iter().filter(|node| {
        let is_free = !node.holds_a_slot() && !node.is_in_flight() && !sent.contains(node.name);
        is_free && cannot_start(node).is_none() && holds::of_node(node.node).is_empty()
    });
    for node in free.filter(|node| reboot_lock::is_requested(node, now)) {
        if room > 0 && rules.as_mut().is_none_or(|rules| rules.admits_reboot(node)) {
            room -= 1;
            plan.actions.push(NodeAction::GrantReboot {
                node: node.name.to_owned(),
            });
        }
    }
}

/// Returns why a waiting node cannot be started even if the budget has room.
pub(super) fn cannot_start(node: &NodeView<'_>) -> Option<HeldReason> {
    match (node.is_kubelet_healthy(), node.cordon()) {
        (true, Cordon::None) => None,
        (true, cordon) => Some(HeldReason::Cordoned(cordon)),
        (false, _) => Some(HeldReason::NotReady(node.unready().unwrap_or_default())),
    }
}

/// Returns the progress of a node that was sent to the target.
fn arriving(node: &NodeView<'_>) -> HeldReason {
    if node.is_done() {
        HeldReason::UpToDate
    } else if node.is_degraded() {
        // The daemon reports the drain timeout, but only the drain record names the cause.
        let obstacle = node.drain_obstacle();
        HeldReason::FailingOnTarget(with_obstacle(node.reason, obstacle.as_deref()))
    } else {
        node.drain_obstacle()
            .map_or(HeldReason::InProgress, HeldReason::DrainBlocked)
    }
}

/// Returns the node that runs the operator, to be updated last: an interruption restarts the operator's work.
fn operator_node_to_defer<'a>(
    view: &RolloutView<'a>,
    pool: &PoolView<'_>,
    waiting: &[&NodeView<'_>],
) -> Option<&'a str> {
    let operator = view.operator_node.filter(|_| pool.name == MASTER)?;
    let others_wait = waiting.len() > 1 && waiting.iter().any(|node| node.name == operator);
    others_wait.then_some(operator)
}

fn send(
    view: &RolloutView<'_>,
    pool: &PoolView<'_>,
    node: &NodeView<'_>,
    target: &RolloutTarget,
    because: Because,
) -> NodeAction {
    NodeAction::SetDesired {
        node: node.name.to_owned(),
        config: target.config.clone(),
        image: target.image.clone(),
        confirm_deadline: view.policies.confirm_deadline(pool).map(str::to_owned),
        because,
    }
}

/// Sends a node back to the config that it has, which ends its drain and uncordons it.
fn skip(node: &NodeView<'_>) -> NodeAction {
    NodeAction::SetDesired {
        node: node.name.to_owned(),
        config: node.current_config.to_owned(),
        image: node.current_image.map(str::to_owned),
        confirm_deadline: None,
        because: Because::Skipped,
    }
}

fn held(node: &NodeView<'_>, reason: HeldReason) -> Held {
    Held {
        node: node.name.to_owned(),
        reason,
    }
}
