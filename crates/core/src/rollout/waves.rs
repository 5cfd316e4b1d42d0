//! Forecast of the order in which the nodes of each pool will be updated.
//!
//! The first wave is what [`plan`](super::plan()) does now. Later waves assume that updates in progress succeed, and
//! that causes outside of the rollout (a cordon, an unhealthy kubelet) persist.

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::budget::len;
use super::decide::plan_pool_after;
use super::plan::{Because, Held, HeldReason, NodeAction, PoolPlan};
use super::policy::{self, PolicyHold};
use super::target::RolloutTarget;
use super::view::{PoolView, RolloutView};
use super::voters;

/// The forecast rollout of one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolWaves {
    pub pool: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub target: Option<RolloutTarget>,
    /// Nodes that are being updated to the target, or retargeted now.
    pub under_way: Vec<String>,
    /// The pool whose rollout must be complete first.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub after: Option<String>,
    /// Other pools with control-plane nodes, of which one over all pools is updated at a time.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub one_at_a_time_with: Vec<String>,
    /// What the RolloutPolicy of the pool waits for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub policy: Option<PolicyHold>,
    /// Nodes that are updated together.
    pub waves: Vec<Vec<String>>,
    /// Nodes that stay held without intervention.
    pub stuck: Vec<Held>,
}

/// Returns the forecast rollout of every pool.
pub fn waves(view: &RolloutView<'_>) -> Vec<PoolWaves> {
    // As the plan of all pools: each counts what those before it start.
    let mut started = HashSet::new();
    let mut all = Vec::new();
    for pool in &view.pools {
        let plan = plan_pool_after(view, pool, &started);
        all.push(waves_of(view, pool, &plan, &started));
        started.extend(plan.sent().map(str::to_owned));
    }
    all
}

fn waves_of(
    view: &RolloutView<'_>,
    pool: &PoolView<'_>,
    plan: &PoolPlan,
    started: &HashSet<String>,
) -> PoolWaves {
    let mut foretold = PoolWaves {
        pool: plan.pool.clone(),
        target: plan.target.clone(),
        under_way: Vec::new(),
        after: None,
        one_at_a_time_with: Vec::new(),
        policy: None,
        waves: Vec::new(),
        stuck: Vec::new(),
    };
    let mut first = Vec::new();
    for action in &plan.actions {
        if let NodeAction::SetDesired { node, because, .. } = action {
            match because {
                Because::Turn => first.push(node.clone()),
                Because::Skipped => {}
                Because::Repair | Because::Superseded => foretold.under_way.push(node.clone()),
            }
        }
    }
    let mut queue: Vec<&str> = Vec::new();
    let mut last: Option<&str> = None;
    for held in &plan.held {
        match &held.reason {
            HeldReason::UpToDate | HeldReason::JoiningPool(_) => {}
            HeldReason::InProgress | HeldReason::DrainBlocked(_) => {
                foretold.under_way.push(held.node.clone())
            }
            HeldReason::Budget | HeldReason::ArbiterAway => queue.push(&held.node),
            HeldReason::ControlPlaneNodeAway(node) if voters::is_returning(view, node, started) => {
                queue.push(&held.node);
            }
            HeldReason::Policy(hold) if hold.passes() => {
                let first = foretold.policy.get_or_insert_with(|| hold.clone());
                if hold.cause < first.cause {
                    *first = hold.clone();
                }
                queue.push(&held.node);
            }
            HeldReason::OperatorNode => last = Some(&held.node),
            HeldReason::AfterControlPlane => {
                foretold.after = Some(mco_api::vocabulary::names::pool::MASTER.to_owned());
                queue.push(&held.node);
            }
            _ => foretold.stuck.push(held.clone()),
        }
    }
    queue.extend(last);
    if !first.is_empty() {
        foretold.waves.push(first);
    }
    later_waves(&mut foretold, view, pool, plan, &queue);
    if !foretold.waves.is_empty() {
        let sharing = voters::sharing(view, pool).into_iter();
        foretold.one_at_a_time_with = sharing.map(str::to_owned).collect();
    }
    foretold
}

fn later_waves(
    foretold: &mut PoolWaves,
    view: &RolloutView<'_>,
    pool: &PoolView<'_>,
    plan: &PoolPlan,
    queue: &[&str],
) {
    let limit = pool.max_unavailable().unwrap_or(0);
    let waiting: HashSet<&str> = queue.iter().copied().collect();
    let arriving: HashSet<&str> = foretold
        .under_way
        .iter()
        .chain(foretold.waves.iter().flatten())
        .map(String::as_str)
        .collect();
    let (mut holding, mut staying): (HashSet<&str>, i64) = (HashSet::new(), 0);
    for taken in &plan.budget.taken {
        let node = taken.node.as_str();
        if waiting.contains(node) {
            holding.insert(node);
        } else if !arriving.contains(node) {
            staying += 1;
        }
    }
    let by_policy = plan
        .target
        .as_ref()
        .and_then(|target| policy::forecast(view, pool, target, queue));
    let (segments, at_once) = by_policy.unwrap_or_else(|| (vec![queue.to_vec()], i64::MAX));
    let limit = limit.min(at_once);
    let mut rest: Vec<&str> = Vec::new();
    let mut segments = segments.into_iter();
    let mut waiting: HashSet<&str> = queue.iter().copied().collect();
    loop {
        if rest.is_empty() {
            match segments.next() {
                Some(segment) => rest = segment,
                None => return,
            }
            continue;
        }
        let holders = waiting.iter().filter(|node| holding.contains(*node)).count();
        let (mut away, mut used) = (staying, staying + len(holders));
        let (wave, later): (Vec<&str>, Vec<&str>) = rest.iter().partition(|node| {
            let holds = holding.contains(*node);
            let fits = if holds { away < limit } else { used < limit };
            if fits {
                away += 1;
                used += i64::from(!holds);
            }
            fits
        });
        if wave.is_empty() {
            let stuck = later.into_iter().chain(segments.flatten()).map(|node| Held {
                node: node.to_owned(),
                reason: HeldReason::Budget,
            });
            foretold.stuck.extend(stuck);
            return;
        }
        for node in &wave {
            waiting.remove(node);
        }
        foretold.waves.push(wave.into_iter().map(str::to_owned).collect());
        rest = later;
    }
}

impl fmt::Display for PoolWaves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Some(target) => writeln!(f, "pool {}: {target}", self.pool)?,
            None => writeln!(f, "pool {}: no target", self.pool)?,
        }
        if !self.under_way.is_empty() {
            writeln!(f, "  in progress: {}", self.under_way.join(", "))?;
        }
        if let Some(after) = &self.after {
            writeln!(f, "  after pool {after}:")?;
        }
        if !self.one_at_a_time_with.is_empty() {
            let others = self.one_at_a_time_with.join(", ");
            writeln!(
                f,
                "  one control-plane node at a time, together with pool {others}"
            )?;
        }
        if let Some(hold) = &self.policy {
            writeln!(f, "  {hold} (RolloutPolicy {})", hold.policy)?;
        }
        for (number, wave) in self.waves.iter().enumerate() {
            writeln!(f, "  wave {}: {}", number + 1, wave.join(", "))?;
        }
        for stuck in &self.stuck {
            writeln!(f, "  {stuck}")?;
        }
        Ok(())
    }
}
