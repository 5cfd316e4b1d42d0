//! Kills controllers at random during a rollout: the invariants hold at every moment, and the rollout completes.
//!
//! On the embedded control plane over a real socket; on a real Kubernetes, with more nodes and more kills, when
//! `MCO_E2E_KUBECONFIG` names one; `MCO_E2E_NODES` and `MCO_E2E_KILLS` set their numbers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Config};
use mco_api::vocabulary::annotations::node as annotation;
use mco_api::{MachineConfig, MachineConfigPool};
use mco_apiserver::ApiServer;
use mco_controllers::Options;
use mco_core::rollout::NodeView;
use mco_simulator::{self as fleet, Behaviour, SimulatedNodeSpec};
use parking_lot::Mutex;
use serde_json::json;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

const VERSION: &str = "v-kill";
const KUBECONFIG: &str = "MCO_KILL_CHILD_KUBECONFIG";
const REAL: &str = "MCO_E2E_KUBECONFIG";
/// The deadline of the whole test.
const DEADLINE: Duration = Duration::from_mins(10);

struct Scale {
    nodes: usize,
    at_once: usize,
    kills: usize,
}

fn number(variable: &str, default: usize) -> usize {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap(),
        Err(_) => default,
    }
}

async fn client(kubeconfig: &Path) -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// Not a test: the process that is killed. It runs only when its parent names a cluster.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the child process of the test below"]
async fn child() {
    let Ok(kubeconfig) = std::env::var(KUBECONFIG) else {
        return;
    };
    let client = client(Path::new(&kubeconfig)).await;
    let options = Options::new(VERSION, VERSION);
    mco_controllers::run(client, options, CancellationToken::new())
        .await
        .unwrap();
}

fn spawn(kubeconfig: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(KUBECONFIG, kubeconfig)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Checks the invariants at every change of a node.
#[derive(Debug, Default)]
struct Witness {
    /// Unavailable nodes, as they were when they became so.
    away: BTreeMap<String, String>,
    well: BTreeMap<String, bool>,
    most_away: BTreeMap<String, String>,
    reboots: BTreeMap<String, u32>,
    lifted: bool,
    /// What controllers last wrote to a node: its desired config, the response to its drain, its cordon.
    written: BTreeMap<String, [String; 3]>,
    /// How often that changed.
    writes: usize,
}

impl Witness {
    fn see(&mut self, node: &Node, person: &str) {
        let view = NodeView::new(node);
        let written = [
            view.desired_config.to_owned(),
            view.annotation(annotation::LAST_APPLIED_DRAIN)
                .unwrap_or_default()
                .to_owned(),
            view.is_unschedulable().to_string(),
        ];
        let before = self.written.insert(view.name.to_owned(), written.clone());
        self.writes += usize::from(before.is_some_and(|before| before != written));
        let well = view.is_kubelet_healthy();
        let was_well = self.well.insert(view.name.to_owned(), well).unwrap_or(true);
        if was_well && !well {
            *self.reboots.entry(view.name.to_owned()).or_default() += 1;
        }
        if view.name == person {
            self.lifted |= !view.is_unschedulable();
            return;
        }
        if well && !view.is_unschedulable() {
            self.away.remove(view.name);
            return;
        }
        let state = format!(
            "version {:?}, unschedulable {}, {:?}",
            node.metadata.resource_version,
            view.is_unschedulable(),
            node.metadata.annotations
        );
        self.away.insert(view.name.to_owned(), state);
        if self.away.len() > self.most_away.len() {
            self.most_away.clone_from(&self.away);
        }
    }
}

impl Witness {
    fn check(&self, scale: &Scale, start: Instant) {
        assert!(
            self.most_away.len() <= scale.at_once,
            "{} allowed: {:#?}",
            scale.at_once,
            self.most_away
        );
        assert!(!self.lifted, "a person's cordon was lifted");
        let twice: Vec<_> = self.reboots.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "rebooted more than once: {twice:?}");
        assert_eq!(self.reboots.len(), scale.nodes - 1, "who changed rebooted");
        println!(
            "{} nodes, {} kills, at most {} away of {} allowed, {:?}",
            scale.nodes,
            scale.kills,
            self.most_away.len(),
            scale.at_once,
            start.elapsed()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_killed_at_random_keep_every_promise_and_finish() {
    let directory = tempfile::tempdir().unwrap();
    if let Ok(real) = std::env::var(REAL) {
        let nodes = number("MCO_E2E_NODES", 200);
        let scale = Scale {
            nodes,
            at_once: (nodes / 20).max(1),
            kills: number("MCO_E2E_KILLS", 50),
        };
        return play(&PathBuf::from(real), &scale).await;
    }
    let server = ApiServer::open(directory.path(), mco_apiserver::ApiServerOptions::default())
        .await
        .unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let kubeconfig = server.write_kubeconfig(&url).unwrap();
    let server = Arc::new(server);
    let serving = Arc::clone(&server);
    tokio::spawn(async move { serving.serve(listener, &url).await });
    let scale = Scale {
        nodes: 24,
        at_once: 3,
        kills: 8,
    };
    play(&kubeconfig, &scale).await;
}

async fn play(kubeconfig: &Path, scale: &Scale) {
    let client = client(kubeconfig).await;
    fleet::setup::prepare(&client, VERSION).await.unwrap();
    let machines: Vec<SimulatedNodeSpec> = (0..scale.nodes)
        .map(|index| {
            SimulatedNodeSpec::new(format!("kill-{index:03}"), "worker").in_zone(format!("z{}", index % 3))
        })
        .collect();
    fleet::create(&client, &machines).await.unwrap();
    let stop = CancellationToken::new();
    let behaviour = Behaviour {
        apply: Duration::from_millis(300),
        reboot: Some(Duration::from_millis(300)),
        ..Behaviour::default()
    };
    tokio::spawn(fleet::run(client.clone(), behaviour, stop.clone()));
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let nodes: Api<Node> = Api::all(client.clone());
    let limit = json!({"spec": {"maxUnavailable": scale.at_once + 1}});
    pools
        .patch("worker", &PatchParams::default(), &Patch::Merge(limit))
        .await
        .unwrap();
    let mut controllers = spawn(kubeconfig);
    let start = Instant::now();
    let target = wait_for_update(&pools, "", scale.nodes, start).await;
    // A foreign cordon uses one slot of the budget, and must never be removed.
    let person = "kill-000";
    let cordon = json!({"spec": {"unschedulable": true}});
    nodes
        .patch(person, &PatchParams::default(), &Patch::Merge(cordon))
        .await
        .unwrap();
    let witness = observe(nodes.clone(), person);
    let config: MachineConfig = serde_json::from_value(json!({
        "metadata": {"name": "99-worker-kill", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {"ignition": {"version": "3.2.0"}, "storage": {"files": [
            {"path": "/etc/kill", "contents": {"source": "data:,kill"}},
        ]}}},
    }))
    .unwrap();
    let configs: Api<MachineConfig> = Api::all(client.clone());
    configs.create(&PostParams::default(), &config).await.unwrap();
    for kill in Kills::new(scale) {
        // The time is counted from the first write, so that the controller is killed while it works.
        let seen = witness.lock().writes;
        while witness.lock().writes < seen + kill.after_writes {
            assert!(start.elapsed() < DEADLINE, "{} kills, {seen} writes", kill.number);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        tokio::time::sleep(kill.and_then).await;
        controllers.start_kill().unwrap();
        controllers.wait().await.unwrap();
        let to_do = not_sent_from(&nodes, &target).await;
        // Besides the node with the foreign cordon.
        assert!(
            (2..scale.nodes).contains(&to_do),
            "kill {} is during the rollout, but {to_do} nodes of {} are still to be sent",
            kill.number,
            scale.nodes
        );
        controllers = spawn(kubeconfig);
    }
    let new = wait_for_update(&pools, &target, scale.nodes - 1, start).await;
    check(&nodes, &new, person, scale).await;
    witness.lock().check(scale, start);
    stop.cancel();
    controllers.start_kill().unwrap();
    controllers.wait().await.unwrap();
}

/// When a controller is killed.
struct Kill {
    number: usize,
    /// After this number of writes.
    after_writes: usize,
    and_then: Duration,
}

/// Random moments from a seeded generator, so that a failure can be reproduced.
struct Kills {
    done: usize,
    all: usize,
    most_writes: usize,
    seed: u64,
}

impl Kills {
    fn new(scale: &Scale) -> Self {
        // A node is written four times. On average half of the writes come between kills, and the rest after the last.
        let most_writes = (4 * scale.nodes / scale.kills).max(1);
        Self {
            done: 0,
            all: scale.kills,
            most_writes,
            seed: 0x9e37_79b9_7f4a_7c15,
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % limit
    }
}

impl Iterator for Kills {
    type Item = Kill;

    fn next(&mut self) -> Option<Kill> {
        if self.done == self.all {
            return None;
        }
        self.done += 1;
        let most = u64::try_from(self.most_writes).unwrap();
        Some(Kill {
            number: self.done,
            after_writes: usize::try_from(1 + self.below(most)).unwrap(),
            and_then: Duration::from_millis(self.below(20)),
        })
    }
}

/// Returns how many nodes still have this desired config.
async fn not_sent_from(nodes: &Api<Node>, old: &str) -> usize {
    let nodes = nodes.list(&ListParams::default()).await.unwrap();
    let waiting = nodes
        .items
        .iter()
        .filter(|node| NodeView::new(node).desired_config == old);
    waiting.count()
}

fn observe(nodes: Api<Node>, person: &'static str) -> Arc<Mutex<Witness>> {
    let witness: Arc<Mutex<Witness>> = Arc::default();
    let seeing = Arc::clone(&witness);
    tokio::spawn(async move {
        let mut events = watcher(nodes, watcher::Config::default()).boxed();
        while let Some(event) = events.next().await {
            if let Ok(Event::Apply(node) | Event::InitApply(node)) = event {
                seeing.lock().see(&node, person);
            }
        }
    });
    witness
}

/// Waits until this many nodes have the pool's target, which must not be `old`, and returns the target.
async fn wait_for_update(
    pools: &Api<MachineConfigPool>,
    old: &str,
    expected: usize,
    start: Instant,
) -> String {
    loop {
        // A loaded API server may report this late.
        let Ok(pool) = pools.get("worker").await else {
            assert!(start.elapsed() < DEADLINE, "the API server does not answer");
            tokio::time::sleep(Duration::from_millis(200)).await;
            continue;
        };
        let target = pool.target_name().to_owned();
        let status = pool.status.unwrap_or_default();
        let current = Some(status.observed_generation) == pool.metadata.generation;
        let enough = usize::try_from(status.updated_machine_count).unwrap_or_default() >= expected;
        if current && enough && !target.is_empty() && target != old {
            return target;
        }
        assert!(start.elapsed() < DEADLINE, "{status:#?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn check(nodes: &Api<Node>, target: &str, person: &str, scale: &Scale) {
    let all = nodes.list(&ListParams::default()).await.unwrap();
    let ours = all
        .items
        .iter()
        .filter(|node| NodeView::new(node).name.starts_with("kill-"));
    let mut seen = 0;
    for node in ours {
        seen += 1;
        let view = NodeView::new(node);
        if view.name == person {
            assert!(view.is_unschedulable());
            assert_ne!(view.current_config, target, "a cordon keeps a node back");
            continue;
        }
        assert_eq!(
            (view.current_config, view.state),
            (target, "Done"),
            "{}",
            view.name
        );
        assert!(!view.is_unschedulable(), "{} was left cordoned", view.name);
        let record = "machineconfiguration.openshift.io/drain-record";
        assert!(
            view.annotation(record).is_none(),
            "{} was left with a record",
            view.name
        );
    }
    assert_eq!(seen, scale.nodes);
}
