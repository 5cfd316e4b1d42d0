//! The kinds of objects and the pod logs that are gathered.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, ListParams, LogParams, TypeMeta};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use mco_api::vocabulary::names;
use mco_client::redaction;
use serde_json::Value;

use super::GatheredFiles;
use super::bundle::{self, Bundle};

/// Only the end of a log is gathered.
const LOG_LINES: i64 = 5000;

/// One kind of objects to gather.
#[derive(Debug)]
pub struct GatherKind {
    group: &'static str,
    version: &'static str,
    pub kind: &'static str,
    scope: GatherScope,
}

#[derive(Debug, Clone, Copy)]
enum GatherScope {
    /// All objects of the cluster.
    All,
    Namespace(&'static str),
}

const fn all(group: &'static str, version: &'static str, kind: &'static str) -> GatherKind {
    GatherKind {
        group,
        version,
        kind,
        scope: GatherScope::All,
    }
}

const fn ours(group: &'static str, version: &'static str, kind: &'static str) -> GatherKind {
    GatherKind {
        group,
        version,
        kind,
        scope: GatherScope::Namespace(names::NAMESPACE),
    }
}

const GROUP: &str = "machineconfiguration.openshift.io";

pub const WANTED: &[GatherKind] = &[
    all(GROUP, "v1", "MachineConfig"),
    all(GROUP, "v1", "MachineConfigPool"),
    all(GROUP, "v1", "MachineConfigNode"),
    all(GROUP, "v1", "ControllerConfig"),
    all(GROUP, "v1", "KubeletConfig"),
    all(GROUP, "v1", "ContainerRuntimeConfig"),
    all(GROUP, "v1", "MachineOSConfig"),
    all(GROUP, "v1", "MachineOSBuild"),
    all(GROUP, "v1", "PinnedImageSet"),
    all(GROUP, "v1", "OSImageStream"),
    all("operator.openshift.io", "v1", "MachineConfiguration"),
    all("operator.openshift.io", "v1alpha1", "ImageContentSourcePolicy"),
    all("config.openshift.io", "v1", "ClusterOperator"),
    all("config.openshift.io", "v1", "ClusterVersion"),
    all("config.openshift.io", "v1", "Infrastructure"),
    all("config.openshift.io", "v1", "Network"),
    all("config.openshift.io", "v1", "Proxy"),
    all("config.openshift.io", "v1", "DNS"),
    all("config.openshift.io", "v1", "FeatureGate"),
    all("config.openshift.io", "v1", "Image"),
    all("config.openshift.io", "v1", "ImageDigestMirrorSet"),
    all("config.openshift.io", "v1", "ImageTagMirrorSet"),
    all("", "v1", "Node"),
    GatherKind {
        scope: GatherScope::Namespace("default"),
        ..all("", "v1", "Event")
    },
    ours("", "v1", "Event"),
    ours("", "v1", "Pod"),
    ours("", "v1", "Secret"),
    ours("", "v1", "ConfigMap"),
    ours("apps", "v1", "Deployment"),
    ours("apps", "v1", "DaemonSet"),
    ours("coordination.k8s.io", "v1", "Lease"),
    all("policy", "v1", "PodDisruptionBudget"),
];

/// The result of gathering one kind.
pub enum Collection {
    Found(Vec<Value>),
    /// The cluster does not have this kind, which is not reported.
    UnknownKind,
    Refused(String),
}

impl GatherKind {
    pub async fn list(&self, client: &Client) -> Collection {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(self.group, self.version, self.kind));
        let api: Api<DynamicObject> = match self.scope {
            GatherScope::All => Api::all_with(client.clone(), &resource),
            GatherScope::Namespace(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        };
        match api.list(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Collection::UnknownKind,
            Err(kube::Error::Api(status)) => Collection::Refused(status.message),
            Err(error) => Collection::Refused(error.to_string()),
            Ok(list) => {
                let types = TypeMeta {
                    api_version: resource.api_version.clone(),
                    kind: self.kind.to_owned(),
                };
                let objects = list.items.into_iter().map(|mut object| {
                    object.types = Some(types.clone());
                    serde_json::to_value(&object).unwrap_or_default()
                });
                Collection::Found(objects.collect())
            }
        }
    }
}

/// Adds the last lines of the logs of all our containers. A cluster without pods, such as `mco up`, has none.
pub async fn logs(client: &Client, bundle: &mut Bundle, gathered: &mut GatheredFiles) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), names::NAMESPACE);
    // An error was reported when pods were listed as objects.
    let found = pods.list(&ListParams::default()).await.map(|list| list.items);
    for pod in found.unwrap_or_default() {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
            let parameters = LogParams {
                container: Some(container.name.clone()),
                tail_lines: Some(LOG_LINES),
                timestamps: true,
                ..LogParams::default()
            };
            match pods.logs(name, &parameters).await {
                Ok(log) => {
                    let path = format!(
                        "logs/{}.{}.log",
                        bundle::safe(name),
                        bundle::safe(&container.name)
                    );
                    bundle.add(&path, redaction::text(&log).as_bytes())?;
                    gathered.logs += 1;
                }
                Err(error) => gathered
                    .missing
                    .push(format!("log of {name} {}: {error}", container.name)),
            }
        }
    }
    Ok(())
}
