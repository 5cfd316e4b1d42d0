//! One MachineConfigNode per node, with the node's pool and the config that it shall reach.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PostParams};
use mco_api::MachineConfigNode;
use mco_api::machine_config_node::{DesiredConfigVersion, MachineConfigNodeSpec, NOT_YET_SET, ObjectName};
use mco_api::vocabulary::conditions::machine_config_node as condition;
use mco_core::rollout::NodeView;
use serde_json::json;
use tracing::debug;

use crate::cluster::Cluster;
use crate::drain;
use crate::error::{Error, is_already_there, is_not_found};
use crate::patches;
use crate::queue::Again;
use crate::rollout;

const MANAGER: &str = "machine-config-controller-nodes";

/// Makes the node's object what it should be.
pub(crate) async fn reconcile(cluster: Arc<Cluster>, name: String) -> Result<Again, Error> {
    let objects = cluster.api::<MachineConfigNode>();
    let known = cluster.machine_config_nodes.get(&name);
    let Some(node) = cluster.nodes.get(&name) else {
        if known.is_some() {
            match objects.delete(&name, &DeleteParams::default()).await {
                Err(problem) if !is_not_found(&problem) => {
                    return Err(Error::api(format!("deleting MachineConfigNode {name}"))(problem));
                }
                _ => debug!(node = name, "its MachineConfigNode is gone"),
            }
        }
        return Ok(Again::OnChange);
    };
    rollout::release(&cluster, &node).await?;
    let wanted = wanted(&cluster, &node);
    let is_new = known.as_ref().is_none_or(|known| has_no_conditions(known));
    match known {
        None => {
            let mut object = MachineConfigNode::new(&name, wanted);
            object.metadata.owner_references = Some(vec![owner(&node)]);
            match objects.create(&PostParams::default(), &object).await {
                Ok(_) => {}
                // Its arrival will bring us back.
                Err(problem) if is_already_there(&problem) => {}
                Err(problem) => {
                    return Err(Error::api(format!("creating MachineConfigNode {name}"))(problem));
                }
            }
        }
        Some(known) if known.spec != wanted => {
            let patch = json!({"spec": patches::between(&known.spec, &wanted)});
            match objects
                .patch(&name, &patches::by(MANAGER), &Patch::Merge(patch))
                .await
            {
                Ok(written) => cluster.machine_config_nodes.learn(written),
                Err(problem) if is_not_found(&problem) => {}
                Err(problem) => return Err(Error::api(format!("writing MachineConfigNode {name}"))(problem)),
            }
        }
        Some(_) => {}
    }
    if is_new {
        drain::report_under_way(&cluster, &node).await;
    }
    Ok(Again::OnChange)
}

/// Whether no step was reported in the object yet: all conditions of an update are written together. Of the cached copy
/// only this one is left.
fn has_no_conditions(object: &MachineConfigNode) -> bool {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions
        .filter(|condition| condition.type_ == condition::NODE_DEGRADED)
        .count()
        == 0
}

fn wanted(cluster: &Cluster, node: &Node) -> MachineConfigNodeSpec {
    let view = NodeView::new(node);
    let or_unknown = |text: &str| {
        if text.is_empty() {
            NOT_YET_SET.to_owned()
        } else {
            text.to_owned()
        }
    };
    let pool = cluster.members.home(view.name).pool.unwrap_or_default();
    MachineConfigNodeSpec {
        node: ObjectName {
            name: view.name.to_owned(),
        },
        pool: ObjectName {
            name: or_unknown(&pool),
        },
        config_version: DesiredConfigVersion {
            desired: or_unknown(view.desired_config),
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
