//! Validation of built-in kinds beyond types and metadata, with the messages of Kubernetes.
//!
//! These are the rules that clients of this server meet. Objects that violate rarer rules of Kubernetes are stored
//! here.

mod access;
mod admission;
mod admission_match;
mod cluster;
mod data;
mod events;
mod webhooks;
mod workloads;

use serde_json::Value;

use crate::field_error::FieldError;

/// Returns the errors of an object of a built-in kind; `old` is the object that it replaces.
pub(crate) fn check(group: &str, kind: &str, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    match (group, kind) {
        ("", "ConfigMap") => data::config_map(new, old),
        ("", "Secret") => data::secret(new, old),
        ("", "Pod") => workloads::pod(new, old),
        ("", "Service") => workloads::service(new),
        ("", "Node") => cluster::node(new),
        ("", "Event") => events::core(new),
        ("events.k8s.io", "Event") => events::modern(new, old),
        ("apps", "Deployment" | "DaemonSet" | "ReplicaSet" | "StatefulSet") => workloads::set(kind, new, old),
        ("policy", "PodDisruptionBudget") => workloads::budget(new),
        ("coordination.k8s.io", "Lease") => cluster::lease(new),
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => access::role(new),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => access::binding(new, old),
        ("admissionregistration.k8s.io", kind) => admission::check(kind, new, old),
        _ => Vec::new(),
    }
}

/// Returns the entries of a list that exists.
fn items<'v>(object: &'v Value, pointer: &str) -> impl Iterator<Item = (usize, &'v Value)> {
    let list = object.pointer(pointer).and_then(Value::as_array);
    list.into_iter().flatten().enumerate()
}

#[cfg(test)]
mod tests;
