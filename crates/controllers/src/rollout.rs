//! Rolls a pool's target out to its nodes, as [`mco_core::rollout`] plans it, and reports how far it has come.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ListParams, Patch};
use mco_api::machine_config_pool::MachineConfigPoolStatus;
use mco_api::vocabulary::annotations::{build, node as annotation};
use mco_api::vocabulary::{labels, names};
use mco_api::{MachineConfigNode, MachineConfigPool, MachineOSBuild, MachineOSConfig};
use mco_core::config::rendered_configs;
use mco_core::rollout::patch::merge_patch;
use mco_core::rollout::pool_status::{self, Inputs, RenderOutcome, Report};
use mco_core::rollout::{Action, Because, NodeView, PoolPlan, PoolView, Standing, View, plan_pool};
use serde_json::{Value, json};
use tokio::sync::MutexGuard;
use tracing::{debug, info, warn};

use crate::cluster::Cluster;
use crate::error::{Error, is_not_found};
use crate::events::Reporter;
use crate::name_of;
use crate::patches;
use crate::queue::Again;
use crate::renders::Outcome;
use crate::target::{self, Render};

const MANAGER: &str = "machine-config-controller-rollout";
/// Nodes that are written at once.
const WRITES: usize = 32;
/// Nodes that only get or lose a mark are written a few at a time, so that whoever is sent, in whatever pool, goes first.
const MARKS: usize = 4;
/// And so many in one look, so that a large pool's rollout never stands still for them.
const MARKS_IN_A_LOOK: usize = 32;
/// How soon an arbiter looks again whether the control plane still may get another target.
const CONTROL_PLANE_POLL: Duration = Duration::from_millis(100);
/// While a rollout goes on, counts are written this often; what turns a condition is written at once. People follow a
/// small pool machine by machine, and nobody counts a large one that way.
fn count_spacing(machines: usize) -> Duration {
    const OF_EACH: Duration = Duration::from_millis(10);
    const LONGEST: Duration = Duration::from_secs(1);
    u32::try_from(machines).map_or(LONGEST, |machines| (OF_EACH * machines).min(LONGEST))
}

/// Plans the pool's next step, takes it, and reports.
pub(crate) async fn reconcile(cluster: Arc<Cluster>, name: String) -> Result<Again, Error> {
    if cluster.controller_config().is_none() {
        return Ok(Again::OnChange);
    }
    // Asked first, so that the plan rests on what is known after the answer.
    let operator_node = operator_node(&cluster, &name).await;
    let turn = turn(&cluster, &name).await;
    let Some(known) = Known::gather(&cluster, &name, operator_node) else {
        return Ok(Again::OnChange);
    };
    let planned = known.view(|view, pool| {
        let plan = plan_pool(view, pool);
        let report = plan
            .actions
            .is_empty()
            .then(|| assess(&cluster, &known, pool, &plan));
        (plan, report)
    });
    let Some((plan, report)) = planned else {
        return Ok(Again::OnChange);
    };
    if let Some(problem) = &plan.problem {
        warn!(pool = name, "{problem}");
    }
    let Carried {
        written,
        left,
        outcome,
    } = carry_out(&cluster, &plan).await;
    drop(turn);
    // Before anything more can fail: whoever tries again finds nothing to send.
    for event in plan.events_after(|node| written.contains(node)) {
        cluster
            .events
            .tell(Reporter::Rollout, known.pool().as_ref(), event);
    }
    forget_stale_build(&cluster, &known).await;
    let again = match report {
        Some(report) => publish(&cluster, &known, report).await?,
        // What was just written counts.
        None => report_anew(&cluster, &name, &plan).await?,
    };
    outcome.map(|()| match again {
        _ if left => Again::After(Duration::ZERO),
        Again::OnChange if known.waits_for_the_control_plane() => Again::After(CONTROL_PLANE_POLL),
        again => again,
    })
}

/// Control plane and arbiter nodes vote together, and what one of their pools decides rests on where the other's nodes
/// are: neither decides before the other has written what it decided.
async fn turn<'c>(cluster: &'c Cluster, pool: &str) -> Option<MutexGuard<'c, ()>> {
    match pool {
        names::pool::MASTER | names::pool::ARBITER => Some(cluster.voters.lock().await),
        _ => None,
    }
}

async fn report_anew(cluster: &Cluster, name: &str, plan: &PoolPlan) -> Result<Again, Error> {
    let Some(known) = Known::gather(cluster, name, None) else {
        return Ok(Again::OnChange);
    };
    match known.view(|_, pool| assess(cluster, &known, pool, plan)) {
        Some(report) => publish(cluster, &known, report).await,
        None => Ok(Again::OnChange),
    }
}

/// What is known about a pool and whatever it has to respect.
struct Known {
    name: String,
    pools: Vec<Arc<MachineConfigPool>>,
    nodes: Vec<Arc<Node>>,
    machine_config_nodes: Vec<Arc<MachineConfigNode>>,
    os_configs: Vec<MachineOSConfig>,
    os_builds: Vec<MachineOSBuild>,
    topology: Option<String>,
    operator_node: Option<String>,
    first_pivots: BTreeMap<String, String>,
    /// Of this pool's target and the control plane's.
    standings: BTreeMap<String, Standing>,
    this: Arc<MachineConfigPool>,
}

impl Known {
    /// None if the pool is gone.
    fn gather(cluster: &Cluster, name: &str, operator_node: Option<String>) -> Option<Self> {
        let renders = [name, names::pool::MASTER].map(|pool| (pool, Render::of(cluster, pool)));
        let pools = cluster.pools.all();
        let pool = |name: &str| pools.iter().find(|pool| name_of(&pool.metadata) == name);
        let this = Arc::clone(pool(name)?);
        let standings = renders.into_iter().filter_map(|(name, render)| {
            let standing = target::standing(cluster, pool(name)?, render);
            Some((name.to_owned(), standing))
        });
        let standings = standings.collect();
        let mut members = cluster.members.of(name);
        // Control plane and arbiter nodes vote together, so each looks at the other.
        match name {
            names::pool::MASTER => members.extend(cluster.members.of(names::pool::ARBITER)),
            names::pool::ARBITER => members.extend(cluster.members.of(names::pool::MASTER)),
            _ => {}
        }
        let nodes: Vec<Arc<Node>> = members
            .iter()
            .filter_map(|member| cluster.nodes.get(member))
            .collect();
        let machine_config_nodes = members
            .iter()
            .filter_map(|member| cluster.machine_config_nodes.get(member));
        let first_pivots = nodes.iter().filter_map(|node| {
            let first = node
                .metadata
                .annotations
                .as_ref()?
                .get(annotation::FIRST_PIVOT_CONFIG)?;
            let config = cluster.config_metadata.get(first)?;
            Some((
                first.clone(),
                rendered_configs::pool_of(&config.metadata)?.to_owned(),
            ))
        });
        let topology = cluster.controller_config().and_then(|config| {
            let infra = config.spec.infra.as_ref()?;
            let topology = infra.status.as_ref()?.control_plane_topology.clone();
            (!topology.is_empty()).then_some(topology)
        });
        Some(Self {
            name: name.to_owned(),
            pools,
            machine_config_nodes: machine_config_nodes.collect(),
            os_configs: cluster.os_configs.sorted(),
            os_builds: cluster.os_builds.sorted(),
            topology,
            operator_node,
            first_pivots: first_pivots.collect(),
            standings,
            nodes,
            this,
        })
    }

    fn pool(&self) -> &Arc<MachineConfigPool> {
        &self.this
    }

    /// Nobody tells when a render ends that changes nothing.
    fn waits_for_the_control_plane(&self) -> bool {
        self.name == names::pool::ARBITER && self.standing(names::pool::MASTER) == Standing::MayChange
    }

    fn standing(&self, pool: &str) -> Standing {
        self.standings.get(pool).copied().unwrap_or_default()
    }

    /// Looks at the pool as decisions see it.
    fn view<T>(&self, look: impl FnOnce(&View<'_>, &PoolView<'_>) -> T) -> Option<T> {
        let pools = self.pools.iter().map(Arc::as_ref);
        let first_pivots = self
            .first_pivots
            .iter()
            .map(|(config, pool)| (config.as_str(), pool.as_str()));
        let mut view = View::new(pools, self.nodes.iter().map(Arc::as_ref))
            .with_topology(self.topology.as_deref())
            .with_operator_node(self.operator_node.as_deref())
            .with_first_pivots(first_pivots)
            .with_images(&self.os_configs, &self.os_builds);
        for (pool, standing) in &self.standings {
            view = view.with_standing(pool, *standing);
        }
        view.pool(&self.name).map(|pool| look(&view, pool))
    }
}

/// The node of the operator's pod, when there is exactly one and several of the control plane wait for a turn.
async fn operator_node(cluster: &Cluster, pool: &str) -> Option<String> {
    if pool != names::pool::MASTER {
        return None;
    }
    let master = cluster.pools.get(pool)?;
    let members = cluster.members.of(pool);
    let nodes = members.iter().filter_map(|member| cluster.nodes.get(member));
    let waiting = nodes.filter(|node| NodeView::new(node).desired_config != master.target_name());
    if waiting.count() < 2 {
        return None;
    }
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), names::NAMESPACE);
    let selector = format!("{}={}", labels::APP, names::component::OPERATOR);
    let pods = pods.list(&ListParams::default().labels(&selector)).await.ok()?;
    match pods.items.as_slice() {
        [pod] => pod.spec.as_ref()?.node_name.clone(),
        _ => None,
    }
}

/// How far a plan was carried out.
struct Carried {
    /// Nodes that were written.
    written: HashSet<String>,
    /// Some nodes still wait for their mark.
    left: bool,
    outcome: Result<(), Error>,
}

/// Writes each node once. One that cannot be written does not keep the others.
async fn carry_out(cluster: &Cluster, plan: &PoolPlan) -> Carried {
    let mut by_node: BTreeMap<&str, Vec<&Action>> = BTreeMap::new();
    for action in &plan.actions {
        by_node.entry(action.node()).or_default().push(action);
    }
    // Nodes go in the order of their turn, so that whatever fails, the right ones went first.
    let mut changes: Vec<(&str, Vec<&Action>)> = plan
        .sent()
        .filter_map(|node| by_node.remove_entry(node))
        .collect();
    let (marks, others): (Vec<_>, Vec<_>) = by_node
        .into_iter()
        .partition(|(_, actions)| actions.iter().all(|action| action.is_mark()));
    changes.extend(others);
    let left = marks.len() > MARKS_IN_A_LOOK;
    let marks = marks.into_iter().take(MARKS_IN_A_LOOK).collect();
    let mut outcomes = write_all(cluster, plan, changes, WRITES).await;
    outcomes.extend(write_all(cluster, plan, marks, MARKS).await);
    let mut carried = Carried {
        written: HashSet::new(),
        left,
        outcome: Ok(()),
    };
    for outcome in outcomes {
        match outcome {
            Ok(node) => carried.written.extend(node),
            Err(error) => carried.outcome = carried.outcome.and(Err(error)),
        }
    }
    carried
}

/// Writes these nodes, some at once, and says which were written.
async fn write_all(
    cluster: &Cluster,
    plan: &PoolPlan,
    changes: Vec<(&str, Vec<&Action>)>,
    at_once: usize,
) -> Vec<Result<Option<String>, Error>> {
    let nodes = cluster.api::<Node>();
    let writes = changes.into_iter().map(|(name, actions)| {
        let nodes = &nodes;
        async move {
            let Some(node) = cluster.nodes.get(name) else {
                return Ok(None);
            };
            let Some(patch) = merge_patch(&node, actions.iter().copied()) else {
                return Ok(None);
            };
            tell(&plan.pool, &actions);
            let written = write(cluster, nodes, name, &patch).await?;
            Ok(written.then(|| name.to_owned()))
        }
    });
    let writes: Vec<_> = writes.collect();
    futures::stream::iter(writes)
        .buffer_unordered(at_once)
        .collect()
        .await
}

/// A node that no pool has waits for no update of ours.
pub(crate) async fn release(cluster: &Cluster, node: &Node) -> Result<(), Error> {
    let name = name_of(&node.metadata);
    let release = Action::RemoveUpdateTaint {
        node: name.to_owned(),
    };
    if cluster.members.home(name).pool.is_none()
        && NodeView::new(node).has_update_taint()
        && let Some(patch) = merge_patch(node, [&release])
    {
        info!(node = name, "no pool has the node, so its update is over");
        write(cluster, &cluster.api::<Node>(), name, &patch).await?;
    }
    Ok(())
}

/// Whether the node is still there to be written.
async fn write(cluster: &Cluster, nodes: &Api<Node>, name: &str, patch: &Value) -> Result<bool, Error> {
    match nodes
        .patch(name, &patches::by(MANAGER), &Patch::Merge(patch))
        .await
    {
        Ok(written) => {
            cluster.nodes.learn(written);
            Ok(true)
        }
        // It left meanwhile.
        Err(problem) if is_not_found(&problem) => Ok(false),
        Err(problem) => Err(Error::api(format!("writing node {name}"))(problem)),
    }
}

/// The story of a rollout, node by node.
fn tell(pool: &str, actions: &[&Action]) {
    for action in actions {
        match action {
            Action::SetDesired {
                node,
                config,
                image,
                because,
            } => {
                let because = match because {
                    Because::Turn => "it is its turn",
                    Because::Repair => "it failed on an older config",
                    Because::Superseded => "it was on its way to an older config",
                };
                info!(
                    pool,
                    node, config, image, because, "the node is sent to a new config"
                );
            }
            Action::JoinPool { .. } => info!(pool, "{action}"),
            _ => debug!(pool, "{action}"),
        }
    }
}

/// A MachineOSConfig may name a build that is gone or was for another config. Plans do not follow it there, so it is
/// tidied up if we may and left if not.
async fn forget_stale_build(cluster: &Cluster, known: &Known) {
    if known.os_configs.is_empty() || known.standing(&known.name) == Standing::Foreign {
        return;
    }
    let stale = known.view(|_, pool| {
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
    let target = known.pool().target_name();
    // A build that its config names may be younger than what the watch has brought.
    match cluster.api::<MachineOSBuild>().get_opt(&named).await {
        Ok(Some(build)) if build.spec.machine_config.name == target => return,
        Ok(_) => {}
        Err(problem) => {
            debug!(build = named, "whether it is there cannot be asked: {problem}");
            return;
        }
    }
    let name = name_of(&config);
    let patch = json!({"metadata": {
        "resourceVersion": config.resource_version,
        "annotations": {build::CURRENT_MACHINE_OS_BUILD: null},
    }});
    let written = cluster
        .api::<MachineOSConfig>()
        .patch(name, &patches::by(MANAGER), &Patch::Merge(patch))
        .await;
    match written {
        Ok(written) => cluster.os_configs.learn(written),
        Err(problem) => debug!(config = name, "its old build stays named: {problem}"),
    }
}

/// What there is to say about the pool.
fn assess(cluster: &Cluster, known: &Known, pool: &PoolView<'_>, plan: &PoolPlan) -> Report {
    let render = cluster.renders.outcome(&known.name);
    let render = render.as_ref().and_then(|outcome| match outcome {
        Outcome::Rendered => Some(RenderOutcome::Rendered),
        Outcome::Failed(why) => Some(RenderOutcome::Failed(why)),
        Outcome::Waiting(_) => None,
    });
    let controller_config = cluster.controller_config();
    let certificates = controller_config
        .as_ref()
        .and_then(|config| Some(config.status.as_ref()?.controller_certificates.as_slice()))
        .unwrap_or_default();
    let machine_config_nodes: HashMap<&str, &MachineConfigNode> = known
        .machine_config_nodes
        .iter()
        .map(|node| (name_of(&node.metadata), node.as_ref()))
        .collect();
    let stream = cluster.renders.stream(&known.name);
    let pinned_images = cluster.pinned.of(&known.name);
    let inputs = Inputs {
        plan: Some(plan),
        machine_config_nodes,
        certificates,
        os_image_stream: stream.as_deref(),
        render,
        pinned_images: pinned_images
            .as_ref()
            .map(|outcome| outcome.as_ref().copied().map_err(String::as_str)),
    };
    pool_status::report(pool, &inputs, &cluster.time())
}

/// Writes the pool's status if it says something new.
async fn publish(cluster: &Cluster, known: &Known, report: Report) -> Result<Again, Error> {
    let Report {
        status,
        events,
        changed,
    } = report;
    let pool = known.pool();
    cluster
        .options
        .metrics
        .pool(&known.name, &status, pool.spec.paused, cluster.now());
    if !changed {
        return Ok(Again::OnChange);
    }
    let before = pool.status.clone().unwrap_or_default();
    if !turns_a_condition(&before, &status)
        && let Some(wait) = cluster
            .renders
            .too_soon(&known.name, count_spacing(known.nodes.len()))
    {
        return Ok(Again::After(wait));
    }
    write_status(cluster, pool, &status).await?;
    for event in events {
        cluster.events.tell(Reporter::Rollout, pool.as_ref(), event);
    }
    Ok(Again::OnChange)
}

async fn write_status(
    cluster: &Cluster,
    pool: &MachineConfigPool,
    status: &MachineConfigPoolStatus,
) -> Result<(), Error> {
    let name = name_of(&pool.metadata);
    // The first report is written whole: a count of zero is a fact, and people's columns show it.
    let reported = pool
        .status
        .as_ref()
        .filter(|status| status.observed_generation != 0);
    let patch = json!({
        "metadata": {"resourceVersion": pool.metadata.resource_version},
        "status": patches::between(&reported, status),
    });
    let written = cluster
        .api::<MachineConfigPool>()
        .patch_status(name, &patches::by(MANAGER), &Patch::Merge(patch))
        .await
        .map_err(Error::api(format!("writing the status of pool {name}")))?;
    cluster.renders.wrote_status(name);
    info!(
        pool = name,
        machines = status.machine_count,
        updated = status.updated_machine_count,
        ready = status.ready_machine_count,
        unavailable = status.unavailable_machine_count,
        degraded = status.degraded_machine_count,
        "progress"
    );
    cluster.pools.learn(written);
    Ok(())
}

/// Whether any condition has another status or text, or the pool another config. Everything else is a count.
fn turns_a_condition(before: &MachineConfigPoolStatus, after: &MachineConfigPoolStatus) -> bool {
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
