//! Reads the inputs of a forecast from a running cluster, with the client's permissions.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DynamicObject, ListParams, LogParams, Patch, PatchParams};
use kube::core::{ApiResource, DeserializeGuard, GroupVersionKind};
use kube::{Api, Client};
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::vocabulary::{labels, names};
use mco_api::{
    ClusterBase, ControllerConfig, MachineConfig, MachineConfigPool, MachineConfiguration, RolloutPolicy,
    plain,
};
use mco_core::config::manifest::{Manifest, ManifestOrigin};
use mco_core::config::parsed_config::ParsedConfig;
use mco_core::config::problem::{InvalidObject, Problem};
use mco_core::config::remote::{self, RemoteContents};
use mco_core::config::rendered_configs;
use mco_core::config::rules::AdministratorRules;
use mco_core::pipeline::{SOURCE_KINDS, SourceKind};
use serde_json::Value;

use crate::build_status::BuildOverview;
use crate::forecast::{AdmissionRefusal, Edit};
use crate::image_builds::ImageContext;

/// The field manager of server-side dry runs.
const FIELD_MANAGER: &str = "mco-plan";
/// The container of a build's pod that drives buildah.
const BUILD_CONTAINER: &str = "image-build";
const BUILD_LOG_LINES: i64 = 5;

/// A failed read or write, with a message for the user.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(
        "cannot {attempt}: this cluster does not have the kind; install it with: \
         mco crds | kubectl apply --server-side -f -"
    )]
    UnknownKind { attempt: String },
    #[error("cannot {attempt}: {message}")]
    Refused {
        attempt: String,
        code: u16,
        message: String,
    },
    #[error(
        "cannot {attempt}: the cluster does not answer ({message}); is it running, and is this its kubeconfig?"
    )]
    Unreachable { attempt: String, message: String },
    #[error("cannot {attempt}: {source}")]
    Other {
        attempt: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("cannot {attempt}: {object} cannot be read: {message}")]
    Unreadable {
        attempt: String,
        /// Kind and name.
        object: String,
        message: String,
    },
    #[error(transparent)]
    Invalid(#[from] Box<InvalidObject>),
    #[error("an object of the cluster cannot be represented: {0}")]
    Represent(#[from] serde_json::Error),
}

impl ReadError {
    pub fn new(error: kube::Error, attempt: &str) -> Self {
        let attempt = attempt.to_owned();
        match error {
            kube::Error::Api(status) if status.code == 404 && status.details.is_none() => {
                Self::UnknownKind { attempt }
            }
            kube::Error::Api(status) => Self::Refused {
                attempt,
                code: status.code,
                message: status.message,
            },
            kube::Error::Service(error) => Self::Unreachable {
                attempt,
                message: error.to_string(),
            },
            error => Self::Other {
                attempt,
                source: Box::new(error),
            },
        }
    }
}

/// Maps an API error to a message that names the attempt, the failure and the remedy.
pub fn to_read_error<T>(result: Result<T, kube::Error>, attempt: &str) -> Result<T, ReadError> {
    result.map_err(|error| ReadError::new(error, attempt))
}

/// The cluster state that a forecast is based on.
#[derive(Debug)]
pub struct Found {
    /// The sources of rendered configs: MachineConfigs other than rendered ones, pools, and the kinds that configs
    /// are generated from.
    pub objects: Vec<Manifest>,
    /// The target of each pool.
    pub current: BTreeMap<String, ParsedConfig>,
    pub nodes: Vec<Node>,
    /// Nodes that cannot be decoded, with the reason. Controllers leave them out as well.
    pub unreadable_nodes: Vec<String>,
    pub pods: Vec<Pod>,
    pub budgets: Vec<PodDisruptionBudget>,
    pub rules: AdministratorRules,
    pub policies: Vec<RolloutPolicy>,
}

impl Found {
    /// Adds the nodes to the objects, for a base whose generated configs depend on them.
    pub(crate) fn add_nodes(&mut self, base: ClusterBase) -> Result<(), ReadError> {
        if base.is_additive() && !has_additive_base(&self.objects) {
            for node in &self.nodes {
                self.objects.push(manifest("Node", node)?);
            }
        }
        Ok(())
    }
}

/// Reads all inputs of a forecast.
pub async fn read(client: &Client) -> Result<Found, ReadError> {
    let ClusterSources { objects, current } = sources(client).await?;
    let (mut nodes, mut unreadable_nodes) = (Vec::new(), Vec::new());
    for node in guarded::<Node>(client, "list the nodes").await? {
        match node.0 {
            Ok(node) => nodes.push(node),
            Err(invalid) => {
                unreadable_nodes.push(format!("{} cannot be read: {invalid}", described(&invalid)))
            }
        }
    }
    Ok(Found {
        objects,
        current,
        nodes,
        unreadable_nodes,
        pods: list(client, "list the pods").await?,
        budgets: list(client, "list the disruption budgets").await?,
        rules: rules(client).await?,
        // Optional: not every cluster has the kind.
        policies: list(client, "list the RolloutPolicies").await.unwrap_or_default(),
    })
}

/// The sources of rendered configs, and the targets of the pools.
#[derive(Debug)]
pub struct ClusterSources {
    pub objects: Vec<Manifest>,
    pub current: BTreeMap<String, ParsedConfig>,
}

/// Reads only the sources of rendered configs, which requires fewer permissions.
pub async fn sources(client: &Client) -> Result<ClusterSources, ReadError> {
    let pools = list::<MachineConfigPool>(client, "list the pools").await?;
    let configs = list::<MachineConfig>(client, "list the MachineConfigs").await?;
    let current = current(&pools, &configs)?;
    let mut objects = contents(client, &configs).await?;
    for config in configs.iter().filter(|config| !is_rendered(config)) {
        objects.push(manifest("MachineConfig", config)?);
    }
    for pool in &pools {
        objects.push(manifest("MachineConfigPool", pool)?);
    }
    for SourceKind { group, version, kind } in SOURCE_KINDS {
        objects.extend(others(client, group, version, kind).await?);
    }
    if has_additive_base(&objects) {
        objects.extend(others(client, "", "v1", "Node").await?);
    }
    Ok(ClusterSources { objects, current })
}

/// Returns the remote contents that the controllers have fetched, and the versions of Secrets. Without permission to read
/// them there are none, so a plan reports that they are not known.
async fn contents(client: &Client, configs: &[MachineConfig]) -> Result<Vec<Manifest>, ReadError> {
    let mut all = fetched_contents(client, configs).await?;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), names::NAMESPACE);
    let versions = api.get_opt(names::config_map::SECRET_VERSIONS).await;
    if let Some(versions) = versions.ok().flatten() {
        all.push(config_map(&versions)?);
    }
    Ok(all)
}

fn config_map(found: &ConfigMap) -> Result<Manifest, ReadError> {
    let mut manifest = manifest("ConfigMap", found)?;
    "v1".clone_into(&mut manifest.api_version);
    Ok(manifest)
}

async fn fetched_contents(client: &Client, configs: &[MachineConfig]) -> Result<Vec<Manifest>, ReadError> {
    let refers = |config: &MachineConfig| {
        let ignition = config.spec.config.as_ref();
        ignition.is_some_and(|ignition| {
            !remote::resolve(ignition, &RemoteContents::default())
                .references
                .is_empty()
        })
    };
    if !configs
        .iter()
        .any(|config| !is_rendered(config) && refers(config))
    {
        return Ok(Vec::new());
    }
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), names::NAMESPACE);
    let selector = ListParams::default().labels(labels::REMOTE_CONTENTS);
    let found = api
        .list(&selector)
        .await
        .map(|list| list.items)
        .unwrap_or_default();
    found.iter().map(config_map).collect()
}

/// Whether the generated configs depend on the versions of the nodes.
fn has_additive_base(objects: &[Manifest]) -> bool {
    let mut configs = objects.iter().filter(|object| object.kind == "ControllerConfig");
    configs.any(|config| {
        let config = config.decode::<ControllerConfig>();
        config.is_ok_and(|config| config.base().is_ok_and(ClusterBase::is_additive))
    })
}

/// Returns the targets of the pools.
fn current(
    pools: &[MachineConfigPool],
    configs: &[MachineConfig],
) -> Result<BTreeMap<String, ParsedConfig>, ReadError> {
    let by_name: BTreeMap<&str, &MachineConfig> = configs
        .iter()
        .filter_map(|config| Some((config.metadata.name.as_deref()?, config)))
        .collect();
    let mut current = BTreeMap::new();
    for pool in pools {
        if let (Some(name), Some(config)) = (&pool.metadata.name, by_name.get(pool.target_name())) {
            current.insert(
                name.clone(),
                ParsedConfig::applicable((*config).clone()).map_err(Box::new)?,
            );
        }
    }
    Ok(current)
}

/// Reads the end of the log of builds that run in pods. A user may lack the right to, and the pod may have ended.
pub async fn read_build_logs(client: &Client, builds: impl IntoIterator<Item = &mut BuildOverview>) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), names::NAMESPACE);
    for build in builds {
        if !build.is_running || !build.log.is_empty() {
            continue;
        }
        let of_job = format!("job-name={}", names::build::job(&build.name));
        let found = pods.list(&ListParams::default().labels(&of_job)).await;
        let latest = found.ok().and_then(|pods| {
            let newest = pods.items.into_iter().max_by_key(|pod| {
                let created = pod.metadata.creation_timestamp.as_ref();
                created.map(|time| time.0)
            });
            newest?.metadata.name
        });
        let Some(pod) = latest else { continue };
        let end = LogParams {
            container: Some(BUILD_CONTAINER.to_owned()),
            tail_lines: Some(BUILD_LOG_LINES),
            ..LogParams::default()
        };
        if let Ok(log) = pods.logs(&pod, &end).await {
            build.log = log.lines().map(str::to_owned).collect();
        }
    }
}

/// Reads the builds of OS images, and the rendered configs that they are for.
pub(crate) async fn read_builds(client: &Client, images: &mut ImageContext) -> Result<(), ReadError> {
    images.builds = list(client, "list the MachineOSBuilds").await?;
    // As they are stored: an absent list differs from an empty one.
    let stored = others(client, "machineconfiguration.openshift.io", "v1", "MachineConfig").await?;
    let rendered = stored
        .into_iter()
        .filter(|object| object.name.starts_with("rendered-"));
    images.rendered = rendered.map(|object| object.value).collect();
    Ok(())
}

/// Whether a MachineConfig is a rendered config.
pub fn is_rendered(config: &MachineConfig) -> bool {
    rendered_configs::pool_of(&config.metadata).is_some()
}

/// Reads the cluster's policies about changes.
pub async fn rules(client: &Client) -> Result<AdministratorRules, ReadError> {
    rules_on(client, base(client).await?).await
}

/// Like [`rules`], with the built-in policies of this base.
pub async fn rules_on(client: &Client, base: ClusterBase) -> Result<AdministratorRules, ReadError> {
    let attempt = "read the disruption policies";
    let found = singleton::<MachineConfiguration>(client, names::SINGLETON, attempt).await?;
    let found = match found {
        Some(found) => Some(found),
        None => singleton::<plain::MachineConfiguration>(client, names::SINGLETON, attempt)
            .await?
            .map(MachineConfiguration::from),
    };
    Ok(found.map_or_else(
        || AdministratorRules::of_base(base),
        |found| AdministratorRules::in_force(&found, base),
    ))
}

/// Reads the base of the cluster. An unknown one has no rules, so that every change is expected to reboot.
pub async fn base(client: &Client) -> Result<ClusterBase, ReadError> {
    let attempt = "read the ControllerConfig";
    let config = singleton::<ControllerConfig>(client, CONTROLLER_CONFIG_NAME, attempt).await?;
    Ok(config.map_or_else(ClusterBase::default, |config| {
        config.base().unwrap_or(ClusterBase::None)
    }))
}

/// Reads a cluster-wide object; `None` if it or its kind does not exist.
async fn singleton<K>(client: &Client, name: &str, attempt: &str) -> Result<Option<K>, ReadError>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match Api::<K>::all(client.clone()).get_opt(name).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        found => to_read_error(found, attempt),
    }
}

async fn list<K>(client: &Client, attempt: &str) -> Result<Vec<K>, ReadError>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let mut objects = Vec::new();
    for object in guarded::<K>(client, attempt).await? {
        match object.0 {
            Ok(object) => objects.push(object),
            Err(invalid) => {
                return Err(ReadError::Unreadable {
                    attempt: attempt.to_owned(),
                    object: format!("{} {}", K::kind(&()), described(&invalid)),
                    message: invalid.error,
                });
            }
        }
    }
    Ok(objects)
}

/// Lists objects and decodes them one by one, so that an error names its object.
async fn guarded<K>(client: &Client, attempt: &str) -> Result<Vec<DeserializeGuard<K>>, ReadError>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let api = Api::<DeserializeGuard<K>>::all(client.clone());
    Ok(to_read_error(api.list(&ListParams::default()).await, attempt)?.items)
}

/// Returns the quoted name of an object that cannot be decoded.
fn described(invalid: &kube::core::error_boundary::InvalidObject) -> String {
    let name = invalid.metadata.name.as_deref().unwrap_or_default();
    match &invalid.metadata.namespace {
        Some(namespace) => format!("{:?}", format!("{namespace}/{name}")),
        None => format!("{name:?}"),
    }
}

async fn others(client: &Client, group: &str, version: &str, kind: &str) -> Result<Vec<Manifest>, ReadError> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    match api.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        list => to_read_error(list, &format!("list {kind}"))?
            .items
            .into_iter()
            .map(|mut object| {
                object.types = Some(kube::core::TypeMeta {
                    api_version: resource.api_version.clone(),
                    kind: kind.to_owned(),
                });
                manifest(kind, &object)
            })
            .collect(),
    }
}

fn manifest(kind: &str, object: &impl serde::Serialize) -> Result<Manifest, ReadError> {
    let value = serde_json::to_value(object)?;
    let text = |pointer: &str| {
        value
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    Ok(Manifest {
        origin: ManifestOrigin {
            file: "the cluster".to_owned(),
            line: 0,
        },
        api_version: text("/apiVersion"),
        kind: kind.to_owned(),
        name: text("/metadata/name"),
        value,
    })
}

/// Returns the edits that the API server would reject, by a server-side dry run.
pub async fn refused_by_server(
    client: &Client,
    edits: &[Edit],
    known: &[AdmissionRefusal],
) -> Vec<AdmissionRefusal> {
    let mut refused = Vec::new();
    for edit in edits {
        let Edit::Apply(manifest) = edit else { continue };
        if known
            .iter()
            .any(|one| one.kind == manifest.kind && one.name == manifest.name)
        {
            continue;
        }
        if let Some(message) = refusal(client, manifest).await {
            refused.push(AdmissionRefusal {
                kind: manifest.kind.clone(),
                name: manifest.name.clone(),
                problems: vec![Problem::new("", message)],
            });
        }
    }
    refused
}

async fn refusal(client: &Client, manifest: &Manifest) -> Option<String> {
    let (group, version) = manifest
        .api_version
        .split_once('/')
        .unwrap_or(("", &manifest.api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &manifest.kind));
    let namespace = manifest
        .value
        .pointer("/metadata/namespace")
        .and_then(Value::as_str);
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let parameters = PatchParams::apply(FIELD_MANAGER).dry_run().force();
    match api
        .patch(&manifest.name, &parameters, &Patch::Apply(&manifest.value))
        .await
    {
        Err(kube::Error::Api(status)) => Some(status.message),
        _ => None,
    }
}
