//! One MachineConfigNode per node, with the node's pool and its desired config.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::DeleteParams;
use mco_api::MachineConfigNode;
use mco_api::machine_config_node::{DesiredConfigVersion, MachineConfigNodeSpec, NOT_YET_SET, ObjectName};
use mco_api::vocabulary::conditions::machine_config_node as condition;
use mco_core::rollout::{NodeView, image_mode_status};
use mco_runtime::patch::{self, unless_gone};
use mco_runtime::{FieldManager, Requeue, is_already_exists};
use serde_json::json;
use tracing::debug;

use crate::context::Context;
use crate::drain;
use crate::error::Error;
use crate::feature_gates;
use crate::rollout;

const MANAGER: FieldManager = FieldManager::new("machine-config-controller-nodes");

/// Creates, updates or deletes the MachineConfigNode of a node.
pub(crate) async fn reconcile(ctx: Arc<Context>, name: String) -> Result<Requeue, Error> {
    let existing = ctx.stores.machine_config_nodes.get(&name);
    let Some(node) = ctx.stores.nodes.get(&name) else {
        // A Node that cannot be decoded still exists.
        let is_unreadable = ctx
            .stores
            .nodes
            .unreadable()
            .iter()
            .any(|node| node.key() == name);
        if existing.is_some() && !is_unreadable {
            delete(&ctx, &name).await?;
        }
        return Ok(Requeue::OnChange);
    };
    rollout::remove_taint_outside_pools(&ctx, &node).await?;
    let wanted = wanted(&ctx, &node);
    let is_new = existing
        .as_ref()
        .is_none_or(|existing| has_no_conditions(existing));
    let created = existing
        .as_ref()
        .and_then(|existing| existing.metadata.creation_timestamp.clone());
    match existing {
        None => create(&ctx, &node, &name, wanted).await?,
        Some(existing) if existing.spec != wanted => {
            let patch = json!({"spec": patch::diff(&existing.spec, &wanted)});
            let store = &ctx.stores.machine_config_nodes;
            let written = store.patch(&ctx.api(), &name, MANAGER, &patch).await;
            written.map_err(Error::api(format!("writing MachineConfigNode {name}")))?;
        }
        Some(_) => {}
    }
    if is_new {
        drain::report_running_drain(&ctx, &node, created.map(|time| time.0)).await;
    }
    Ok(Requeue::OnChange)
}

async fn create(ctx: &Context, node: &Node, name: &str, spec: MachineConfigNodeSpec) -> Result<(), Error> {
    let mut object = MachineConfigNode::new(name, spec);
    object.metadata.owner_references = Some(vec![owner(node)]);
    let objects = ctx.api::<MachineConfigNode>();
    match objects.create(&MANAGER.post_params(), &object).await {
        Ok(_) => Ok(()),
        // The watch reports it and enqueues the node again.
        Err(problem) if is_already_exists(&problem) => Ok(()),
        Err(problem) => Err(Error::api(format!("creating MachineConfigNode {name}"))(problem)),
    }
}

async fn delete(ctx: &Context, name: &str) -> Result<(), Error> {
    let objects = ctx.api::<MachineConfigNode>();
    unless_gone(objects.delete(name, &DeleteParams::default()).await)
        .map_err(Error::api(format!("deleting MachineConfigNode {name}")))?;
    debug!(node = name, "deleted the MachineConfigNode of a deleted node");
    Ok(())
}

/// Returns true if no step of an update was reported yet: all conditions of an update are written together, and the
/// store keeps this one.
fn has_no_conditions(object: &MachineConfigNode) -> bool {
    let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
    !conditions.any(|condition| condition.type_ == condition::NODE_DEGRADED)
}

fn wanted(ctx: &Context, node: &Node) -> MachineConfigNodeSpec {
    let view = NodeView::new(node);
    let or_not_yet_set = |text: &str| {
        if text.is_empty() {
            NOT_YET_SET.to_owned()
        } else {
            text.to_owned()
        }
    };
    let pool = ctx.membership.of_node(view.name).pool.unwrap_or_default();
    MachineConfigNodeSpec {
        config_image: image_mode_status::desired_image(
            feature_gates::image_mode_status(ctx),
            view.desired_image,
        ),
        node: ObjectName {
            name: view.name.to_owned(),
        },
        pool: ObjectName {
            name: or_not_yet_set(&pool),
        },
        config_version: DesiredConfigVersion {
            desired: or_not_yet_set(view.desired_config),
        },
    }
}

fn owner(node: &Node) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.metadata.name.clone().unwrap_or_default(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        controller: None,
        block_owner_deletion: None,
    }
}
