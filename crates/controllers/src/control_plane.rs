//! The labels and taints by which control-plane nodes take users' work or do not.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use mco_api::vocabulary::names;
use mco_core::rollout::control_plane::{Workloads, role_change};
use serde_json::json;
use tracing::info;

use crate::cluster::Cluster;
use crate::error::{Error, is_not_found};
use crate::patches;
use crate::queue::Again;

const MANAGER: &str = "machine-config-controller-control-plane";

/// Makes one control-plane node what the scheduler's settings ask for.
pub(crate) async fn reconcile(cluster: Arc<Cluster>, name: String) -> Result<Again, Error> {
    let Some(node) = cluster.nodes.get(&name) else {
        return Ok(Again::OnChange);
    };
    let workloads = match cluster.schedulers.get(names::SINGLETON) {
        Some(scheduler) if scheduler.spec.masters_schedulable => Workloads::Welcome,
        Some(_) => Workloads::KeptAway,
        None if cluster.scheduler_is_gone.load(Ordering::Relaxed) => Workloads::KeptAway,
        None => Workloads::Unspecified,
    };
    let Some(change) = role_change(&node, workloads) else {
        return Ok(Again::OnChange);
    };
    let mut patch = json!({"metadata": {"labels": change.labels}});
    if let Some(taints) = change.taints {
        // The list has several writers; whoever was faster is read first.
        patch["metadata"]["resourceVersion"] = json!(node.metadata.resource_version);
        patch["spec"] = json!({ "taints": taints });
    }
    match cluster
        .api::<Node>()
        .patch(&name, &patches::by(MANAGER), &Patch::Merge(patch))
        .await
    {
        Ok(written) => {
            info!(
                node = name,
                ?workloads,
                "the control-plane node has its labels and taints"
            );
            cluster.nodes.learn(written);
        }
        Err(problem) if is_not_found(&problem) => {}
        Err(problem) => return Err(Error::api(format!("writing node {name}"))(problem)),
    }
    Ok(Again::OnChange)
}
