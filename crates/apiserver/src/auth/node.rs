//! What a node may do: read what concerns it, write only what is its own.
//!
//! The first half decides on the request alone; [`NodeRestriction`] looks at the objects, because a create does not
//! name its object in the path and an update could change more than a node should.

use super::authorize::{Attributes, Decision};
use super::{NODE_USER_PREFIX, NODES};
use crate::admission::{Admission, AdmissionRequest, Operation, Rejection};
use crate::meta::{self, Object};

const LEASE_NAMESPACE: &str = "kube-node-lease";
const MACHINE_CONFIG_GROUP: &str = "machineconfiguration.openshift.io";
const OPERATOR_GROUP: &str = "operator.openshift.io";
const RENDERED_PREFIX: &str = "rendered-";
/// Labels by which administrators pin workloads away from nodes they do not trust, and those that choose a node's pool.
const RESTRICTED_LABELS: [&str; 2] = ["node-restriction.kubernetes.io/", "node-role.kubernetes.io/"];

pub(super) fn authorize(node: &str, wanted: &Attributes) -> Decision {
    let own = wanted.name == node;
    let read = matches!(wanted.verb.as_str(), "get" | "list" | "watch");
    let change = matches!(wanted.verb.as_str(), "update" | "patch");
    let create = wanted.verb == "create";
    let direct = wanted.subresource.is_empty();
    let status = wanted.subresource == "status";
    let allowed = match (wanted.group.as_str(), wanted.resource.as_str()) {
        ("", "nodes") | (MACHINE_CONFIG_GROUP, "machineconfignodes") => {
            (direct && create) || (own && ((direct && read) || ((direct || status) && change)))
        }
        ("coordination.k8s.io", "leases") => {
            wanted.namespace == LEASE_NAMESPACE
                && direct
                && (create || own && (wanted.verb == "get" || change || wanted.verb == "delete"))
        }
        ("" | "events.k8s.io", "events") => direct && (create || change),
        (MACHINE_CONFIG_GROUP, "machineconfigs") => {
            direct && read && wanted.name.starts_with(RENDERED_PREFIX)
        }
        (
            MACHINE_CONFIG_GROUP,
            "machineconfigpools" | "controllerconfigs" | "pinnedimagesets" | "osimagestreams",
        )
        | (OPERATOR_GROUP, "machineconfigurations") => read && (direct || status),
        _ => false,
    };
    if allowed {
        return Decision::allow("a node and what concerns it");
    }
    Decision::deny(format!(
        "node {node:?} may read its own Node and MachineConfigNode, rendered configs and pools, and write only its own Node, Lease, MachineConfigNode and events"
    ))
}

/// Keeps nodes from writing objects of other nodes, or parts of their own that are not theirs to decide.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeRestriction;

impl Admission for NodeRestriction {
    fn review(&self, request: &AdmissionRequest<'_>) -> Result<Option<Object>, Rejection> {
        let node = request.user.strip_prefix(NODE_USER_PREFIX);
        let Some(node) = node.filter(|_| request.groups.iter().any(|group| group == NODES)) else {
            return Ok(None);
        };
        let kind = match (
            request.definition.group.as_str(),
            request.definition.plural.as_str(),
        ) {
            ("", "nodes") => "node",
            ("coordination.k8s.io", "leases") => "lease",
            (MACHINE_CONFIG_GROUP, "machineconfignodes") => "machineconfignode",
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
                (Operation::Update, Some(old)) => check_own_node(node, old, new)?,
                (Operation::Create, _) => check_labels(&Object::new(), new)?,
                _ => {}
            }
        }
        Ok(None)
    }
}

fn check_own_node(node: &str, old: &Object, new: &Object) -> Result<(), Rejection> {
    if old.get("spec") != new.get("spec") {
        return Err(Rejection::new(format!(
            "node {node:?} is not allowed to modify its specification or taints"
        )));
    }
    let owners = |object: &Object| {
        meta::metadata(object)
            .and_then(|metadata| metadata.get("ownerReferences"))
            .cloned()
    };
    if owners(old) != owners(new) {
        return Err(Rejection::new(format!(
            "node {node:?} is not allowed to modify its owners"
        )));
    }
    check_labels(old, new)
}

fn check_labels(old: &Object, new: &Object) -> Result<(), Rejection> {
    let restricted = |object: &Object| -> Vec<(String, String)> {
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

    fn wanted(verb: &str, group: &str, resource: &str, namespace: &str, name: &str) -> Attributes {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Attributes {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        }
    }

    #[test]
    fn a_node_reaches_its_own_objects_and_no_others() {
        let m = MACHINE_CONFIG_GROUP;
        let cases = [
            (true, wanted("get", "", "nodes", "", "a")),
            (true, wanted("watch", "", "nodes", "", "a")),
            (false, wanted("watch", "", "nodes", "", "")),
            (false, wanted("get", "", "nodes", "", "b")),
            (true, wanted("patch", "", "nodes/status", "", "a")),
            (false, wanted("patch", "", "nodes", "", "b")),
            (false, wanted("delete", "", "nodes", "", "a")),
            (true, wanted("get", m, "machineconfigs", "", "rendered-worker-1")),
            (false, wanted("get", m, "machineconfigs", "", "99-secret")),
            (false, wanted("list", m, "machineconfigs", "", "")),
            (
                false,
                wanted("patch", m, "machineconfigs", "", "rendered-worker-1"),
            ),
            (true, wanted("list", m, "machineconfigpools", "", "")),
            (true, wanted("watch", m, "pinnedimagesets", "", "")),
            (false, wanted("patch", m, "pinnedimagesets", "", "base")),
            (true, wanted("patch", m, "machineconfignodes/status", "", "a")),
            (false, wanted("patch", m, "machineconfignodes/status", "", "b")),
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
