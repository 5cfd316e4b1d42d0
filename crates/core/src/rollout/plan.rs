//! The rollout plan as a value: the writes per node, the events, and for every held node the reason.
//!
//! It decides nothing; [`super::decide`] fills it and an executor applies it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use jiff::Timestamp;
use mco_api::vocabulary::{events, taints};
use serde::{Deserialize, Serialize};

use super::holds::NodeHold;
use super::messages::TargetedNode;
use super::policy::PolicyHold;
use super::target::RolloutTarget;
use crate::rollout::drain::cordon::Cordon;

/// The next actions for all pools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutPlan {
    pub pools: Vec<PoolPlan>,
    /// Nodes that several custom pools select. Their config is ambiguous, so they are not changed.
    pub contested: Vec<ContestedNode>,
}

/// The next actions for one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolPlan {
    pub pool: String,
    /// The target of its nodes; `None` until it is determined.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub target: Option<RolloutTarget>,
    pub budget: UnavailableBudget,
    pub actions: Vec<NodeAction>,
    /// Every member that this plan sends nowhere, and why.
    pub held: Vec<Held>,
    pub events: Vec<PlannedEvent>,
    /// A problem that the administrator must fix before the rollout can continue.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<String>,
}

/// The maximum number of unavailable nodes, and the nodes that are unavailable now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UnavailableBudget {
    /// The limit after all rules; zero or negative allows no update.
    pub limit: i64,
    /// Nodes that count against the limit, each once, regardless of the cause.
    pub taken: Vec<Taken>,
}

impl UnavailableBudget {
    pub fn free(&self) -> i64 {
        (self.limit - super::budget::len(self.taken.len())).max(0)
    }
}

/// A node that counts against the limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    pub node: String,
    pub by: TakenBy,
    /// Why the node is not ready or unschedulable; `None` if it is available.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TakenBy {
    /// An update of the node by this rollout.
    Update,
    /// An update of the node by this rollout that failed.
    FailedUpdate,
    /// A cause outside of this rollout: an unhealthy kubelet, a foreign cordon, a daemon that has not reported yet.
    Other,
}

/// One change to one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum NodeAction {
    /// Set the desired config and, in a layered pool, the desired image. Without an image its annotation is removed.
    SetDesired {
        node: String,
        config: String,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        image: Option<String>,
        /// How long the node may take to be healthy with the config; `None` for its default.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        confirm_deadline: Option<String>,
        because: Because,
    },
    /// Add the soft taint that makes the scheduler prefer nodes without a pending update.
    AddUpdateTaint {
        node: String,
    },
    RemoveUpdateTaint {
        node: String,
    },
    SetControlPlaneTopology {
        node: String,
        topology: String,
    },
    /// Let the update agent of the node reboot it.
    GrantReboot {
        node: String,
    },
    /// Set how long the node may take to be healthy with its new config; without a deadline its annotation is removed.
    SetConfirmDeadline {
        node: String,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        deadline: Option<String>,
    },
    /// Set the labels of the pool the node was provisioned for, and record that in an annotation, in one write.
    JoinPool {
        node: String,
        pool: String,
        labels: BTreeMap<String, String>,
    },
}

impl NodeAction {
    pub fn node(&self) -> &str {
        match self {
            Self::SetDesired { node, .. }
            | Self::AddUpdateTaint { node }
            | Self::RemoveUpdateTaint { node }
            | Self::SetControlPlaneTopology { node, .. }
            | Self::GrantReboot { node }
            | Self::SetConfirmDeadline { node, .. }
            | Self::JoinPool { node, .. } => node,
        }
    }

    /// Whether the action only affects the scheduler and not the node itself.
    pub fn is_mark(&self) -> bool {
        matches!(self, Self::AddUpdateTaint { .. } | Self::RemoveUpdateTaint { .. })
    }
}

/// Why a node gets a new target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Because {
    /// Regular update, with room in the budget.
    Turn,
    /// The node failed on an older target. It already counts against the budget, so waiting would not help.
    Repair,
    /// The node is being updated to an older target. Retargeting it immediately saves a second interruption.
    Superseded,
    /// The drain took longer than the RolloutPolicy allows. The node keeps the config that it has.
    Skipped,
}

/// A node that this plan sends nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub node: String,
    #[serde(flatten)]
    pub reason: HeldReason,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", content = "detail", rename_all = "camelCase")]
pub enum HeldReason {
    /// The node is up to date.
    UpToDate,
    /// The node is being updated to the target.
    InProgress,
    /// The node is being updated to the target, and its drain is blocked.
    DrainBlocked(String),
    /// The node was sent to the target and its daemon reports a failure; the daemon retries.
    FailingOnTarget(String),
    /// The budget is exhausted.
    Budget,
    Paused,
    /// The node is cordoned; it is updated once it is schedulable again.
    Cordoned(Cordon),
    /// The kubelet is not ready; the node is updated once it is.
    NotReady(String),
    /// The operator runs on the node; the other control-plane nodes are updated first.
    OperatorNode,
    /// The node gets the labels of the pool it was provisioned for, and will move there.
    JoiningPool(String),
    /// The control plane is updated first.
    AfterControlPlane,
    /// An arbiter node is unavailable; no second voter may be.
    ArbiterAway,
    /// This control-plane node of another pool is unavailable or being updated; no second voter may be.
    ControlPlaneNodeAway(String),
    WaitingForImage(String),
    PoolIsBeingDeleted,
    /// The pool has no rendered config yet.
    NoTarget,
    /// The pool's target was not rendered from its own MachineConfigs.
    ForeignTarget,
    /// The node existed before and is not adopted.
    NotAdopted,
    /// The node is being released.
    Releasing,
    /// See [`PoolPlan::problem`].
    Problem,
    /// A RolloutPolicy holds the node.
    Policy(PolicyHold),
    /// Annotations of the node hold its update back.
    OnHold(Vec<NodeHold>),
}

/// A node that several custom pools select.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContestedNode {
    pub node: String,
    pub pools: Vec<String>,
}

impl fmt::Display for ContestedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "node {} belongs to {} custom roles, cannot proceed with this Node",
            self.node,
            self.pools.len()
        )
    }
}

/// A Kubernetes event about the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedEvent {
    pub kind: PlannedEventKind,
    pub reason: String,
    pub message: String,
}

impl PlannedEvent {
    pub fn normal(reason: &str, message: String) -> Self {
        Self {
            kind: PlannedEventKind::Normal,
            reason: reason.to_owned(),
            message,
        }
    }

    pub fn warning(reason: &str, message: String) -> Self {
        Self {
            kind: PlannedEventKind::Warning,
            reason: reason.to_owned(),
            message,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlannedEventKind {
    Normal,
    Warning,
}

impl RolloutPlan {
    pub fn pool(&self, name: &str) -> Option<&PoolPlan> {
        self.pools.iter().find(|plan| plan.pool == name)
    }

    /// Returns all actions grouped by node, so that an executor can write each node once.
    pub fn actions_by_node(&self) -> BTreeMap<&str, Vec<&NodeAction>> {
        let mut by_node: BTreeMap<&str, Vec<&NodeAction>> = BTreeMap::new();
        for action in self.pools.iter().flat_map(|plan| &plan.actions) {
            by_node.entry(action.node()).or_default().push(action);
        }
        by_node
    }
}

impl PoolPlan {
    /// Returns the nodes that get a new target, in rollout order.
    pub fn sent(&self) -> impl Iterator<Item = &str> {
        self.actions.iter().filter_map(|action| match action {
            NodeAction::SetDesired { node, .. } => Some(node.as_str()),
            _ => None,
        })
    }

    /// Returns the event about the nodes with a new target, limited to those for which `written` confirms the write.
    pub(super) fn announcement(&self, written: impl Fn(&str) -> bool) -> Option<PlannedEvent> {
        let target = self.target.as_ref()?;
        let sent: Vec<&str> = self.sent().filter(|node| written(node)).collect();
        let what = match sent.as_slice() {
            [] => return None,
            [node] => TargetedNode {
                node: (*node).to_owned(),
                target: target.config.clone(),
            }
            .to_string(),
            nodes => format!(
                "Set target for {} nodes to MachineConfig: {}",
                nodes.len(),
                target.config
            ),
        };
        Some(match &target.image {
            None => PlannedEvent::normal(events::rollout::SET_DESIRED_CONFIG, what),
            Some(image) => PlannedEvent::normal(
                events::rollout::SET_DESIRED_CONFIG_AND_OS_IMAGE,
                format!("{what} / Image: {image}"),
            ),
        })
    }

    /// Returns the events of this plan after its execution; of the targeted nodes only those that were written are
    /// included.
    pub fn events_after(&self, written: impl Fn(&str) -> bool) -> Vec<PlannedEvent> {
        let planned = self.announcement(|_| true);
        let others = self
            .events
            .iter()
            .filter(|event| Some(*event) != planned.as_ref());
        others.cloned().chain(self.announcement(written)).collect()
    }

    /// Whether policies or holds keep back the nodes that are not up to date, and nothing else does. A hold that only
    /// the administrator can end counts as a problem unless the administrator has set it.
    pub fn is_held_back(&self) -> bool {
        let is_held = |held: &Held| match &held.reason {
            HeldReason::Policy(hold) => hold.passes(),
            HeldReason::OnHold(_) => true,
            _ => false,
        };
        let waits = |held: &Held| {
            matches!(
                held.reason,
                HeldReason::UpToDate
                    | HeldReason::Budget
                    | HeldReason::OperatorNode
                    | HeldReason::AfterControlPlane
                    | HeldReason::ArbiterAway
            )
        };
        self.problem.is_none()
            && self.sent().next().is_none()
            && self.held.iter().any(is_held)
            && self.held.iter().all(|held| is_held(held) || waits(held))
    }

    /// Returns why the rollout makes no progress although it is not complete: what takes the budget, what holds each
    /// waiting node, which updated node is not schedulable. `None` while it progresses or if everything is up to
    /// date.
    pub fn stalled(&self) -> Option<String> {
        let moving = |held: &Held| matches!(held.reason, HeldReason::InProgress | HeldReason::JoiningPool(_));
        if self.sent().next().is_some() || self.held.iter().any(moving) {
            return None;
        }
        if let Some(problem) = &self.problem {
            return Some(problem.clone());
        }
        let taken: HashMap<&str, &Taken> = self
            .budget
            .taken
            .iter()
            .map(|taken| (taken.node.as_str(), taken))
            .collect();
        let mut obstacles: Vec<String> = Vec::new();
        let mut queued: Vec<String> = Vec::new();
        for held in &self.held {
            let taken = taken.get(held.node.as_str());
            match (&held.reason, taken) {
                (
                    HeldReason::Cordoned(_)
                    | HeldReason::FailingOnTarget(_)
                    | HeldReason::DrainBlocked(_)
                    | HeldReason::ControlPlaneNodeAway(_)
                    | HeldReason::OnHold(_),
                    _,
                ) => obstacles.push(held.to_string()),
                // The text already names the node.
                (HeldReason::NotReady(why), _) => obstacles.push(why.clone()),
                (HeldReason::UpToDate, Some(taken)) => obstacles.push(match &taken.why {
                    Some(why) => format!("{why}, though it is updated"),
                    None => format!("node {} is updated but not available", held.node),
                }),
                (HeldReason::Policy(hold), _) if obstacles.iter().all(|shown| *shown != hold.to_string()) => {
                    obstacles.push(hold.to_string());
                }
                (HeldReason::Budget, Some(_)) => queued.push(format!("{held} and counts as unavailable")),
                _ => {}
            }
        }
        obstacles.append(&mut queued);
        if obstacles.is_empty() {
            return None;
        }
        let more = obstacles.len().saturating_sub(OBSTACLES_SHOWN);
        obstacles.truncate(OBSTACLES_SHOWN);
        let text = obstacles.join("; ");
        Some(match more {
            0 => text,
            more => format!("{text}; and {more} more"),
        })
    }
}

/// Maximum number of nodes in a condition's message, which is read on one line of a terminal.
const OBSTACLES_SHOWN: usize = 3;

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} {}", self.node, self.reason)
    }
}

impl fmt::Display for HeldReason {
    /// Formats the reason as the continuation of a sentence whose subject is the node.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UpToDate => f.write_str("is up to date"),
            Self::InProgress => f.write_str("is being updated"),
            Self::DrainBlocked(why) => write!(f, "waits for {why}"),
            Self::FailingOnTarget(why) if why.is_empty() => f.write_str("fails on this config"),
            Self::FailingOnTarget(why) => write!(f, "fails on this config: {why}"),
            Self::Budget => f.write_str("waits for its turn"),
            Self::Paused => f.write_str("waits because the pool is paused"),
            Self::Cordoned(Cordon::Ours) => f.write_str("waits until it is uncordoned"),
            Self::Cordoned(_) => f.write_str("waits because it is cordoned"),
            Self::NotReady(why) => write!(f, "waits until it is ready: {why}"),
            Self::OperatorNode => f.write_str("is updated last because the operator runs on it"),
            Self::JoiningPool(pool) => write!(f, "moves to pool {pool}, for which it was installed"),
            Self::AfterControlPlane => f.write_str("waits for the control plane to be updated"),
            Self::ArbiterAway => f.write_str("waits because an arbiter node is not available"),
            Self::ControlPlaneNodeAway(node) => {
                write!(
                    f,
                    "waits for control-plane node {node}, which is being updated or not available"
                )
            }
            Self::WaitingForImage(why) => write!(f, "waits because {why}"),
            Self::PoolIsBeingDeleted => f.write_str("stays because its pool is being deleted"),
            Self::NoTarget => f.write_str("waits for the pool's first rendered config"),
            Self::ForeignTarget => {
                f.write_str("waits because the pool's target was not rendered from its own MachineConfigs")
            }
            Self::NotAdopted => f.write_str("is not adopted; mco adopt shows what would change on it"),
            Self::Releasing => f.write_str("is being released"),
            Self::Problem => f.write_str("waits because the pool has a problem"),
            Self::Policy(hold) => f.write_str(&policy_text(hold, &hold.to_string())),
            Self::OnHold(holds) => {
                let holds: Vec<String> = holds.iter().map(ToString::to_string).collect();
                write!(f, "is held by {}", holds.join(" and by "))
            }
        }
    }
}

/// Turns a sentence about the rollout into the continuation of one about the node.
fn policy_text(hold: &PolicyHold, sentence: &str) -> String {
    if sentence.starts_with("waits") {
        format!("{sentence} (RolloutPolicy {})", hold.policy)
    } else {
        format!("waits because RolloutPolicy {} {sentence}", hold.policy)
    }
}

impl HeldReason {
    /// Formats the reason as [`Display`](fmt::Display) does, with remaining times and ages instead of points in time.
    pub fn at(&self, now: Timestamp) -> String {
        match self {
            Self::Policy(hold) => policy_text(hold, &hold.at(now)),
            Self::OnHold(holds) => {
                let holds: Vec<String> = holds.iter().map(|hold| hold.at(now)).collect();
                format!("is held by {}", holds.join(" and by "))
            }
            other => other.to_string(),
        }
    }
}

impl fmt::Display for NodeAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetDesired {
                node,
                config,
                image,
                because,
                ..
            } => {
                write!(f, "send {node} to {config}")?;
                if let Some(image) = image {
                    write!(f, " with image {image}")?;
                }
                match because {
                    Because::Turn => Ok(()),
                    Because::Repair => f.write_str(" (it failed on an older config)"),
                    Because::Superseded => f.write_str(" (it was being updated to an older config)"),
                    Because::Skipped => f.write_str(" (its drain took too long, so it keeps its config)"),
                }
            }
            Self::AddUpdateTaint { node } => write!(f, "taint {node} with {}", taints::UPDATE_IN_PROGRESS),
            Self::RemoveUpdateTaint { node } => {
                write!(f, "remove the taint {} from {node}", taints::UPDATE_IN_PROGRESS)
            }
            Self::SetControlPlaneTopology { node, topology } => {
                write!(f, "annotate {node} with control plane topology {topology}")
            }
            Self::GrantReboot { node } => write!(f, "let the update agent of {node} reboot it"),
            Self::SetConfirmDeadline {
                node,
                deadline: Some(deadline),
            } => write!(
                f,
                "set the deadline of {node} to be healthy with its new config to {deadline}"
            ),
            Self::SetConfirmDeadline { node, deadline: None } => {
                write!(f, "remove the deadline of {node} to be healthy with a new config")
            }
            Self::JoinPool { node, pool, labels } if labels.is_empty() => {
                write!(f, "record that {node} joined pool {pool}")
            }
            Self::JoinPool { node, pool, .. } => {
                write!(f, "label {node} for pool {pool}, for which it was installed")
            }
        }
    }
}

impl fmt::Display for PoolPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Some(target) => writeln!(f, "pool {}: {target}", self.pool)?,
            None => writeln!(f, "pool {}: no target", self.pool)?,
        }
        if let Some(problem) = &self.problem {
            writeln!(f, "  problem: {problem}")?;
        }
        for action in &self.actions {
            writeln!(f, "  {action}")?;
        }
        for held in self
            .held
            .iter()
            .filter(|held| held.reason != HeldReason::UpToDate)
        {
            writeln!(f, "  {held}")?;
        }
        Ok(())
    }
}

impl fmt::Display for RolloutPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for plan in &self.pools {
            write!(f, "{plan}")?;
        }
        for contested in &self.contested {
            writeln!(f, "{contested} ({})", contested.pools.join(", "))?;
        }
        Ok(())
    }
}
