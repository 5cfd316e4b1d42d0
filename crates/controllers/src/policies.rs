//! RolloutPolicies: records what plans need to know between two reconciles, reports it, and requests the checks of
//! gates. The rules themselves are applied by the plan of each pool.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use mco_api::rollout_policy::{NotificationEvent, RolloutPhase};
use mco_api::vocabulary::events;
use mco_api::{MachineConfig, MachineConfigPool, MachineConfiguration, RolloutPolicy};
use mco_core::config::disruption::{self, DisruptionLevel, REGISTRIES_CONF};
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::config::rules::AdministratorRules;
use mco_core::config::{diff, validate};
use mco_core::rollout::drain::DrainPreparation;
use mco_core::rollout::policy::{
    self, ChangeCosts, GateObservation, PolicyChange, PolicyReport, depends_on_costs, merge_gate,
    related_pools, selects,
};
use mco_core::rollout::{NodeView, PlannedEvent, RolloutView, TargetState};
use mco_runtime::{FieldManager, Requeue, object_name, patch};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::OwnedMutexGuard;
use tracing::{debug, info};

use crate::context::Context;
use crate::error::Error;
use crate::events::Reporter;
use crate::notify;
use crate::target::{self, PendingRender};

const MANAGER: FieldManager = FieldManager::new("machine-config-controller-rollout-policy");
/// Pairs of configs whose cost is computed in one reconcile; more wait for the next one and count as reboots.
const COSTS_PER_RECONCILE: usize = 16;
/// Pairs of configs whose cost is cached.
const MAX_COSTS: usize = 1024;

/// What the reconcilers of policies, gates and rollouts share.
#[derive(Debug, Default)]
pub(crate) struct PolicyState {
    /// Held by the rollout of a pool from its plan until its writes are done, because the budgets of its policy are
    /// shared with other pools.
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// Checks of gates that are not yet recorded, by policy.
    observations: Mutex<HashMap<String, Vec<GateObservation>>>,
    costs: Mutex<Arc<ChangeCosts>>,
}

impl PolicyState {
    pub async fn lock(&self, policy: &str) -> OwnedMutexGuard<()> {
        let lock = Arc::clone(self.locks.lock().entry(policy.to_owned()).or_default());
        lock.lock_owned().await
    }

    pub fn observed(&self, policy: &str, observation: GateObservation) {
        let mut all = self.observations.lock();
        let observations = all.entry(policy.to_owned()).or_default();
        observations.retain(|other| other.gate != observation.gate);
        observations.push(observation);
    }

    /// Returns the policy with the checks in its status that are not yet recorded.
    pub fn with_observations(&self, policy: &RolloutPolicy) -> RolloutPolicy {
        let mut policy = policy.clone();
        let mut all = self.observations.lock();
        let Some(observations) = all.get_mut(object_name(&policy.metadata)) else {
            return policy;
        };
        // A gate may have been removed since.
        observations.retain(|one| policy.spec.gates.iter().any(|gate| gate.name == one.gate));
        if observations.is_empty() {
            return policy;
        }
        let gates = &mut policy.status.get_or_insert_default().gates;
        for observation in observations.iter() {
            let result = merge_gate(gates, observation);
            match gates.iter_mut().find(|gate| gate.name == result.name) {
                // A slow check may end after a newer one.
                Some(gate) if gate.checked_at.0 > observation.at => {}
                Some(gate) => *gate = result,
                None => gates.push(result),
            }
        }
        policy
    }

    /// Forgets the checks that are in the status of the policy.
    fn forget_recorded(&self, policy: &RolloutPolicy) {
        let mut all = self.observations.lock();
        if let Some(observations) = all.get_mut(object_name(&policy.metadata)) {
            let recorded = policy.status.as_ref().map_or(&[][..], |status| &status.gates);
            observations.retain(|observation| {
                let known = recorded.iter().find(|result| result.name == observation.gate);
                known.is_none_or(|known| known.checked_at.0 < observation.at)
            });
        }
    }

    /// What the changes of nodes interrupt, as far as it is known.
    pub fn costs(&self) -> Arc<ChangeCosts> {
        Arc::clone(&self.costs.lock())
    }
}

/// Enqueues the policies that select the pool, and those that wait for one of them.
pub(crate) fn enqueue_of_pool(ctx: &Context, pool: &str) {
    if ctx.stores.rollout_policies.is_empty() {
        return;
    }
    let Some(pool) = ctx.stores.pools.get(pool) else {
        return;
    };
    let policies = ctx.stores.rollout_policies.all();
    let selecting: BTreeSet<&str> = policies
        .iter()
        .filter(|policy| selects(policy, &pool))
        .map(|policy| object_name(&policy.metadata))
        .collect();
    for policy in &policies {
        let name = object_name(&policy.metadata);
        if selecting.contains(name)
            || policy
                .spec
                .after
                .iter()
                .any(|before| selecting.contains(before.as_str()))
        {
            ctx.queues.policies.enqueue(name);
        }
    }
}

pub(crate) fn enqueue_all(ctx: &Context) {
    for policy in ctx.stores.rollout_policies.all() {
        ctx.queues.policies.enqueue(object_name(&policy.metadata));
    }
}

/// Returns the names of the policies that select a pool, in order.
pub(crate) fn names_of_pool(ctx: &Context, pool: &str) -> Vec<String> {
    if ctx.stores.rollout_policies.is_empty() {
        return Vec::new();
    }
    let Some(pool) = ctx.stores.pools.get(pool) else {
        return Vec::new();
    };
    let policies = ctx.stores.rollout_policies.all();
    let mut names: Vec<String> = policies
        .iter()
        .filter(|policy| selects(policy, &pool))
        .map(|policy| object_name(&policy.metadata).to_owned())
        .collect();
    names.sort();
    names
}

/// Returns what the policy of a node's pool adds to its drain; nothing if several select it.
pub(crate) fn drain_preparation(ctx: &Context, node: &str) -> DrainPreparation {
    let pool = ctx.membership.of_node(node).pool;
    let names = pool.map(|pool| names_of_pool(ctx, &pool)).unwrap_or_default();
    let [name] = names.as_slice() else {
        return DrainPreparation::default();
    };
    let policy = ctx.stores.rollout_policies.get(name);
    DrainPreparation::of_rules(policy.as_ref().and_then(|policy| policy.spec.drain.as_ref()))
}

/// Records the state of the rollouts under a policy.
pub(crate) async fn reconcile(ctx: Arc<Context>, name: String) -> Result<Requeue, Error> {
    let Some(policy) = ctx.stores.rollout_policies.get(&name) else {
        ctx.policies.observations.lock().remove(&name);
        ctx.options.metrics.forget_policy(&name);
        return Ok(Requeue::OnChange);
    };
    let mut snapshot = PolicySnapshot::gather(&ctx, &policy);
    learn_costs(&ctx, &policy, &snapshot).await;
    snapshot.costs = ctx.policies.costs();
    let now = ctx.now();
    let policy = ctx.policies.with_observations(&policy);
    let report = snapshot.view(&policy, now, |view| policy::next_status(view, &policy));
    let phase = report.status.phase;
    let is_halted = matches!(phase, RolloutPhase::Halted | RolloutPhase::Reverted);
    ctx.options.metrics.policy(&name, is_halted);
    let written = write_status(&ctx, &name, &report).await;
    if written.is_ok() {
        ctx.policies.forget_recorded(&policy);
        announce(&ctx, &policy, &snapshot, &report.changes);
    }
    // Also if the status could not be written, because a newer check or another pool may not have the same problem.
    for pool in snapshot.pools.iter().filter(|pool| selects(&policy, pool)) {
        ctx.queues.rollout.enqueue(object_name(&pool.metadata));
    }
    let mut next = report.next;
    if report.needs_gates {
        for (gate, due) in policy::gates_due(&policy, now) {
            if due <= now {
                ctx.queues.gates.enqueue((name.clone(), gate.name.clone()));
            } else {
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        }
    }
    written?;
    Ok(next.map_or(Requeue::OnChange, |next| Requeue::After(wait(now, next))))
}

fn wait(now: Timestamp, then: Timestamp) -> Duration {
    // Whole seconds are rounded down in a status, so that one more is never too early.
    const SLACK: Duration = Duration::from_millis(50);
    Duration::try_from(then.duration_since(now)).unwrap_or_default() + SLACK
}

/// The objects that the status of a policy depends on.
struct PolicySnapshot {
    pools: Vec<Arc<MachineConfigPool>>,
    policies: Vec<Arc<RolloutPolicy>>,
    nodes: Vec<Arc<Node>>,
    target_states: BTreeMap<String, TargetState>,
    costs: Arc<ChangeCosts>,
}

impl PolicySnapshot {
    fn gather(ctx: &Context, policy: &RolloutPolicy) -> Self {
        let stored = ctx.stores.pools.all();
        let renders: BTreeMap<String, PendingRender> = stored
            .iter()
            .map(|pool| object_name(&pool.metadata))
            .map(|pool| (pool.to_owned(), PendingRender::of_pool(ctx, pool)))
            .collect();
        let pools = ctx.stores.pools.all();
        let policies = ctx.stores.rollout_policies.all();
        let own = pools.iter().filter(|pool| selects(policy, pool));
        let relevant: BTreeSet<String> = own
            .flat_map(|pool| related_pools(policies.iter().map(Arc::as_ref), &pools, pool))
            .collect();
        let members = relevant.iter().flat_map(|pool| ctx.membership.nodes_of(pool));
        let nodes = members.filter_map(|node| ctx.stores.nodes.get(&node)).collect();
        let target_states = pools
            .iter()
            .filter_map(|pool| {
                let name = object_name(&pool.metadata);
                let render = renders.get(name)?;
                Some((name.to_owned(), target::target_state(ctx, pool, *render)))
            })
            .collect();
        Self {
            nodes,
            pools,
            policies,
            target_states,
            costs: ctx.policies.costs(),
        }
    }

    /// Calls `decide` with the view in which the policy has the given state.
    fn view<T>(
        &self,
        policy: &RolloutPolicy,
        now: Timestamp,
        decide: impl FnOnce(&RolloutView<'_>) -> T,
    ) -> T {
        let others = self.policies.iter().map(Arc::as_ref);
        let others = others.filter(|other| other.metadata.name != policy.metadata.name);
        let pools = self.pools.iter().map(Arc::as_ref);
        let mut view = RolloutView::new(pools, self.nodes.iter().map(Arc::as_ref)).with_policies(
            others.chain([policy]),
            now,
            Some(&self.costs),
        );
        for (pool, state) in &self.target_states {
            view = view.with_target_state(pool, *state);
        }
        decide(&view)
    }
}

async fn write_status(ctx: &Context, name: &str, report: &PolicyReport) -> Result<(), Error> {
    let Some(stored) = ctx.stores.rollout_policies.get(name) else {
        return Ok(());
    };
    if stored.status.as_ref() == Some(&report.status) {
        return Ok(());
    }
    let change = json!({
        "metadata": {"resourceVersion": stored.metadata.resource_version},
        "status": patch::diff(&stored.status, &report.status),
    });
    let written = ctx
        .stores
        .rollout_policies
        .patch_status(&ctx.api(), name, MANAGER, &change)
        .await;
    written.map_err(Error::api(format!("writing the status of RolloutPolicy {name}")))?;
    info!(policy = name, phase = ?report.status.phase, "{}", report.status.message);
    Ok(())
}

/// Records an event per change, and sends it to the webhooks.
fn announce(ctx: &Arc<Context>, policy: &RolloutPolicy, snapshot: &PolicySnapshot, changes: &[PolicyChange]) {
    for change in changes {
        let reason = match change.event {
            NotificationEvent::Started => events::rollout::UPDATING,
            NotificationEvent::WaveCompleted => events::rollout::WAVE_COMPLETED,
            NotificationEvent::Halted => events::rollout::ROLLOUT_HALTED,
            NotificationEvent::Reverted => events::rollout::ROLLOUT_REVERTED,
            NotificationEvent::Resumed => events::rollout::ROLLOUT_RESUMED,
            NotificationEvent::Done => events::rollout::COMPLETED,
        };
        let message = format!(
            "RolloutPolicy {}: {}",
            object_name(&policy.metadata),
            change.message
        );
        let event = match change.event {
            NotificationEvent::Halted | NotificationEvent::Reverted => PlannedEvent::warning(reason, message),
            _ => PlannedEvent::normal(reason, message),
        };
        let pool = snapshot
            .pools
            .iter()
            .find(|pool| object_name(&pool.metadata) == change.pool);
        if let Some(pool) = pool {
            ctx.events.record(Reporter::Rollout, pool.as_ref(), event);
        }
        notify::send(ctx, policy, change);
    }
}

/// Computes what the pending changes of nodes interrupt, once per pair of configs, for policies that depend on it.
async fn learn_costs(ctx: &Context, policy: &RolloutPolicy, snapshot: &PolicySnapshot) {
    if !depends_on_costs(policy) {
        return;
    }
    let known = ctx.policies.costs();
    let pools = snapshot.pools.iter().filter(|pool| selects(policy, pool));
    let mut missing: BTreeSet<(String, String)> = BTreeSet::new();
    for pool in pools {
        let target = pool.target_name();
        for node in ctx.membership.nodes_of(object_name(&pool.metadata)) {
            let Some(node) = ctx.stores.nodes.get(&node) else {
                continue;
            };
            let current = NodeView::new(&node).current_config.to_owned();
            let change = (current, target.to_owned());
            let matters = !change.0.is_empty() && !target.is_empty() && change.0 != target;
            if matters && !known.contains_key(&change) && missing.len() < COSTS_PER_RECONCILE {
                missing.insert(change);
            }
        }
    }
    if missing.is_empty() {
        return;
    }
    let settings = ctx.stores.machine_configuration();
    let base = ctx.base().map(|configs| configs.base).unwrap_or_default();
    let rules = settings.as_ref().map_or_else(
        || AdministratorRules::in_force(&MachineConfiguration::default(), base),
        |settings| AdministratorRules::in_force(settings, base),
    );
    let mut configs: HashMap<String, Option<ParsedConfig>> = HashMap::new();
    let mut learned = Vec::new();
    for (old, new) in missing {
        for name in [&old, &new] {
            if !configs.contains_key(name) {
                configs.insert(name.clone(), rendered(ctx, name).await);
            }
        }
        let pair = (
            configs.get(&old).and_then(Option::as_ref),
            configs.get(&new).and_then(Option::as_ref),
        );
        if let (Some(before), Some(after)) = pair {
            let level = level(before, after, &rules);
            learned.push(((old, new), level));
        }
    }
    let mut costs = ctx.policies.costs.lock();
    let mut all = ChangeCosts::clone(&costs);
    if all.len() > MAX_COSTS {
        all.clear();
    }
    all.extend(learned);
    *costs = Arc::new(all);
}

fn level(old: &ParsedConfig, new: &ParsedConfig, rules: &AdministratorRules) -> DisruptionLevel {
    let text = |config: &ParsedConfig| config.text_of(REGISTRIES_CONF).unwrap_or_default();
    let registries = disruption::compare_registries(&text(old), &text(new));
    disruption::cost(&diff::diff(old, new), &rules.policy, &registries).level()
}

async fn rendered(ctx: &Context, name: &str) -> Option<ParsedConfig> {
    let config = ctx.api::<MachineConfig>().get(name).await;
    match config {
        Ok(config) => validate::check_applicable(&Arc::new(config)).ok(),
        Err(problem) => {
            debug!(config = name, "cannot read the config: {problem}");
            None
        }
    }
}
