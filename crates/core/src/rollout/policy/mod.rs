//! The rules of a [`RolloutPolicy`]: which node that waits for its update may be started now, and if not, why.
//!
//! A policy only ever holds nodes back: what it allows still has to fit into the pool's own budget. Nodes that are
//! being updated or have failed are retargeted regardless of it, because that interrupts nothing more.
//!
//! [`PoolRules`] is what the plan of one pool asks, [`next_status`] is what the controller records between plans, and
//! [`admit_policy`] refuses a policy that could never proceed.

mod budgets;
mod confirm;
mod control;
mod control_plane;
mod costs;
mod cron;
mod failures;
mod gates;
mod hold;
mod order;
mod overview;
mod rules;
mod status;
mod text;
mod validate;
mod wave;
mod window;

use std::collections::BTreeSet;

use jiff::Timestamp;
use mco_api::MachineConfigPool;
use mco_api::rollout_policy::{PoolRolloutStatus, RolloutPolicy};
use mco_api::vocabulary::annotations::CONFIRM_DEADLINE;

use super::target::RolloutTarget;
use super::view::{PoolView, RolloutView};
use crate::config::selector::Selector;

pub(super) use confirm::{DEADLINE_HINT, SHORTEST_DEADLINE};
pub use control::{PoolControl, RolloutControl};
pub use control_plane::{ControlPlaneHealth, ControlPlaneMember, control_plane_health};
pub use costs::{ChangeCosts, depends_on_costs};
pub use gates::{GateObservation, due as gates_due, merge as merge_gate};
pub use hold::{PolicyCause, PolicyHold};
pub use overview::{
    BudgetOverview, BudgetUse, GateOverview, GateState, PolicyOverview, PoolRolloutOverview, WaveOverview,
    WaveState, WindowOverview, overviews,
};
pub(super) use rules::{PoolRules, confirm_deadline, effective_target, forecast};
pub use status::{PolicyChange, PolicyReport, next_status};
pub use text::{duration_of, in_words};
pub use validate::admit_policy;

/// The policies of a cluster and the time, as part of a [`RolloutView`].
#[derive(Debug, Clone, Default)]
pub struct Policies<'a> {
    /// By name.
    all: Vec<&'a RolloutPolicy>,
    now: Timestamp,
    costs: Option<&'a ChangeCosts>,
}

impl<'a> Policies<'a> {
    pub(super) fn new(
        policies: impl IntoIterator<Item = &'a RolloutPolicy>,
        now: Timestamp,
        costs: Option<&'a ChangeCosts>,
    ) -> Self {
        let mut all: Vec<&RolloutPolicy> = policies
            .into_iter()
            .filter(|policy| policy.metadata.deletion_timestamp.is_none())
            .collect();
        all.sort_by_key(|policy| name_of(policy));
        Self { all, now, costs }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    fn named(&self, name: &str) -> Option<&'a RolloutPolicy> {
        self.all.iter().find(|policy| name_of(policy) == name).copied()
    }

    /// Returns the policies that select the pool; more than one hold it.
    pub(super) fn of_pool(&self, pool: &MachineConfigPool) -> Vec<&'a RolloutPolicy> {
        let selecting = self.all.iter().filter(|policy| selects(policy, pool));
        selecting.copied().collect()
    }

    /// Returns how long a node of the pool may take to be healthy with a new config: the deadline of its policy, else that
    /// of the pool's annotation. Invalid ones count as none.
    pub(super) fn confirm_deadline<'v>(&'v self, pool: &'v PoolView<'_>) -> Option<&'v str> {
        let by_policy = self.all.iter().find(|policy| selects(policy, pool.pool));
        let by_policy = by_policy.and_then(|policy| Some(policy.spec.confirm.as_ref()?.deadline.as_str()));
        let annotations = pool.pool.metadata.annotations.as_ref();
        let by_pool = || annotations?.get(CONFIRM_DEADLINE).map(String::as_str);
        by_policy
            .or_else(by_pool)
            .filter(|text| duration_of(text).is_some())
    }
}

fn name_of(policy: &RolloutPolicy) -> &str {
    policy.metadata.name.as_deref().unwrap_or_default()
}

/// Returns true if the policy selects the pool. A selector that is absent or invalid selects nothing.
pub fn selects(policy: &RolloutPolicy, pool: &MachineConfigPool) -> bool {
    let selector = policy.spec.pool_selector.as_ref().map(Selector::parse);
    selector.is_some_and(|selector| {
        selector.is_ok_and(|selector| selector.matches(pool.metadata.labels.as_ref()))
    })
}

/// Returns the pools whose nodes the plan of this pool depends on: those of the same policy, whose budgets are shared,
/// and those of the policies that come first. Empty without a policy.
pub fn related_pools<'p>(
    policies: impl IntoIterator<Item = &'p RolloutPolicy>,
    pools: &[impl AsRef<MachineConfigPool>],
    pool: &MachineConfigPool,
) -> BTreeSet<String> {
    let policies: Vec<&RolloutPolicy> = policies.into_iter().collect();
    let own = policies.iter().filter(|policy| selects(policy, pool));
    let before: BTreeSet<&str> = own
        .clone()
        .flat_map(|policy| policy.spec.after.iter().map(String::as_str))
        .collect();
    let relevant: Vec<&&RolloutPolicy> = own
        .chain(policies.iter().filter(|policy| before.contains(name_of(policy))))
        .collect();
    let pools = pools.iter().map(AsRef::as_ref);
    let related = pools.filter(|pool| relevant.iter().any(|policy| selects(policy, pool)));
    related.filter_map(|pool| pool.metadata.name.clone()).collect()
}

/// Returns the pools of the view that the policy selects.
fn pools_of<'v, 'a>(
    view: &'v RolloutView<'a>,
    policy: &'v RolloutPolicy,
) -> impl Iterator<Item = &'v PoolView<'a>> {
    view.pools.iter().filter(move |pool| selects(policy, pool.pool))
}

/// Returns a target as the status names it.
fn key(target: &RolloutTarget) -> String {
    match &target.image {
        Some(image) => format!("{} {image}", target.config),
        None => target.config.clone(),
    }
}

/// Returns the recorded state of the pool's rollout to this target.
fn recorded<'p>(
    policy: &'p RolloutPolicy,
    pool: &str,
    target: &RolloutTarget,
) -> Option<&'p PoolRolloutStatus> {
    let status = policy.status.as_ref()?;
    let recorded = status.pools.iter().find(|recorded| recorded.name == pool)?;
    (recorded.target == key(target)).then_some(recorded)
}
