//! Forecast of a change to a cluster's objects: the next config of every pool, its changes and disruption on nodes,
//! the rollout order, which drains are blocked now, and what they would delete for good.
//!
//! Calls the same pure functions as the controllers; this module only composes them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::foreign::node::Node as NodeSettings;
use mco_api::machine_configuration::MACHINE_CONFIGURATION_NAME;
use mco_api::vocabulary::{annotations, names};
use mco_api::{ClusterBase, ControllerConfig, MachineConfiguration, RolloutPolicy};
use mco_core::config::disruption::Drain;
use mco_core::config::feature_gates::FeatureGates;
use mco_core::config::manifest::{Manifest, ManifestError};
use mco_core::config::node_versions::NodeVersions;
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::config::problem::Problem;
use mco_core::config::render::{RenderIdentity, Rendered};
use mco_core::config::rules::AdministratorRules;
use mco_core::generators::generated::condition::GenerationOutcome;
use mco_core::generators::kubelet::profile;
use mco_core::pipeline::GenerationError;
use mco_core::pipeline::admission::{self, AdmissionContext};
use mco_core::pipeline::bootstrap::{BootstrapCluster, Current};
use mco_core::pipeline::offline;
use mco_core::rollout::drain::{self, Blocker, Budgets, Eviction};
use mco_core::rollout::policy::ChangeCosts;
use mco_core::rollout::{PoolWaves, RolloutView, control_plane, waves};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::comparison::{self, ConfigComparison};
use crate::explain::{self, Explanation};
use crate::image_builds::{self, ForecastBuild, ImageContext, ImageForecast};

/// A proposed change.
#[derive(Debug, Clone)]
pub enum Edit {
    Apply(Manifest),
    /// Deletes the object of this name, of a kind that configs are rendered from.
    Delete(String),
}

/// An object that would be rejected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AdmissionRefusal {
    pub kind: String,
    pub name: String,
    pub problems: Vec<Problem>,
}

/// The cluster state that affects a rollout: current targets, nodes and workloads.
#[derive(Debug, Default)]
pub struct PlanContext<'a> {
    /// The target of each pool.
    pub current: BTreeMap<String, ParsedConfig>,
    pub nodes: &'a [Node],
    pub pods: &'a [Pod],
    pub budgets: &'a [PodDisruptionBudget],
    pub rules: AdministratorRules,
    pub policies: &'a [RolloutPolicy],
    pub images: ImageContext,
    pub time: Timestamp,
}

/// The forecast of one pool.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolForecast {
    pub pool: String,
    /// Why no config can be rendered for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(flatten)]
    pub comparison: ConfigComparison,
    /// Changed items with more than one source: which source wins, and which are overridden.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Explanation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<PoolWaves>,
    /// The OS image of a pool with a MachineOSConfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageForecast>,
    /// Pods that could not be evicted if the rollout started now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked: Vec<Blocker>,
    /// What the drains would delete for good.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<DrainLoss>,
    /// Nodes that are updated without a drain although the change needs one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_drained: Vec<String>,
    #[serde(skip)]
    pub next: ParsedConfig,
}

/// A pod that a drain deletes although it, or its data, is not recreated elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DrainLoss {
    pub node: String,
    /// `namespace/name`.
    pub pod: String,
    pub because: String,
}

impl fmt::Display for DrainLoss {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "pod {} on {}: {}", self.pod, self.node, self.because)
    }
}

impl PoolForecast {
    pub fn is_change(&self) -> bool {
        let is_other_image = self.image.as_ref().is_some_and(|image| image.is_change);
        self.error.is_some() || self.comparison.old != self.comparison.new || is_other_image
    }
}

/// Returns the objects after the edits, and the edits that would be rejected, which are not applied.
pub fn edited(objects: &[Manifest], edits: &[Edit]) -> (Vec<Manifest>, Vec<AdmissionRefusal>) {
    let mut after = objects.to_vec();
    let mut refused = Vec::new();
    for edit in edits {
        match edit {
            Edit::Delete(name) => after.retain(|object| object.name != *name || !can_be_deleted(object)),
            Edit::Apply(manifest) => match problems(&after, manifest) {
                problems if !problems.is_empty() => refused.push(AdmissionRefusal {
                    kind: manifest.kind.clone(),
                    name: manifest.name.clone(),
                    problems,
                }),
                _ => apply(&mut after, manifest),
            },
        }
    }
    (after, refused)
}

/// Whether the object can be deleted by its name alone; a pool's name may equal that of another object.
fn can_be_deleted(object: &Manifest) -> bool {
    !matches!(object.kind.as_str(), "MachineConfigPool" | "ControllerConfig")
}

fn apply(objects: &mut Vec<Manifest>, manifest: &Manifest) {
    let same = |object: &&mut Manifest| object.kind == manifest.kind && object.name == manifest.name;
    match objects.iter_mut().find(same) {
        Some(object) => {
            // Fields that the cluster added (status, owners, the target of a pool) are not part of a manifest.
            let mut value = object.value.clone();
            merge(&mut value, &manifest.value);
            *object = Manifest {
                value,
                ..manifest.clone()
            };
        }
        None => objects.push(manifest.clone()),
    }
}

/// Applies a manifest to the existing object like `kubectl apply`: replaces `spec` as a whole, except for a pool's
/// target, and merges labels and annotations by key, without those that were applied before and are no longer in the
/// manifest.
fn merge(there: &mut serde_json::Value, written: &serde_json::Value) {
    let target = there.pointer("/spec/configuration").cloned();
    if let Some(spec) = written.get("spec") {
        there["spec"] = spec.clone();
        if let (Some(target), Some(spec)) = (target, there["spec"].as_object_mut()) {
            spec.entry("configuration").or_insert(target);
        }
    }
    for key in ["labels", "annotations"] {
        for gone in applied_keys(there, key) {
            let is_written = written
                .pointer(&format!("/metadata/{key}"))
                .is_some_and(|all| all.get(&gone).is_some());
            if let Some(values) = there["metadata"][key].as_object_mut().filter(|_| !is_written) {
                values.remove(&gone);
            }
        }
        let Some(values) = written
            .pointer(&format!("/metadata/{key}"))
            .and_then(|v| v.as_object())
        else {
            continue;
        };
        for (name, value) in values {
            there["metadata"][key][name] = value.clone();
        }
    }
}

/// Returns the labels or annotations that an earlier apply has set: `kubectl apply` records them in an annotation, a
/// server-side apply in `managedFields`.
fn applied_keys(object: &serde_json::Value, key: &str) -> BTreeSet<String> {
    let last = object
        .pointer("/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration")
        .and_then(|text| serde_json::from_str::<serde_json::Value>(text.as_str()?).ok());
    let last = last.as_ref().and_then(|last| last["metadata"][key].as_object());
    let by_client = last.into_iter().flat_map(|all| all.keys().cloned());
    let managers = object
        .pointer("/metadata/managedFields")
        .and_then(|all| all.as_array());
    let applies = managers
        .into_iter()
        .flatten()
        .filter(|one| one["operation"] == "Apply");
    let fields = applies.filter_map(|one| one["fieldsV1"]["f:metadata"][format!("f:{key}")].as_object());
    let by_server = fields.flat_map(|fields| fields.keys().filter_map(|field| field.strip_prefix("f:")));
    by_client.chain(by_server.map(str::to_owned)).collect()
}

fn problems(objects: &[Manifest], manifest: &Manifest) -> Vec<Problem> {
    let (group, _) = manifest.api_version.split_once('/').unwrap_or_default();
    let context = || admission_context(objects);
    let checked = admission::check_on(context, group, &manifest.kind, &manifest.value);
    let mut problems = checked.and_then(Result::err).unwrap_or_default();
    if group == "config.openshift.io" && manifest.kind == "Node" && manifest.name == names::SINGLETON {
        problems.extend(skipped_profile(objects, manifest));
    }
    problems
}

/// Returns what admission depends on; objects that cannot be decoded are reported elsewhere.
fn admission_context(objects: &[Manifest]) -> AdmissionContext {
    let of_kind = |api_version: &'static str, kind: &'static str| {
        let all = objects.iter();
        all.filter(move |object| object.kind == kind && object.api_version == api_version)
    };
    let pools = of_kind("machineconfiguration.openshift.io/v1", "MachineConfigPool");
    let nodes = of_kind("v1", "Node").filter_map(|node| node.decode::<Node>().ok());
    AdmissionContext {
        base: base(objects).unwrap_or_default(),
        pools: pools.filter_map(|pool| pool.decode().ok()).collect(),
        nodes: nodes.map(|node| NodeVersions::of(&node)).collect(),
    }
}

/// Returns the problem of a prohibited latency profile, which the API server accepts but the controllers ignore.
fn skipped_profile(objects: &[Manifest], manifest: &Manifest) -> Option<Problem> {
    let there = objects.iter().find(|object| {
        object.api_version == manifest.api_version
            && object.kind == manifest.kind
            && object.name == manifest.name
    })?;
    let profile = |object: &Manifest| {
        object
            .decode()
            .map(|node: NodeSettings| node.spec.worker_latency_profile)
    };
    let (from, to) = (profile(there).ok()?, profile(manifest).ok()?);
    profile::is_prohibited(&from, &to).then(|| {
        Problem::new("spec.workerLatencyProfile", profile::skipped(&from, &to))
            .with_hint("change to MediumUpdateAverageReaction first")
    })
}

/// The forecast status of an object that configs are generated from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectForecast {
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    /// Whether configs are generated from it. If not, pools keep their existing configs of it.
    pub accepted: bool,
    pub message: String,
}

/// Returns the forecasts of the objects that configs are generated from.
pub fn objects(after: &BootstrapCluster) -> Vec<ObjectForecast> {
    let generation = &after.generation;
    let reported = generation.reports.iter().map(|report| ObjectForecast {
        kind: report.kind,
        namespace: None,
        name: report.name.clone(),
        accepted: report.outcome == GenerationOutcome::Success,
        message: report.outcome.message().to_owned(),
    });
    let skipped = generation.skipped.iter().map(|object| ObjectForecast {
        kind: object.kind,
        namespace: object.namespace.clone(),
        name: object.name.clone(),
        accepted: false,
        message: object.error.to_string(),
    });
    let failed = generation.failures.iter().filter(|failure| {
        matches!(
            failure.error,
            GenerationError::Registries(_) | GenerationError::CredentialProvider(_)
        )
    });
    let failed = failed.map(|failure| ObjectForecast {
        kind: match failure.error {
            GenerationError::CredentialProvider(_) => "CRIOCredentialProviderConfig",
            _ => "Image",
        },
        namespace: None,
        name: names::SINGLETON.to_owned(),
        accepted: false,
        message: failure.error.to_string(),
    });
    reported.chain(skipped).chain(failed).collect()
}

/// Returns the policies about changes in these objects; `otherwise` if there is no MachineConfiguration among them.
pub fn rules(
    objects: &[Manifest],
    otherwise: AdministratorRules,
) -> Result<AdministratorRules, ManifestError> {
    let settings: Option<MachineConfiguration> =
        decoded(objects, "MachineConfiguration", MACHINE_CONFIGURATION_NAME)?;
    let controller_config: Option<ControllerConfig> =
        decoded(objects, "ControllerConfig", CONTROLLER_CONFIG_NAME)?;
    let feature_gate = decoded(objects, "FeatureGate", names::SINGLETON)?;
    let controller_config = controller_config.unwrap_or_default();
    let base = controller_config.base().unwrap_or(ClusterBase::None);
    // Without the gates of the release nothing is disabled.
    let gates = FeatureGates::in_force(feature_gate.as_ref(), &controller_config, None);
    let rules = settings.map_or(otherwise, |settings| AdministratorRules::written(&settings, base));
    Ok(rules.under(&gates.unwrap_or_default()))
}

/// Returns the base of these objects' cluster. An unknown one has no rules, so that every change is expected to reboot.
pub fn base(objects: &[Manifest]) -> Result<ClusterBase, ManifestError> {
    let config: Option<ControllerConfig> = decoded(objects, "ControllerConfig", CONTROLLER_CONFIG_NAME)?;
    Ok(config.map_or_else(ClusterBase::default, |config| {
        config.base().unwrap_or(ClusterBase::None)
    }))
}

/// Returns the objects with another base, if there is one to change to.
pub fn with_base(mut objects: Vec<Manifest>, base: Option<ClusterBase>) -> Vec<Manifest> {
    let Some(base) = base else { return objects };
    let is_config = |object: &&mut Manifest| object.kind == "ControllerConfig";
    for object in objects.iter_mut().filter(is_config) {
        let annotation = match base {
            ClusterBase::OpenShift => Value::Null,
            other => other.name().into(),
        };
        object.value["metadata"]["annotations"][annotations::BASE] = annotation;
        if let Some(all) = object.value["metadata"]["annotations"].as_object_mut() {
            all.retain(|_, value| !value.is_null());
        }
    }
    objects
}

fn decoded<T: DeserializeOwned>(
    objects: &[Manifest],
    kind: &str,
    name: &str,
) -> Result<Option<T>, ManifestError> {
    let found = objects
        .iter()
        .find(|object| object.kind == kind && object.name == name);
    found.map(Manifest::decode).transpose()
}

/// Returns the forecasts of all pools.
pub fn forecast(
    after: &BootstrapCluster,
    identity: RenderIdentity<'_>,
    now: &PlanContext<'_>,
) -> Vec<PoolForecast> {
    let mut pools = Vec::new();
    let mut rendered: BTreeMap<String, Result<Rendered, String>> = BTreeMap::new();
    let mut images = BTreeMap::new();
    let (mut os_configs, mut builds) = (now.images.configs.clone(), now.images.builds.clone());
    let current = Current {
        configs: &now.current,
        overrides: now.rules.overrides,
    };
    for outcome in after.render_from(identity, current) {
        let name = outcome.name().to_owned();
        let result = outcome.result.map(|pool| pool.rendered);
        let mut pool = outcome.pool;
        if let Ok(rendered) = &result {
            if pool.target_name() != rendered.name() {
                pool.spec.configuration = offline::with_target(&pool, rendered).spec.configuration;
            }
            let controller_config = after.controller_config.as_ref();
            let build = image_builds::forecast(&now.images, &pool, rendered, now.nodes, controller_config);
            if let Some(ForecastBuild {
                forecast,
                config,
                build,
            }) = build
            {
                images.insert(name.clone(), forecast);
                os_configs.retain(|one| one.metadata.name != config.metadata.name);
                os_configs.push(config);
                builds.extend(build);
            } else if now.images.opted_out.contains(&name) {
                images.insert(name.clone(), image_builds::opted_out());
            }
        }
        pools.push(pool);
        rendered.insert(name, result.map_err(|error| error.to_string()));
    }
    let costs = costs(&rendered, now);
    let topology = after.controller_config.as_ref().and_then(|config| {
        let infrastructure = config.spec.infra.as_ref()?;
        Some(infrastructure.status.as_ref()?.control_plane_topology.as_str())
    });
    let view = RolloutView::new(&pools, now.nodes)
        .with_topology(topology)
        .with_only_control_plane_node(control_plane::only_control_plane_node(now.nodes))
        .with_images(&os_configs, &builds)
        .with_policies(now.policies, now.time, Some(&costs));
    let skipping = now.nodes.iter().filter(|node| view.skips_drain(node));
    let not_drained: BTreeSet<&str> = skipping
        .filter_map(|node| node.metadata.name.as_deref())
        .collect();
    let foretold = waves(&view).into_iter();
    let mut rollouts: HashMap<String, PoolWaves> =
        foretold.map(|waves| (waves.pool.clone(), waves)).collect();
    rendered
        .into_iter()
        .map(|(pool, result)| {
            let updates = ForecastUpdates {
                rollout: rollouts.remove(&pool),
                image: images.remove(&pool),
                not_drained: &not_drained,
            };
            of_pool(pool, result, after, updates, now)
        })
        .collect()
}

/// Returns what the change of each pool interrupts.
fn costs(rendered: &BTreeMap<String, Result<Rendered, String>>, now: &PlanContext<'_>) -> ChangeCosts {
    let changes = rendered.iter().filter_map(|(pool, result)| {
        let (old, new) = (now.current.get(pool)?, result.as_ref().ok()?);
        let level = comparison::compare(old, &new.config, &now.rules).level;
        Some(((old.name().to_owned(), new.name().to_owned()), level))
    });
    changes.collect()
}

/// How the nodes of a pool are updated.
struct ForecastUpdates<'a> {
    rollout: Option<PoolWaves>,
    image: Option<ImageForecast>,
    not_drained: &'a BTreeSet<&'a str>,
}

fn of_pool(
    pool: String,
    result: Result<Rendered, String>,
    after: &BootstrapCluster,
    updates: ForecastUpdates<'_>,
    now: &PlanContext<'_>,
) -> PoolForecast {
    let ForecastUpdates {
        rollout,
        image,
        not_drained,
    } = updates;
    let nothing = ParsedConfig::default();
    let old = now.current.get(&pool).unwrap_or(&nothing);
    let rendered = match result {
        Ok(rendered) => rendered,
        // Nodes keep their config while the pool cannot be rendered.
        Err(error) => {
            return PoolForecast {
                pool,
                error: Some(error),
                comparison: comparison::compare(old, old, &now.rules),
                overrides: Vec::new(),
                rollout: None,
                image: None,
                blocked: Vec::new(),
                losses: Vec::new(),
                not_drained: Vec::new(),
                next: old.clone(),
            };
        }
    };
    let mut explanations = explain::explain(&rendered);
    explain::add_origins(&mut explanations, &after.origins);
    let next = rendered.config;
    let comparison = comparison::compare(old, &next, &now.rules);
    let changed: BTreeSet<&str> = comparison.changes.names().collect();
    explanations.retain(|one| !one.overridden.is_empty() && changed.contains(one.name.as_str()));
    let is_other_image = image.as_ref().is_some_and(|image| image.is_change);
    let moves = comparison.old != comparison.new || is_other_image;
    let rollout = rollout.filter(|_| moves);
    // Another image needs a reboot.
    let drains = is_other_image || matches!(comparison.cost.drain, Drain::Needed { .. });
    let drains = match &rollout {
        Some(rollout) if drains => drain_forecast(rollout, not_drained, now),
        _ => DrainForecast::default(),
    };
    PoolForecast {
        pool,
        error: None,
        comparison,
        overrides: explanations,
        rollout,
        image,
        blocked: drains.blocked,
        losses: drains.losses,
        not_drained: drains.not_drained,
        next,
    }
}

/// What the drains of a rollout would meet if they started now.
#[derive(Debug, Default)]
struct DrainForecast {
    blocked: Vec<Blocker>,
    losses: Vec<DrainLoss>,
    not_drained: Vec<String>,
}

fn drain_forecast(rollout: &PoolWaves, not_drained: &BTreeSet<&str>, now: &PlanContext<'_>) -> DrainForecast {
    let budgets = Budgets::new(now.budgets);
    let mut pods: HashMap<&str, Vec<&Pod>> = HashMap::new();
    for pod in now.pods {
        if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
            pods.entry(node).or_default().push(pod);
        }
    }
    let controllers: Vec<&Pod> = now
        .pods
        .iter()
        .filter(|pod| drain::pods::is_controller(pod))
        .collect();
    let mut forecast = DrainForecast::default();
    for node in rollout.under_way.iter().chain(rollout.waves.iter().flatten()) {
        if not_drained.contains(node.as_str()) {
            forecast.not_drained.push(node.clone());
            continue;
        }
        let here = pods.get(node.as_str()).into_iter().flatten().copied();
        let other_controller = drain::OtherController::than_on(node, controllers.iter().copied());
        let policy = drain::DrainPolicy::default();
        let eviction = Eviction::of_pods(here, policy, other_controller, |_, _| true);
        let losses = eviction.concerns.into_iter().map(|(pod, concern)| DrainLoss {
            node: node.clone(),
            pod,
            because: concern.to_string(),
        });
        forecast.losses.extend(losses);
        forecast.blocked.extend(budgets.blockers(node, eviction.evict));
    }
    forecast
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node_settings(profile: &str) -> Manifest {
        let value = json!({"apiVersion": "config.openshift.io/v1", "kind": "Node", "metadata": {"name": "cluster"},
            "spec": {"workerLatencyProfile": profile}});
        let mut read = mco_core::config::manifest::read("node.json", value.to_string().as_bytes()).unwrap();
        read.remove(0)
    }

    #[test]
    fn labels_that_were_applied_and_are_no_longer_written_are_gone() {
        let pool = |metadata: serde_json::Value| {
            let value = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
                "metadata": metadata, "spec": {"machineConfigSelector":
                    {"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}}}});
            mco_core::config::manifest::read("pool.json", value.to_string().as_bytes())
                .unwrap()
                .remove(0)
        };
        let record = json!({"metadata": {"labels": {"client": ""}}}).to_string();
        let there = pool(json!({"name": "infra",
            "labels": {"client": "", "server": "", "of-another": "", "kept": ""},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": record},
            "managedFields": [
                {"operation": "Apply", "fieldsV1": {"f:metadata": {"f:labels": {"f:server": {}, "f:kept": {}}}}},
                {"operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {"f:of-another": {}}}}}]}));
        let written = pool(json!({"name": "infra", "labels": {"kept": "", "new": ""}}));
        let (after, refused) = edited(&[there], &[Edit::Apply(written)]);
        assert_eq!(refused, []);
        assert_eq!(
            after[0].value["metadata"]["labels"],
            json!({"of-another": "", "kept": "", "new": ""})
        );
    }

    fn object<T: DeserializeOwned>(value: serde_json::Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_plan_names_what_a_drain_deletes_for_good_and_the_node_that_cannot_be_drained() {
        let node = |name: &str, role: &str| -> Node {
            let label = format!("node-role.kubernetes.io/{role}");
            object(json!({"metadata": {"name": name, "labels": {label: ""}}}))
        };
        let pod = |name: &str, node: &str, owner: Option<&str>, volumes: serde_json::Value| -> Pod {
            let owners = owner.map(|name| {
                json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name,
                "uid": "1", "controller": true}])
            });
            object(
                json!({"metadata": {"namespace": "app", "name": name, "ownerReferences": owners},
                "spec": {"nodeName": node, "containers": [], "volumes": volumes}, "status": {"phase": "Running"}}),
            )
        };
        let nodes = [node("cp", "control-plane"), node("w", "worker")];
        let scratch = json!([{"name": "scratch", "emptyDir": {}}]);
        let pods = [
            pod("plain", "w", Some("web"), json!([])),
            pod("bare", "w", None, json!([])),
            pod("cache", "w", Some("web"), scratch.clone()),
            pod("on-cp", "cp", None, scratch),
        ];
        let now = PlanContext {
            nodes: &nodes,
            pods: &pods,
            ..PlanContext::default()
        };
        let rollout = PoolWaves {
            pool: "worker".to_owned(),
            target: None,
            under_way: Vec::new(),
            after: None,
            one_at_a_time_with: Vec::new(),
            policy: None,
            waves: vec![vec!["cp".to_owned()], vec!["w".to_owned()]],
            stuck: Vec::new(),
        };
        let view = RolloutView::new([], &nodes)
            .with_topology(Some("HighlyAvailable"))
            .with_only_control_plane_node(control_plane::only_control_plane_node(&nodes));
        let skipping = nodes.iter().filter(|node| view.skips_drain(node));
        let not_drained = skipping
            .filter_map(|node| node.metadata.name.as_deref())
            .collect();
        let forecast = drain_forecast(&rollout, &not_drained, &now);
        assert_eq!(forecast.not_drained, ["cp"]);
        let losses: Vec<String> = forecast.losses.iter().map(ToString::to_string).collect();
        assert_eq!(
            losses,
            [
                "pod app/bare on w: no controller will recreate it",
                "pod app/cache on w: it keeps data in local storage (emptyDir)"
            ]
        );
    }

    #[test]
    fn a_prohibited_latency_profile_is_predicted_as_rejected() {
        let (low, medium) = ("LowUpdateSlowReaction", "MediumUpdateAverageReaction");
        let objects = [node_settings("Default")];
        let refused = |edits: &[&str]| {
            let edits: Vec<Edit> = edits.iter().map(|to| Edit::Apply(node_settings(to))).collect();
            edited(&objects, &edits).1
        };
        let refusals = refused(&[low]);
        assert_eq!(refusals.len(), 1);
        let observed = refusals[0].problems[0].to_string();
        assert!(
            observed.contains("transition not allowed") && observed.contains(medium),
            "{observed}"
        );
        assert_eq!(refused(&[medium, low]), [], "step by step");
        assert_eq!(
            edited(&[], &[Edit::Apply(node_settings(low))]).1,
            [],
            "a new cluster"
        );
    }
}
