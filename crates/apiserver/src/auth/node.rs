//! The node authorizer and the NodeRestriction admission plugin: a node reads and writes its own objects only.
//!
//! [`authorize`] decides on the request alone. [`NodeRestriction`] checks the objects, because a create does not name
//! its object in the path and an update could change more than a node may.

use super::authorize::{AuthorizationDecision, RequestAttributes};
use crate::admission::{Admission, AdmissionOperation, AdmissionRequest, Rejection};
use crate::meta::{self, JsonObject};

const LEASE_NAMESPACE: &str = "kube-node-lease";
/// Labels that schedule workloads onto a node or assign its role; only administrators set them.
const RESTRICTED_LABELS: [&str; 2] = ["node-restriction.kubernetes.io/", "node-role.kubernetes.io/"];

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

/// Rejects writes of a node to other nodes' objects, and to the spec, owners and restricted labels of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeRestriction;

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
            ("" | "events.k8s.io", "events") => return check_event(node, request).map(|()| None),
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
                (AdmissionOperation::Create, _) => check_labels(&JsonObject::new(), new)?,
                _ => {}
            }
        }
        Ok(None)
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

fn check_own_node(node: &str, old: &JsonObject, new: &JsonObject) -> Result<(), Rejection> {
    if old.get("spec") != new.get("spec") {
        return Err(Rejection::new(format!(
            "node {node:?} is not allowed to modify its specification or taints"
        )));
    }
    // A finalizer of its own would keep the Node, and with it the node's access, after the Node is deleted.
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
    check_labels(old, new)
}

fn check_labels(old: &JsonObject, new: &JsonObject) -> Result<(), Rejection> {
    let restricted = |object: &JsonObject| -> Vec<(String, String)> {
        let labels = meta::labels(object).into_iter().flatten();
        let kept = labels.filter(|(key, _)| {
            RESTRICTED_LABELS
                .iter()
                .any(|restricted| key.contains(restricted))
        });
        kept.map(|(key, value)| (key.clone(), value.to_string()))
            .collect()
    };
    if restricted(old) != restricted(new) {
        return Err(Rejection::new(format!(
            "is not allowed to modify labels with the prefix {}",
            RESTRICTED_LABELS.map(|label| format!("{label:?}")).join(" or ")
        )));
    }
    Ok(())
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
