//! The access of nodes to the machine config API, for the embedded control plane.
//!
//! A node reads rendered MachineConfigs, pools and cluster-wide settings, and writes its own MachineConfigNode. A real
//! cluster has the same rules as RBAC and ValidatingAdmissionPolicies; see `mco install`.

use mco_apiserver::Identity;
use mco_apiserver::admission::{Admission, AdmissionRequest, Rejection};
use mco_apiserver::auth::{AuthorizationDecision, Authorizer, RequestAttributes};
use mco_apiserver::meta::JsonObject;
use mco_core::pipeline::admission::{OPERATOR_GROUP, OWN_GROUP};

const RENDERED_PREFIX: &str = "rendered-";

#[derive(Clone, Copy, Debug, Default)]
pub struct NodePolicy;

impl Authorizer for NodePolicy {
    fn authorize(&self, identity: &Identity, wanted: &RequestAttributes) -> Option<AuthorizationDecision> {
        let node = identity.node_name()?;
        let decision = if is_allowed(node, wanted) {
            AuthorizationDecision::allow("a node and its own objects")
        } else {
            AuthorizationDecision::deny(format!(
                "node {node:?} may read its own Node and MachineConfigNode, rendered configs and pools, \
                 and write only its own Node, Lease, MachineConfigNode and events"
            ))
        };
        Some(decision)
    }
}

fn is_allowed(node: &str, wanted: &RequestAttributes) -> bool {
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
        // Other MachineConfigs may hold secrets of other pools.
        (OWN_GROUP, "machineconfigs") => direct && read && wanted.name.starts_with(RENDERED_PREFIX),
        (OWN_GROUP, "machineconfigpools" | "controllerconfigs" | "pinnedimagesets" | "osimagestreams")
        | (OPERATOR_GROUP, "machineconfigurations") => read && (direct || status),
        _ => false,
    }
}

impl Admission for NodePolicy {
    fn review(&self, request: &AdmissionRequest<'_>) -> Result<Option<JsonObject>, Rejection> {
        let definition = request.definition;
        let is_machine_config_node =
            definition.group == OWN_GROUP && definition.plural == "machineconfignodes";
        match request.node_name() {
            Some(node) if is_machine_config_node && request.name != node => Err(Rejection::new(format!(
                "node {node:?} is not allowed to modify machineconfignode {:?}",
                request.name
            ))),
            _ => Ok(None),
        }
    }
}
