//! A simulated fleet: machines that exist only as Nodes. Each follows the daemon's side of the annotation protocol,
//! with configurable timing and failures. For tests, benchmarks and experiments without machines.
//!
//! One watch serves all of them, so that thousands are cheap. No file is written.

mod count;
mod machine;
pub mod setup;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource as _};
use mco_api::MachineConfigPool;
use mco_api::vocabulary::labels;
use mco_core::config::pools::{Membership, NodePools};
use mco_runtime::{FieldManager, Lenient};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

pub use count::{Counting, RequestCounts};
use machine::SimulatedNode;

const FIELD_MANAGER: FieldManager = FieldManager::new("mco-simulator");

/// The simulation profile of a fleet.
#[derive(Clone)]
pub struct Behaviour {
    /// Time from the end of the drain until the new config is applied.
    pub apply: Duration,
    /// Duration of a reboot; `None` for changes without one.
    pub reboot: Option<Duration>,
    /// Whether a node is drained before a change.
    pub drain: bool,
    /// Whether the steps are reported in MachineConfigNodes.
    pub report_steps: bool,
    /// Called with node and config before each attempt to apply; returns the failure, if any.
    pub fails: Option<Fails>,
    /// Time until a failed attempt is retried.
    pub retry: Duration,
}

type Fails = Arc<dyn Fn(&str, &str) -> Option<SimulatedFailure> + Send + Sync>;

/// The point at which a machine fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SimulatedFailure {
    /// Before the drain.
    Early(String),
    /// After the drain.
    Late(String),
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            apply: Duration::from_millis(50),
            reboot: Some(Duration::from_millis(50)),
            drain: true,
            report_steps: false,
            fails: None,
            retry: Duration::from_secs(1),
        }
    }
}

impl fmt::Debug for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Behaviour")
            .field("apply", &self.apply)
            .field("reboot", &self.reboot)
            .field("drain", &self.drain)
            .field("report_steps", &self.report_steps)
            .finish_non_exhaustive()
    }
}

/// A machine to create.
#[derive(Debug, Clone)]
pub struct SimulatedNodeSpec {
    pub name: String,
    /// Roles, without the prefix of their labels.
    pub roles: Vec<String>,
    pub zone: Option<String>,
}

impl SimulatedNodeSpec {
    pub fn new(name: impl Into<String>, role: &str) -> Self {
        Self {
            name: name.into(),
            roles: vec![role.to_owned()],
            zone: None,
        }
    }

    #[must_use]
    pub fn in_zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = Some(zone.into());
        self
    }

    fn node(&self) -> Node {
        let mut all = serde_json::Map::new();
        for role in &self.roles {
            all.insert(labels::node_role(role), json!(""));
        }
        all.insert(labels::node::OS.to_owned(), json!("linux"));
        all.insert("kubernetes.io/hostname".to_owned(), json!(self.name));
        if let Some(zone) = &self.zone {
            all.insert(labels::node::ZONE.to_owned(), json!(zone));
        }
        let mut node = Node::default();
        node.metadata.name = Some(self.name.clone());
        node.metadata.labels = serde_json::from_value(all.into()).ok();
        node
    }
}

/// Creates the Nodes of these machines, Ready and schedulable. Existing ones are left unchanged.
pub async fn create(client: &Client, machines: &[SimulatedNodeSpec]) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let creations: Vec<_> = machines
        .iter()
        .map(|machine| create_one(&nodes, machine))
        .collect();
    let created: Vec<Result<(), kube::Error>> = futures::stream::iter(creations)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    created.into_iter().collect()
}

async fn create_one(nodes: &Api<Node>, machine: &SimulatedNodeSpec) -> Result<(), kube::Error> {
    match nodes.create(&FIELD_MANAGER.post_params(), &machine.node()).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => return Ok(()),
        Err(problem) => return Err(problem),
    }
    let status = json!({"status": {"conditions": [machine::ready(true)]}});
    nodes
        .patch_status(
            &machine.name,
            &FIELD_MANAGER.patch_params(),
            &Patch::Merge(status),
        )
        .await?;
    Ok(())
}

/// Maximum number of concurrent creates.
const AT_ONCE: usize = 32;

/// Runs the daemons of all existing and new Nodes until `stop`.
pub async fn run(client: Client, behaviour: Behaviour, stop: CancellationToken) {
    let nodes: Api<Lenient<Node>> = Api::all(client.clone());
    let pools = Arc::new(Pools::new(client.clone()));
    let mut machines: HashMap<String, watch::Sender<Option<Arc<Node>>>> = HashMap::new();
    let mut daemons = JoinSet::new();
    let events = watcher(nodes, watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(events);
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = events.next() => event,
            // A daemon ends when its Node is deleted.
            Some(_) = daemons.join_next() => continue,
        };
        match event {
            // A Node that cannot be decoded keeps its last state.
            Some(Ok(Event::Apply(Lenient(Err(node))) | Event::InitApply(Lenient(Err(node))))) => {
                warn!("{node}")
            }
            Some(Ok(Event::Apply(Lenient(Ok(node))) | Event::InitApply(Lenient(Ok(node))))) => {
                let name = node.metadata.name.clone().unwrap_or_default();
                let node = Some(Arc::new(node));
                if let Some(machine) = machines.get(&name) {
                    machine.send_replace(node);
                } else {
                    let (sender, receiver) = watch::channel(node);
                    machines.insert(name.clone(), sender);
                    let machine =
                        SimulatedNode::new(client.clone(), name, behaviour.clone(), Arc::clone(&pools));
                    daemons.spawn(machine.live(receiver));
                }
            }
            Some(Ok(Event::Delete(node))) => {
                let name = node.meta().name.clone().unwrap_or_default();
                if let Some(machine) = machines.remove(&name) {
                    machine.send_replace(None);
                }
            }
            Some(Ok(Event::Init | Event::InitDone)) => {}
            Some(Err(problem)) => warn!("the simulated fleet cannot watch its nodes: {problem}"),
            None => return,
        }
    }
}

/// The initial config of a machine: the current config of its pool.
struct Pools {
    client: Client,
    /// Cached, because thousands of machines read it concurrently.
    known: tokio::sync::Mutex<Option<(Instant, Arc<Vec<MachineConfigPool>>)>>,
}

/// Maximum age of the cached pools.
const POOLS_AGE: Duration = Duration::from_millis(200);

impl Pools {
    fn new(client: Client) -> Self {
        Self {
            client,
            known: tokio::sync::Mutex::default(),
        }
    }

    async fn all(&self) -> Option<Arc<Vec<MachineConfigPool>>> {
        let mut known = self.known.lock().await;
        if let Some((at, pools)) = known.as_ref()
            && at.elapsed() < POOLS_AGE
        {
            return Some(Arc::clone(pools));
        }
        let pools: Api<MachineConfigPool> = Api::all(self.client.clone());
        match pools.list(&kube::api::ListParams::default()).await {
            Ok(pools) => {
                let pools = Arc::new(pools.items);
                *known = Some((Instant::now(), Arc::clone(&pools)));
                Some(pools)
            }
            Err(problem) => {
                debug!("a simulated machine cannot read the pools: {problem}");
                None
            }
        }
    }

    /// Returns the config for a node with these labels, or `None` while its pool has none.
    async fn config_for(&self, node: &Node) -> Option<String> {
        let pools = self.all().await?;
        let selectors = NodePools::new(pools.iter());
        let Membership::Member { pool, .. } = selectors.of_node(node.metadata.labels.as_ref()) else {
            return None;
        };
        let pool = pools
            .iter()
            .find(|known| known.metadata.name.as_deref() == Some(pool))?;
        let target = pool.target_name();
        (!target.is_empty()).then(|| target.to_owned())
    }
}
