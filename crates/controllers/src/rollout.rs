//! Rolls a pool's target out to its nodes, as [`mco_core::rollout`] plans it, and reports the progress in the pool's
//! status.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use mco_api::machine_config_pool::MachineConfigPoolStatus;
use mco_api::vocabulary::annotations::{ADOPT, build, node as annotation};
use mco_api::vocabulary::{labels, names};
use mco_api::{
    ClusterBase, MachineConfigNode, MachineConfigPool, MachineOSBuild, MachineOSConfig, RolloutPolicy,
};
use mco_core::config::rendered_configs;
use mco_core::rollout::adoption::AdoptionPolicy;
use mco_core::rollout::control_plane;
use mco_core::rollout::patch::merge_patch;
use mco_core::rollout::policy::{ChangeCosts, related_pools};
use mco_core::rollout::pool_status::{self, PoolStatusInputs, PoolStatusReport, RenderOutcome};
use mco_core::rollout::{
    Because, NodeAction, NodeView, PoolPlan, PoolView, RolloutView, TargetState, plan_pool,
};
use mco_runtime::{FieldManager, Requeue, object_name, patch};
use serde_json::{Value, json};
use tokio::sync::{MutexGuard, OwnedMutexGuard};
use tracing::{debug, info, warn};

use crate::context::Context;
use crate::error::Error;
use crate::events::Reporter;
use crate::feature_gates;
use crate::policies;
use crate::render_state::RenderResult;
use crate::target::{self, PendingRender};

const MANAGER: FieldManager = FieldManager::new("machine-config-controller-rollout");
/// Nodes that are written at the same time.
const CONCURRENT_WRITES: usize = 32;
/// Nodes that only gain or lose a taint or annotation are written a few at a time, so that updates of any pool go
/// first.
const CONCURRENT_MARKS: usize = 4;
/// The limit of such writes per reconcile, so that they do not delay the rollout of a large pool.
const MARKS_PER_RECONCILE: usize = 32;
/// How soon the arbiter pool checks again whether the control plane's target may change.
const CONTROL_PLANE_POLL: Duration = Duration::from_millis(100);

/// Returns the minimum time between two writes of a status in which only counts changed; a changed condition is
/// written at once. Small pools are followed node by node, large ones are not.
fn count_interval(nodes: usize) -> Duration {
    const PER_NODE: Duration = Duration::from_millis(10);
    const MAX: Duration = Duration::from_secs(1);
    u32::try_from(nodes).map_or(MAX, |nodes| (PER_NODE * nodes).min(MAX))
}

/// Plans the pool's next step, executes it, and reports.
pub(crate) async fn reconcile(ctx: Arc<Context>, name: String) -> Result<Requeue, Error> {
    if ctx.controller_config().is_none() {
        return Ok(Requeue::OnChange);
    }
    // Requested before the snapshot is taken, which would be outdated after the response.
    let operator_node = operator_node(&ctx, &name).await;
    let voters = lock_voters(&ctx, &name).await;
    if default_adoption_policy(&ctx, &name).await? {
        return Ok(Requeue::OnChange);
    }
    let shared = lock_policy(&ctx, &name).await;
    let Some(mut snapshot) = PoolSnapshot::gather(&ctx, &name, operator_node) else {
        return Ok(Requeue::OnChange);
    };
    let Some(plan) = snapshot.view(plan_pool) else {
        return Ok(Requeue::OnChange);
    };
    if let Some(problem) = &plan.problem {
        warn!(pool = name, "{problem}");
    }
    let Execution {
        written,
        has_more,
        outcome,
    } = execute(&ctx, &plan).await;
    drop((voters, shared));
    // Before anything else can fail: a retry finds nothing to write and would record no event.
    for event in plan.events_after(|node| written.contains(node)) {
        ctx.events
            .record(Reporter::Rollout, snapshot.pool.as_ref(), event);
    }
    clear_stale_build(&ctx, &snapshot).await;
    if !plan.actions.is_empty() && !snapshot.refresh(&ctx) {
        return outcome.map(|()| Requeue::OnChange);
    }
    let report = snapshot.view(|_, pool| assess(&ctx, &snapshot, pool, &plan));
    let requeue = match report {
        Some(report) => publish(&ctx, &snapshot, report).await?,
        None => Requeue::OnChange,
    };
    outcome.map(|()| match requeue {
        _ if has_more => Requeue::After(Duration::ZERO),
        Requeue::OnChange if snapshot.waits_for_the_control_plane() => Requeue::After(CONTROL_PLANE_POLL),
        requeue => requeue,
    })
}

/// Sets the adoption policy of a pool without one, in a cluster whose nodes this program has not installed. From then on
/// nodes count as members only once they are adopted. Returns whether the pool was written.
async fn default_adoption_policy(ctx: &Context, name: &str) -> Result<bool, Error> {
    let base = ctx.controller_config().and_then(|config| config.base().ok());
    let Some(pool) = ctx.stores.pools.get(name) else {
        return Ok(false);
    };
    let is_set = AdoptionPolicy::is_set(pool.metadata.annotations.as_ref());
    if is_set || base.is_none_or(ClusterBase::has_templates) || pool.metadata.deletion_timestamp.is_some() {
        return Ok(false);
    }
    let patch = json!({"metadata": {"annotations": {ADOPT: "when-equal"}}});
    let written = ctx.stores.pools.patch(&ctx.api(), name, MANAGER, &patch).await;
    written.map_err(Error::api(format!("writing MachineConfigPool {name}")))?;
    Ok(true)
}

/// Control-plane and arbiter nodes are the voters of etcd, and the plan of one pool depends on the nodes of the
/// others: none plans before another has written what it planned.
async fn lock_voters<'c>(ctx: &'c Context, pool: &str) -> Option<MutexGuard<'c, ()>> {
    let is_built_in = matches!(pool, names::pool::MASTER | names::pool::ARBITER);
    let members = || ctx.membership.nodes_of(pool).into_iter();
    let holds_voters = is_built_in || members().any(|member| is_control_plane(ctx, &member));
    if holds_voters {
        Some(ctx.voters.lock().await)
    } else {
        None
    }
}

fn is_control_plane(ctx: &Context, node: &str) -> bool {
    let node = ctx.stores.nodes.get(node);
    node.is_some_and(|node| control_plane::is_control_plane_node(&node))
}

/// Returns the names of all control-plane nodes, of any pool.
fn control_plane_nodes(ctx: &Context) -> Vec<String> {
    let nodes = ctx.stores.nodes.all();
    let of_control_plane = nodes
        .iter()
        .filter(|node| control_plane::is_control_plane_node(node));
    of_control_plane
        .map(|node| object_name(&node.metadata).to_owned())
        .collect()
}

/// Returns the pools that have control-plane nodes.
pub(crate) fn control_plane_pools(ctx: &Context) -> BTreeSet<String> {
    let nodes = control_plane_nodes(ctx).into_iter();
    nodes
        .filter_map(|node| ctx.membership.of_node(&node).pool)
        .collect()
}

/// The budgets of a policy are shared by its pools: none of them plans before another has written what it planned.
async fn lock_policy(ctx: &Context, pool: &str) -> Vec<OwnedMutexGuard<()>> {
    let mut locks = Vec::new();
    // In the order of names, so that two pools with the same policies do not wait for each other.
    for policy in policies::names_of_pool(ctx, pool) {
        locks.push(ctx.policies.lock(&policy).await);
    }
    locks
}

/// The objects that a plan and a report of one pool depend on.
struct PoolSnapshot {
    name: String,
    pool: Arc<MachineConfigPool>,
    pools: Vec<Arc<MachineConfigPool>>,
    nodes: Vec<Arc<Node>>,
    machine_config_nodes: Vec<Arc<MachineConfigNode>>,
    os_configs: Vec<MachineOSConfig>,
    os_builds: Vec<MachineOSBuild>,
    /// Empty without policies; `nodes` then has those of related pools too.
    policies: Vec<Arc<RolloutPolicy>>,
    costs: Arc<ChangeCosts>,
    now: Timestamp,
    topology: Option<String>,
    only_control_plane_node: Option<String>,
    operator_node: Option<String>,
    first_pivots: BTreeMap<String, String>,
    /// Of this pool and of the control plane.
    target_states: BTreeMap<String, TargetState>,
}

impl PoolSnapshot {
    /// Returns `None` if the pool does not exist.
    fn gather(ctx: &Context, name: &str, operator_node: Option<String>) -> Option<Self> {
        let policies = ctx.stores.rollout_policies.all();
        let before = ctx.stores.pools.all();
        let mut rendered = BTreeSet::from([name.to_owned(), names::pool::MASTER.to_owned()]);
        if !policies.is_empty() {
            rendered.extend(before.iter().map(|pool| object_name(&pool.metadata).to_owned()));
        }
        let renders: Vec<(String, PendingRender)> = rendered
            .into_iter()
            .map(|pool| (pool.clone(), PendingRender::of_pool(ctx, &pool)))
            .collect();
        let pools = ctx.stores.pools.all();
        let find = |name: &str| pools.iter().find(|pool| object_name(&pool.metadata) == name);
        let pool = Arc::clone(find(name)?);
        let target_states = renders.into_iter().filter_map(|(name, render)| {
            let state = target::target_state(ctx, find(&name)?, render);
            Some((name, state))
        });
        let target_states = target_states.collect();
        let mut members = ctx.membership.nodes_of(name);
        // Control-plane and arbiter nodes are voters together, so each plan needs both.
        match name {
            names::pool::MASTER => members.extend(ctx.membership.nodes_of(names::pool::ARBITER)),
            names::pool::ARBITER => members.extend(ctx.membership.nodes_of(names::pool::MASTER)),
            _ => {}
        }
        if members.iter().any(|member| is_control_plane(ctx, member)) {
            members.extend(control_plane_nodes(ctx));
        }
        for related in related_pools(policies.iter().map(Arc::as_ref), &pools, &pool) {
            if related != name {
                members.extend(ctx.membership.nodes_of(&related));
            }
        }
        members.extend(installed_for(ctx, name));
        members.sort_unstable();
        members.dedup();
        let members = || members.iter();
        let nodes: Vec<Arc<Node>> = members().filter_map(|name| ctx.stores.nodes.get(name)).collect();
        let machine_config_nodes = members().filter_map(|name| ctx.stores.machine_config_nodes.get(name));
        Some(Self {
            name: name.to_owned(),
            machine_config_nodes: machine_config_nodes.collect(),
            os_configs: ctx.stores.os_configs.sorted(),
            os_builds: ctx.stores.os_builds.sorted(),
            policies,
            costs: ctx.policies.costs(),
            now: ctx.now(),
            topology: topology(ctx),
            only_control_plane_node: only_control_plane_node(ctx, &nodes),
            operator_node,
            first_pivots: first_pivots(ctx, &nodes),
            target_states,
            nodes,
            pool,
            pools,
        })
    }

    /// Re-reads the pool and the nodes after they were written. Returns false if the pool does not exist any more.
    fn refresh(&mut self, ctx: &Context) -> bool {
        let Some(pool) = ctx.stores.pools.get(&self.name) else {
            return false;
        };
        for stored in &mut self.pools {
            if stored.metadata.name == pool.metadata.name {
                stored.clone_from(&pool);
            }
        }
        self.pool = pool;
        let nodes = self.nodes.iter();
        self.nodes = nodes
            .filter_map(|node| ctx.stores.nodes.get(object_name(&node.metadata)))
            .collect();
        true
    }

    /// A render of the control plane that changes nothing enqueues no rollout, so the arbiter pool polls.
    fn waits_for_the_control_plane(&self) -> bool {
        self.name == names::pool::ARBITER && self.target_state(names::pool::MASTER) == TargetState::Rendering
    }

    fn target_state(&self, pool: &str) -> TargetState {
        self.target_states.get(pool).copied().unwrap_or_default()
    }

    /// Calls `decide` with the pool as decisions see it.
    fn view<T>(&self, decide: impl FnOnce(&RolloutView<'_>, &PoolView<'_>) -> T) -> Option<T> {
        let pools = self.pools.iter().map(Arc::as_ref);
        let first_pivots = self
            .first_pivots
            .iter()
            .map(|(config, pool)| (config.as_str(), pool.as_str()));
        let mut view = RolloutView::new(pools, self.nodes.iter().map(Arc::as_ref))
            .with_topology(self.topology.as_deref())
            .with_only_control_plane_node(self.only_control_plane_node.as_deref())
            .with_operator_node(self.operator_node.as_deref())
            .with_first_pivots(first_pivots)
            .with_images(&self.os_configs, &self.os_builds)
            .with_policies(self.policies.iter().map(Arc::as_ref), self.now, Some(&self.costs));
        for (pool, state) in &self.target_states {
            view = view.with_target_state(pool, *state);
        }
        view.pool(&self.name).map(|pool| decide(&view, pool))
    }
}

/// Returns the pool of each rendered config that one of these nodes was installed with.
fn first_pivots(ctx: &Context, nodes: &[Arc<Node>]) -> BTreeMap<String, String> {
    nodes.iter().filter_map(|node| first_pivot(ctx, node)).collect()
}

/// Returns the rendered config that a node was installed with, and the pool of that config.
pub(crate) fn first_pivot(ctx: &Context, node: &Node) -> Option<(String, String)> {
    let annotations = node.metadata.annotations.as_ref()?;
    let first = annotations.get(annotation::FIRST_PIVOT_CONFIG)?;
    let config = ctx.stores.config_metadata.get(first)?;
    let pool = rendered_configs::pool_of(&config.metadata)?;
    Some((first.clone(), pool.to_owned()))
}

/// Returns the nodes that no pool selects and that were installed for this one.
fn installed_for(ctx: &Context, pool: &str) -> Vec<String> {
    let mut unmanaged = ctx.membership.unmanaged();
    unmanaged.retain(|name| {
        let node = ctx.stores.nodes.get(name);
        let first = node.and_then(|node| first_pivot(ctx, &node));
        first.is_some_and(|(_, owner)| owner == pool)
    });
    unmanaged
}

fn topology(ctx: &Context) -> Option<String> {
    let config = ctx.controller_config()?;
    let infrastructure = config.spec.infra.as_ref()?;
    let topology = infrastructure.status.as_ref()?.control_plane_topology.clone();
    (!topology.is_empty()).then_some(topology)
}

/// Returns the node of a pool that is the whole control plane. The nodes of other pools are read only if this one has
/// exactly one control-plane node.
fn only_control_plane_node(ctx: &Context, members: &[Arc<Node>]) -> Option<String> {
    let only = |nodes: &[Arc<Node>]| {
        let nodes = nodes.iter().map(Arc::as_ref);
        control_plane::only_control_plane_node(nodes).map(str::to_owned)
    };
    only(members)?;
    only(&ctx.stores.nodes.all())
}

/// Returns the node of the operator's pod, if there is exactly one and several control-plane nodes wait for their
/// update.
async fn operator_node(ctx: &Context, pool: &str) -> Option<String> {
    if pool != names::pool::MASTER {
        return None;
    }
    let master = ctx.stores.pools.get(pool)?;
    let members = ctx.membership.nodes_of(pool);
    let nodes = members.iter().filter_map(|member| ctx.stores.nodes.get(member));
    let waiting = nodes.filter(|node| NodeView::new(node).desired_config != master.target_name());
    if waiting.count() < 2 {
        return None;
    }
    let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), names::NAMESPACE);
    let selector = format!("{}={}", labels::APP, names::component::OPERATOR);
    let pods = pods.list(&ListParams::default().labels(&selector)).await.ok()?;
    match pods.items.as_slice() {
        [pod] => pod.spec.as_ref()?.node_name.clone(),
        _ => None,
    }
}

/// The result of executing a plan.
struct Execution {
    /// Nodes that were written.
    written: HashSet<String>,
    /// Some taints and annotations are left to the next reconcile.
    has_more: bool,
    outcome: Result<(), Error>,
}

/// Writes each node once. A node that cannot be written does not stop the others.
async fn execute(ctx: &Context, plan: &PoolPlan) -> Execution {
    let mut by_node: BTreeMap<&str, Vec<&NodeAction>> = BTreeMap::new();
    for action in &plan.actions {
        by_node.entry(action.node()).or_default().push(action);
    }
    // In the order of the plan, so that the right nodes are first if some writes fail.
    let mut changes: Vec<(&str, Vec<&NodeAction>)> = plan
        .sent()
        .filter_map(|node| by_node.remove_entry(node))
        .collect();
    let (marks, others): (Vec<_>, Vec<_>) = by_node
        .into_iter()
        .partition(|(_, actions)| actions.iter().all(|action| action.is_mark()));
    changes.extend(others);
    let has_more = marks.len() > MARKS_PER_RECONCILE;
    let marks = marks.into_iter().take(MARKS_PER_RECONCILE).collect();
    let mut outcomes = write_all(ctx, plan, changes, CONCURRENT_WRITES).await;
    outcomes.extend(write_all(ctx, plan, marks, CONCURRENT_MARKS).await);
    let mut execution = Execution {
        written: HashSet::new(),
        has_more,
        outcome: Ok(()),
    };
    for outcome in outcomes {
        match outcome {
            Ok(node) => execution.written.extend(node),
            Err(error) => execution.outcome = execution.outcome.and(Err(error)),
        }
    }
    execution
}

/// Writes these nodes concurrently and returns which were written.
async fn write_all(
    ctx: &Context,
    plan: &PoolPlan,
    changes: Vec<(&str, Vec<&NodeAction>)>,
    concurrency: usize,
) -> Vec<Result<Option<String>, Error>> {
    let writes = changes.into_iter().map(|(name, actions)| async move {
        let Some(node) = ctx.stores.nodes.get(name) else {
            return Ok(None);
        };
        let Some(patch) = merge_patch(&node, actions.iter().copied()) else {
            return Ok(None);
        };
        log_actions(&plan.pool, &actions);
        let written = write_node(ctx, name, &patch).await?;
        Ok(written.map(|_| name.to_owned()))
    });
    let writes: Vec<_> = writes.collect();
    futures::stream::iter(writes)
        .buffer_unordered(concurrency)
        .collect()
        .await
}

/// Removes the update taint from a node that belongs to no pool.
pub(crate) async fn remove_taint_outside_pools(ctx: &Context, node: &Node) -> Result<(), Error> {
    let name = object_name(&node.metadata);
    let untaint = NodeAction::RemoveUpdateTaint {
        node: name.to_owned(),
    };
    if ctx.membership.of_node(name).pool.is_none()
        && NodeView::new(node).has_update_taint()
        && let Some(patch) = merge_patch(node, [&untaint])
    {
        info!(
            node = name,
            "removing the update taint of a node that belongs to no pool"
        );
        write_node(ctx, name, &patch).await?;
    }
    Ok(())
}

async fn write_node(ctx: &Context, name: &str, patch: &Value) -> Result<Option<Arc<Node>>, Error> {
    let written = ctx.stores.nodes.patch(&ctx.api(), name, MANAGER, patch).await;
    written.map_err(Error::api(format!("writing node {name}")))
}

fn log_actions(pool: &str, actions: &[&NodeAction]) {
    for action in actions {
        match action {
            NodeAction::SetDesired {
                node,
                config,
                image,
                because,
                ..
            } => {
                let because = match because {
                    Because::Turn => "it is next in order",
                    Because::Repair => "it failed on an older config",
                    Because::Superseded => "it was on its way to an older config",
                    Because::Skipped => "its drain took too long, so it keeps its config",
                };
                info!(
                    pool,
                    node, config, image, because, "set the node's desired config"
                );
            }
            NodeAction::JoinPool { .. } => info!(pool, "{action}"),
            _ => debug!(pool, "{action}"),
        }
    }
}

/// Removes the annotation of a MachineOSConfig that names a deleted build or one of another config. Plans ignore such
/// a build, so a failure is only logged.
async fn clear_stale_build(ctx: &Context, snapshot: &PoolSnapshot) {
    if snapshot.os_configs.is_empty() || snapshot.target_state(&snapshot.name) == TargetState::NotOurs {
        return;
    }
    let stale = snapshot.view(|_, pool| {
        let config = pool.layering.config.filter(|_| pool.layering.names_stale_build)?;
        let build = config
            .metadata
            .annotations
            .as_ref()?
            .get(build::CURRENT_MACHINE_OS_BUILD)?;
        Some((config.metadata.clone(), build.clone()))
    });
    let Some((config, named)) = stale.flatten() else {
        return;
    };
    let target = snapshot.pool.target_name();
    // The build may be newer than what the watch has delivered.
    match ctx.api::<MachineOSBuild>().get_opt(&named).await {
        Ok(Some(build)) if build.spec.machine_config.name == target => return,
        Ok(_) => {}
        Err(problem) => {
            debug!(build = named, "cannot read the build: {problem}");
            return;
        }
    }
    let name = object_name(&config);
    let patch = json!({"metadata": {
        "resourceVersion": config.resource_version,
        "annotations": {build::CURRENT_MACHINE_OS_BUILD: null},
    }});
    let store = &ctx.stores.os_configs;
    if let Err(problem) = store.patch(&ctx.api(), name, MANAGER, &patch).await {
        debug!(
            config = name,
            "cannot remove the stale build annotation: {problem}"
        );
    }
}

/// Computes the pool's status and events.
fn assess(ctx: &Context, snapshot: &PoolSnapshot, pool: &PoolView<'_>, plan: &PoolPlan) -> PoolStatusReport {
    let render = ctx.renders.result(&snapshot.name);
    let render = render.as_ref().and_then(|result| match result {
        RenderResult::Rendered => Some(RenderOutcome::Rendered),
        RenderResult::Failed(why) => Some(RenderOutcome::Failed(why)),
        RenderResult::Waiting(_) => None,
    });
    let controller_config = ctx.controller_config();
    let certificates = controller_config
        .as_ref()
        .and_then(|config| Some(config.status.as_ref()?.controller_certificates.as_slice()))
        .unwrap_or_default();
    let machine_config_nodes: HashMap<&str, &MachineConfigNode> = snapshot
        .machine_config_nodes
        .iter()
        .map(|node| (object_name(&node.metadata), node.as_ref()))
        .collect();
    let stream = ctx.renders.stream(&snapshot.name);
    let pinned_images = ctx.pinned_images.of_pool(&snapshot.name);
    let inputs = PoolStatusInputs {
        plan: Some(plan),
        machine_config_nodes,
        image_mode_status: feature_gates::image_mode_status(ctx),
        certificates,
        os_image_stream: stream.as_deref(),
        render,
        pinned_images: pinned_images
            .as_ref()
            .map(|outcome| outcome.as_ref().copied().map_err(String::as_str)),
    };
    pool_status::report(pool, &inputs, &ctx.time())
}

/// Writes the pool's status if it has changed.
async fn publish(ctx: &Context, snapshot: &PoolSnapshot, report: PoolStatusReport) -> Result<Requeue, Error> {
    let PoolStatusReport {
        status,
        events,
        changed,
    } = report;
    let pool = &snapshot.pool;
    ctx.options
        .metrics
        .pool(&snapshot.name, &status, pool.spec.paused, ctx.now());
    if !changed {
        return Ok(Requeue::OnChange);
    }
    let before = pool.status.clone().unwrap_or_default();
    if !changes_a_condition(&before, &status)
        && let Some(wait) = ctx
            .renders
            .status_write_delay(&snapshot.name, count_interval(snapshot.nodes.len()))
    {
        return Ok(Requeue::After(wait));
    }
    write_status(ctx, pool, &status).await?;
    for event in events {
        ctx.events.record(Reporter::Rollout, pool.as_ref(), event);
    }
    Ok(Requeue::OnChange)
}

async fn write_status(
    ctx: &Context,
    pool: &MachineConfigPool,
    status: &MachineConfigPoolStatus,
) -> Result<(), Error> {
    let name = object_name(&pool.metadata);
    // The first status is written in full, so that the columns of kubectl show counts of zero.
    let reported = pool
        .status
        .as_ref()
        .filter(|status| status.observed_generation != 0);
    let patch = json!({
        "metadata": {"resourceVersion": pool.metadata.resource_version},
        "status": patch::diff(&reported, status),
    });
    let written = ctx
        .stores
        .pools
        .patch_status(&ctx.api(), name, MANAGER, &patch)
        .await;
    written.map_err(Error::api(format!("writing the status of pool {name}")))?;
    ctx.renders.record_status_write(name);
    info!(
        pool = name,
        machines = status.machine_count,
        updated = status.updated_machine_count,
        ready = status.ready_machine_count,
        unavailable = status.unavailable_machine_count,
        degraded = status.degraded_machine_count,
        "updated the pool's status"
    );
    Ok(())
}

/// Returns true if a condition or the config changes, and not only counts.
fn changes_a_condition(before: &MachineConfigPoolStatus, after: &MachineConfigPoolStatus) -> bool {
    let shape = |status: &MachineConfigPoolStatus| {
        let mut conditions: Vec<(String, String, String)> = status
            .conditions
            .iter()
            .map(|condition| {
                (
                    condition.type_.clone(),
                    condition.status.clone(),
                    condition.message.clone(),
                )
            })
            .collect();
        conditions.sort();
        (
            conditions,
            status.configuration.clone(),
            status.observed_generation,
        )
    };
    shape(before) != shape(after)
}
