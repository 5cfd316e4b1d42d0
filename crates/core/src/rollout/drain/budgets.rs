//! Predicts which PodDisruptionBudgets block the eviction of a node's pods, with the rules of the eviction API, so
//! that the blocker of a drain is reported immediately.

use std::collections::HashMap;
use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::pods::{full_name, phase};
use crate::config::selector::Selector;

/// A pod that cannot be evicted now, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Blocker {
    pub node: String,
    /// `namespace/name`
    pub pod: String,
    pub obstacle: Obstacle,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Obstacle {
    /// The budget allows no further disruption.
    Budget { name: String, allowed: i32 },
    /// The budget's status is outdated: its controller has not observed the latest generation.
    BudgetNotCounted { name: String },
    /// The eviction API rejects pods with more than one budget, regardless of what they allow.
    SeveralBudgets { names: Vec<String> },
    /// The eviction was rejected for another reason than a budget, with the API server's message.
    Refused { answer: String },
    /// The pod is terminating but does not end: its node's kubelet does not respond, or a finalizer holds it.
    Leaving {
        since: Timestamp,
        finalizers: Vec<String>,
    },
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits for {}", self.node, self.what())
    }
}

impl Blocker {
    /// Returns the pod and its blocker, without the node.
    pub fn what(&self) -> String {
        format!("pod {} ({})", self.pod, self.obstacle)
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget { name, allowed } => write!(f, "budget {name} allows {allowed} disruptions"),
            Self::BudgetNotCounted { name } => write!(f, "budget {name} is being recounted"),
            Self::SeveralBudgets { names } => {
                write!(f, "it has more than one budget: {}", names.join(", "))
            }
            Self::Refused { answer } => write!(f, "its eviction was rejected: {answer}"),
            Self::Leaving { since, finalizers } => {
                write!(
                    f,
                    "it is being deleted since {}",
                    since.strftime("%Y-%m-%dT%H:%M:%SZ")
                )?;
                match finalizers.as_slice() {
                    [] => Ok(()),
                    held => write!(f, " and held by {}", held.join(", ")),
                }
            }
        }
    }
}

/// The PodDisruptionBudgets of a cluster, with parsed selectors.
#[derive(Debug, Clone, Default)]
pub struct Budgets<'a> {
    by_namespace: HashMap<&'a str, Vec<(&'a PodDisruptionBudget, Selector)>>,
}

impl<'a> Budgets<'a> {
    /// Indexes the budgets. A budget without a selector, or with an invalid one, protects no pod; an empty selector
    /// protects all pods of its namespace.
    pub fn new(budgets: impl IntoIterator<Item = &'a PodDisruptionBudget>) -> Self {
        let mut by_namespace: HashMap<&str, Vec<_>> = HashMap::new();
        for budget in budgets {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            if let Some(Ok(selector)) = selector.map(Selector::parse) {
                let namespace = budget.metadata.namespace.as_deref().unwrap_or_default();
                by_namespace
                    .entry(namespace)
                    .or_default()
                    .push((budget, selector));
            }
        }
        Self { by_namespace }
    }

    /// Returns the pods that cannot be evicted from this node now. A disruption that a budget still allows is used by
    /// the first pod that needs it.
    pub fn blockers<'p>(&self, node: &str, pods: impl IntoIterator<Item = &'p Pod>) -> Vec<Blocker> {
        let mut used: HashMap<*const PodDisruptionBudget, i32> = HashMap::new();
        let mut blockers = Vec::new();
        for pod in pods {
            if needs_no_budget(pod) {
                continue;
            }
            let obstacle = match self.of_pod(pod).as_slice() {
                [] => None,
                [budget] => obstacle(pod, budget, used.entry(std::ptr::from_ref(*budget)).or_default()),
                several => Some(Obstacle::SeveralBudgets {
                    names: several.iter().map(|budget| budget_name(budget)).collect(),
                }),
            };
            if let Some(obstacle) = obstacle {
                blockers.push(Blocker {
                    node: node.to_owned(),
                    pod: full_name(pod),
                    obstacle,
                });
            }
        }
        blockers
    }

    fn of_pod(&self, pod: &Pod) -> Vec<&'a PodDisruptionBudget> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let budgets = self.by_namespace.get(namespace).into_iter().flatten();
        budgets
            .filter(|(_, selector)| selector.matches(pod.metadata.labels.as_ref()))
            .map(|(budget, _)| *budget)
            .collect()
    }
}

fn obstacle(pod: &Pod, budget: &PodDisruptionBudget, used: &mut i32) -> Option<Obstacle> {
    let name = budget_name(budget);
    let status = budget.status.clone().unwrap_or_default();
    if !is_ready(pod) {
        let policy = budget.spec.as_ref();
        let always = policy
            .and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref())
            .is_some_and(|policy| policy == "AlwaysAllow");
        let healthy_budget =
            status.current_healthy >= status.desired_healthy && status.desired_healthy > Some(0);
        if always || healthy_budget {
            return None;
        }
    }
    if status.observed_generation.unwrap_or_default() < budget.metadata.generation.unwrap_or_default() {
        return Some(Obstacle::BudgetNotCounted { name });
    }
    let allowed = status.disruptions_allowed.unwrap_or_default();
    if allowed > *used {
        *used += 1;
        return None;
    }
    Some(Obstacle::Budget { name, allowed })
}

/// Whether the pod counts for no budget: it is not running yet, has ended, or is terminating.
fn needs_no_budget(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() || matches!(phase(pod), "Succeeded" | "Failed" | "Pending")
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn budget_name(budget: &PodDisruptionBudget) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!(
        "{}/{}",
        part(&budget.metadata.namespace),
        part(&budget.metadata.name)
    )
}
