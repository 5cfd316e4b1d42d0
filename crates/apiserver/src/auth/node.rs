//! The node authorizer and the NodeRestriction admission plugin: a node reads and writes its own objects only.
//!
//! [`authorize`] decides on the request alone. [`NodeRestriction`] checks the objects, because a create does not name
//! its object in the path and an update could change more than a node may.

use std::collections::BTreeSet;
use std::time::Instant;

use http::StatusCode;

use super::authorize::{AuthorizationDecision, RequestAttributes};
use crate::admission::{Admission, AdmissionOperation, AdmissionRequest, Rejection};
use crate::limits::KeyedBuckets;
use crate::meta::{self, JsonObject};

const LEASE_NAMESPACE: &str = "kube-node-lease";
/// Labels that a kubelet sets on its own Node. Any other label could be the selector of workloads or of a group of
/// nodes; only administrators set them.
const KUBELET_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
];
/// Prefixes of labels that are reserved for kubelets, as domains.
const KUBELET_LABEL_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Returns whether a node may send this request, by the rules for the kinds of Kubernetes itself.
pub(super) fn authorize(node: &str, wanted: &RequestAttributes) -> AuthorizationDecision {
    let own = wanted.name == node;
    let read = matches!(wanted.verb.as_str(), "get" | "list" | "watch");
    let change = matches!(wanted.verb.as_str(), "update" | "patch");
    let create = wanted.verb == "create";
    let direct = wanted.subresource.is_empty();
    let status = wanted.subresource == "status";
    let allowed = match (wanted.group.as_str(), wanted.resource.as_str()) {
        ("", "nodes") => (direct && create) || (own && ((direct && read) || ((direct || status) && change))),
        ("coordination.k8s.io", "leases") => {
            wanted.namespace == LEASE_NAMESPACE
                && direct
                && (create || own && (wanted.verb == "get" || change || wanted.verb == "delete"))
        }
        ("" | "events.k8s.io", "events") => direct && (create || change),
        _ => false,
    };
    if allowed {
        return AuthorizationDecision::allow("a node and its own objects");
    }
    AuthorizationDecision::deny(format!(
        "node {node:?} may read and write its own Node and Lease, and write events"
    ))
}

/// Rejects writes of a node to other nodes' objects, and to the spec, owners, finalizers and labels of its own.
#[derive(Debug)]
pub struct NodeRestriction {
    events: KeyedBuckets,
}

impl Default for NodeRestriction {
    fn default() -> Self {
        Self {
            events: KeyedBuckets::events_of_nodes(),
        }
    }
}

impl Admission for NodeRestriction {
    fn review(&self, request: &AdmissionRequest<'_>) -> Result<Option<JsonObject>, Rejection> {
        let Some(node) = request.node_name() else {
            return Ok(None);
        };
        let kind = match (
            request.definition.group.as_str(),
            request.definition.plural.as_str(),
        ) {
            ("", "nodes") => "node",
            ("coordination.k8s.io", "leases") => "lease",
            ("" | "events.k8s.io", "events") => {
                check_event(node, request)?;
                return self.check_event_quota(node, request).map(|()| None);
            }
            _ => return Ok(None),
        };
        if request.name != node {
            return Err(Rejection::new(format!(
                "node {node:?} is not allowed to modify {kind} {:?}",
                request.name
            )));
        }
        if kind == "node"
            && let Some(new) = request.object
        {
            match (request.operation, request.old) {
                (AdmissionOperation::Update, Some(old)) => check_own_node(node, old, new)?,
                (AdmissionOperation::Create, _) => check_new_node(node, new)?,
                _ => {}
            }
        }
        Ok(None)
    }
}

impl NodeRestriction {
    /// A node's Events must not use all memory, nor expire those of others early.
    fn check_event_quota(&self, node: &str, request: &AdmissionRequest<'_>) -> Result<(), Rejection> {
        let size = |event: Option<&JsonObject>| {
            event.map_or(0, |event| serde_json::to_vec(event).map_or(0, |text| text.len()))
        };
        let growth = size(request.object).saturating_sub(size(request.old));
        let is_new = request.operation == AdmissionOperation::Create;
        if request.dry_run || self.events.spend_event(node, is_new, growth, Instant::now()) {
            return Ok(());
        }
        Err(Rejection {
            code: StatusCode::TOO_MANY_REQUESTS,
            message: format!(
                "node {node:?} has created too many events within an hour, please try again later"
            ),
        })
    }
}

/// Events are evidence: a node may not write them in the name of another, nor change what others wrote.
fn check_event(node: &str, request: &AdmissionRequest<'_>) -> Result<(), Rejection> {
    let reported_by = |event: &JsonObject| {
        let text = |pointer: &[&str]| {
            let (first, rest) = pointer.split_first()?;
            let value = rest
                .iter()
                .try_fold(event.get(*first)?, |value, name| value.get(*name))?;
            value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
        };
        text(&["reportingInstance"]).or_else(|| text(&["source", "host"]))
    };
    for event in [request.object, request.old].into_iter().flatten() {
        let instance = reported_by(event);
        if instance.as_deref() != Some(node) {
            return Err(Rejection::new(format!(
                "node {node:?} is not allowed to write events of {:?}; set reportingInstance to the node",
                instance.unwrap_or_default()
            )));
        }
    }
    Ok(())
}

/// A kubelet may register its Node with a specification and taints, but without owners and finalizers.
fn check_new_node(node: &str, new: &JsonObject) -> Result<(), Rejection> {
    let nothing = JsonObject::new();
    check_references(node, &nothing, new)?;
    check_labels(node, "set the following labels", &nothing, new)
}

fn check_own_node(node: &str, old: &JsonObject, new: &JsonObject) -> Result<(), Rejection> {
    if old.get("spec") != new.get("spec") {
        return Err(Rejection::new(format!(
            "node {node:?} is not allowed to modify its specification or taints"
        )));
    }
    check_references(node, old, new)?;
    check_labels(node, "modify labels", old, new)
}

/// A finalizer of its own would keep the Node, and with it the node's access, after the Node is deleted.
fn check_references(node: &str, old: &JsonObject, new: &JsonObject) -> Result<(), Rejection> {
    for (field, what) in [("ownerReferences", "owners"), ("finalizers", "finalizers")] {
        let of = |object: &JsonObject| {
            meta::metadata(object)
                .and_then(|metadata| metadata.get(field))
                .cloned()
        };
        if of(old) != of(new) {
            return Err(Rejection::new(format!(
                "node {node:?} is not allowed to modify its {what}"
            )));
        }
    }
    Ok(())
}

fn check_labels(node: &str, attempt: &str, old: &JsonObject, new: &JsonObject) -> Result<(), Rejection> {
    let (old, new) = (meta::labels(old), meta::labels(new));
    let value = |labels: Option<&JsonObject>, key: &str| labels.and_then(|labels| labels.get(key)).cloned();
    let keys: BTreeSet<&String> = [old, new]
        .into_iter()
        .flatten()
        .flat_map(JsonObject::keys)
        .collect();
    let rejected: Vec<&str> = keys
        .into_iter()
        .filter(|key| value(old, key) != value(new, key) && !is_kubelet_label(key))
        .map(String::as_str)
        .collect();
    if !rejected.is_empty() {
        return Err(Rejection::new(format!(
            "node {node:?} is not allowed to {attempt}: {}",
            rejected.join(", ")
        )));
    }
    Ok(())
}

fn is_kubelet_label(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    KUBELET_LABELS.contains(&key)
        || KUBELET_LABEL_DOMAINS.iter().any(|allowed| {
            domain
                .strip_suffix(allowed)
                .is_some_and(|parent| parent.is_empty() || parent.ends_with('.'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(verb: &str, group: &str, resource: &str, namespace: &str, name: &str) -> RequestAttributes {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        RequestAttributes {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..RequestAttributes::default()
        }
    }

    #[test]
    fn a_node_reaches_its_own_objects_and_no_others() {
        let cases = [
            (true, wanted("get", "", "nodes", "", "a")),
            (true, wanted("watch", "", "nodes", "", "a")),
            (false, wanted("watch", "", "nodes", "", "")),
            (false, wanted("get", "", "nodes", "", "b")),
            (true, wanted("patch", "", "nodes/status", "", "a")),
            (false, wanted("patch", "", "nodes", "", "b")),
            (false, wanted("delete", "", "nodes", "", "a")),
            (false, wanted("get", "example.io", "widgets", "", "a")),
            (
                true,
                wanted("update", "coordination.k8s.io", "leases", "kube-node-lease", "a"),
            ),
            (
                false,
                wanted("update", "coordination.k8s.io", "leases", "kube-system", "a"),
            ),
            (
                false,
                wanted("update", "coordination.k8s.io", "leases", "kube-node-lease", "b"),
            ),
            (true, wanted("create", "events.k8s.io", "events", "default", "")),
            (false, wanted("list", "", "secrets", "default", "")),
            (false, wanted("create", "", "pods/eviction", "default", "p")),
        ];
        for (allowed, wanted) in cases {
            assert_eq!(authorize("a", &wanted).is_allowed(), allowed, "{wanted:?}");
        }
    }
}
