//! The order between policies.

use std::collections::BTreeSet;

use mco_api::rollout_policy::{RolloutPhase, RolloutPolicy};

use super::super::target::{TargetGate, gate};
use super::super::view::{PoolView, RolloutView, TargetState};
use super::{confirm, name_of, pools_of};

/// Returns what the policy waits for: the first policy in `after` whose pools are not updated.
pub(super) fn waits_for(view: &RolloutView<'_>, policy: &RolloutPolicy) -> Option<String> {
    let all = view.policies.all.iter().copied();
    if let Some(cycle) = cycle(policy, all) {
        return Some(format!("waits for ever: {cycle}"));
    }
    policy.spec.after.iter().find_map(|name| {
        let Some(before) = view.policies.named(name) else {
            return Some(format!("waits for RolloutPolicy {name}, which does not exist"));
        };
        let (unsettled, adoption) = pools_of(view, before).find_map(|pool| {
            let adoption = awaits_adoption(pool);
            let is_unsettled = adoption.is_some() || !is_settled(before, pool);
            is_unsettled.then_some((pool, adoption))
        })?;
        if let Some(adoption) = adoption {
            let pool = unsettled.name;
            return Some(format!(
                "waits for pool {pool} of RolloutPolicy {name}, {adoption}"
            ));
        }
        let status = before.status.as_ref();
        let why = status
            .filter(|status| matches!(status.phase, RolloutPhase::Halted | RolloutPhase::Aborted))
            .map(|status| format!(", which is {}", status.message));
        Some(format!(
            "waits for pool {} of RolloutPolicy {name}{}",
            unsettled.name,
            why.unwrap_or_default()
        ))
    })
}

/// Returns why the pool is not complete without its nodes that are not adopted. Nodes that stay unmanaged beside adopted
/// ones are not waited for.
fn awaits_adoption(pool: &PoolView<'_>) -> Option<String> {
    let requested = pool.unadopted.iter().find(|node| node.is_being_adopted());
    match requested {
        Some(node) => Some(format!("whose node {} is being adopted", node.name)),
        None if pool.members.is_empty() && !pool.unadopted.is_empty() => {
            Some("of which no node is adopted".to_owned())
        }
        None => None,
    }
}

/// Whether every node of the pool has its target and is confirmed, and no other target is being rendered.
fn is_settled(policy: &RolloutPolicy, pool: &PoolView<'_>) -> bool {
    match gate(pool.pool, &pool.layering) {
        TargetGate::Open(target) => {
            pool.target_state != TargetState::Rendering
                && pool
                    .members
                    .iter()
                    .all(|node| confirm::is_confirmed(policy, node, &target))
        }
        TargetGate::NoTarget => pool.members.is_empty(),
        TargetGate::Wait(_) | TargetGate::Failed(_) => false,
    }
}

/// Returns the cycle that the policy is part of: `a waits for b, b waits for a`.
pub(super) fn cycle<'p>(
    policy: &'p RolloutPolicy,
    others: impl IntoIterator<Item = &'p RolloutPolicy>,
) -> Option<String> {
    let others: Vec<&RolloutPolicy> = others
        .into_iter()
        .filter(|other| name_of(other) != name_of(policy))
        .collect();
    let start = name_of(policy);
    let mut seen = BTreeSet::new();
    let mut paths: Vec<Vec<&str>> = policy.spec.after.iter().map(|next| vec![start, next]).collect();
    while let Some(path) = paths.pop() {
        let last = path.last().copied().unwrap_or_default();
        if last == start {
            let steps: Vec<String> = path
                .windows(2)
                .filter_map(|pair| match pair {
                    [one, next] => Some(format!("{one} waits for {next}")),
                    _ => None,
                })
                .collect();
            return Some(steps.join(", "));
        }
        if !seen.insert(last) {
            continue;
        }
        let next = others.iter().find(|other| name_of(other) == last);
        for after in next.into_iter().flat_map(|next| &next.spec.after) {
            let mut path = path.clone();
            path.push(after);
            paths.push(path);
        }
    }
    None
}
