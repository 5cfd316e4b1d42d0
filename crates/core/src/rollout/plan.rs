//! The plan as a value: what to write to which node, what to tell people, and for every node that is left alone, why.
//!
//! It decides nothing; [`super::decide`] fills it and an executor obeys it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use mco_api::vocabulary::{events, taints};
use serde::{Deserialize, Serialize};

use super::messages::TargetedNode;
use super::target::Target;
use crate::rollout::drain::cordon::Cordon;

/// What to do next for all pools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Plan {
    pub pools: Vec<PoolPlan>,
    /// Nodes that several custom pools want. Nobody can say which config is right for them, so they are left alone.
    pub contested: Vec<ContestedNode>,
}

/// What to do next for one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolPlan {
    pub pool: String,
    /// Where its machines go; absent while that is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub target: Option<Target>,
    pub budget: Budget,
    pub actions: Vec<Action>,
    /// Every member that is not sent anywhere by this plan, and why.
    pub held: Vec<Held>,
    pub events: Vec<Event>,
    /// What a person has to repair before the pool can go on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<String>,
}

/// How many machines may be away at once, and which already are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Budget {
    /// The limit after all rules; negative or zero lets nobody go.
    pub limit: i64,
    /// Machines that count against the limit, each once, whoever is to blame.
    pub taken: Vec<Taken>,
}

impl Budget {
    pub fn free(&self) -> i64 {
        (self.limit - super::budget::len(self.taken.len())).max(0)
    }
}

/// A machine that counts against the limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    pub node: String,
    pub by: TakenBy,
    /// What its kubelet or its cordon says, unless it takes work.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TakenBy {
    /// Our own work on the node.
    Update,
    /// Our own work on the node, which failed.
    FailedUpdate,
    /// Something that has nothing to do with this rollout: a broken kubelet, somebody's cordon, a daemon that is not
    /// there yet.
    Other,
}

/// One change to one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Action {
    /// Send the node to a config and, in a layered pool, an image. Without an image the annotation for one is removed.
    SetDesired {
        node: String,
        config: String,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        image: Option<String>,
        because: Because,
    },
    /// Ask the scheduler to prefer nodes that are not about to be updated.
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
    /// Give the node the labels of the pool it was installed for, and remember that this was done, in one write.
    JoinPool {
        node: String,
        pool: String,
        labels: BTreeMap<String, String>,
    },
}

impl Action {
    pub fn node(&self) -> &str {
        match self {
            Self::SetDesired { node, .. }
            | Self::AddUpdateTaint { node }
            | Self::RemoveUpdateTaint { node }
            | Self::SetControlPlaneTopology { node, .. }
            | Self::JoinPool { node, .. } => node,
        }
    }

    /// Tells the scheduler something, and changes nothing for the machine.
    pub fn is_mark(&self) -> bool {
        matches!(self, Self::AddUpdateTaint { .. } | Self::RemoveUpdateTaint { .. })
    }
}

/// Why a node is sent somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Because {
    /// It is its turn, and there is room in the budget.
    Turn,
    /// It failed on an older target. It counts against the budget already, so nothing is gained by waiting.
    Repair,
    /// It is on its way to an older target. Going on to the newer one at once saves a second interruption.
    Superseded,
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
    /// It has what it shall have.
    UpToDate,
    /// It is on its way to the target.
    InProgress,
    /// It is on its way to the target, and something keeps its pods from leaving.
    DrainBlocked(String),
    /// It was sent to the target and its daemon reports a failure; the daemon keeps trying.
    FailingOnTarget(String),
    /// Its turn has not come: as many machines are away as may be.
    Budget,
    Paused,
    /// Somebody keeps work away from it; it goes when that is over.
    Cordoned(Cordon),
    /// Its kubelet is not well; it goes when it is.
    NotReady(String),
    /// The operator runs on it; the other control-plane nodes go first.
    OperatorNode,
    /// It gets the labels of the pool it was installed for, and will move there.
    JoiningPool(String),
    /// The control plane goes first.
    AfterControlPlane,
    /// An arbiter node is away; a second voter must not be.
    ArbiterAway,
    WaitingForImage(String),
    PoolIsBeingDeleted,
    /// The pool has no rendered config yet.
    NoTarget,
    /// The pool's target is not what its own MachineConfigs give.
    ForeignTarget,
    /// See [`PoolPlan::problem`].
    Problem,
}

/// A node that several custom pools want.
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

/// Something to tell people, as a Kubernetes event about the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub kind: EventKind,
    pub reason: String,
    pub message: String,
}

impl Event {
    pub fn normal(reason: &str, message: String) -> Self {
        Self {
            kind: EventKind::Normal,
            reason: reason.to_owned(),
            message,
        }
    }

    pub fn warning(reason: &str, message: String) -> Self {
        Self {
            kind: EventKind::Warning,
            reason: reason.to_owned(),
            message,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    Normal,
    Warning,
}

impl Plan {
    pub fn pool(&self, name: &str) -> Option<&PoolPlan> {
        self.pools.iter().find(|plan| plan.pool == name)
    }

    /// All actions, gathered by node, so that an executor can write each node once.
    pub fn actions_by_node(&self) -> BTreeMap<&str, Vec<&Action>> {
        let mut by_node: BTreeMap<&str, Vec<&Action>> = BTreeMap::new();
        for action in self.pools.iter().flat_map(|plan| &plan.actions) {
            by_node.entry(action.node()).or_default().push(action);
        }
        by_node
    }
}

impl PoolPlan {
    /// The nodes that are sent somewhere, in the order of their turn.
    pub fn sent(&self) -> impl Iterator<Item = &str> {
        self.actions.iter().filter_map(|action| match action {
            Action::SetDesired { node, .. } => Some(node.as_str()),
            _ => None,
        })
    }

    /// What to tell about the nodes that are sent, as far as `written` says that they really were.
    pub(super) fn announcement(&self, written: impl Fn(&str) -> bool) -> Option<Event> {
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
            None => Event::normal(events::rollout::SET_DESIRED_CONFIG, what),
            Some(image) => Event::normal(
                events::rollout::SET_DESIRED_CONFIG_AND_OS_IMAGE,
                format!("{what} / Image: {image}"),
            ),
        })
    }

    /// The events of this plan once it was carried out: of the nodes to be sent, only those that were written are told.
    pub fn events_after(&self, written: impl Fn(&str) -> bool) -> Vec<Event> {
        let planned = self.announcement(|_| true);
        let others = self
            .events
            .iter()
            .filter(|event| Some(*event) != planned.as_ref());
        others.cloned().chain(self.announcement(written)).collect()
    }

    /// Why nothing moves although the pool is not done: what takes the budget, what keeps each waiting node back, which
    /// updated node takes no work. `None` while something moves or everything is as it should be.
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
                    HeldReason::Cordoned(_) | HeldReason::FailingOnTarget(_) | HeldReason::DrainBlocked(_),
                    _,
                ) => obstacles.push(held.to_string()),
                // Already says which node.
                (HeldReason::NotReady(why), _) => obstacles.push(why.clone()),
                (HeldReason::UpToDate, Some(taken)) => obstacles.push(match &taken.why {
                    Some(why) => format!("{why}, though it is updated"),
                    None => format!("node {} is updated but not available", held.node),
                }),
                (HeldReason::Budget, Some(_)) => queued.push(format!("{held} and counts as away")),
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

/// Conditions are read in one line of a terminal; more than a few nodes do not help there.
const OBSTACLES_SHOWN: usize = 3;

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} {}", self.node, self.reason)
    }
}

impl fmt::Display for HeldReason {
    /// Continues a sentence that starts with the node.
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
            Self::Cordoned(_) => f.write_str("waits because somebody cordoned it"),
            Self::NotReady(why) => write!(f, "waits until it is ready: {why}"),
            Self::OperatorNode => f.write_str("goes last because the operator runs on it"),
            Self::JoiningPool(pool) => write!(f, "moves to pool {pool}, for which it was installed"),
            Self::AfterControlPlane => f.write_str("waits for the control plane to be updated"),
            Self::ArbiterAway => f.write_str("waits because an arbiter node is not available"),
            Self::WaitingForImage(why) => write!(f, "waits because {why}"),
            Self::PoolIsBeingDeleted => f.write_str("stays because its pool is being deleted"),
            Self::NoTarget => f.write_str("waits for the pool's first rendered config"),
            Self::ForeignTarget => {
                f.write_str("waits because the pool's target is not what its own MachineConfigs give")
            }
            Self::Problem => f.write_str("waits because the pool has a problem"),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetDesired {
                node,
                config,
                image,
                because,
            } => {
                write!(f, "send {node} to {config}")?;
                if let Some(image) = image {
                    write!(f, " with image {image}")?;
                }
                match because {
                    Because::Turn => Ok(()),
                    Because::Repair => f.write_str(" (it failed on an older config)"),
                    Because::Superseded => f.write_str(" (it was on its way to an older config)"),
                }
            }
            Self::AddUpdateTaint { node } => write!(f, "taint {node} with {}", taints::UPDATE_IN_PROGRESS),
            Self::RemoveUpdateTaint { node } => {
                write!(f, "remove the taint {} from {node}", taints::UPDATE_IN_PROGRESS)
            }
            Self::SetControlPlaneTopology { node, topology } => {
                write!(f, "tell {node} that the control plane is {topology}")
            }
            Self::JoinPool { node, pool, labels } if labels.is_empty() => {
                write!(f, "remember that {node} joined pool {pool}")
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

impl fmt::Display for Plan {
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
