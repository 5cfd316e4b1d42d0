//! The order between policies.

use std::collections::BTreeSet;

use mco_api::rollout_policy::{RolloutPhase, RolloutPolicy};

use super::super::target::{TargetGate, gate};
use super::super::view::{PoolView, RolloutView, TargetState};
use super::{name_of, pools_of};

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
        let unsettled = pools_of(view, before).find(|pool| !is_settled(pool))?;
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

/// Whether every node of the pool has its target, and no other target is being rendered.
fn is_settled(pool: &PoolView<'_>) -> bool {
    match gate(pool.pool, &pool.layering) {
        TargetGate::Open(target) => {
            pool.target_state != TargetState::Rendering
                && pool.members.iter().all(|node| node.is_updated_to(&target))
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
