//! An embedded control plane with the controllers, and the comparison of plan, render and controllers.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Request;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::crd::CustomResourceDefinition;
use mco_api::vocabulary::annotations;
use mco_api::vocabulary::conditions::pool as condition;
use mco_api::{ClusterBase, ControllerConfig, MachineConfig, MachineConfigPool};
use mco_apiserver::ApiServer;
use mco_client::comparison;
use mco_client::forecast::Edit;
use mco_client::plan::{ClusterPlanError, PlanReport, plan};
use mco_controllers::Options;
use mco_core::config::manifest::{self, Manifest};
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::config::render::RenderIdentity;
use mco_core::config::rules::AdministratorRules;
use mco_core::pipeline::bootstrap::{self, BootstrapSettings};
use mco_core::pipeline::{RenderFailure, SOURCE_KINDS};
use mco_simulator::{self as fleet, Counting, RequestCounts};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Tally;

pub const VERSION: &str = "v-test";
const MANAGER: &str = "test";
/// Without a write for this long, the controllers are idle: several times their longest debounce before a render.
const QUIET: Duration = Duration::from_millis(900);
const RENDER_INTERVAL: Duration = Duration::from_millis(100);
const DEADLINE: Duration = Duration::from_mins(3);
const POLL: Duration = Duration::from_millis(30);

/// Foreign kinds that a plain cluster does not define: plural, scope.
const FOREIGN: [(&str, &str, &str, &str, &str); 9] = [
    ("config.openshift.io", "v1", "Image", "images", "Cluster"),
    (
        "config.openshift.io",
        "v1",
        "ImageDigestMirrorSet",
        "imagedigestmirrorsets",
        "Cluster",
    ),
    (
        "config.openshift.io",
        "v1",
        "ImageTagMirrorSet",
        "imagetagmirrorsets",
        "Cluster",
    ),
    (
        "config.openshift.io",
        "v1",
        "ClusterImagePolicy",
        "clusterimagepolicies",
        "Cluster",
    ),
    (
        "config.openshift.io",
        "v1",
        "ImagePolicy",
        "imagepolicies",
        "Namespaced",
    ),
    (
        "config.openshift.io",
        "v1",
        "FeatureGate",
        "featuregates",
        "Cluster",
    ),
    ("config.openshift.io", "v1", "Node", "nodes", "Cluster"),
    (
        "config.openshift.io",
        "v1",
        "CRIOCredentialProviderConfig",
        "criocredentialproviderconfigs",
        "Cluster",
    ),
    (
        "operator.openshift.io",
        "v1alpha1",
        "ImageContentSourcePolicy",
        "imagecontentsourcepolicies",
        "Cluster",
    ),
];

pub struct Cluster {
    pub client: Client,
    writes: RequestCounts,
    server: ApiServer,
    controllers: Option<(CancellationToken, JoinHandle<Result<(), mco_controllers::Error>>)>,
    _directory: tempfile::TempDir,
}

impl Cluster {
    pub async fn prepare() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = mco_apiserver::ApiServerOptions::default();
        let server = ApiServer::open(directory.path(), options).await.unwrap();
        let client = Client::new(server.service(), "default");
        let cluster = Self {
            client,
            writes: RequestCounts::default(),
            server,
            controllers: None,
            _directory: directory,
        };
        fleet::setup::prepare(&cluster.client, VERSION).await.unwrap();
        for foreign in FOREIGN {
            cluster.define(foreign).await;
        }
        cluster
    }

    /// Changes the base of the cluster, and adds nodes on which its generated configs depend.
    pub async fn set_base(&self, base: ClusterBase) {
        if base == ClusterBase::OpenShift {
            return;
        }
        let configs: Api<ControllerConfig> = Api::all(self.client.clone());
        let patch = json!({"metadata": {"annotations": {annotations::BASE: base.name()}}});
        let parameters = PatchParams::default();
        let patch = Patch::Merge(&patch);
        let patched = configs.patch(CONTROLLER_CONFIG_NAME, &parameters, &patch).await;
        patched.unwrap();
        let nodes: Api<Node> = Api::all(self.client.clone());
        for (name, role, kubelet, runtime) in [
            ("n1", "worker", "v1.35.0", "containerd://2.2.0"),
            ("n2", "master", "v1.29.0", "cri-o://1.29.0"),
        ] {
            let node = json!({
                "metadata": {"name": name, "labels": {format!("node-role.kubernetes.io/{role}"): ""}},
                "status": {"nodeInfo": {
                    "kubeletVersion": kubelet, "containerRuntimeVersion": runtime, "architecture": "", "bootID": "",
                    "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "",
                    "osImage": "", "systemUUID": "",
                }},
            });
            let node: Node = serde_json::from_value(node).unwrap();
            nodes.create(&PostParams::default(), &node).await.unwrap();
            let status = json!({"status": node.status});
            let status = Patch::Merge(&status);
            nodes.patch_status(name, &parameters, &status).await.unwrap();
        }
    }

    async fn define(&self, (group, version, kind, plural, scope): (&str, &str, &str, &str, &str)) {
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
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        match definitions.create(&PostParams::default(), &definition).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => return,
            created => created.unwrap(),
        };
        let path = format!("/apis/{group}/{version}/{plural}");
        let deadline = Instant::now() + DEADLINE;
        loop {
            let request = Request::get(&path).body(Vec::new()).unwrap();
            if self.client.request::<Value>(request).await.is_ok() {
                return;
            }
            assert!(Instant::now() < deadline, "{kind} is not served");
            tokio::time::sleep(POLL).await;
        }
    }

    pub fn start_controllers(&mut self) {
        let service = Counting::new(self.server.service(), self.writes.clone());
        let client = Client::new(service, "default");
        let options = Options {
            render_interval: RENDER_INTERVAL,
            ..Options::new(VERSION, VERSION)
        };
        let stop = CancellationToken::new();
        let run = mco_controllers::run(client, options, stop.clone());
        self.controllers = Some((stop, tokio::spawn(run)));
    }

    pub async fn stop(mut self) {
        if let Some((stop, task)) = self.controllers.take() {
            stop.cancel();
            task.await.unwrap().unwrap();
        }
    }

    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let api_version = object["apiVersion"].as_str().unwrap();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = object["kind"].as_str().unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Applies an object with its status. One that the API server rejects is left out.
    pub async fn create(&self, object: &Value) {
        let api = self.api(object);
        let name = object["metadata"]["name"].as_str().unwrap();
        // The same field manager as later edits, so that an edit replaces the whole object.
        let parameters = PatchParams::apply(MANAGER).force();
        if api.patch(name, &parameters, &Patch::Apply(object)).await.is_err() {
            return;
        }
        if let Some(status) = object.get("status") {
            let patch = Patch::Merge(json!({ "status": status }));
            api.patch_status(name, &PatchParams::default(), &patch)
                .await
                .unwrap();
        }
    }

    pub async fn apply(&self, edit: &Edit) {
        match edit {
            Edit::Apply(manifest) => {
                let api = self.api(&manifest.value);
                let parameters = PatchParams::apply(MANAGER).force();
                api.patch(&manifest.name, &parameters, &Patch::Apply(&manifest.value))
                    .await
                    .unwrap();
            }
            Edit::Delete(name) => {
                let exported = self.export().await;
                let object = exported.iter().find(|object| object.name == *name).unwrap();
                self.api(&object.value)
                    .delete(name, &kube::api::DeleteParams::default())
                    .await
                    .unwrap();
            }
        }
    }

    /// Waits until the controllers have been idle for a while.
    pub async fn come_to_rest(&self) {
        let deadline = Instant::now() + DEADLINE;
        let mut seen = (self.writes.total(), Instant::now());
        while seen.1.elapsed() < QUIET {
            assert!(Instant::now() < deadline, "the controllers do not become idle");
            tokio::time::sleep(POLL).await;
            if self.writes.total() != seen.0 {
                seen = (self.writes.total(), Instant::now());
            }
        }
    }

    /// Returns all objects that configs are rendered from, as `kubectl get -o yaml` shows them.
    pub async fn export(&self) -> Vec<Manifest> {
        let own = "machineconfiguration.openshift.io";
        let kinds = [(own, "v1", "MachineConfig"), (own, "v1", "MachineConfigPool")];
        let others = SOURCE_KINDS.iter().map(|one| (one.group, one.version, one.kind));
        let others = others.chain([("", "v1", "Node")]);
        let mut manifests = Vec::new();
        for (group, version, kind) in kinds.into_iter().chain(others) {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            let Ok(list) = api.list(&ListParams::default()).await else {
                continue;
            };
            for object in list.items {
                let mut value = serde_json::to_value(object).unwrap();
                value["apiVersion"] = json!(format!("{group}/{version}").trim_start_matches('/'));
                value["kind"] = json!(kind);
                manifests.extend(manifest::read(kind, value.to_string().as_bytes()).unwrap());
            }
        }
        manifests
    }

    pub async fn plan(&self, edit: &Edit) -> Result<PlanReport, String> {
        let plan = plan(&self.client, std::slice::from_ref(edit), &settings()).await;
        plan.map_err(|error: ClusterPlanError| format!("cannot be planned: {error}"))
    }

    /// Returns the target of every pool and its render error.
    async fn published(&self) -> BTreeMap<String, (String, Option<String>)> {
        let pools: Api<MachineConfigPool> = Api::all(self.client.clone());
        let pools = pools.list(&ListParams::default()).await.unwrap().items;
        let published = pools.into_iter().map(|pool| {
            let name = pool.metadata.name.clone().unwrap();
            let conditions = &pool.status.clone().unwrap_or_default().conditions;
            let degraded = condition::find(conditions, condition::RENDER_DEGRADED)
                .filter(|_| condition::holds(conditions, condition::RENDER_DEGRADED));
            let prefix = format!("Failed to render configuration for pool {name}: ");
            let why = degraded.map(|one| one.message.strip_prefix(&prefix).unwrap().to_owned());
            (name, (pool.target_name().to_owned(), why))
        });
        published.collect()
    }

    pub async fn compare_with_plan(&self, plan: &PlanReport) -> Result<Tally, String> {
        let mut tally = Tally::default();
        let published = self.published().await;
        for pool in &plan.pools {
            let (target, failure) = &published[&pool.pool];
            let selects_all = |error: &String| error.contains("is selecting all machineconfigs");
            if pool.error.as_ref().is_some_and(selects_all) && failure.is_none() {
                // Reported by an event, as the reference does.
                continue;
            }
            if pool.error != *failure {
                return Err(format!(
                    "pool {}: planned failure {:?}, published {failure:?}",
                    pool.pool, pool.error
                ));
            }
            match &pool.error {
                Some(_) => tally.failed_pools += 1,
                None => tally.rendered_pools += 1,
            }
            if pool.error.is_none() && pool.comparison.new.as_deref() != Some(target.as_str()) {
                return Err(format!(
                    "pool {}: planned {:?}, published {target}; they differ in {:?}; sources {:?}",
                    pool.pool,
                    pool.comparison.new,
                    self.difference(&pool.next, target).await,
                    self.sources(&pool.pool).await
                ));
            }
        }
        let exported = self.export().await;
        for object in &plan.objects {
            let found = exported
                .iter()
                .find(|one| one.kind == object.kind && one.name == object.name);
            let conditions = found.and_then(|one| one.value.pointer("/status/conditions")?.as_array());
            let has_conditions = ["KubeletConfig", "ContainerRuntimeConfig"].contains(&object.kind);
            if has_conditions {
                let last = conditions.and_then(|all| all.last()).ok_or("no condition")?;
                if last["message"] != object.message.as_str() {
                    return Err(format!(
                        "{} {}: planned {:?}, reported {}",
                        object.kind, object.name, object.message, last["message"]
                    ));
                }
            }
            if object.accepted {
                tally.accepted_objects += 1;
            } else {
                tally.rejected_objects += 1;
            }
        }
        Ok(tally)
    }

    /// Returns where two configs differ, or nothing if the pool has none yet.
    async fn difference(&self, planned: &ParsedConfig, published: &str) -> Vec<String> {
        let configs: Api<MachineConfig> = Api::all(self.client.clone());
        let Ok(published) = configs.get(published).await else {
            return Vec::new();
        };
        let published = ParsedConfig::applicable(published).unwrap();
        let changes = comparison::compare(planned, &published, &AdministratorRules::default()).changes;
        changes.names().map(str::to_owned).collect()
    }

    async fn sources(&self, pool: &str) -> Vec<String> {
        let pools: Api<MachineConfigPool> = Api::all(self.client.clone());
        let sources = pools.get(pool).await.unwrap().spec.configuration.source;
        sources.into_iter().filter_map(|source| source.name).collect()
    }

    /// Renders the exported objects as `mco render` does.
    pub async fn compare_with_render(&self) -> Result<(), String> {
        let published = self.published().await;
        let cluster = bootstrap::assemble(self.export().await, &settings())
            .map_err(|errors| format!("mco render refuses the exported objects: {errors:?}"))?;
        let identity = RenderIdentity {
            controller_version: VERSION,
            release_version: "",
        };
        for outcome in cluster.render(identity) {
            let (target, failure) = &published[outcome.name()];
            match (outcome.rendered(), failure) {
                (Ok(rendered), None) if rendered.name() == target => {}
                (Err(ours), Some(theirs)) if ours.to_string() == *theirs => {}
                // A pool that selects everything keeps its target, and reports it in an event.
                (Err(RenderFailure::Select(_)), None) => {}
                // Whether nodes can be updated depends on their current config, which the manifests do not contain.
                (Ok(_), Some(theirs)) if theirs.contains("reconcil") => {}
                (ours, theirs) => {
                    let difference = match &ours {
                        Ok(rendered) => self.difference(&rendered.config, target).await,
                        Err(_) => Vec::new(),
                    };
                    return Err(format!(
                        "pool {}: mco render gives {:?}, published is {target}, {theirs:?}; they differ in {difference:?}; \
                         sources {:?}",
                        outcome.name(),
                        ours.map(|rendered| (rendered.name(), rendered.provenance.sources()))
                            .map_err(ToString::to_string),
                        self.sources(outcome.name()).await
                    ));
                }
            }
        }
        Ok(())
    }
}

pub fn settings() -> BootstrapSettings<'static> {
    BootstrapSettings {
        controller_version: VERSION,
        ..BootstrapSettings::default()
    }
}
