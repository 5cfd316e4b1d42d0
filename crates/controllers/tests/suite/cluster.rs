//! A cluster in this process: the embedded control plane, the controllers, and simulated nodes.

use std::fmt::Debug;
use std::time::Duration;

use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client, Resource};
use mco_api::crd::CustomResourceDefinition;
use mco_api::vocabulary::conditions::pool as condition;
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool};
use mco_apiserver::ApiServer;
use mco_controllers::{DrainTiming, Metrics, Options};
use mco_simulator::{self as fleet, Behaviour, Counting, RequestCounts, SimulatedNodeSpec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub const VERSION: &str = "v-test";
/// The deadline of every wait.
pub const DEADLINE: Duration = Duration::from_mins(2);

pub struct Cluster {
    pub client: Client,
    pub metrics: Metrics,
    /// What the controllers write.
    pub writes: RequestCounts,
    server: ApiServer,
    controllers: Option<Controllers>,
    fleet: CancellationToken,
    _directory: tempfile::TempDir,
}

struct Controllers {
    stop: CancellationToken,
    task: JoinHandle<Result<(), mco_controllers::Error>>,
}

impl Cluster {
    /// Creates the definitions, the namespace, the two built-in pools and a ControllerConfig; starts nothing.
    pub async fn prepare() -> Self {
        let _ = tracing_subscriber::fmt()
            .with_test_writer()
            .with_max_level(tracing::Level::INFO)
            .try_init();
        let directory = tempfile::tempdir().unwrap();
        let server = ApiServer::open(directory.path(), mco_apiserver::ApiServerOptions::default())
            .await
            .unwrap();
        let client = Client::new(server.service(), "default");
        let cluster = Self {
            client,
            metrics: Metrics::default(),
            writes: RequestCounts::default(),
            server,
            controllers: None,
            fleet: CancellationToken::new(),
            _directory: directory,
        };
        fleet::setup::prepare(&cluster.client, VERSION).await.unwrap();
        cluster
    }

    /// Starts three control-plane nodes, this many workers and the controllers, and waits until all nodes are up to
    /// date.
    pub async fn start(workers: usize, behaviour: Behaviour) -> Self {
        let mut cluster = Self::prepare().await;
        cluster.start_controllers();
        cluster.start_nodes(workers, behaviour).await;
        cluster
    }

    /// Starts three control-plane nodes and this many workers, and waits until all are up to date.
    pub async fn start_nodes(&mut self, workers: usize, behaviour: Behaviour) {
        let masters = (0..3).map(|index| SimulatedNodeSpec::new(format!("master-{index}"), "master"));
        let workers = (0..workers).map(|index| SimulatedNodeSpec::new(format!("worker-{index}"), "worker"));
        let machines: Vec<SimulatedNodeSpec> = masters.chain(workers).collect();
        fleet::create(&self.client, &machines).await.unwrap();
        self.start_fleet(behaviour);
        for pool in ["master", "worker"] {
            self.updated(pool).await;
        }
    }

    pub fn options(&self) -> Options {
        Options {
            metrics: self.metrics.clone(),
            drain: DrainTiming {
                attempt: Duration::from_secs(3),
                eviction_retry: Duration::from_millis(200),
                ..DrainTiming::default()
            },
            ..Options::new(VERSION, VERSION)
        }
    }

    pub fn start_controllers(&mut self) {
        self.start_controllers_with(self.options());
    }

    pub fn start_controllers_with(&mut self, options: Options) {
        self.start_controllers_through(self.counted_client(), options);
    }

    /// Returns a client whose writes are counted as the controllers'.
    pub fn counted_client(&self) -> Client {
        let service = Counting::new(self.server.service(), self.writes.clone());
        Client::new(service, "default")
    }

    /// Starts the controllers with this client.
    pub fn start_controllers_through(&mut self, client: Client, options: Options) {
        let stop = CancellationToken::new();
        let run = mco_controllers::run(client, options, stop.clone());
        self.controllers = Some(Controllers {
            stop,
            task: tokio::spawn(run),
        });
    }

    /// Stops the controllers gracefully.
    pub async fn stop_controllers(&mut self) {
        if let Some(Controllers { stop, task }) = self.controllers.take() {
            stop.cancel();
            let ended = tokio::time::timeout(Duration::from_secs(5), task).await;
            ended
                .expect("the controllers stop within five seconds")
                .unwrap()
                .unwrap();
        }
    }

    pub fn start_fleet(&self, behaviour: Behaviour) {
        tokio::spawn(fleet::run(self.client.clone(), behaviour, self.fleet.clone()));
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>,
    {
        Api::all(self.client.clone())
    }

    pub async fn create<K>(&self, object: &K) -> K
    where
        K: Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        self.api::<K>()
            .create(&PostParams::default(), object)
            .await
            .unwrap()
    }

    /// Creates a minimal definition of a kind of config.openshift.io.
    pub async fn define(&self, kind: &str, plural: &str, version: &str, scope: &str) {
        self.define_in("config.openshift.io", kind, plural, version, scope)
            .await;
    }

    /// Creates a minimal definition of a kind.
    pub async fn define_in(&self, group: &str, kind: &str, plural: &str, version: &str, scope: &str) {
        let definition: CustomResourceDefinition = serde_json::from_value(json!({
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group,
                "scope": scope,
                "names": {
                    "kind": kind, "listKind": format!("{kind}List"),
                    "plural": plural, "singular": kind.to_lowercase(),
                },
                "versions": [{
                    "name": version, "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        }))
        .unwrap();
        self.create(&definition).await;
        let path = format!("/apis/{group}/{version}/{plural}");
        eventually(&format!("{kind} is served"), || async {
            let request = Request::get(&path).body(Vec::new()).unwrap();
            self.client.request::<Value>(request).await.ok()
        })
        .await;
    }

    /// Waits for an event about the object of this name, with this reason and this text in its message.
    pub async fn event(&self, about: &str, reason: &str, part: &str) -> Event {
        let events: Api<Event> = Api::all(self.client.clone());
        eventually(&format!("event {reason} about {about}: {part}"), || async {
            let events = events.list(&ListParams::default()).await.ok()?.items;
            events.into_iter().find(|event| {
                let regarding = event.regarding.as_ref().and_then(|about| about.name.as_deref());
                regarding == Some(about)
                    && event.reason.as_deref() == Some(reason)
                    && event.note.as_deref().is_some_and(|note| note.contains(part))
            })
        })
        .await
    }

    pub async fn create_config(&self, value: Value) -> MachineConfig {
        let config: MachineConfig = serde_json::from_value(value).unwrap();
        self.create(&config).await
    }

    pub async fn delete_config(&self, name: &str) {
        self.api::<MachineConfig>()
            .delete(name, &kube::api::DeleteParams::default())
            .await
            .unwrap();
    }

    pub async fn patch<K>(&self, name: &str, patch: Value) -> K
    where
        K: Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        self.api::<K>()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap()
    }

    pub async fn pool(&self, name: &str) -> MachineConfigPool {
        self.api().get(name).await.unwrap()
    }

    pub async fn node(&self, name: &str) -> Node {
        self.api().get(name).await.unwrap()
    }

    pub async fn controller_config(&self) -> ControllerConfig {
        self.api()
            .get(mco_api::controller_config::CONTROLLER_CONFIG_NAME)
            .await
            .unwrap()
    }

    pub fn annotation(node: &Node, name: &str) -> String {
        let key = format!("machineconfiguration.openshift.io/{name}");
        let annotations = node.metadata.annotations.as_ref();
        annotations
            .and_then(|all| all.get(&key))
            .cloned()
            .unwrap_or_default()
    }

    /// Waits until a pool's status matches.
    pub async fn pool_where(
        &self,
        name: &str,
        what: &str,
        fits: impl Fn(&MachineConfigPool) -> bool,
    ) -> MachineConfigPool {
        let what = format!("pool {name}: {what}");
        eventually(&what, || async {
            let pool = self.pool(name).await;
            fits(&pool).then_some(pool)
        })
        .await
    }

    /// Waits until all nodes of a pool have its target, and the target is rendered from the current configs.
    pub async fn updated(&self, name: &str) -> MachineConfigPool {
        self.pool_where(name, "is updated", |pool| {
            let target = pool.target_name();
            let status = pool.status.clone().unwrap_or_default();
            !target.is_empty()
                && status.configuration.name() == target
                && holds(pool, condition::UPDATED)
                && !holds(pool, condition::UPDATING)
        })
        .await
    }

    /// Waits until the controllers have written nothing for a while, and fails if they never stop writing.
    pub async fn at_rest(&self) {
        const A_WHILE: Duration = Duration::from_millis(1_500);
        eventually("the controllers write nothing more", || async {
            let before = self.writes.snapshot();
            tokio::time::sleep(A_WHILE).await;
            (self.writes.snapshot() == before).then_some(())
        })
        .await;
    }

    /// Returns how often a pool was rendered.
    pub fn renders(&self, pool: &str) -> u64 {
        let text = self.metrics.encode().unwrap();
        let start = format!("mcc_renders_total{{pool=\"{pool}\"}} ");
        let count = text.lines().find_map(|line| line.strip_prefix(&start));
        count.unwrap().parse().unwrap()
    }

    /// Waits until a pool has another target than this one.
    pub async fn retargeted(&self, name: &str, from: &str) -> String {
        let pool = self
            .pool_where(name, "has another target", |pool| target(pool) != from)
            .await;
        target(&pool)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.fleet.cancel();
        if let Some(controllers) = &self.controllers {
            controllers.stop.cancel();
        }
    }
}

pub fn target(pool: &MachineConfigPool) -> String {
    pool.target_name().to_owned()
}

pub fn holds(pool: &MachineConfigPool, type_: &str) -> bool {
    let status = pool.status.as_ref();
    status.is_some_and(|status| condition::holds(&status.conditions, type_))
}

pub fn message(pool: &MachineConfigPool, type_: &str) -> String {
    let status = pool.status.clone().unwrap_or_default();
    condition::find(&status.conditions, type_)
        .map(|condition| condition.message.clone())
        .unwrap_or_default()
}

/// A MachineConfig with one file.
pub fn file_config(name: &str, role: &str, path: &str, text: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": role}},
        "spec": {"config": {
            "ignition": {"version": "3.2.0"},
            "storage": {"files": [
                {"path": path, "mode": 420, "contents": {"source": format!("data:,{text}")}},
            ]},
        }},
    })
}

/// An API that refuses some requests.
pub fn refusing(
    client: Client,
    refused: impl Fn(&Method, &str) -> bool + Clone + Send + Sync + 'static,
) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, refused) = (client.clone(), refused.clone());
        async move {
            if !refused(request.method(), request.uri().path()) {
                return client.send(request).await;
            }
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
                "message": "not today",
            });
            let mut response = Response::new(Body::from(status.to_string().into_bytes()));
            *response.status_mut() = http::StatusCode::FORBIDDEN;
            Ok(response)
        }
    });
    Client::new(service, "default")
}

/// Polls until there is a result.
pub async fn eventually<T, F>(what: &str, ask: impl Fn() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, asking)
        .await
        .unwrap_or_else(|_| panic!("not within {DEADLINE:?}: {what}"))
}
