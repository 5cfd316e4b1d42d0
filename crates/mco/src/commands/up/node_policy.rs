//! The access of nodes to the machine config API, for the embedded control plane.
//!
//! A node reads the MachineConfigs that it uses, pools and cluster-wide settings, and writes its own MachineConfigNode.
//! A real cluster has RBAC and ValidatingAdmissionPolicies instead; see `mco install`.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::MachineConfigPool;
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::vocabulary::names;
use mco_apiserver::Identity;
use mco_apiserver::admission::{Admission, AdmissionRequest, Rejection};
use mco_apiserver::auth::{AuthorizationDecision, Authorizer, RequestAttributes};
use mco_apiserver::meta::{self, JsonObject};
use mco_apiserver::store::{ObjectKey, ObjectStore, StoredObject};
use mco_core::config::pools::{Membership, NodePools};
use mco_core::config::rendered_configs;
use mco_core::pipeline::admission::{OPERATOR_GROUP, OWN_GROUP};
use serde::Deserialize;
use serde_json::Value;

/// The API group of NodeAdoptions.
const ADOPTION_GROUP: &str = "mco.dev";

#[derive(Clone, Copy, Debug, Default)]
pub struct NodePolicy;

impl Authorizer for NodePolicy {
    fn authorize(
        &self,
        identity: &Identity,
        wanted: &RequestAttributes,
        store: &ObjectStore,
    ) -> Option<AuthorizationDecision> {
        let node = identity.node_name()?;
        let decision = if is_allowed(node, wanted, store) {
            AuthorizationDecision::allow("a node and its own objects")
        } else {
            AuthorizationDecision::deny(format!(
                "node {node:?} may read its own Node and MachineConfigNode, the configs of its pool that it uses and \
                 pools, and write only its own Node, Lease, MachineConfigNode and events"
            ))
        };
        Some(decision)
    }
}

fn is_allowed(node: &str, wanted: &RequestAttributes, store: &ObjectStore) -> bool {
    let own = wanted.name == node;
    let read = matches!(wanted.verb.as_str(), "get" | "list" | "watch");
    let change = matches!(wanted.verb.as_str(), "update" | "patch");
    let create = wanted.verb == "create";
    let direct = wanted.subresource.is_empty();
    let status = wanted.subresource == "status";
    match (wanted.group.as_str(), wanted.resource.as_str()) {
        (OWN_GROUP, "machineconfignodes") => {
            (direct && create) || (own && ((direct && read) || ((direct || status) && change)))
        }
        (ADOPTION_GROUP, "nodeadoptions") => {
            (direct && create) || (own && ((direct && read) || (status && change)))
        }
        (OWN_GROUP, "machineconfigs") => {
            direct && wanted.verb == "get" && uses_config(node, &wanted.name, store)
        }
        (OWN_GROUP, "controllerconfigs") => direct && read && wanted.name == CONTROLLER_CONFIG_NAME,
        (OPERATOR_GROUP, "machineconfigurations") => direct && read && wanted.name == names::SINGLETON,
        // Neither holds file contents. A daemon needs all of them, because selectors determine which are its own.
        (OWN_GROUP, "machineconfigpools" | "pinnedimagesets") => direct && read,
        _ => false,
    }
}

/// Returns whether a node may read a MachineConfig: one that its pool refers to, or one of its pool that its own Node
/// refers to.
///
/// A node writes its own annotations, so that they alone do not give access to the configs of other pools.
fn uses_config(node: &str, config: &str, store: &ObjectStore) -> bool {
    let Some(node) = store.get(&key("nodes", node)).and_then(|node| metadata(&node)) else {
        return false;
    };
    let pools = pools(store);
    let own = own_pool(&pools, node.labels.as_ref());
    let is_of_pool = |name: &str| Some(name) == own.as_deref();
    let by_pool = pools
        .iter()
        .filter(|pool| pool.metadata.name.as_deref().is_some_and(is_of_pool))
        .any(|pool| rendered_configs::used_by_pool(pool).any(|used| used == config));
    if by_pool {
        return true;
    }
    let by_node = rendered_configs::used_by_node(&node).any(|used| used == config);
    by_node
        && match store.get(&key("machineconfigs.machineconfiguration.openshift.io", config)) {
            // The node may find out that a config it refers to does not exist.
            None => true,
            Some(found) => metadata(&found)
                .as_ref()
                .and_then(rendered_configs::pool_of)
                .is_some_and(is_of_pool),
        }
}

/// Returns the pool that determines the config of a node with these labels.
fn own_pool(pools: &[MachineConfigPool], labels: Option<&BTreeMap<String, String>>) -> Option<String> {
    match NodePools::new(pools).of_node(labels) {
        Membership::Member { pool, .. } => Some(pool.to_owned()),
        Membership::Unmanaged | Membership::Contested { .. } => None,
    }
}

/// Returns all pools that can be read.
fn pools(store: &ObjectStore) -> Vec<MachineConfigPool> {
    let found = store.list("machineconfigpools.machineconfiguration.openshift.io", "");
    let read = found.objects.iter().filter_map(|pool| {
        let value = Value::Object(pool.value().ok()?);
        MachineConfigPool::deserialize(value).ok()
    });
    read.collect()
}

fn key(resource: &str, name: &str) -> ObjectKey {
    ObjectKey::new(&Arc::from(resource), "", name)
}

fn metadata(object: &StoredObject) -> Option<ObjectMeta> {
    ObjectMeta::deserialize(object.value().ok()?.remove("metadata")?).ok()
}

impl Admission for NodePolicy {
    fn review(&self, request: &AdmissionRequest<'_>) -> Result<Option<JsonObject>, Rejection> {
        let Some(node) = request.node_name() else {
            return Ok(None);
        };
        match (
            request.definition.group.as_str(),
            request.definition.plural.as_str(),
        ) {
            (OWN_GROUP, "machineconfignodes") if request.name != node => Err(Rejection::new(format!(
                "node {node:?} is not allowed to modify machineconfignode {:?}",
                request.name
            ))),
            (ADOPTION_GROUP, "nodeadoptions") if request.name != node => Err(Rejection::new(format!(
                "node {node:?} is not allowed to modify nodeadoption {:?}",
                request.name
            ))),
            ("", "nodes") => check_pool(node, request).map(|()| None),
            _ => Ok(None),
        }
    }
}

/// Rejects a change of labels by which a node would enter or leave a pool.
fn check_pool(node: &str, request: &AdmissionRequest<'_>) -> Result<(), Rejection> {
    let labels = |object: Option<&JsonObject>| object.and_then(meta::labels).map(text_values);
    let (old, new) = (labels(request.old), labels(request.object));
    if request.object.is_none() || old == new {
        return Ok(());
    }
    let pools = pools(request.store);
    let selectors = NodePools::new(&pools);
    if selectors.of_node(old.as_ref()) != selectors.of_node(new.as_ref()) {
        return Err(Rejection::new(format!(
            "node {node:?} is not allowed to modify labels that select it for a pool"
        )));
    }
    Ok(())
}

fn text_values(labels: &JsonObject) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    labels
        .iter()
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}
