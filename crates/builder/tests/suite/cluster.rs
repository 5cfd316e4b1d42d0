//! A cluster in this process: the embedded control plane and the builder. Tests finish Jobs as kubelets would.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use mco_api::{MachineConfig, MachineConfigPool, MachineOSBuild, MachineOSConfig};
use mco_apiserver::{ApiServer, ApiServerOptions};
use mco_builder::{DigestConfigMap, Metrics, Options};
use mco_core::generators::os_builds::{BuildState, build_state};
use mco_simulator::setup;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub const NAMESPACE: &str = "openshift-machine-config-operator";
pub const CURRENT_BUILD: &str = "machineconfiguration.openshift.io/current-machine-os-build";
/// The deadline of every wait.
const DEADLINE: Duration = Duration::from_mins(1);
/// As the builder's documented limit, and time for a slow machine.
const STOP_WITHIN: Duration = Duration::from_secs(30);

pub struct Cluster {
    pub client: Client,
    pub metrics: Metrics,
    /// Host of the registry of images; nothing answers there unless a test starts one.
    registry: String,
    builder: Option<Builder>,
    _server: ApiServer,
    _directory: tempfile::TempDir,
}

struct Builder {
    stop: CancellationToken,
    task: JoinHandle<Result<(), mco_builder::Error>>,
}

impl Cluster {
    /// Creates the definitions, a pool whose nodes have reached `rendered-worker-1`, and the push Secret. Starts nothing.
    pub async fn prepare(registry: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = ApiServer::open(directory.path(), ApiServerOptions::default())
            .await
            .unwrap();
        let cluster = Self {
            client: Client::new(server.service(), "default"),
            metrics: Metrics::default(),
            registry: registry.to_owned(),
            builder: None,
            _server: server,
            _directory: directory,
        };
        setup::prepare(&cluster.client, "v-test").await.unwrap();
        cluster
            .rendered("rendered-worker-1", &json!({"osImageURL": "base:1"}))
            .await;
        cluster.retarget("rendered-worker-1").await;
        cluster.reach("rendered-worker-1").await;
        cluster.push_secret("builder:registry-password").await;
        cluster
    }

    /// The same with a running builder, which keeps no unused builds.
    pub async fn start(registry: &str) -> Self {
        let mut cluster = Self::prepare(registry).await;
        cluster.start_builder(0);
        cluster
    }

    pub fn start_builder(&mut self, kept_builds: usize) {
        self.start_builder_in(Some("registry.example.com/mco-builder:1"), kept_builds);
    }

    /// Starts a builder whose builds run in this image.
    pub fn start_builder_in(&mut self, builder_image: Option<&str>, kept_builds: usize) {
        let stop = CancellationToken::new();
        let options = Options {
            builder_image: builder_image.map(str::to_owned),
            kept_builds,
            retry_interrupted: None,
            metrics: self.metrics.clone(),
            ..Options::default()
        };
        let run = mco_builder::run(self.client.clone(), options, stop.clone());
        self.builder = Some(Builder {
            stop,
            task: tokio::spawn(run),
        });
    }

    /// Stops the builder gracefully.
    pub async fn stop_builder(&mut self) {
        let Builder { stop, task } = self.builder.take().expect("a builder runs");
        stop.cancel();
        let ended = tokio::time::timeout(STOP_WITHIN, task).await;
        ended.expect("the builder stops in time").unwrap().unwrap();
    }

    pub async fn create<K>(&self, api: &Api<K>, object: Value) -> K
    where
        K: Clone + Debug + DeserializeOwned + Serialize,
    {
        let object: K = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap()
    }

    pub fn all<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>,
    {
        Api::all(self.client.clone())
    }

    pub fn ours<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Creates a rendered config of the pool.
    pub async fn rendered(&self, name: &str, spec: &Value) {
        let object = json!({
            "metadata": {"name": name, "annotations": {
                "machineconfiguration.openshift.io/release-image-version": "1",
                "machineconfiguration.openshift.io/generated-by-controller-version": "1",
            }},
            "spec": spec,
        });
        self.create(&self.all::<MachineConfig>(), object).await;
    }

    /// Makes a rendered config the pool's target.
    pub async fn retarget(&self, rendered: &str) {
        let patch = json!({"spec": {"configuration": {"name": rendered}}});
        let pools = self.all::<MachineConfigPool>();
        let patched = pools
            .patch("worker", &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.unwrap();
    }

    /// Reports that all nodes have a rendered config.
    pub async fn reach(&self, rendered: &str) {
        self.patch_pool_status(json!({
            "configuration": {"name": rendered}, "machineCount": 2, "updatedMachineCount": 2,
            "readyMachineCount": 2, "unavailableMachineCount": 0,
        }))
        .await;
    }

    pub async fn patch_pool_status(&self, status: Value) {
        let patch = json!({"status": status});
        let pools = self.all::<MachineConfigPool>();
        let patched = pools
            .patch_status("worker", &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.unwrap();
    }

    /// Writes the credentials with which images are pushed.
    pub async fn push_secret(&self, user_and_password: &str) {
        let (user, password) = user_and_password.split_once(':').unwrap();
        let config = json!({"auths": {&self.registry: {"username": user, "password": password}}});
        let secret = json!({
            "metadata": {"name": "push"},
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": config.to_string()},
        });
        let api = self.ours::<Secret>();
        let _ = api.delete("push", &DeleteParams::default()).await;
        self.create(&api, secret).await;
    }

    /// Opts the pool in.
    pub async fn opt_in(&self, annotations: Value) -> MachineOSConfig {
        let object = json!({
            "metadata": {"name": "worker", "annotations": annotations},
            "spec": {
                "machineConfigPool": {"name": "worker"},
                "imageBuilder": {"imageBuilderType": "Job"},
                "renderedImagePushSecret": {"name": "push"},
                "renderedImagePushSpec": format!("{}/os:latest", self.registry),
                "containerFile": [{"containerfileArch": "NoArch", "content": "FROM configs AS final\n"}],
            },
        });
        self.create(&self.all::<MachineOSConfig>(), object).await
    }

    pub async fn patch_config(&self, patch: Value) {
        let configs = self.all::<MachineOSConfig>();
        let patched = configs
            .patch("worker", &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.unwrap();
    }

    pub async fn set_containerfile(&self, content: &str) {
        let pieces = json!([{"containerfileArch": "NoArch", "content": content}]);
        self.patch_config(json!({"spec": {"containerFile": pieces}}))
            .await;
    }

    pub async fn config(&self) -> MachineOSConfig {
        self.all::<MachineOSConfig>().get("worker").await.unwrap()
    }

    /// Returns the image that the pool runs.
    pub async fn image(&self) -> String {
        let status = self.config().await.status.unwrap_or_default();
        status.current_image_pull_spec
    }

    pub async fn current_build(&self) -> String {
        let annotations = self.config().await.metadata.annotations.unwrap_or_default();
        annotations.get(CURRENT_BUILD).cloned().unwrap_or_default()
    }

    pub async fn builds(&self) -> Vec<MachineOSBuild> {
        let found = self.all::<MachineOSBuild>().list(&ListParams::default()).await;
        found.unwrap().items
    }

    pub async fn jobs(&self) -> Vec<Job> {
        let found = self.ours::<Job>().list(&ListParams::default()).await;
        found.unwrap().items
    }

    /// Returns the names of ConfigMaps and Secrets of builds.
    pub async fn build_objects(&self) -> Vec<String> {
        let selected =
            ListParams::default().labels("machineconfiguration.openshift.io/ephemeral-build-object");
        let maps = self.ours::<ConfigMap>().list(&selected).await.unwrap();
        let secrets = self.ours::<Secret>().list(&selected).await.unwrap();
        let maps = maps.items.into_iter().map(|one| one.metadata);
        let secrets = secrets.items.into_iter().map(|one| one.metadata);
        maps.chain(secrets).filter_map(|one| one.name).collect()
    }

    /// Waits for the Job of a build other than `before`, and returns the build's name.
    pub async fn started(&self, before: &str) -> String {
        eventually("a Job for another build", async || {
            let current = self.current_build().await;
            let job = self
                .ours::<Job>()
                .get_opt(&format!("build-{current}"))
                .await
                .unwrap();
            (current != before && job.is_some()).then_some(current)
        })
        .await
    }

    /// Waits for a state of a build.
    pub async fn state(&self, build: &str, wanted: BuildState) -> MachineOSBuild {
        eventually(wanted.as_str(), async || {
            let found = self.all::<MachineOSBuild>().get_opt(build).await.unwrap();
            found.filter(|found| build_state(found) == wanted)
        })
        .await
    }

    pub async fn patch_job(&self, build: &str, status: Value) {
        let patch = json!({"status": status});
        let name = format!("build-{build}");
        let patched = self
            .ours::<Job>()
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.unwrap();
    }

    /// Reports that the Job's pod runs.
    pub async fn run_job(&self, build: &str) {
        self.patch_job(
            build,
            json!({"active": 1, "ready": 1, "startTime": "2026-01-01T00:00:00Z"}),
        )
        .await;
        self.state(build, BuildState::Building).await;
    }

    /// Completes a Job whose pod has pushed an image, and waits until the pool uses it.
    pub async fn complete_job(&self, build: &str, digest: &str) {
        let job = self.ours::<Job>().get(&format!("build-{build}")).await.unwrap();
        let published = DigestConfigMap {
            namespace: NAMESPACE.to_owned(),
            name: format!("digest-{build}"),
            labels: job.metadata.labels.unwrap_or_default(),
            digest: digest.to_owned(),
        };
        mco_builder::publish_digest(self.client.clone(), &published)
            .await
            .unwrap();
        let condition = |type_: &str| json!({"type": type_, "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"});
        self.patch_job(
            build,
            json!({
                "active": null, "ready": null, "succeeded": 1, "startTime": "2026-01-01T00:00:00Z",
                "completionTime": "2026-01-01T00:00:01Z",
                "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
            }),
        )
        .await;
        self.state(build, BuildState::Succeeded).await;
        eventually("the image is the pool's", async || {
            self.image().await.ends_with(digest).then_some(())
        })
        .await;
    }

    /// Reports that all attempts of a Job have failed.
    pub async fn fail_job(&self, build: &str) {
        let condition = |type_: &str| json!({"type": type_, "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"});
        self.patch_job(
            build,
            json!({
                "active": null, "ready": null, "failed": 4, "startTime": "2026-01-01T00:00:00Z",
                "conditions": [condition("FailureTarget"), condition("Failed")],
            }),
        )
        .await;
        self.state(build, BuildState::Failed).await;
    }

    /// Builds one image and returns the build's name.
    pub async fn build(&self, before: &str, digest: &str) -> String {
        let build = self.started(before).await;
        self.run_job(&build).await;
        self.complete_job(&build, digest).await;
        build
    }

    /// Returns how many events have each reason.
    pub async fn events(&self) -> BTreeMap<String, usize> {
        let found = self.ours::<Event>().list(&ListParams::default()).await.unwrap();
        let mut reasons = BTreeMap::new();
        for event in found.items {
            *reasons.entry(event.reason.unwrap_or_default()).or_default() += 1;
        }
        reasons
    }

    pub async fn has_event(&self, reason: &str) {
        eventually(reason, async || {
            self.events().await.contains_key(reason).then_some(())
        })
        .await;
    }

    /// Waits for a line of the builder's metrics.
    pub async fn has_metric(&self, line: &str) {
        eventually(line, async || {
            let text = self.metrics.encode().unwrap();
            text.lines().any(|one| one == line).then_some(())
        })
        .await;
    }
}

/// Polls until there is a result.
pub async fn eventually<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let answer = tokio::time::timeout(DEADLINE, asking).await;
    answer.unwrap_or_else(|_| panic!("timeout while waiting for: {what}"))
}

/// Returns the digest of an image that differs by number.
pub fn digest(number: u8) -> String {
    format!("sha256:{}", format!("{number:02x}").repeat(32))
}
