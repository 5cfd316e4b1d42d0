//! The waves of a policy: which nodes are in the current one, and whether it is complete.
//!
//! Nodes that were sent to the target count first, so that the members of a wave do not change while they are updated.
//! A node that cannot be started is counted out; it is updated with a later wave.

use std::collections::{HashMap, HashSet};

use mco_api::rollout_policy::{PoolRolloutStatus, RolloutPolicy};

use super::super::node::NodeView;
use super::super::target::RolloutTarget;
use super::confirm;
use super::control::PoolControl;
use super::failures::{is_under_way, share};
use super::text;
use crate::config::selector::Selector;

/// The current wave of a pool.
#[derive(Debug, Clone, Default)]
pub(super) struct CurrentWave<'n> {
    /// From 0; the number of waves for the nodes in none of them.
    pub index: usize,
    /// Nodes of the wave that may be started.
    pub startable: HashSet<&'n str>,
    /// Nodes of the wave that were sent to the target.
    pub sent: usize,
    /// Whether every node of it is updated and none is left to start.
    pub is_complete: bool,
    /// Why no node of the wave can be started, although it has some.
    pub blocked: Option<String>,
    /// Why its first node that failed, or is updated and not confirmed, does not count as updated.
    pub unconfirmed: Option<String>,
}

/// Returns the current wave. `can_start` decides about nodes that wait.
pub(super) fn current<'n>(
    policy: &RolloutPolicy,
    (members, unadopted): (&'n [NodeView<'_>], &[NodeView<'_>]),
    target: &RolloutTarget,
    recorded: Option<&PoolRolloutStatus>,
    control: &PoolControl,
    can_start: impl Fn(&NodeView<'_>) -> bool,
) -> CurrentWave<'n> {
    let waves = &policy.spec.waves;
    let completed = recorded.map_or(&[][..], |recorded| recorded.completed_waves.as_slice());
    let promoted = usize::try_from(control.promoted).unwrap_or(usize::MAX);
    let index = completed.len().max(promoted).min(waves.len());
    let order: HashMap<&str, usize> = if index == 0 {
        HashMap::new()
    } else {
        members
            .iter()
            .enumerate()
            .map(|(index, node)| (node.name, index))
            .collect()
    };
    let mut rest: Vec<&'n NodeView<'_>> = members.iter().collect();
    let mut wave = CurrentWave {
        index,
        ..CurrentWave::default()
    };
    for number in 0..=index {
        // The policy may have had more waves when they were completed.
        let recorded = completed.get(number).filter(|_| number < waves.len());
        let capacity = match recorded {
            Some(completed) => usize::try_from(completed.nodes).unwrap_or(usize::MAX),
            None => limit(policy, number, members.len()),
        };
        let (matching, others) = split(policy, number, rest);
        let is_steered = |node: &&NodeView<'_>| node.is_sent_to(target) || is_under_way(node, target);
        let (steered, waiting): (Vec<&NodeView<'_>>, Vec<&NodeView<'_>>) =
            matching.into_iter().partition(is_steered);
        let taken = steered.len().min(capacity);
        let (own, surplus) = steered.split_at(taken);
        if number == index {
            let free = capacity - taken;
            let startable = waiting.iter().filter(|node| can_start(node)).take(free);
            wave.startable = startable.map(|node| node.name).collect();
            wave.sent = taken;
            let acknowledged =
                |node: &NodeView<'_>| control.acknowledged.iter().any(|name| name == node.name);
            let all_done = own
                .iter()
                .all(|node| confirm::is_confirmed(policy, node, target) || acknowledged(node));
            let has_none = taken == 0 && wave.startable.is_empty() && index < waves.len();
            let (held, why) = if waiting.is_empty() {
                (selected(policy, number, unadopted), "is adopted")
            } else {
                (waiting.iter().map(|node| node.name).collect(), "can be updated")
            };
            let is_stuck = has_none && !held.is_empty();
            wave.blocked = is_stuck.then(|| {
                format!(
                    "waits for {}, of which no node {why}: {}",
                    label(policy, index),
                    text::names(&held)
                )
            });
            wave.is_complete = index < waves.len() && all_done && wave.startable.is_empty() && !is_stuck;
            wave.unconfirmed = own.iter().find_map(|node| {
                let failed = node.is_degraded() && !node.is_updated_to(target);
                let objection = if failed {
                    Some(format!("node {} failed: {}", node.name, node.reason))
                } else {
                    confirm::objection(policy, node, target)
                };
                objection.filter(|_| !acknowledged(node))
            });
            return wave;
        }
        rest = surplus.iter().copied().chain(waiting).chain(others).collect();
        // The order of the rollout, from which the nodes of the next wave are chosen.
        rest.sort_by_key(|node| order.get(node.name).copied());
    }
    wave
}

/// Returns `wave 1 (canary)`.
pub(super) fn label(policy: &RolloutPolicy, index: usize) -> String {
    match policy.spec.waves.get(index) {
        None => "the last wave".to_owned(),
        Some(wave) if wave.name.is_empty() => format!("wave {}", index + 1),
        Some(wave) => format!("wave {} ({})", index + 1, wave.name),
    }
}

/// Returns the waves of the nodes that wait, if all goes well.
pub(super) fn forecast<'q>(
    policy: &RolloutPolicy,
    members: usize,
    (index, already): (usize, usize),
    queue: Vec<&'q NodeView<'_>>,
) -> Vec<Vec<&'q str>> {
    let mut rest = queue;
    let mut waves = Vec::new();
    for number in index..=policy.spec.waves.len() {
        let mut capacity = limit(policy, number, members);
        if number == index {
            capacity = capacity.saturating_sub(already);
        }
        let (mut matching, others) = split(policy, number, rest);
        let surplus = matching.split_off(capacity.min(matching.len()));
        if !matching.is_empty() {
            waves.push(matching.iter().map(|node| node.name).collect());
        }
        rest = surplus.into_iter().chain(others).collect();
    }
    waves
}

fn limit(policy: &RolloutPolicy, number: usize, members: usize) -> usize {
    let limit = policy.spec.waves.get(number).and_then(|wave| wave.limit.as_ref());
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(share(limit, members)).unwrap_or(usize::MAX)
    })
}

/// Returns the nodes that the selector of a wave names; none for a wave without one.
fn selected<'n>(policy: &RolloutPolicy, number: usize, nodes: &[NodeView<'n>]) -> Vec<&'n str> {
    let wave = policy.spec.waves.get(number);
    let selector = wave
        .and_then(|wave| wave.selector.as_ref())
        .and_then(|selector| Selector::parse(selector).ok());
    let Some(selector) = selector.filter(|selector| !selector.is_empty()) else {
        return Vec::new();
    };
    let matching = nodes
        .iter()
        .filter(|node| selector.matches(node.node.metadata.labels.as_ref()));
    matching.map(|node| node.name).collect()
}

/// Splits nodes into those that the selector of a wave matches, and the others.
fn split<'n, 'a>(
    policy: &RolloutPolicy,
    number: usize,
    nodes: Vec<&'n NodeView<'a>>,
) -> (Vec<&'n NodeView<'a>>, Vec<&'n NodeView<'a>>) {
    let selector = policy
        .spec
        .waves
        .get(number)
        .and_then(|wave| wave.selector.as_ref());
    let Some(selector) = selector else {
        return (nodes, Vec::new());
    };
    match Selector::parse(selector) {
        Ok(selector) => nodes
            .into_iter()
            .partition(|node| selector.matches(node.node.metadata.labels.as_ref())),
        Err(_) => (Vec::new(), nodes),
    }
}
