//! What the changes of nodes interrupt: windows hold only changes that interrupt something, and a budget may be for some
//! of them.
//!
//! The controller computes it from the configs and records it in the status, for commands and pages that read no
//! configs.

use std::collections::{BTreeMap, BTreeSet};

use mco_api::rollout_policy::{DisruptionReason, NodeChange, PoolRolloutStatus, RolloutPolicy};

use super::super::node::NodeView;
use super::super::target::RolloutTarget;
use super::super::view::PoolView;
use super::Policies;
use crate::config::disruption::DisruptionLevel;

/// How many changes a status has; the nodes of a pool have few configs.
const MAX_CHANGES: usize = 64;

/// What each change interrupts, by the names of the old and the new rendered config. A change that is missing counts
/// as a reboot.
pub type ChangeCosts = BTreeMap<(String, String), DisruptionLevel>;

/// Whether a rule of the policy depends on what changes interrupt.
pub fn depends_on_costs(policy: &RolloutPolicy) -> bool {
    let mut budgets = policy.spec.budgets.iter();
    !policy.spec.windows.is_empty() || budgets.any(|budget| !budget.reasons.is_empty())
}

impl Policies<'_> {
    /// Returns what the change of a node interrupts: as computed for the view, else as recorded.
    pub(super) fn cost(
        &self,
        node: &NodeView<'_>,
        target: &RolloutTarget,
        recorded: Option<&PoolRolloutStatus>,
    ) -> DisruptionLevel {
        // An image is a new operating system.
        if target.image.is_some() {
            return DisruptionLevel::Reboot;
        }
        let known = match self.costs {
            Some(costs) => {
                let change = (node.current_config.to_owned(), target.config.clone());
                costs.get(&change).copied()
            }
            None => recorded
                .filter(|recorded| recorded.target == target.config)
                .and_then(|recorded| {
                    recorded
                        .changes
                        .iter()
                        .find(|change| change.from == node.current_config)
                })
                .map(|change| level(change.interrupts)),
        };
        known.unwrap_or(DisruptionLevel::Reboot)
    }

    /// Returns the changes to record. Those that were recorded stay, so that the status does not change with the last
    /// node of each config.
    pub(super) fn changes(
        &self,
        policy: &RolloutPolicy,
        pool: &PoolView<'_>,
        target: &RolloutTarget,
        before: &[NodeChange],
    ) -> Vec<NodeChange> {
        let Some(costs) = self
            .costs
            .filter(|_| target.image.is_none() && depends_on_costs(policy))
        else {
            return Vec::new();
        };
        let current = pool.members.iter().map(|node| node.current_config);
        let from: BTreeSet<&str> = current
            .chain(before.iter().map(|change| change.from.as_str()))
            .collect();
        let changes = from.into_iter().filter_map(|from| {
            let level = costs.get(&(from.to_owned(), target.config.clone()))?;
            Some(NodeChange {
                from: from.to_owned(),
                interrupts: reason(*level),
            })
        });
        changes.take(MAX_CHANGES).collect()
    }
}

pub(super) fn reason(level: DisruptionLevel) -> Option<DisruptionReason> {
    match level {
        DisruptionLevel::None => None,
        DisruptionLevel::Reload => Some(DisruptionReason::Reload),
        DisruptionLevel::Restart => Some(DisruptionReason::Restart),
        DisruptionLevel::Drain => Some(DisruptionReason::Drain),
        DisruptionLevel::Reboot => Some(DisruptionReason::Reboot),
    }
}

fn level(reason: Option<DisruptionReason>) -> DisruptionLevel {
    match reason {
        None => DisruptionLevel::None,
        Some(DisruptionReason::Reload) => DisruptionLevel::Reload,
        Some(DisruptionReason::Restart) => DisruptionLevel::Restart,
        Some(DisruptionReason::Drain) => DisruptionLevel::Drain,
        Some(DisruptionReason::Reboot) => DisruptionLevel::Reboot,
    }
}
