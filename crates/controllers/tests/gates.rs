//! The gates of RolloutPolicies against real peers: a Prometheus, and a Kubernetes with two API servers.
//!
//! Ignored, because it needs what `e2e/gates/run` starts: `MCO_E2E_KUBECONFIG` names the cluster,
//! `MCO_E2E_PROMETHEUS` the program, and `MCO_E2E_API_SERVER_PID` the process of its second API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use mco_api::rollout_policy::{GateResult, RolloutPhase, RolloutPolicyStatus};
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool, RolloutPolicy};
use mco_controllers::Options;
use mco_core::rollout::NodeView;
use mco_simulator::{self as fleet, Behaviour, SimulatedNodeSpec};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

const VERSION: &str = "v-gates";
/// The deadline of each wait.
const DEADLINE: Duration = Duration::from_mins(2);

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set; run e2e/gates/run"))
}

async fn eventually<T>(what: &str, mut attempt: impl AsyncFnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    let mut seen = String::new();
    loop {
        match attempt().await {
            Ok(found) => return found,
            Err(found) if found != seen => {
                println!("{what}: {found}");
                seen = found;
            }
            Err(_) => {}
        }
        assert!(start.elapsed() < DEADLINE, "{what}: {seen}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Exports the health of a storage that does not exist.
struct Exporter {
    port: u16,
    /// 0 is healthy, as in Ceph.
    health: Arc<AtomicU8>,
}

impl Exporter {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let health = Arc::new(AtomicU8::new(1));
        let exported = Arc::clone(&health);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut buffer = [0; 4096];
                let _ = stream.read(&mut buffer).await;
                let body = format!("storage_health {}\n", exported.load(Ordering::SeqCst));
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { port, health }
    }

    fn set(&self, health: u8) {
        self.health.store(health, Ordering::SeqCst);
    }
}

/// A real Prometheus that scrapes the exporter every second.
struct Prometheus {
    directory: PathBuf,
    port: u16,
    process: Child,
}

impl Prometheus {
    async fn start(directory: &Path, exporter: &Exporter) -> Self {
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{
                "job_name": "storage",
                "static_configs": [{"targets": [format!("127.0.0.1:{}", exporter.port)]}],
            }],
        });
        let rules = json!({"groups": [{"name": "storage", "rules": [
            {"alert": "StorageSick", "expr": "storage_health > 0", "labels": {"severity": "critical"}},
        ]}]});
        std::fs::write(directory.join("prometheus.yaml"), config.to_string()).unwrap();
        std::fs::write(directory.join("rules.yaml"), rules.to_string()).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let process = Self::spawn(directory, port);
        let prometheus = Self {
            directory: directory.to_owned(),
            port,
            process,
        };
        prometheus.ready().await;
        prometheus
    }

    fn spawn(directory: &Path, port: u16) -> Child {
        let log = directory.join("prometheus.log");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(log)
            .unwrap();
        Command::new(variable("MCO_E2E_PROMETHEUS"))
            .arg(format!(
                "--config.file={}",
                directory.join("prometheus.yaml").display()
            ))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.join("data").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    async fn kill(&mut self) {
        self.process.start_kill().unwrap();
        self.process.wait().await.unwrap();
    }

    async fn restart(&mut self) {
        self.process = Self::spawn(&self.directory, self.port);
        self.ready().await;
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    async fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        answer.starts_with("HTTP/1.0 200").then_some(answer)
    }

    async fn ready(&self) {
        eventually("Prometheus is ready", async || {
            self.get("/-/ready").await.map(drop).ok_or_else(String::new)
        })
        .await;
    }

    /// Returns how many queries it has answered, by its own count.
    async fn queries(&self) -> u64 {
        let metrics = self.get("/metrics").await.unwrap();
        let counters = metrics
            .lines()
            .filter(|line| line.starts_with("prometheus_http_requests_total{"))
            .filter(|line| line.contains("handler=\"/api/v1/query\""));
        counters
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }
}

#[derive(Clone)]
struct Cluster {
    client: Client,
}

impl Cluster {
    async fn connect() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kubeconfig = Kubeconfig::read_from(variable("MCO_E2E_KUBECONFIG")).unwrap();
        let ca = kubeconfig.clusters[0].cluster.clone().unwrap();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
        config.default_retry = false;
        let cluster = Self {
            client: Client::try_from(config).unwrap(),
        };
        fleet::setup::prepare(&cluster.client, VERSION).await.unwrap();
        let trust = json!({"spec": {"kubeAPIServerServingCAData": ca.certificate_authority_data.unwrap()}});
        let _: ControllerConfig = cluster.patch("machine-config-controller", &trust).await;
        cluster
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>,
    {
        Api::all(self.client.clone())
    }

    async fn patch<K>(&self, name: &str, patch: &Value) -> K
    where
        K: kube::Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let patch = Patch::Merge(patch);
        self.api()
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap()
    }

    /// Creates a pool of workers with a policy of the same name.
    async fn pool(&self, name: &str, spec: Value) {
        let pool: MachineConfigPool = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"gates": name}},
            "spec": {
                "machineConfigSelector": {"matchExpressions": [{
                    "key": "machineconfiguration.openshift.io/role", "operator": "In", "values": ["worker", name],
                }]},
                "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}},
            },
        }))
        .unwrap();
        self.api().create(&PostParams::default(), &pool).await.unwrap();
        self.policy(name, spec).await;
    }

    async fn policy(&self, pool: &str, mut spec: Value) {
        spec["poolSelector"] = json!({"matchLabels": {"gates": pool}});
        let policy = json!({"metadata": {"name": pool}, "spec": spec});
        let policy: RolloutPolicy = serde_json::from_value(policy).unwrap();
        self.api().create(&PostParams::default(), &policy).await.unwrap();
    }

    async fn change(&self, role: &str, path: &str) {
        let config: MachineConfig = serde_json::from_value(json!({
            "metadata": {
                "name": format!("99-{role}-gates"),
                "labels": {"machineconfiguration.openshift.io/role": role},
            },
            "spec": {"config": {"ignition": {"version": "3.2.0"}, "storage": {"files": [
                {"path": path, "contents": {"source": "data:,gates"}},
            ]}}},
        }))
        .unwrap();
        self.api().create(&PostParams::default(), &config).await.unwrap();
    }

    async fn status(&self, policy: &str) -> RolloutPolicyStatus {
        let policy: RolloutPolicy = self.api().get(policy).await.unwrap();
        policy.status.unwrap_or_default()
    }

    /// Waits until the sentence of a policy contains this text.
    async fn reports(&self, policy: &str, text: &str) -> RolloutPolicyStatus {
        eventually(&format!("{policy} reports {text:?}"), async || {
            let status = self.status(policy).await;
            if status.message.contains(text) {
                Ok(status)
            } else {
                Err(status.message)
            }
        })
        .await
    }

    /// Returns the desired configs of a pool's nodes and whether each is schedulable and done.
    async fn nodes(&self, prefix: &str) -> Vec<(String, bool)> {
        let nodes: Api<Node> = self.api();
        let nodes = nodes.list(&ListParams::default()).await.unwrap();
        let own = nodes
            .iter()
            .map(NodeView::new)
            .filter(|node| node.name.starts_with(prefix));
        own.map(|node| (node.desired_config.to_owned(), node.is_done() && node.is_ready()))
            .collect()
    }

    /// Returns how many nodes of a pool are sent to its target.
    async fn sent(&self, pool: &str) -> usize {
        let target = self.target(pool).await;
        let nodes = self.nodes(&format!("{pool}-")).await;
        nodes.iter().filter(|(desired, _)| *desired == target).count()
    }

    async fn target(&self, pool: &str) -> String {
        let pool: MachineConfigPool = self.api().get(pool).await.unwrap();
        pool.target_name().to_owned()
    }

    /// Waits until all nodes of a pool have its target, which must not be `old`.
    async fn updated(&self, pool: &str, old: &str) -> String {
        eventually(&format!("pool {pool} is updated"), async || {
            let target = self.target(pool).await;
            let nodes = self.nodes(&format!("{pool}-")).await;
            let done = nodes.iter().filter(|(desired, done)| *desired == target && *done);
            let done = done.count();
            if !target.is_empty() && target != old && done == nodes.len() {
                Ok(target.clone())
            } else {
                Err(format!("{done} of {} nodes", nodes.len()))
            }
        })
        .await
    }

    /// No node of the pool was touched, and none is away.
    async fn is_untouched(&self, pool: &str, old: &str) {
        let nodes = self.nodes(&format!("{pool}-")).await;
        assert!(
            nodes.iter().all(|node| *node == (old.to_owned(), true)),
            "{pool}: {nodes:?}"
        );
        let status: MachineConfigPool = self.api().get(pool).await.unwrap();
        assert_eq!(status.status.unwrap().unavailable_machine_count, 0, "{pool}");
    }
}

fn gate<'s>(status: &'s RolloutPolicyStatus, name: &str) -> &'s GateResult {
    status.gates.iter().find(|gate| gate.name == name).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Kubernetes and a Prometheus: e2e/gates/run"]
#[expect(
    clippy::too_many_lines,
    reason = "one rollout with the peers of all gates, which are expensive to start"
)]
async fn gates_hold_and_release_pools_as_their_peers_report() {
    let _ = tracing_subscriber::fmt().with_test_writer().try_init();
    let directory = tempfile::tempdir().unwrap();
    let exporter = Exporter::start().await;
    let prometheus = Prometheus::start(directory.path(), &exporter).await;
    let cluster = Cluster::connect().await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nowhere = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);

    let master = json!({"metadata": {"labels": {"gates": "master"}}});
    let _: MachineConfigPool = cluster.patch("master", &master).await;
    cluster
        .policy(
            "master",
            json!({"gates": [{"name": "control-plane", "interval": "1s", "controlPlane": {}}]}),
        )
        .await;
    let url = prometheus.url();
    let compute = json!({"gates": [
        {"name": "storage", "interval": "1s",
         "prometheus": {"url": url, "expr": "storage_health == 0", "for": "3s"}},
        {"name": "alerts", "interval": "1s", "prometheus": {"url": url, "noFiring": "severity=\"critical\""}},
    ]});
    cluster.pool("compute", compute).await;
    let database = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "db",
        "type": "Available"});
    let storage = json!({"gates": [{"name": "database", "interval": "1s", "condition": database}]});
    cluster.pool("storage", storage).await;
    let far = json!({"gates": [{"name": "ticket", "interval": "1s", "webhook": {"url": nowhere}}]});
    cluster.pool("far", far).await;

    let machines = [
        ("master", 2),
        ("compute", 4),
        ("storage", 2),
        ("far", 2),
        ("worker", 2),
    ];
    let machines: Vec<SimulatedNodeSpec> = machines
        .iter()
        .flat_map(|(pool, count)| {
            (0..*count).map(move |index| SimulatedNodeSpec {
                name: format!("{pool}-{index}"),
                roles: match *pool {
                    "master" | "worker" => vec![(*pool).to_owned()],
                    _ => vec!["worker".to_owned(), (*pool).to_owned()],
                },
                zone: None,
            })
        })
        .collect();
    fleet::create(&cluster.client, &machines).await.unwrap();
    let stop = CancellationToken::new();
    let behaviour = Behaviour {
        apply: Duration::from_millis(500),
        reboot: Some(Duration::from_millis(500)),
        ..Behaviour::default()
    };
    tokio::spawn(fleet::run(cluster.client.clone(), behaviour, stop.clone()));
    let controllers = mco_controllers::run(
        cluster.client.clone(),
        Options::new(VERSION, VERSION),
        stop.clone(),
    );
    let controllers = tokio::spawn(controllers);
    let started = Instant::now();

    let mut before = Vec::new();
    for pool in ["master", "compute", "storage", "far", "worker"] {
        before.push(cluster.updated(pool, "").await);
    }
    let [master, compute, storage, far, worker] = before.try_into().unwrap();

    let second = variable("MCO_E2E_API_SERVER_PID");
    signal("STOP", &second).await;
    cluster.change("master", "/etc/master").await;
    cluster.change("worker", "/etc/worker").await;
    // The pool without a policy is updated while all others wait for their gates.
    cluster.updated("worker", &worker).await;
    tokio::join!(
        with_prometheus(&cluster, prometheus, &exporter, &compute, started),
        with_a_condition(&cluster, &storage),
        with_an_unreachable_gate(&cluster, &far),
        with_the_control_plane(&cluster, &second, &master),
    );
    stop.cancel();
    controllers.await.unwrap().unwrap();
}

async fn signal(name: &str, pid: &str) {
    let sent = Command::new("kill")
        .args(["-s", name, pid])
        .status()
        .await
        .unwrap();
    assert!(sent.success());
}

async fn with_prometheus(
    cluster: &Cluster,
    mut prometheus: Prometheus,
    exporter: &Exporter,
    before: &str,
    started: Instant,
) {
    let status = cluster
        .reports("compute", "waits for gate storage: the expression has no result")
        .await;
    assert_eq!(status.phase, RolloutPhase::Waiting);
    let alerts = eventually("the alerts are checked", async || {
        let status = cluster.status("compute").await;
        let alerts = status.gates.iter().find(|gate| gate.name == "alerts");
        alerts.cloned().ok_or_else(String::new)
    })
    .await;
    assert_eq!(
        (alerts.passed, alerts.message.as_str()),
        (false, "1 alert fires: StorageSick")
    );
    cluster.is_untouched("compute", before).await;

    exporter.set(0);
    eventually("the first node is updated", async || {
        match cluster.sent("compute").await {
            0 => Err(cluster.status("compute").await.message),
            _ => Ok(()),
        }
    })
    .await;
    let queries = prometheus.queries().await;
    prometheus.kill().await;
    let status = cluster.reports("compute", "which cannot be checked").await;
    assert!(status.message.contains("refused"), "{}", status.message);
    assert!(!gate(&status, "storage").reachable);
    let sent = cluster.sent("compute").await;
    assert!(sent < 4, "a node was left when Prometheus went away");
    // Two more checks later still none is started, and none is away.
    for _ in 0..2 {
        let last = gate(&cluster.status("compute").await, "storage")
            .checked_at
            .clone();
        eventually("another check", async || {
            let status = cluster.status("compute").await;
            if gate(&status, "storage").checked_at > last {
                Ok(())
            } else {
                Err(String::new())
            }
        })
        .await;
    }
    assert_eq!(cluster.sent("compute").await, sent);
    let away = cluster.nodes("compute-").await;
    assert!(away.iter().all(|(_, done)| *done), "{away:?}");

    prometheus.restart().await;
    cluster.updated("compute", before).await;
    let queries = queries + prometheus.queries().await;
    let most = 2 * (started.elapsed().as_secs() + 1);
    println!("Prometheus answered {queries} queries of 2 gates, at most {most} expected");
    assert!((4..=most).contains(&queries), "{queries} queries, at most {most}");
}

async fn with_a_condition(cluster: &Cluster, before: &str) {
    let status = cluster.reports("storage", "cannot read Deployment db").await;
    assert!(!gate(&status, "database").reachable);
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), "default");
    let labels = json!({"app": "db"});
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "db"},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "db", "image": "db"}]},
        }},
    }))
    .unwrap();
    deployments
        .create(&PostParams::default(), &deployment)
        .await
        .unwrap();
    cluster
        .reports(
            "storage",
            "waits for gate database: Deployment db has no condition Available",
        )
        .await;
    let available = async |status: &str| {
        let condition =
            json!({"type": "Available", "status": status, "reason": "Test", "message": "1 of 3 replicas"});
        let patch = json!({"status": {"conditions": [condition]}});
        deployments
            .patch_status("db", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    };
    available("False").await;
    cluster
        .reports("storage", "Deployment db is Available=False: 1 of 3 replicas")
        .await;
    cluster.is_untouched("storage", before).await;
    available("True").await;
    cluster.updated("storage", before).await;
}

async fn with_an_unreachable_gate(cluster: &Cluster, before: &str) {
    let status = cluster
        .reports("far", "waits for gate ticket, which cannot be checked")
        .await;
    assert!(status.message.contains("refused"), "{}", status.message);
    cluster.is_untouched("far", before).await;
    // The same with an answer that is no answer: Pass only concerns gates that cannot be checked.
    let mut policy: RolloutPolicy = cluster.api().get("far").await.unwrap();
    policy.spec.gates[0].on_unreachable = mco_api::rollout_policy::UnreachableGate::Pass;
    let _: RolloutPolicy = cluster
        .patch("far", &json!({"spec": {"gates": policy.spec.gates}}))
        .await;
    cluster.updated("far", before).await;
}

async fn with_the_control_plane(cluster: &Cluster, second: &str, before: &str) {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "kube-system");
    for (component, name, node) in [
        ("etcd", "etcd-a", "master-0"),
        ("etcd", "etcd-b", "master-1"),
        ("kube-apiserver", "kube-apiserver-a", "master-0"),
        ("kube-apiserver", "kube-apiserver-b", "master-1"),
    ] {
        // As the kubelet mirrors a static pod, which a drain does not evict.
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "labels": {"component": component},
                "annotations": {"kubernetes.io/config.mirror": "gates"},
            },
            "spec": {"containers": [{"name": component, "image": component}], "nodeName": node},
        }))
        .unwrap();
        let _ = pods.delete(name, &DeleteParams::default().grace_period(0)).await;
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    let ready = async |pod: &str, status: &str| {
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        pods.patch_status(pod, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    };
    ready("etcd-a", "True").await;
    ready("kube-apiserver-a", "True").await;
    ready("etcd-b", "False").await;
    // The process does not respond. Once its lease has expired, which may be before the gate is checked, the cluster does
    // not list it any more, but it has a static pod.
    ready("kube-apiserver-b", "False").await;
    cluster
        .reports(
            "master",
            "waits for gate control-plane: etcd member etcd-b is not ready",
        )
        .await;
    ready("etcd-b", "True").await;
    cluster
        .reports("master", "API server kube-apiserver-b is not ready")
        .await;
    cluster.is_untouched("master", before).await;
    signal("CONT", second).await;
    eventually("the second API server is listed again", async || {
        let slices: Api<k8s_openapi::api::discovery::v1::EndpointSlice> =
            Api::namespaced(cluster.client.clone(), "default");
        let slices = slices.list(&ListParams::default()).await.unwrap();
        let addresses = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
        match addresses.count() {
            2 => Ok(()),
            count => Err(format!("{count} addresses")),
        }
    })
    .await;
    ready("kube-apiserver-b", "True").await;
    cluster.updated("master", before).await;
    let status = cluster.status("master").await;
    assert_eq!(
        gate(&status, "control-plane").message,
        "2 API servers and 2 etcd members ready"
    );
}
