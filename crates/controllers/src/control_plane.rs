//! The labels and taints of control-plane nodes that decide whether they accept user workloads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mco_api::vocabulary::names;
use mco_core::rollout::control_plane::{ControlPlaneWorkloads, role_change};
use mco_runtime::{FieldManager, Requeue};
use serde_json::json;
use tracing::info;

use crate::context::Context;
use crate::error::Error;

const MANAGER: FieldManager = FieldManager::new("machine-config-controller-control-plane");

/// Applies the Scheduler's settings to one control-plane node.
pub(crate) async fn reconcile(ctx: Arc<Context>, name: String) -> Result<Requeue, Error> {
    let Some(node) = ctx.stores.nodes.get(&name) else {
        return Ok(Requeue::OnChange);
    };
    let workloads = match ctx.stores.schedulers.get(names::SINGLETON) {
        Some(scheduler) if scheduler.spec.masters_schedulable => ControlPlaneWorkloads::Welcome,
        Some(_) => ControlPlaneWorkloads::KeptAway,
        None if ctx.scheduler_was_deleted.load(Ordering::Relaxed) => ControlPlaneWorkloads::KeptAway,
        None => ControlPlaneWorkloads::Unspecified,
    };
    let Some(change) = role_change(&node, workloads) else {
        return Ok(Requeue::OnChange);
    };
    let mut patch = json!({"metadata": {"labels": change.labels}});
    if let Some(taints) = change.taints {
        // The list has several writers, so a concurrent write must fail this one.
        patch["metadata"]["resourceVersion"] = json!(node.metadata.resource_version);
        patch["spec"] = json!({ "taints": taints });
    }
    let written = ctx.stores.nodes.patch(&ctx.api(), &name, MANAGER, &patch).await;
    if written
        .map_err(Error::api(format!("writing node {name}")))?
        .is_some()
    {
        info!(
            node = name,
            ?workloads,
            "updated the labels and taints of the control-plane node"
        );
    }
    Ok(Requeue::OnChange)
}
