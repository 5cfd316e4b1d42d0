//! A real daemon on a directory node against the embedded API server: the annotations on the wire are the test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::api::{Api, Patch, PatchParams, PostParams};
use mco_api::MachineConfig;
use mco_api::vocabulary::annotations::node as annotation;
use mco_apiserver::{Options, Server};
use mco_daemon::agent::{self, AgentError, Options as AgentOptions};
use mco_daemon::config::NodeConfig;
use mco_daemon::paths;
use mco_host::Machine;
use serde_json::json;
use support::{config, file, files};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const NODE: &str = "worker-1";
const DEADLINE: Duration = Duration::from_secs(60);

/// A cluster with one node, whose daemon can be stopped and started.
struct World {
    server: Server,
    _data: tempfile::TempDir,
    root: tempfile::TempDir,
    daemon: Option<(CancellationToken, JoinHandle<Result<(), AgentError>>)>,
}

impl World {
    async fn new(first: &NodeConfig) -> Self {
        let data = tempfile::tempdir().unwrap();
        let server = Server::open(data.path(), Options::default()).await.unwrap();
        let root = tempfile::tempdir().unwrap();
        support::lay_out(root.path());
        let world = Self {
            server,
            _data: data,
            root,
            daemon: None,
        };
        world.install_definitions().await;
        world.create_config(first).await;
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
        let nodes: Api<KubeNode> = Api::all(world.client());
        nodes
            .create(&PostParams::default(), &serde_json::from_value(node).unwrap())
            .await
            .unwrap();
        world
    }

    fn client(&self) -> kube::Client {
        kube::Client::new(self.server.service(), "default")
    }

    async fn install_definitions(&self) {
        use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
        let all: Api<CustomResourceDefinition> = Api::all(self.client());
        for definition in mco_api::crds() {
            let value = serde_json::to_value(definition).unwrap();
            let created = all
                .create(&PostParams::default(), &serde_json::from_value(value).unwrap())
                .await;
            created.unwrap();
        }
    }

    async fn create_config(&self, config: &NodeConfig) {
        let configs: Api<MachineConfig> = Api::all(self.client());
        for _ in 0..100 {
            match configs.create(&PostParams::default(), &config.object).await {
                Ok(_) => return,
                // The definitions were created a moment ago.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        panic!("MachineConfigs cannot be created");
    }

    fn start_daemon(&mut self) {
        let machine = Machine::directory(self.root.path()).unwrap();
        let stop = CancellationToken::new();
        let daemon = agent::run(
            self.client(),
            machine,
            NODE,
            AgentOptions::default(),
            stop.clone(),
        );
        self.daemon = Some((stop, tokio::spawn(daemon)));
    }

    async fn stop_daemon(&mut self) {
        let (stop, task) = self.daemon.take().unwrap();
        stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(5), task).await;
        ended
            .expect("the daemon ends soon after a stop")
            .unwrap()
            .unwrap();
    }

    async fn annotate(&self, key: &str, value: &str) {
        let nodes: Api<KubeNode> = Api::all(self.client());
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
        nodes.patch(NODE, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn annotations(&self) -> BTreeMap<String, String> {
        let nodes: Api<KubeNode> = Api::all(self.client());
        nodes
            .get(NODE)
            .await
            .unwrap()
            .metadata
            .annotations
            .unwrap_or_default()
    }

    /// Waits until the annotations satisfy a condition, playing the controller that answers drain requests.
    async fn until(&self, what: &str, condition: impl Fn(&BTreeMap<String, String>) -> bool) {
        let wait = async {
            loop {
                let now = self.annotations().await;
                if condition(&now) {
                    return;
                }
                if let Some(request) = now.get(annotation::DESIRED_DRAIN)
                    && now.get(annotation::LAST_APPLIED_DRAIN) != Some(request)
                {
                    self.annotate(annotation::LAST_APPLIED_DRAIN, request).await;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(DEADLINE, wait).await.is_err() {
            panic!("{what}: {:#?}", self.annotations().await);
        }
    }

    async fn until_done(&self, config: &str) {
        self.until(&format!("Done with {config}"), |now| {
            now.get(annotation::STATE).map(String::as_str) == Some("Done")
                && now.get(annotation::CURRENT_CONFIG).map(String::as_str) == Some(config)
        })
        .await;
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.path().join(path.trim_start_matches('/'))).unwrap()
    }
}

/// A new node: what the server laid down, and the files of its first config.
fn install(world: &World, first: &NodeConfig) {
    let name = first.name();
    let annotations = json!({
        annotation::CURRENT_CONFIG: name, annotation::DESIRED_CONFIG: name,
        annotation::FIRST_PIVOT_CONFIG: name, annotation::STATE: "Done",
    });
    world.write(paths::NODE_ANNOTATIONS, &annotations.to_string());
    world.write("/etc/a", "1\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_introduces_itself_updates_drifts_and_recovers() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let second = config("rendered-worker-2", &files(&[file("/etc/a", "2\n")]));
    let covered = config(
        "rendered-worker-3",
        &files(&[file("/etc/a", "2\n"), file("/etc/containers/policy.json", "{}")]),
    );
    let mut world = World::new(&first).await;
    install(&world, &first);
    world.start_daemon();
    world.until_done("rendered-worker-1").await;

    // An uncovered file: drained, applied, booted, proven, let in again.
    world.create_config(&second).await;
    let boot = || {
        fs::read_to_string(
            world
                .root
                .path()
                .join("run/machine-config-daemon/simulated-boot-id"),
        )
        .unwrap()
    };
    let before = boot();
    world.annotate(annotation::DESIRED_CONFIG, second.name()).await;
    world.until_done(second.name()).await;
    let now = world.annotations().await;
    assert_eq!(world.read("/etc/a"), "2\n");
    assert_ne!(boot(), before, "the change needs a boot");
    assert_eq!(now[annotation::LAST_APPLIED_DRAIN], "uncordon-rendered-worker-2");
    assert_eq!(now[annotation::REASON], "");
    assert_eq!(now[annotation::POST_CONFIG_ACTION], "");

    // A covered file: no boot.
    world.create_config(&covered).await;
    let before = boot();
    world.annotate(annotation::DESIRED_CONFIG, covered.name()).await;
    world.until_done(covered.name()).await;
    assert_eq!(boot(), before);
    assert!(
        !world
            .root
            .path()
            .join(paths::NODE_ANNOTATIONS.trim_start_matches('/'))
            .exists()
    );

    // Edited by hand: Degraded with the file named; put back: Done again.
    tokio::time::sleep(Duration::from_millis(200)).await;
    world.write("/etc/a", "edited\n");
    world
        .until("Degraded by drift", |now| {
            now.get(annotation::STATE).map(String::as_str) == Some("Degraded")
                && now[annotation::REASON].contains("content mismatch for file \"/etc/a\"")
        })
        .await;
    world.write("/etc/a", "2\n");
    world.until_done(covered.name()).await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_the_other_implementation_is_taken_over_without_a_boot() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let mut world = World::new(&first).await;
    world.write("/etc/a", "1\n");
    world.write(
        paths::CURRENT_CONFIG,
        &serde_json::to_string(&first.object).unwrap(),
    );
    for (key, value) in [
        (annotation::CURRENT_CONFIG, first.name()),
        (annotation::DESIRED_CONFIG, first.name()),
        (annotation::STATE, "Done"),
    ] {
        world.annotate(key, value).await;
    }
    let before = support::snapshot(world.root.path());
    world.start_daemon();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.annotations().await[annotation::STATE], "Done");
    assert_eq!(
        support::snapshot(world.root.path()),
        before,
        "nothing was to be done"
    );
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_that_is_no_way_is_told_and_another_target_repairs_it() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let mut world = World::new(&first).await;
    install(&world, &first);
    world.start_daemon();
    world.until_done(first.name()).await;
    let mut body = files(&[file("/etc/a", "1\n")]);
    body["storage"]["directories"] = json!([{"path": "/srv/x"}]);
    let impossible = config("rendered-worker-2", &body);
    world.create_config(&impossible).await;
    world
        .annotate(annotation::DESIRED_CONFIG, impossible.name())
        .await;
    world
        .until("Unreconcilable", |now| {
            now.get(annotation::STATE).map(String::as_str) == Some("Unreconcilable")
                && now[annotation::REASON].contains("ignition directories section contains changes")
        })
        .await;
    world.annotate(annotation::DESIRED_CONFIG, first.name()).await;
    world.until_done(first.name()).await;
    world.stop_daemon().await;
}
