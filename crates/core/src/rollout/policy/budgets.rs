//! The budgets of a policy, over the nodes of all its pools.

use std::collections::{HashMap, HashSet};

use mco_api::rollout_policy::{DisruptionBudget, RolloutPolicy};

use super::super::budget::len;
use super::super::node::NodeView;
use super::super::target::{TargetGate, gate};
use super::super::view::RolloutView;
use super::confirm;
use super::costs::reason;
use super::failures::{is_quarantined, share};
use super::overview::{BudgetOverview, BudgetUse, share_text};
use super::pools_of;
use crate::config::disruption::DisruptionLevel;

/// The budgets of a policy and the nodes that count against them.
#[derive(Debug, Default)]
pub(super) struct BudgetCounts<'p> {
    budgets: Vec<BudgetCount<'p>>,
}

#[derive(Debug)]
struct BudgetCount<'p> {
    budget: &'p DisruptionBudget,
    /// By the value of the label.
    groups: HashMap<String, Group>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Group {
    size: usize,
    /// Nodes that hold a slot.
    used: i64,
    /// Of these, nodes that are unavailable or will be because of the rollout, as opposed to those that hold a slot
    /// until their own turn.
    away: i64,
}

impl<'p> BudgetCounts<'p> {
    /// `waiting` are the nodes of this plan that wait, `started` those that an earlier plan of the same view started.
    pub(super) fn new(
        view: &RolloutView<'_>,
        policy: &'p RolloutPolicy,
        waiting: &HashSet<&str>,
        started: &HashSet<String>,
    ) -> Self {
        let budgets = policy.spec.budgets.iter();
        let mut counts = Self {
            budgets: budgets
                .map(|budget| BudgetCount {
                    budget,
                    groups: HashMap::new(),
                })
                .collect(),
        };
        if counts.budgets.is_empty() {
            return counts;
        }
        let now = view.policies.now();
        let nodes = pools_of(view, policy).flat_map(|pool| {
            let target = match gate(pool.pool, &pool.layering) {
                TargetGate::Open(target) => Some(target),
                _ => None,
            };
            pool.members.iter().map(move |node| (node, target.clone()))
        });
        for (node, target) in nodes {
            let is_unconfirmed =
                target.is_some_and(|target| confirm::objection(policy, node, &target).is_some());
            let is_away = node.holds_a_slot() || is_unconfirmed || started.contains(node.name);
            let holds = is_away && !is_quarantined(policy, node, now);
            for count in &mut counts.budgets {
                let group = count.groups.entry(group_of(count.budget, node)).or_default();
                group.size += 1;
                group.used += i64::from(holds);
                group.away += i64::from(holds && !waiting.contains(node.name));
            }
        }
        counts
    }

    /// Returns the rule of each budget and its use.
    pub(super) fn overviews(&self) -> Vec<BudgetOverview> {
        let overview = |count: &BudgetCount<'_>| {
            let mut groups: Vec<BudgetUse> = count
                .groups
                .iter()
                .map(|(value, group)| BudgetUse {
                    group: value.clone(),
                    unavailable: group.used,
                    limit: limit(count.budget, *group),
                })
                .collect();
            groups.sort_by(|one, other| {
                let order = other.unavailable.cmp(&one.unavailable);
                order.then_with(|| one.group.cmp(&other.group))
            });
            BudgetOverview {
                rule: rule(count.budget),
                groups,
            }
        };
        self.budgets.iter().map(overview).collect()
    }

    /// Counts the node in all budgets if it fits into each of them; otherwise returns the first that is exhausted.
    pub(super) fn admit(&mut self, node: &NodeView<'_>, cost: DisruptionLevel) -> Result<(), String> {
        let holds = node.holds_a_slot();
        for count in self.budgets.iter().filter(|count| applies(count.budget, cost)) {
            let value = group_of(count.budget, node);
            let group = count.groups.get(&value).copied().unwrap_or_default();
            let limit = limit(count.budget, group);
            let fits = if holds {
                group.away < limit
            } else {
                group.used < limit
            };
            if !fits {
                return Err(describe(count.budget, &value, group, limit));
            }
        }
        for count in &mut self.budgets {
            let group = count.groups.entry(group_of(count.budget, node)).or_default();
            group.used += i64::from(!holds);
            group.away += 1;
        }
        Ok(())
    }
}

/// Returns `at most 1 node per topology.kubernetes.io/zone, for Drain and Reboot`.
fn rule(budget: &DisruptionBudget) -> String {
    let setting = budget.max_unavailable.as_ref();
    let most = setting.map_or_else(
        || "all nodes".to_owned(),
        |setting| format!("at most {}", share_text(setting)),
    );
    let per = match budget.group_by.as_str() {
        "" => String::new(),
        label => format!(" per {label}"),
    };
    let reasons: Vec<String> = budget
        .reasons
        .iter()
        .map(|reason| format!("{reason:?}"))
        .collect();
    let reasons = if reasons.is_empty() {
        String::new()
    } else {
        format!(", for {}", reasons.join(" and "))
    };
    format!("{most}{per}{reasons}")
}

fn limit(budget: &DisruptionBudget, group: Group) -> i64 {
    let setting = budget.max_unavailable.as_ref();
    setting.map_or(len(group.size), |setting| share(setting, group.size))
}

fn applies(budget: &DisruptionBudget, cost: DisruptionLevel) -> bool {
    let reason = reason(cost);
    budget.reasons.is_empty() || reason.is_some_and(|reason| budget.reasons.contains(&reason))
}

fn group_of(budget: &DisruptionBudget, node: &NodeView<'_>) -> String {
    if budget.group_by.is_empty() {
        return String::new();
    }
    node.label(&budget.group_by).unwrap_or_default().to_owned()
}

fn describe(budget: &DisruptionBudget, value: &str, group: Group, limit: i64) -> String {
    let among = match (budget.group_by.as_str(), value) {
        ("", _) => String::new(),
        (label, "") => format!(" without label {label}"),
        (label, value) => format!(" with {label}={value}"),
    };
    format!(
        "waits for the budget: {} of {limit} nodes{among} are unavailable",
        group.used
    )
}

/// Returns the number of nodes that may be updated at once without regard to groups, for forecasts.
pub(super) fn concurrency(policy: &RolloutPolicy, members: usize) -> i64 {
    let budgets = policy.spec.budgets.iter();
    let limits = budgets
        .filter(|budget| budget.group_by.is_empty())
        .filter_map(|budget| budget.max_unavailable.as_ref())
        .map(|setting| share(setting, members));
    let failures = super::failures::allowed(policy, members);
    limits.chain(failures).min().unwrap_or(i64::MAX)
}

impl BudgetCounts<'_> {
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.budgets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_without_budgets_limits_nothing() {
        let policy = RolloutPolicy::default();
        let view = RolloutView::new([], []);
        assert!(BudgetCounts::new(&view, &policy, &HashSet::new(), &HashSet::new()).is_empty());
        assert_eq!(concurrency(&policy, 10), i64::MAX);
    }
}
