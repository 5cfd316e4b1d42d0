//! A cluster with one node whose daemon can be stopped and started, and a controller that answers on demand.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Namespace, Node as KubeNode};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use mco_api::vocabulary::annotations::node as annotation;
use mco_api::vocabulary::names;
use mco_api::{MachineConfig, MachineConfigNode, MachineConfigPool};
use mco_apiserver::auth::{AuthorizationDecision, Authorizer, Identity, RequestAttributes};
use mco_apiserver::error::ApiError;
use mco_apiserver::http::{ExtraRoute, RouteAccess, RouteContext, RouteFuture, RouteRequest, RouteResponse};
use mco_apiserver::store::ObjectStore;
use mco_apiserver::{ApiServer, ApiServerOptions};
use mco_daemon::agent::{self, AgentError, AgentOptions};
use mco_daemon::config::NodeConfig;
use mco_daemon::paths;
use mco_host::Machine;
use mco_host::runtime::ContainerRuntime;
use mco_host::systemd::SimulatedServices;
use mco_testkit::os_double::{OsDouble, OsTools};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::doubled;
use crate::hooks::OfDirectory;
use crate::install;
use crate::support;

pub const NODE: &str = "worker-1";
pub const DEADLINE: Duration = Duration::from_mins(1);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub type Annotations = BTreeMap<String, String>;

pub struct World {
    server: ApiServer,
    _data: tempfile::TempDir,
    pub root: tempfile::TempDir,
    pub services: Arc<SimulatedServices>,
    /// Replaces the simulated runtime.
    pub runtime: Option<Arc<dyn ContainerRuntime>>,
    /// The machine is image-based, which affects files.
    pub image_based: bool,
    /// An OS backend that fails on demand.
    pub broken_os: Option<support::BrokenOs>,
    /// The doubles of an rpm-ostree machine.
    pub double: Option<OsDouble>,
    /// The programs of the machine run; otherwise all of them succeed.
    pub runs_programs: bool,
    daemon: Option<(CancellationToken, JoinHandle<Result<(), AgentError>>)>,
}

/// Allows nodes what the embedding program allows them, without its limits to single objects.
#[derive(Debug)]
struct MachineConfigAccess;

impl Authorizer for MachineConfigAccess {
    fn authorize(
        &self,
        identity: &Identity,
        wanted: &RequestAttributes,
        _store: &ObjectStore,
    ) -> Option<AuthorizationDecision> {
        identity.node_name()?;
        let is_ours = matches!(
            wanted.group.as_str(),
            "machineconfiguration.openshift.io" | "operator.openshift.io" | "mco.dev"
        );
        let is_published_ca = wanted.resource == "configmaps" && wanted.verb == "get";
        let is_gates = wanted.resource == "featuregates" && wanted.verb == "get";
        (is_ours || is_published_ca || is_gates).then(|| AuthorizationDecision::allow("a node in a test"))
    }
}

/// The values of Secrets for nodes, as the embedding program serves them.
struct SecretFiles(Arc<OnceLock<kube::Client>>);

impl std::fmt::Debug for SecretFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretFiles")
    }
}

impl ExtraRoute for SecretFiles {
    fn segment(&self) -> &'static str {
        "secret-files"
    }

    fn access(&self) -> RouteAccess {
        RouteAccess::Authenticated
    }

    fn serve<'a>(&'a self, _context: RouteContext<'a>, request: RouteRequest<'a>) -> RouteFuture<'a> {
        Box::pin(async move {
            let node = request.caller.and_then(Identity::node_name).unwrap();
            let client = self.0.get().unwrap();
            let answer = mco_operator::secret_files::values(client, node, &request.below[0]).await;
            let answer = answer.map_err(|refusal| ApiError::bad_request(refusal.to_string()))?;
            Ok(RouteResponse {
                status: http::StatusCode::OK,
                body: json!(answer),
            })
        })
    }
}

impl World {
    /// A cluster with its CRDs, one config, a pool and a Node without annotations.
    pub async fn new(first: &NodeConfig) -> Self {
        let data = tempfile::tempdir().unwrap();
        let secrets = Arc::new(OnceLock::new());
        let options = ApiServerOptions {
            authorizers: vec![Arc::new(MachineConfigAccess)],
            extra_routes: vec![Arc::new(SecretFiles(Arc::clone(&secrets)))],
            ..ApiServerOptions::default()
        };
        let server = ApiServer::open(data.path(), options).await.unwrap();
        let operator = server.service_as(Identity::component("operator"));
        secrets.set(kube::Client::new(operator, "default")).ok().unwrap();
        let root = tempfile::tempdir().unwrap();
        support::lay_out(root.path());
        let world = Self {
            server,
            _data: data,
            root,
            services: Arc::default(),
            runtime: None,
            image_based: false,
            broken_os: None,
            double: None,
            runs_programs: false,
            daemon: None,
        };
        for definition in mco_api::crds() {
            let value = serde_json::to_value(definition).unwrap();
            let definition: CustomResourceDefinition = serde_json::from_value(value).unwrap();
            world.create(&definition).await;
        }
        world.create_config(first).await;
        world
            .create_value::<Namespace>(json!({"metadata": {"name": names::NAMESPACE}}))
            .await;
        world
            .create_value::<KubeNode>(json!({"metadata": {"name": NODE}}))
            .await;
        world
            .create_value::<MachineConfigPool>(json!({
                "metadata": {"name": "worker"},
                "spec": {"configuration": {"name": first.name()}},
            }))
            .await;
        world.create_machine_config_node(first).await;
        world
    }

    pub async fn create_machine_config_node(&self, desired: &NodeConfig) {
        self.create_value::<MachineConfigNode>(json!({
            "metadata": {"name": NODE},
            "spec": {"node": {"name": NODE}, "pool": {"name": "worker"}, "configVersion": {"desired": desired.name()}},
        }))
        .await;
    }

    pub async fn delete_machine_config_node(&self) {
        let all = self.all::<MachineConfigNode>();
        all.delete(NODE, &DeleteParams::default()).await.unwrap();
    }

    /// The same with a machine that was installed with that config.
    pub async fn installed(first: &NodeConfig) -> Self {
        let world = Self::new(first).await;
        install::install_config(&world.machine(), &first.object);
        world
    }

    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.server.service(), "default")
    }

    pub fn all<K: Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client())
    }

    pub async fn create<K>(&self, object: &K)
    where
        K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
    {
        let all: Api<K> = Api::all(self.client());
        let mut last = None;
        for _ in 0..100 {
            match all.create(&PostParams::default(), object).await {
                Ok(_) => return,
                // The CRD may have been created only a moment ago.
                Err(error) => last = Some(error),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("cannot create {object:?}: {last:?}");
    }

    pub async fn create_value<K>(&self, value: Value)
    where
        K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
    {
        self.create::<K>(&serde_json::from_value(value).unwrap()).await;
    }

    pub async fn create_config(&self, config: &NodeConfig) {
        self.create::<MachineConfig>(&config.object).await;
    }

    pub fn machine(&self) -> Machine {
        let services = Box::new(Arc::clone(&self.services));
        let mut machine = Machine::directory_with(self.root.path(), support::ownership(), services).unwrap();
        if let Some(runtime) = &self.runtime {
            machine.runtime = Box::new(Arc::clone(runtime));
        }
        if self.image_based {
            machine.os = Box::new(support::ImageBased);
        }
        if let Some(os) = &self.broken_os {
            machine.os = Box::new(os.clone());
        }
        if let Some(double) = &self.double {
            doubled::use_double(&mut machine, double, OsTools::RpmOstree);
        }
        if self.runs_programs {
            machine.programs = Box::new(OfDirectory(self.root.path().to_owned()));
        }
        machine
    }

    pub fn start_daemon(&mut self) {
        self.start_daemon_with(AgentOptions::default());
    }

    pub fn start_daemon_with(&mut self, options: AgentOptions) {
        let stop = CancellationToken::new();
        // With the limited rights of a node.
        let client = kube::Client::new(self.server.service_as(Identity::node(NODE)), "default");
        let daemon = agent::run(client, self.machine(), NODE, options, stop.clone());
        self.daemon = Some((stop, tokio::spawn(daemon)));
    }

    /// Starts the daemon of a node of a hosted cluster, with this directory on the machine.
    pub fn start_hosted_daemon(&mut self, directory: &str) {
        let stop = CancellationToken::new();
        let client = kube::Client::new(self.server.service_as(Identity::node(NODE)), "default");
        let machine = Arc::new(self.machine());
        let daemon = agent::hosted::run(client, machine, NODE.to_owned(), directory.into(), stop.clone());
        self.daemon = Some((stop, tokio::spawn(daemon)));
    }

    /// Requests the daemon to stop, as SIGTERM does.
    pub fn request_stop(&self) {
        self.daemon.as_ref().unwrap().0.cancel();
    }

    pub async fn stop_daemon(&mut self) {
        let (stop, task) = self.daemon.take().unwrap();
        stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(5), task).await;
        ended
            .expect("the daemon ends soon after a stop")
            .unwrap()
            .unwrap();
    }

    pub async fn label(&self, key: &str, value: &str) {
        let patch = json!({"metadata": {"labels": {key: value}}});
        let nodes = self.all::<KubeNode>();
        nodes
            .patch(NODE, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    pub async fn annotate(&self, key: &str, value: &str) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
        self.all::<KubeNode>()
            .patch(NODE, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    pub async fn annotations(&self) -> Annotations {
        let node = self.all::<KubeNode>().get(NODE).await.unwrap();
        node.metadata.annotations.unwrap_or_default()
    }

    /// Sets a new target on the node, as the controller does.
    pub async fn target(&self, config: &NodeConfig) {
        self.annotate(annotation::DESIRED_CONFIG, config.name()).await;
    }

    pub async fn publish_and_target(&self, config: &NodeConfig) {
        self.create_config(config).await;
        self.target(config).await;
    }

    /// Answers one drain or uncordon request, as the controller does.
    pub async fn answer_request(&self) {
        let now = self.annotations().await;
        if let Some(request) = now.get(annotation::DESIRED_DRAIN)
            && now.get(annotation::LAST_APPLIED_DRAIN) != Some(request)
        {
            self.annotate(annotation::LAST_APPLIED_DRAIN, request).await;
        }
    }

    /// Waits until the annotations satisfy a condition, while the controller answers every request.
    pub async fn until(&self, what: &str, condition: impl Fn(&Annotations) -> bool) {
        self.wait(what, true, condition).await;
    }

    /// The same with a controller that does not answer.
    pub async fn until_unanswered(&self, what: &str, condition: impl Fn(&Annotations) -> bool) {
        self.wait(what, false, condition).await;
    }

    async fn wait(&self, what: &str, answers: bool, condition: impl Fn(&Annotations) -> bool) {
        let wait = async {
            while !condition(&self.annotations().await) {
                if answers {
                    self.answer_request().await;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let ended = tokio::time::timeout(DEADLINE, wait).await;
        assert!(ended.is_ok(), "{what}: {:#?}", self.annotations().await);
    }

    pub async fn until_done(&self, config: &NodeConfig) {
        self.until(&format!("Done with {}", config.name()), |now| {
            has(now, annotation::STATE, "Done") && has(now, annotation::CURRENT_CONFIG, config.name())
        })
        .await;
    }

    pub async fn until_failing(&self, state: &str, reason: &str) {
        self.until(&format!("{state} because of {reason:?}"), |now| {
            has(now, annotation::STATE, state)
                && now
                    .get(annotation::REASON)
                    .is_some_and(|text| text.contains(reason))
        })
        .await;
    }

    /// Waits until a condition other than an annotation holds.
    pub async fn eventually(&self, what: &str, mut condition: impl AsyncFnMut(&Self) -> bool) {
        let wait = async {
            while !condition(self).await {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let ended = tokio::time::timeout(DEADLINE, wait).await;
        assert!(ended.is_ok(), "{what}: {:#?}", self.annotations().await);
    }

    /// Waits until the daemon reports that it is idle: drift is watched from then on.
    pub async fn until_idle(&self) {
        self.eventually("idle", async |world: &Self| {
            let activity = agent::read_activity(&world.machine().root).unwrap();
            activity.is_some_and(|activity| activity.doing.starts_with("idle") && activity.failure.is_none())
        })
        .await;
    }

    pub async fn until_waiting_for(&self, request: &str) {
        self.eventually(&format!("waiting for {request}"), async |world: &Self| {
            let activity = agent::read_activity(&world.machine().root).unwrap();
            activity.is_some_and(|activity| activity.waits_for.as_deref() == Some(request))
        })
        .await;
    }

    /// Answers drain requests until the daemon requests an uncordon.
    pub async fn until_waiting_for_uncordon(&self) {
        self.answer_request().await;
        self.until_unanswered("work may come back", |now| {
            now.get(annotation::DESIRED_DRAIN)
                .is_some_and(|request| request.starts_with("uncordon-"))
        })
        .await;
    }

    /// Waits for the latest failure in the activity record, whether or not it was reported to the cluster.
    pub async fn until_activity_fails(&self, because: &str) {
        self.eventually(&format!("failing because {because}"), async |world: &Self| {
            let activity = agent::read_activity(&world.machine().root).unwrap();
            activity.is_some_and(|activity| activity.failure.is_some_and(|failure| failure.contains(because)))
        })
        .await;
    }

    /// Waits until the drift monitor has started more often than before.
    pub async fn until_watching_again(&self, before: usize) {
        self.eventually("watching", async |world: &Self| {
            world.watches_started().await > before
        })
        .await;
    }

    pub async fn watches_started(&self) -> usize {
        let reasons = self.event_reasons().await;
        reasons
            .iter()
            .filter(|reason| *reason == "ConfigDriftMonitorStarted")
            .count()
    }

    /// Sets the start time of the daemon's activity.
    pub fn age_activity(&self, since: &str) {
        let mut activity: Value = serde_json::from_str(&self.read(paths::ACTIVITY)).unwrap();
        activity["since"] = json!(since);
        self.write(paths::ACTIVITY, &activity.to_string());
    }

    pub async fn event_reasons(&self) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client(), names::NAMESPACE);
        let events = events.list(&ListParams::default()).await.unwrap();
        events
            .items
            .into_iter()
            .filter_map(|event| event.reason)
            .collect()
    }

    /// Returns the messages of the events with this reason, sorted.
    pub async fn event_texts(&self, reason: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client(), names::NAMESPACE);
        let events = events.list(&ListParams::default()).await.unwrap();
        let mut texts: Vec<String> = events
            .items
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some(reason))
            .filter_map(|event| event.message)
            .collect();
        texts.sort();
        texts
    }

    /// Waits until a condition of the MachineConfigNode has this status.
    pub async fn until_condition(&self, type_: &str, status: &str) {
        self.eventually(&format!("{type_}={status}"), async |world: &Self| {
            let progress = world.progress().await;
            progress.get(type_).is_some_and(|(found, _)| found == status)
        })
        .await;
    }

    /// Returns type, status and message of each condition of the MachineConfigNode.
    pub async fn progress(&self) -> BTreeMap<String, (String, String)> {
        let node = self.all::<MachineConfigNode>().get(NODE).await.unwrap();
        let conditions = node.status.unwrap_or_default().conditions;
        conditions
            .into_iter()
            .map(|condition| (condition.type_, (condition.status, condition.message)))
            .collect()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub fn boot(&self) -> String {
        let machine = self.machine();
        machine.power.boot_id(&machine.root).unwrap().to_string()
    }
}

pub fn has(annotations: &Annotations, key: &str, value: &str) -> bool {
    annotations.get(key).map(String::as_str) == Some(value)
}
