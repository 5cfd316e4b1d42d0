//! The nodes that hold etcd members: one of all of them may be unavailable, regardless of how many pools they are in.

use std::collections::HashSet;

use mco_api::vocabulary::names::pool::{ARBITER, MASTER};
use mco_api::vocabulary::topology;

use super::node::NodeView;
use super::plan::HeldReason;
use super::target::{TargetGate, gate};
use super::view::{PoolView, RolloutView, TargetState};

/// Returns the limit of a pool and the reason to hold the nodes beyond it for. `started` are the nodes of other pools
/// that are started at the same time.
pub(super) fn limit(
    view: &RolloutView<'_>,
    pool: &PoolView<'_>,
    limit: i64,
    started: &HashSet<String>,
) -> (i64, HeldReason) {
    if has_arbiter_rules(view, pool) {
        return with_arbiter(view, pool, limit);
    }
    match away_elsewhere(view, pool, started) {
        Some(node) => (
            limit.min(0),
            HeldReason::ControlPlaneNodeAway(node.name.to_owned()),
        ),
        None => (limit, HeldReason::Budget),
    }
}

/// Returns the other pools whose control-plane nodes are updated one at a time together with those of this pool.
pub(super) fn sharing<'v>(view: &'v RolloutView<'_>, pool: &PoolView<'_>) -> Vec<&'v str> {
    if has_arbiter_rules(view, pool) {
        return Vec::new();
    }
    let others = others(view, pool);
    others
        .filter(|other| other.control_plane_members().next().is_some())
        .map(|other| other.name)
        .collect()
}

/// Whether a node that is away will return without intervention: it is being updated.
pub(super) fn is_returning(view: &RolloutView<'_>, node: &str, started: &HashSet<String>) -> bool {
    let found = view.pools.iter().find_map(|pool| pool.member(node));
    started.contains(node) || found.is_some_and(|node| node.is_in_flight() && !node.is_degraded())
}

fn has_arbiter_rules(view: &RolloutView<'_>, pool: &PoolView<'_>) -> bool {
    view.topology == Some(topology::HIGHLY_AVAILABLE_ARBITER) && matches!(pool.name, MASTER | ARBITER)
}

/// Returns the other pools of the view, if this pool has control-plane nodes.
fn others<'v, 'a>(view: &'v RolloutView<'a>, pool: &PoolView<'_>) -> impl Iterator<Item = &'v PoolView<'a>> {
    let pools: &[PoolView<'a>] = match pool.control_plane_members().next() {
        Some(_) => &view.pools,
        None => &[],
    };
    pools.iter().filter(move |other| other.name != pool.name)
}

/// Returns a control-plane node of another pool that is unavailable, or will be before it is updated.
fn away_elsewhere<'v, 'a>(
    view: &'v RolloutView<'a>,
    pool: &PoolView<'_>,
    started: &HashSet<String>,
) -> Option<&'v NodeView<'a>> {
    others(view, pool)
        .flat_map(PoolView::control_plane_members)
        .find(|node| node.is_interrupted() || started.contains(node.name))
}

/// In a cluster with an arbiter the control plane is updated first, and not while an arbiter is unavailable. A pending
/// target of the control plane counts, too: an arbiter that was rendered earlier would overtake it.
fn with_arbiter(view: &RolloutView<'_>, pool: &PoolView<'_>, limit: i64) -> (i64, HeldReason) {
    let away = |pool: &PoolView<'_>| pool.members.iter().any(NodeView::holds_a_slot);
    if pool.name == MASTER {
        return match view.pool(ARBITER) {
            Some(arbiter) if away(arbiter) => (limit.min(0), HeldReason::ArbiterAway),
            _ => (limit, HeldReason::Budget),
        };
    }
    let control_plane_settled = view.pool(MASTER).is_some_and(|master| {
        let waiting = match gate(master.pool, &master.layering) {
            TargetGate::Open(target) => master.members.iter().any(|node| !node.is_sent_to(&target)),
            TargetGate::NoTarget | TargetGate::Wait(_) | TargetGate::Failed(_) => true,
        };
        let is_settled = !waiting && master.target_state == TargetState::Settled;
        !away(master) && (master.is_paused() || is_settled)
    });
    if control_plane_settled {
        (limit, HeldReason::Budget)
    } else {
        (limit.min(0), HeldReason::AfterControlPlane)
    }
}
