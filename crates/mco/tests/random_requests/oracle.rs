//! An independent model of who may do what, written from the documentation and not from the implementation.
//!
//! It states upper bounds: what it denies must be denied, and what it allows may still fail for another reason.

use std::collections::BTreeSet;

/// A caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    Admin,
    /// The node of this name.
    Node(&'static str),
    /// A node whose Node was deleted.
    Revoked,
    /// A user with the rights that the administrator grants meanwhile.
    User,
    Anonymous,
}

/// A resource that requests are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The path up to the namespace, or to the resource if it has none.
    pub root: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
}

const OWN: &str = "/apis/machineconfiguration.openshift.io/v1";

pub const CONFIG_MAPS: Resource = namespaced("/api/v1", "configmaps");
pub const SECRETS: Resource = namespaced("/api/v1", "secrets");
pub const EVENTS: Resource = namespaced("/api/v1", "events");
pub const LEASES: Resource = namespaced("/apis/coordination.k8s.io/v1", "leases");
pub const NODES: Resource = cluster("/api/v1", "nodes");
pub const MACHINE_CONFIGS: Resource = cluster(OWN, "machineconfigs");
pub const MACHINE_CONFIG_NODES: Resource = cluster(OWN, "machineconfignodes");
pub const POOLS: Resource = cluster(OWN, "machineconfigpools");
pub const ROLES: Resource = cluster("/apis/rbac.authorization.k8s.io/v1", "clusterroles");

pub const ALL: [Resource; 9] = [
    CONFIG_MAPS,
    SECRETS,
    EVENTS,
    LEASES,
    NODES,
    MACHINE_CONFIGS,
    MACHINE_CONFIG_NODES,
    POOLS,
    ROLES,
];

const fn namespaced(root: &'static str, plural: &'static str) -> Resource {
    Resource {
        root,
        plural,
        namespaced: true,
    }
}

const fn cluster(root: &'static str, plural: &'static str) -> Resource {
    Resource {
        root,
        plural,
        namespaced: false,
    }
}

/// The namespace of the leases of nodes.
pub const LEASE_NAMESPACE: &str = "kube-node-lease";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    List,
    Create,
    Update,
    Patch,
    Delete,
}

impl Verb {
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// A question to the model. `name` is that of the object, also if the request does not have it in its path.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub verb: Verb,
    pub resource: Resource,
    pub namespace: &'a str,
    pub name: &'a str,
}

/// The rights of the user: verb, resource and namespace.
#[derive(Clone, Debug, Default)]
pub struct Grants(pub BTreeSet<(&'static str, &'static str, String)>);

/// Returns whether the caller may do this.
pub fn allows(caller: Caller, grants: &Grants, asked: Question<'_>) -> bool {
    match caller {
        Caller::Admin => true,
        Caller::Anonymous | Caller::Revoked => false,
        Caller::User => {
            let right = (
                asked.verb.name(),
                asked.resource.plural,
                asked.namespace.to_owned(),
            );
            grants.0.contains(&right)
        }
        Caller::Node(node) => node_may(node, asked),
    }
}

/// A node reads and writes what is its own, reads the config of its pool, and deletes nothing but its lease.
fn node_may(node: &str, asked: Question<'_>) -> bool {
    use Verb::{Create, Delete, Get, List, Patch, Update};
    let own = asked.name == node;
    match (asked.resource, asked.verb) {
        (NODES | MACHINE_CONFIG_NODES, Get | Create | Update | Patch) => own,
        (LEASES, Get | Create | Update | Patch | Delete) => own && asked.namespace == LEASE_NAMESPACE,
        (MACHINE_CONFIGS, Get) => asked.name.starts_with("rendered-worker-"),
        // Of Events only its own; their contents decide, which `owns` checks.
        (POOLS, Get | List) | (EVENTS, Create | Update | Patch) => true,
        _ => false,
    }
}

/// Returns whether an object may contain what this node wrote.
pub fn owns(node: &str, resource: Resource, object: &serde_json::Value) -> bool {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    match resource {
        NODES | MACHINE_CONFIG_NODES | LEASES => name == node,
        EVENTS => object["reportingInstance"] == node || object["source"]["host"] == node,
        _ => false,
    }
}
