//! A policy and its rollouts as people read them: waves, gates, windows, budgets, failures, and one sentence per pool.
//!
//! Computed from what the controller has recorded; no decision is made here.

use std::collections::HashSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use mco_api::rollout_policy::{NodeNote, RolloutGate, RolloutPhase, RolloutPolicy};
use serde::Serialize;

use super::super::target::{TargetGate, gate};
use super::super::view::{PoolView, RolloutView};
use super::budgets::BudgetCounts;
use super::rules::{self, RolloutState};
use super::status::describe;
use super::window::Window;
use super::{admit_policy, confirm, failures, gates, name_of, pools_of, text, wave};

/// A policy, its rules with their present state, and the rollouts under it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyOverview {
    pub name: String,
    /// The state of the pool that needs attention most.
    pub phase: RolloutPhase,
    /// Why the policy cannot be applied.
    pub problem: Option<String>,
    pub after: Vec<String>,
    pub pools: Vec<PoolRolloutOverview>,
    pub gates: Vec<GateOverview>,
    pub windows: Vec<WindowOverview>,
    pub budgets: Vec<BudgetOverview>,
}

/// The rollout of one pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRolloutOverview {
    pub name: String,
    pub phase: RolloutPhase,
    /// What it does or waits for, with the remaining time.
    pub message: String,
    pub updated: usize,
    pub total: usize,
    pub waves: Vec<WaveOverview>,
    /// Nodes that failed on the config.
    pub failed: Vec<NodeNote>,
    /// How many may fail; `None` if the policy has no limit.
    pub allowed_failures: Option<i64>,
    /// Nodes that keep their config because their drain took too long.
    pub skipped: Vec<NodeNote>,
}

/// One wave of a pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaveOverview {
    /// Such as `wave 1 (canary)`.
    pub label: String,
    /// Which nodes are in it: `canary=true, at most 1 node, soaks 30m`.
    pub rule: String,
    pub state: WaveState,
    /// Its nodes, as far as they are chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<usize>,
    /// The end of its soak time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soaks_until: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum WaveState {
    Updated,
    Soaking,
    Current,
    Pending,
}

/// One gate and its last check.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GateOverview {
    pub name: String,
    /// What is checked.
    pub check: String,
    pub state: GateState,
    /// What the last check found.
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum GateState {
    /// Gates are checked only while nodes wait for them.
    NotChecked,
    Passed,
    Failed,
    Unreachable,
}

/// One window.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WindowOverview {
    /// Such as `22:00-04:00 Europe/Madrid`.
    pub label: String,
    /// When it closes, if it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opens: Option<Timestamp>,
}

/// One budget.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetOverview {
    /// Such as `at most 1 node per topology.kubernetes.io/zone, for Reboot`.
    pub rule: String,
    /// The fullest groups of nodes first.
    pub groups: Vec<BudgetUse>,
}

/// The use of a budget by the nodes with one value of its label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetUse {
    /// The value of the label; empty without one.
    pub group: String,
    pub unavailable: i64,
    pub limit: i64,
}

/// Returns the overviews of all policies of the view, by name.
pub fn overviews(view: &RolloutView<'_>) -> Vec<PolicyOverview> {
    view.policies
        .all
        .iter()
        .map(|policy| of_policy(view, policy))
        .collect()
}

fn of_policy(view: &RolloutView<'_>, policy: &RolloutPolicy) -> PolicyOverview {
    let now = view.policies.now();
    let pools: Vec<PoolRolloutOverview> = pools_of(view, policy)
        .map(|pool| of_pool(view, policy, pool, now))
        .collect();
    let invalid = admit_policy(policy, view.policies.all.iter().copied()).err();
    let shared = || pools_of(view, policy).find(|pool| view.policies.of_pool(pool.pool).len() > 1);
    let conflict = || {
        shared().map(|pool| {
            format!(
                "another RolloutPolicy selects pool {}; change a poolSelector",
                pool.name
            )
        })
    };
    let windows = policy
        .spec
        .windows
        .iter()
        .filter_map(|window| Window::parse(window).ok());
    PolicyOverview {
        name: name_of(policy).to_owned(),
        phase: pools.iter().map(|pool| pool.phase).max().unwrap_or_default(),
        problem: invalid.map(|invalid| invalid.to_string()).or_else(conflict),
        after: policy.spec.after.clone(),
        gates: policy
            .spec
            .gates
            .iter()
            .map(|gate| of_gate(policy, gate))
            .collect(),
        windows: windows.map(|window| of_window(&window, now)).collect(),
        budgets: BudgetCounts::new(view, policy, &HashSet::new(), &HashSet::new()).overviews(),
        pools,
    }
}

fn of_pool(
    view: &RolloutView<'_>,
    policy: &RolloutPolicy,
    pool: &PoolView<'_>,
    now: Timestamp,
) -> PoolRolloutOverview {
    let total = pool.members.len();
    let TargetGate::Open(target) = gate(pool.pool, &pool.layering) else {
        return PoolRolloutOverview {
            name: pool.name.to_owned(),
            phase: RolloutPhase::Waiting,
            message: "waits for the pool's config".to_owned(),
            updated: 0,
            total,
            waves: Vec::new(),
            failed: Vec::new(),
            allowed_failures: failures::allowed(policy, total),
            skipped: Vec::new(),
        };
    };
    let state = RolloutState::of(policy, pool, &target, now);
    let recorded = state.recorded.cloned().unwrap_or_default();
    let updated = pool.members.iter().filter(|node| node.is_updated_to(&target));
    let updated = updated.count();
    let is_done = recorded.phase == RolloutPhase::Done
        || pool
            .members
            .iter()
            .all(|node| confirm::is_confirmed(policy, node, &target));
    let hold = rules::hold(view, policy, pool, &target, &state)
        .or_else(|| rules::window_of_pool(view, policy, pool, &target, Some(&recorded)));
    let (phase, message) = describe(
        policy,
        pool,
        &state,
        &recorded,
        hold,
        updated == total && is_done,
        |hold| hold.at(now),
    );
    let waves = match phase {
        RolloutPhase::Done | RolloutPhase::Reverted => Vec::new(),
        _ => waves(policy, &state, now),
    };
    PoolRolloutOverview {
        name: pool.name.to_owned(),
        phase,
        message,
        updated,
        total,
        waves,
        failed: state.failures.failed,
        allowed_failures: failures::allowed(policy, total),
        skipped: recorded.skipped,
    }
}

/// Returns the waves of a policy with waves, the implicit last one included.
fn waves(policy: &RolloutPolicy, state: &RolloutState<'_, '_>, now: Timestamp) -> Vec<WaveOverview> {
    let count = policy.spec.waves.len();
    if count == 0 {
        return Vec::new();
    }
    let completed = state
        .recorded
        .map_or(&[][..], |recorded| recorded.completed_waves.as_slice());
    let soaks_until = rules::soak_ends(policy, state, now);
    let waves = (0..=count).map(|index| {
        let is_soaking = soaks_until.is_some() && index + 1 == completed.len();
        let nodes = match completed.get(index) {
            Some(completed) => usize::try_from(completed.nodes).ok(),
            None if index == state.wave.index => Some(state.wave.sent + state.wave.startable.len()),
            None => None,
        };
        WaveOverview {
            label: wave::label(policy, index),
            rule: wave_rule(policy, index),
            state: match index {
                _ if is_soaking => WaveState::Soaking,
                _ if index < state.wave.index => WaveState::Updated,
                _ if index == state.wave.index && soaks_until.is_none() => WaveState::Current,
                _ => WaveState::Pending,
            },
            nodes,
            soaks_until: soaks_until.filter(|_| is_soaking),
        }
    });
    waves.collect()
}

fn wave_rule(policy: &RolloutPolicy, index: usize) -> String {
    let Some(wave) = policy.spec.waves.get(index) else {
        return "all other nodes".to_owned();
    };
    let selected = wave
        .selector
        .as_ref()
        .map_or_else(|| "any nodes".to_owned(), selector_text);
    let limit = wave
        .limit
        .as_ref()
        .map(|limit| format!("at most {}", share_text(limit)));
    let soak = (!wave.soak.is_empty()).then(|| format!("soaks {}", wave.soak));
    let parts: Vec<String> = std::iter::once(selected).chain(limit).chain(soak).collect();
    parts.join(", ")
}

/// Formats a selector as kubectl accepts it.
fn selector_text(selector: &LabelSelector) -> String {
    let exact = selector.match_labels.iter().flatten();
    let exact = exact.map(|(key, value)| format!("{key}={value}"));
    let others = selector.match_expressions.iter().flatten().map(|expression| {
        let (key, values) = (&expression.key, expression.values.clone().unwrap_or_default());
        match expression.operator.as_str() {
            "Exists" => key.clone(),
            "DoesNotExist" => format!("!{key}"),
            operator => format!("{key} {} ({})", operator.to_lowercase(), values.join(", ")),
        }
    });
    let parts: Vec<String> = exact.chain(others).collect();
    if parts.is_empty() {
        "any nodes".to_owned()
    } else {
        parts.join(", ")
    }
}

/// Formats a number of nodes or a percentage of them.
pub(super) fn share_text(share: &IntOrString) -> String {
    match share {
        IntOrString::Int(count) => text::nodes(usize::try_from(*count).unwrap_or_default()),
        IntOrString::String(share) => format!("{share} of the nodes"),
    }
}

fn of_gate(policy: &RolloutPolicy, gate: &RolloutGate) -> GateOverview {
    let result = gates::result(policy, gate);
    GateOverview {
        name: gate.name.clone(),
        check: gate_check(gate),
        state: match result {
            None => GateState::NotChecked,
            Some(result) if !result.reachable => GateState::Unreachable,
            Some(result) if result.passed => GateState::Passed,
            Some(_) => GateState::Failed,
        },
        message: result.map(|result| result.message.clone()).unwrap_or_default(),
        checked_at: result.map(|result| result.checked_at.0),
    }
}

fn gate_check(gate: &RolloutGate) -> String {
    if let Some(prometheus) = &gate.prometheus {
        if prometheus.no_firing.is_empty() {
            format!("Prometheus: {}", prometheus.expr)
        } else {
            format!("Prometheus: no firing alert with {}", prometheus.no_firing)
        }
    } else if let Some(webhook) = &gate.webhook {
        format!("webhook {}", webhook.endpoint.url)
    } else if let Some(condition) = &gate.condition {
        let status = match condition.status.as_str() {
            "" => "True",
            status => status,
        };
        format!(
            "{} {} is {}={status}",
            condition.kind, condition.name, condition.type_
        )
    } else {
        "API servers and etcd members are ready".to_owned()
    }
}

fn of_window(window: &Window, now: Timestamp) -> WindowOverview {
    let open_until = window.open_until(now);
    WindowOverview {
        label: window.label().to_owned(),
        open_until,
        opens: match open_until {
            Some(_) => None,
            None => window.next_opening(now),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_read_as_sentences() {
        let policy: RolloutPolicy =
            serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"waves": [
                {"selector": {"matchLabels": {"canary": "true"}}, "limit": 1, "soak": "30m"},
                {"selector": {"matchExpressions": [
                    {"key": "zone", "operator": "In", "values": ["a", "b"]},
                    {"key": "gpu", "operator": "DoesNotExist"},
                ]}, "limit": "10%"},
                {"selector": {}},
            ]}}))
            .unwrap();
        let rules: Vec<String> = (0..4).map(|index| wave_rule(&policy, index)).collect();
        assert_eq!(
            rules,
            [
                "canary=true, at most 1 node, soaks 30m",
                "zone in (a, b), !gpu, at most 10% of the nodes",
                "any nodes",
                "all other nodes",
            ]
        );
    }
}
