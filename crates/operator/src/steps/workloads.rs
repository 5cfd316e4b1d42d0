//! RBAC, network policies, admission policies and workloads.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::DeleteParams;
use mco_api::vocabulary::names::{self, component};
use mco_http::tls::{CertificatePairError, CertificateStore};
use serde_json::Value;
use thiserror::Error;
use tracing::info;

use crate::admission::webhook;
use crate::cluster::{ClusterError, OperatorClient, failed};
use crate::manifests::{self, ManifestSettings, ParameterKinds, WebhookEndpoint};
use crate::options::Webhook;
use crate::profile::ClusterProfile;
use crate::progress::SyncResult;
use crate::steps::os_builds;
use crate::steps::serving::{self, Names, ServingError};

/// The Secret with the CA of the webhook, and the ConfigMap with its bundle.
pub(crate) const WEBHOOK_CA: &str = "machine-config-operator-webhook-ca";
const WEBHOOK: Names = Names {
    ca: WEBHOOK_CA,
    serving: "machine-config-operator-webhook-tls",
};

#[derive(Debug, Error)]
pub enum AdmissionError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Serving(#[from] ServingError),
    #[error("the webhook's certificate cannot be used: {0}")]
    Pair(#[from] CertificatePairError),
}

/// Applies the service accounts, roles and bindings of the other components.
pub async fn access(cluster: &OperatorClient, profile: &ClusterProfile) -> Result<(), ClusterError> {
    apply(cluster, &manifests::operands_access(profile)).await
}

pub async fn network_policies(cluster: &OperatorClient) -> Result<(), ClusterError> {
    apply(cluster, &manifests::network_policies()).await
}

/// Applies the validating admission policies.
pub async fn guards(
    cluster: &OperatorClient,
    profile: &ClusterProfile,
    served: ParameterKinds,
) -> Result<(), ClusterError> {
    apply(cluster, &manifests::guards(profile, served)).await
}

/// Renews the webhook's certificate and applies the webhook configuration.
pub async fn webhook(
    cluster: &OperatorClient,
    options: &Webhook,
    certificate: &Arc<CertificateStore>,
    now: Timestamp,
) -> Result<(), AdmissionError> {
    let service = format!("{}.{}.svc", component::OPERATOR, names::NAMESPACE);
    let (endpoint, host) = match &options.url {
        Some(url) => {
            let host = crate::controller_config::host_of(url).unwrap_or_else(|| "localhost".to_owned());
            (
                WebhookEndpoint::Url(format!("{}{}", url.trim_end_matches('/'), webhook::PATH)),
                host,
            )
        }
        None => (WebhookEndpoint::Service { path: webhook::PATH }, service),
    };
    let pair = serving::renew(cluster, WEBHOOK, "", &[host], now).await?;
    let serving = &pair.serving;
    certificate.set(serving.certificate.as_bytes(), serving.key.as_bytes())?;
    let configuration = manifests::webhook_configuration(&endpoint, &pair.bundle);
    cluster.apply(&configuration).await?;
    Ok(())
}

/// Applies the controller's Deployment. Its replicas and its PodDisruptionBudget follow the size of the control plane.
pub async fn controller(
    cluster: &OperatorClient,
    settings: &ManifestSettings,
    single_control_plane: bool,
) -> Result<SyncResult, ClusterError> {
    let name = component::CONTROLLER;
    if single_control_plane {
        remove_budget(cluster, name).await?;
        deploy(cluster, &manifests::single_node_controller(settings)).await?;
    } else {
        deploy(cluster, &manifests::controller(settings)).await?;
    }
    controller_state(cluster).await
}

/// Returns the state of the controller's Deployment, which exists.
pub async fn controller_state(cluster: &OperatorClient) -> Result<SyncResult, ClusterError> {
    let found = deployment(cluster, component::CONTROLLER).await?;
    Ok(deployment_state(&found))
}

/// Applies the daemons' DaemonSet.
pub async fn daemon(
    cluster: &OperatorClient,
    settings: &ManifestSettings,
) -> Result<SyncResult, ClusterError> {
    deploy(cluster, &manifests::daemon(settings)).await?;
    daemon_state(cluster).await
}

/// Returns the state of the daemons' DaemonSet, which exists. Unavailable daemons of dead nodes are expected, so only the
/// update is checked.
pub async fn daemon_state(cluster: &OperatorClient) -> Result<SyncResult, ClusterError> {
    let found = daemon_set(cluster, component::DAEMON).await?;
    Ok(match daemon_set_state(&found) {
        SyncResult::NotRunning(what) => SyncResult::NotYet(what),
        state => state,
    })
}

/// Applies the servers' DaemonSet.
pub async fn server(
    cluster: &OperatorClient,
    settings: &ManifestSettings,
) -> Result<SyncResult, ClusterError> {
    deploy(cluster, &manifests::server(settings)).await?;
    server_state(cluster).await
}

/// Returns the state of the servers' DaemonSet, which exists.
pub async fn server_state(cluster: &OperatorClient) -> Result<SyncResult, ClusterError> {
    let found = daemon_set(cluster, component::SERVER).await?;
    Ok(daemon_set_state(&found))
}

/// Applies the image builder's Deployment while a MachineOSConfig exists, and until the builds of the last one are
/// cleaned up. Deletes it otherwise.
pub async fn builder(
    cluster: &OperatorClient,
    settings: &ManifestSettings,
) -> Result<SyncResult, ClusterError> {
    let name = component::OS_BUILDER;
    os_builds::sync(cluster).await?;
    if !os_builds::are_wanted(cluster).await? {
        let api = cluster.within::<Deployment>(names::NAMESPACE);
        let context = || format!("Deployment {}/{name}", names::NAMESPACE);
        let found = api.get_metadata_opt(name).await;
        if found.map_err(failed("reading", context))?.is_some() {
            match api.delete(name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                answer => {
                    answer.map_err(failed("deleting", context))?;
                }
            }
        }
        return Ok(SyncResult::Yes);
    }
    deploy(cluster, &manifests::builder(settings)).await?;
    let found = deployment(cluster, name).await?;
    Ok(match deployment_state(&found) {
        SyncResult::NotRunning(what) => SyncResult::NotYet(what),
        state => state,
    })
}

async fn remove_budget(cluster: &OperatorClient, name: &str) -> Result<(), ClusterError> {
    let api = cluster.within::<PodDisruptionBudget>(names::NAMESPACE);
    let context = || format!("PodDisruptionBudget {}/{name}", names::NAMESPACE);
    let found = api.get_metadata_opt(name).await;
    if found.map_err(failed("reading", context))?.is_none() {
        return Ok(());
    }
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        answer => answer.map(|_| ()).map_err(failed("deleting", context)),
    }
}

async fn deployment(cluster: &OperatorClient, name: &str) -> Result<Deployment, ClusterError> {
    let found = cluster.within::<Deployment>(names::NAMESPACE).get(name).await;
    found.map_err(failed("reading", || {
        format!("Deployment {}/{name}", names::NAMESPACE)
    }))
}

async fn daemon_set(cluster: &OperatorClient, name: &str) -> Result<DaemonSet, ClusterError> {
    let found = cluster.within::<DaemonSet>(names::NAMESPACE).get(name).await;
    found.map_err(failed("reading", || {
        format!("DaemonSet {}/{name}", names::NAMESPACE)
    }))
}

/// Applies workloads and their Services, after replacing those of another implementation with the same names.
async fn deploy(cluster: &OperatorClient, objects: &[Value]) -> Result<(), ClusterError> {
    for object in objects {
        take_over(cluster, object).await?;
    }
    apply(cluster, objects).await
}

/// Replaces a workload or Service that has foreign containers or ports. An apply keeps what other clients added, which
/// is right for labels but not here: a pod would be a mix of two implementations, and two ports would have one name.
async fn take_over(cluster: &OperatorClient, object: &Value) -> Result<(), ClusterError> {
    if (containers(object).is_empty() && ports(object).is_empty()) || cluster.is_unchanged(object)? {
        return Ok(());
    }
    let Some(found) = cluster.present(object).await? else {
        return Ok(());
    };
    let spec = if !containers(&found.data).is_subset(&containers(object)) {
        object["spec"].clone()
    } else if !ports(&found.data).is_subset(&ports(object)) {
        laid_over(&found.data["spec"], &object["spec"])
    } else {
        return Ok(());
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    info!("{kind} {name} has foreign containers or ports and is replaced");
    cluster.replace_spec(found, object, spec).await
}

/// Returns `wanted` with the missing fields of `found`, such as a Service's immutable address.
fn laid_over(found: &Value, wanted: &Value) -> Value {
    let mut spec = found.clone();
    for (field, value) in wanted.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    spec
}

/// Returns the names of all containers of a pod template.
fn containers(object: &Value) -> BTreeSet<&str> {
    let pod = &object["spec"]["template"]["spec"];
    let all = ["initContainers", "containers"].map(|field| pod[field].as_array().into_iter().flatten());
    let all = all.into_iter().flatten();
    all.filter_map(|container| container["name"].as_str()).collect()
}

/// Returns the ports of a Service by number and protocol.
fn ports(object: &Value) -> BTreeSet<(u64, &str)> {
    let ports = object["spec"]["ports"].as_array().into_iter().flatten();
    ports
        .filter_map(|port| Some((port["port"].as_u64()?, port["protocol"].as_str().unwrap_or("TCP"))))
        .collect()
}

/// Applies everything that can be applied and returns the first error.
async fn apply(cluster: &OperatorClient, objects: &[Value]) -> Result<(), ClusterError> {
    let mut result = Ok(());
    for object in objects {
        if let Err(error) = cluster.apply(object).await
            && result.is_ok()
        {
            result = Err(error);
        }
    }
    result
}

fn deployment_state(found: &Deployment) -> SyncResult {
    let name = found.metadata.name.as_deref().unwrap_or_default();
    let status = found.status.clone().unwrap_or_default();
    let wanted = found.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let count = |count: Option<i32>| count.unwrap_or_default();
    let reported = format!(
        "deployment {name} is not ready. status: (replicas: {}, updated: {}, ready: {}, unavailable: {})",
        count(status.replicas),
        count(status.updated_replicas),
        count(status.ready_replicas),
        count(status.unavailable_replicas)
    );
    let is_observed = status.observed_generation >= found.metadata.generation;
    if wanted > 0 && count(status.available_replicas) == 0 {
        SyncResult::NotRunning(reported)
    } else if is_observed && count(status.updated_replicas) >= wanted {
        SyncResult::Yes
    } else {
        SyncResult::NotYet(reported)
    }
}

fn daemon_set_state(found: &DaemonSet) -> SyncResult {
    let name = found.metadata.name.as_deref().unwrap_or_default();
    let status = found.status.clone().unwrap_or_default();
    let count = |count: Option<i32>| count.unwrap_or_default();
    let reported = format!(
        "daemonset {name} is not ready. status: (desired: {}, updated: {}, ready: {}, unavailable: {})",
        status.desired_number_scheduled,
        count(status.updated_number_scheduled),
        status.number_ready,
        count(status.number_unavailable)
    );
    let is_observed = status.observed_generation >= found.metadata.generation;
    if status.number_ready == 0 && (status.desired_number_scheduled > 0 || !is_observed) {
        SyncResult::NotRunning(reported)
    } else if is_observed && count(status.updated_number_scheduled) >= status.desired_number_scheduled {
        SyncResult::Yes
    } else {
        SyncResult::NotYet(reported)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deployment_runs_while_one_pod_does() {
        let deployment = |status: Value| -> Deployment {
            serde_json::from_value(json!({
                "metadata": {"name": "machine-config-controller", "generation": 2},
                "spec": {"replicas": 2, "selector": {}, "template": {}},
                "status": status,
            }))
            .unwrap()
        };
        let reported =
            |numbers: &str| format!("deployment machine-config-controller is not ready. status: ({numbers})");
        for (name, status, expected) in [
            (
                "no pod",
                json!({"observedGeneration": 2, "replicas": 2, "unavailableReplicas": 2}),
                SyncResult::NotRunning(reported("replicas: 2, updated: 0, ready: 0, unavailable: 2")),
            ),
            (
                "an update under way",
                json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1, "unavailableReplicas": 1}),
                SyncResult::NotYet(reported("replicas: 2, updated: 1, ready: 1, unavailable: 1")),
            ),
            (
                "one node is gone",
                json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1, "availableReplicas": 1, "unavailableReplicas": 1}),
                SyncResult::Yes,
            ),
            (
                "an older one is described",
                json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2}),
                SyncResult::NotYet(reported("replicas: 2, updated: 2, ready: 2, unavailable: 0")),
            ),
        ] {
            assert_eq!(deployment_state(&deployment(status)), expected, "{name}");
        }
    }

    #[test]
    fn a_dead_node_does_not_stop_a_daemon_set() {
        let daemons = |status: Value| -> DaemonSet {
            serde_json::from_value(json!({
                "metadata": {"name": "machine-config-daemon", "generation": 1},
                "spec": {"selector": {}, "template": {}},
                "status": status,
            }))
            .unwrap()
        };
        let counts = |desired: i32, updated: i32, ready: i32| {
            json!({
                "observedGeneration": 1, "desiredNumberScheduled": desired, "updatedNumberScheduled": updated,
                "numberReady": ready, "numberUnavailable": desired - ready, "currentNumberScheduled": desired,
                "numberMisscheduled": 0,
            })
        };
        assert_eq!(daemon_set_state(&daemons(counts(3, 3, 2))), SyncResult::Yes);
        assert_eq!(daemon_set_state(&daemons(counts(0, 0, 0))), SyncResult::Yes);
        assert!(matches!(
            daemon_set_state(&daemons(counts(3, 1, 3))),
            SyncResult::NotYet(_)
        ));
        assert_eq!(
            daemon_set_state(&daemons(counts(3, 3, 0))),
            SyncResult::NotRunning("daemonset machine-config-daemon is not ready. status: (desired: 3, updated: 3, ready: 0, unavailable: 3)".to_owned())
        );
    }
}
