//! One simulation: starts everything, lets the story happen, and requires that the cluster converges afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use mco_api::vocabulary::annotations::node as annotation;
use mco_api::{MachineConfig, MachineConfigPool};
use mco_apiserver::{ApiServer, ApiServerOptions, Execution};
use mco_controllers::Options;
use mco_core::rollout::NodeView;
use mco_runtime::leader::{self, LeaderElection};
use mco_simulator::{self as fleet, Behaviour, SimulatedNodeSpec};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::convergence::{POOLS, unfinished};
use crate::determinism;
use crate::link::Link;
use crate::story::{CHAOS, Incident, Plant, Story};
use crate::world::{Report, World};

const VERSION: &str = "v-simulation";
const NAMESPACE: &str = "openshift-machine-config-operator";
const LEASE: &str = "machine-config-controller";
/// How long the cluster may take to converge after the last incident.
const CONVERGENCE: Duration = Duration::from_hours(1);
/// The same for many workers, of which one at a time may be updated.
const CONVERGENCE_PER_WORKER: Duration = Duration::from_mins(3);
/// When a violation is planted.
const PLANTED: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_secs(5);

/// Plays a story. Must be called once per process, before anything else has used random numbers.
pub fn play(story: Story) -> anyhow::Result<Report> {
    determinism::enter(story.seed);
    mco_runtime::run_blocking_inline();
    // A new thread has new keys for its hash maps.
    let thread = std::thread::Builder::new().name("simulation".to_owned());
    let thread = thread.stack_size(32 << 20).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()?;
        runtime.block_on(simulate(story))
    })?;
    thread
        .join()
        .map_err(|_| anyhow::anyhow!("the simulation panicked"))?
}

async fn simulate(story: Story) -> anyhow::Result<Report> {
    determinism::follow_runtime();
    let directory = tempfile::tempdir()?;
    let options = ApiServerOptions {
        execution: Execution::Inline,
        ..ApiServerOptions::default()
    };
    let server = ApiServer::open(directory.path(), options).await?;
    let world = World::new(story, server);
    let mut cast = Cast::new(&world);
    tokio::select! {
        biased;
        () = world.violated.notified() => {}
        outcome = cast.play() => outcome?,
    }
    cast.end();
    world.server.shutdown().await;
    Ok(world.report())
}

/// Everything that acts.
struct Cast {
    world: Arc<World>,
    admin: Client,
    controllers: Vec<Replica>,
    daemons: BTreeMap<String, Replica>,
}

/// A process that can be killed and restarted.
struct Replica {
    link: Link,
    task: Option<JoinHandle<()>>,
}

impl Replica {
    fn kill(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// What the administrator, or the system, does later.
enum Later {
    Uncordon(String),
    Unpause(&'static str),
    StartController(usize),
    StartDaemon(String),
}

impl Cast {
    fn new(world: &Arc<World>) -> Self {
        let replica = |client: String, node: Option<&str>| Replica {
            link: Link::new(world, &client, node),
            task: None,
        };
        Self {
            world: Arc::clone(world),
            admin: Client::new(world.server.service(), "default"),
            controllers: (0..2)
                .map(|number| replica(format!("controller-{number}"), None))
                .collect(),
            daemons: BTreeMap::new(),
        }
    }

    async fn play(&mut self) -> anyhow::Result<()> {
        self.prepare().await.context("preparing the cluster")?;
        self.world.set_chaos(true);
        let start = Instant::now();
        let mut agenda: Vec<(Instant, Step)> = Vec::new();
        for (_, at, incident) in self.world.story.incidents.clone() {
            agenda.push((start + at, Step::Incident(incident)));
        }
        if let Some(plant) = self.world.story.plant {
            agenda.push((start + PLANTED, Step::Plant(plant)));
        }
        let end = start + CHAOS;
        while let Some(next) = next_of(&mut agenda) {
            let (at, step) = next;
            if at > end {
                // What happens later is undone below.
                continue;
            }
            sleep_until(at).await;
            if let Some((delay, later)) = self.happen(step).await? {
                agenda.push((at + delay, Step::Later(later)));
            }
        }
        sleep_until(end).await;
        self.calm().await?;
        self.converge().await;
        if self.world.story.plant == Some(Plant::StuckRender) {
            // The pools stay at rest, on a target without this config.
            self.controllers.iter_mut().for_each(Replica::kill);
            self.write_config(1_000, "worker").await?;
            self.converge().await;
        }
        Ok(())
    }

    async fn prepare(&mut self) -> anyhow::Result<()> {
        fleet::setup::prepare(&self.admin, VERSION).await?;
        let story = &self.world.story;
        let names = (0..story.masters).map(|number| format!("master-{number}"));
        let names = names.chain((0..story.workers).map(|number| format!("worker-{number}")));
        let names: Vec<String> = names.collect();
        let limit = story.max_unavailable;
        self.patch_pool("worker", json!({"maxUnavailable": limit}))
            .await?;
        for name in names {
            self.join(&name).await?;
        }
        for replica in 0..self.controllers.len() {
            self.start_controller(replica);
        }
        Ok(())
    }

    async fn join(&mut self, name: &str) -> anyhow::Result<()> {
        let role = if name.starts_with("master") {
            "master"
        } else {
            "worker"
        };
        fleet::create(&self.admin, &[SimulatedNodeSpec::new(name, role)]).await?;
        let replica = Replica {
            link: Link::new(&self.world, name, Some(name)),
            task: None,
        };
        self.daemons.insert(name.to_owned(), replica);
        self.start_daemon(name);
        Ok(())
    }

    fn start_controller(&mut self, number: usize) {
        let world = Arc::clone(&self.world);
        let replica = &mut self.controllers[number];
        replica.kill();
        let client = replica.link.client();
        let name = format!("controller-{number}");
        replica.task = Some(tokio::spawn(async move {
            // A replica that has lost the lease is restarted by the kubelet.
            loop {
                let election = LeaderElection {
                    namespace: NAMESPACE,
                    lease: LEASE,
                    duration: Duration::from_secs(15),
                };
                let work = |stop| {
                    let leadership = world.lead(&name);
                    let running = mco_controllers::run(client.clone(), Options::new(VERSION, VERSION), stop);
                    async move {
                        let _leadership = leadership;
                        running.await
                    }
                };
                let led = leader::lead(client.clone(), election, CancellationToken::new(), work).await;
                match led {
                    Ok(()) => world.log(format!("{name} lost the lease"), true),
                    Err(error) => world.violate(format!("{name} ended: {error}")),
                }
                sleep(Duration::from_secs(2)).await;
            }
        }));
    }

    fn start_daemon(&mut self, name: &str) {
        if let Some(replica) = self.daemons.get_mut(name) {
            replica.kill();
            let behaviour = Behaviour {
                apply: Duration::from_secs(5),
                reboot: Some(Duration::from_secs(40)),
                report_steps: true,
                ..Behaviour::default()
            };
            let run = fleet::run(replica.link.client(), behaviour, CancellationToken::new());
            replica.task = Some(tokio::spawn(run));
        }
    }

    async fn happen(&mut self, step: Step) -> anyhow::Result<Option<(Duration, Later)>> {
        match step {
            Step::Incident(incident) => {
                self.world.log(format!("INCIDENT: {incident}"), true);
                self.incident(incident).await
            }
            Step::Later(later) => {
                self.undo(&later).await?;
                Ok(None)
            }
            Step::Plant(plant) => {
                self.plant(plant).await?;
                Ok(None)
            }
        }
    }

    async fn incident(&mut self, incident: Incident) -> anyhow::Result<Option<(Duration, Later)>> {
        match incident {
            Incident::WriteConfig { number, role } => self.write_config(number, role).await?,
            Incident::DeleteConfig { number, role } => {
                let configs: Api<MachineConfig> = Api::all(self.admin.clone());
                let name = format!("50-{role}-{number}");
                ignore_missing(configs.delete(&name, &DeleteParams::default()).await)?;
            }
            Incident::Cordon { node, time } => {
                // A node that is being updated may be cordoned already; nothing tells the two apart then.
                if self.is_at_rest(&node) {
                    self.world.set_cordoned(&node, true);
                    self.set_unschedulable(&node, true).await?;
                    return Ok(Some((time, Later::Uncordon(node))));
                }
            }
            Incident::Pause { pool, time } => {
                self.patch_pool(pool, json!({"paused": true})).await?;
                self.world.set_paused(pool, true);
                return Ok(Some((time, Later::Unpause(pool))));
            }
            Incident::KillController { replica, time } => {
                self.controllers[replica].kill();
                return Ok(Some((time, Later::StartController(replica))));
            }
            Incident::KillDaemon { node, time } => {
                if let Some(daemon) = self.daemons.get_mut(&node) {
                    daemon.kill();
                    return Ok(Some((time, Later::StartDaemon(node))));
                }
            }
            Incident::Partition { client, time } => {
                let number = client
                    .strip_prefix("controller-")
                    .and_then(|number| number.parse().ok());
                let replica = match number {
                    Some(number) => self.controllers.get::<usize>(number),
                    None => self.daemons.get(&client),
                };
                if let Some(replica) = replica {
                    replica.link.cut(time);
                }
            }
            Incident::Join { node } => self.join(&node).await?,
        }
        Ok(None)
    }

    async fn undo(&mut self, later: &Later) -> anyhow::Result<()> {
        match later {
            Later::Uncordon(node) => {
                self.world
                    .log(format!("INCIDENT: node {node} is uncordoned"), true);
                self.world.set_cordoned(node, false);
                self.set_unschedulable(node, false).await?;
            }
            Later::Unpause(pool) => {
                self.world.log(format!("INCIDENT: pool {pool} is resumed"), true);
                self.world.set_paused(pool, false);
                self.patch_pool(pool, json!({"paused": false})).await?;
            }
            Later::StartController(replica) => {
                self.world
                    .log(format!("INCIDENT: controller-{replica} starts"), true);
                self.start_controller(*replica);
            }
            Later::StartDaemon(node) => {
                self.world
                    .log(format!("INCIDENT: the daemon of {node} starts"), true);
                self.start_daemon(node);
            }
        }
        Ok(())
    }

    async fn plant(&mut self, plant: Plant) -> anyhow::Result<()> {
        match plant {
            Plant::ForeignUncordon => {
                self.world.set_cordoned("worker-0", true);
                self.set_unschedulable("worker-0", true).await?;
                sleep(Duration::from_mins(1)).await;
                self.set_unschedulable("worker-0", false).await?;
            }
            Plant::OverBudget => {
                for number in 0..self.world.story.max_unavailable + 2 {
                    self.annotate(&format!("worker-{number}"), annotation::DESIRED_CONFIG, "another")
                        .await?;
                }
            }
            Plant::NeverDone => {
                // A daemon that never starts again.
                if let Some(daemon) = self.daemons.get_mut("worker-0") {
                    daemon.kill();
                    self.daemons.remove("worker-0");
                }
                self.write_config(1_000, "worker").await?;
            }
            Plant::TwoLeaders => self.release_lease_of_leader().await?,
            #[expect(clippy::panic, reason = "a panic is what is planted")]
            Plant::Panic => panic!("planted"),
            Plant::Hang => std::future::pending().await,
            // Planted when the cluster is at rest.
            Plant::StuckRender => {}
        }
        Ok(())
    }

    /// Another client releases the lease again and again, so that the other replica acquires it before the leader renews
    /// it.
    async fn release_lease_of_leader(&self) -> anyhow::Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.admin.clone(), NAMESPACE);
        let released = Patch::Merge(json!({"spec": {"holderIdentity": ""}}));
        for _ in 0..60 {
            leases.patch(LEASE, &PatchParams::default(), &released).await?;
            sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    }

    /// Ends all failures, undoes what the administrator did, and starts what does not run.
    async fn calm(&mut self) -> anyhow::Result<()> {
        self.world.set_chaos(false);
        self.world.log("INCIDENT: calm".to_owned(), true);
        for pool in POOLS {
            self.world.set_paused(pool, false);
            self.patch_pool(pool, json!({"paused": false})).await?;
        }
        let names: Vec<String> = self.daemons.keys().cloned().collect();
        for name in names {
            if self.world.set_cordoned(&name, false) {
                self.set_unschedulable(&name, false).await?;
            }
            let daemon = &self.daemons[&name];
            daemon.link.heal();
            if daemon.task.is_none() {
                self.start_daemon(&name);
            }
        }
        for number in 0..self.controllers.len() {
            self.controllers[number].link.heal();
            if self.controllers[number].task.is_none() {
                self.start_controller(number);
            }
        }
        Ok(())
    }

    async fn converge(&self) {
        let workers = u32::try_from(self.world.story.workers).unwrap_or(u32::MAX);
        let deadline = Instant::now() + CONVERGENCE.max(CONVERGENCE_PER_WORKER * workers);
        loop {
            let Some(reason) = unfinished(&self.world) else {
                return;
            };
            if Instant::now() >= deadline {
                return self.world.violate(format!("no convergence: {reason}"));
            }
            sleep(POLL).await;
        }
    }

    fn is_at_rest(&self, node: &str) -> bool {
        let node: Option<Node> = self.world.object("nodes", node);
        node.is_some_and(|node| {
            let view = NodeView::new(&node);
            view.is_done() && !view.is_unschedulable() && view.is_kubelet_healthy()
        })
    }

    async fn write_config(&self, number: u64, role: &str) -> anyhow::Result<()> {
        let config: MachineConfig = serde_json::from_value(json!({
            "metadata": {
                "name": format!("50-{role}-{number}"),
                "labels": {"machineconfiguration.openshift.io/role": role},
            },
            "spec": {"config": {"ignition": {"version": "3.2.0"}, "storage": {"files": [
                {"path": format!("/etc/{}", number % 3), "contents": {"source": format!("data:,{number}")}},
            ]}}},
        }))?;
        let configs: Api<MachineConfig> = Api::all(self.admin.clone());
        configs.create(&PostParams::default(), &config).await?;
        Ok(())
    }

    async fn patch_pool(&self, name: &str, spec: serde_json::Value) -> anyhow::Result<()> {
        let pools: Api<MachineConfigPool> = Api::all(self.admin.clone());
        let patch = Patch::Merge(json!({"spec": spec}));
        pools.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn set_unschedulable(&self, node: &str, is_unschedulable: bool) -> anyhow::Result<()> {
        self.patch_node(node, json!({"spec": {"unschedulable": is_unschedulable}}))
            .await
    }

    async fn annotate(&self, node: &str, key: &str, value: &str) -> anyhow::Result<()> {
        self.patch_node(node, json!({"metadata": {"annotations": {key: value}}}))
            .await
    }

    async fn patch_node(&self, name: &str, patch: serde_json::Value) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.admin.clone());
        let parameters = PatchParams {
            field_manager: Some("kubectl-cordon".to_owned()),
            ..PatchParams::default()
        };
        nodes.patch(name, &parameters, &Patch::Merge(patch)).await?;
        self.world
            .observe("the administrator", &format!("/api/v1/nodes/{name}"));
        Ok(())
    }

    fn end(&mut self) {
        self.controllers.iter_mut().for_each(Replica::kill);
        self.daemons.values_mut().for_each(Replica::kill);
    }
}

enum Step {
    Incident(Incident),
    Later(Later),
    Plant(Plant),
}

/// Takes the earliest step; of several at the same time the one that was added first.
fn next_of(agenda: &mut Vec<(Instant, Step)>) -> Option<(Instant, Step)> {
    let earliest = agenda.iter().map(|(at, _)| *at).min()?;
    let index = agenda.iter().position(|(at, _)| *at == earliest)?;
    Some(agenda.remove(index))
}

fn ignore_missing<T>(outcome: kube::Result<T>) -> kube::Result<()> {
    match outcome {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other.map(|_| ()),
    }
}
