//! One decision per request.

use super::{COMPONENTS, Identity, MASTERS, node, rbac};
use crate::error::{ApiError, Subject};
use crate::store::Store;

/// What a request wants to do, in the terms of authorisation.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    pub verb: String,
    pub group: String,
    pub version: String,
    /// Empty for a path that is no resource.
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub path: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Allowed { because: String },
    Denied { because: String },
}

impl Decision {
    pub(super) fn allow(because: impl Into<String>) -> Self {
        Self::Allowed {
            because: because.into(),
        }
    }

    pub(super) fn deny(because: impl Into<String>) -> Self {
        Self::Denied {
            because: because.into(),
        }
    }

    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed { .. })
    }
}

/// Paths that every authenticated client needs to find its way.
const DISCOVERY: &[&str] = &[
    "/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz",
];

/// Whether the caller may do this.
pub fn authorize(identity: &Identity, wanted: &Attributes, store: &Store) -> Decision {
    if identity.is_in(MASTERS) {
        return Decision::allow("");
    }
    if wanted.resource.is_empty() {
        return authorize_path(identity, wanted, store);
    }
    if is_self_review(wanted) {
        return Decision::allow("everyone may ask about themselves");
    }
    if identity.is_in(COMPONENTS) {
        return Decision::allow("a component of the system");
    }
    match identity.node_name() {
        Some(node) => node::authorize(node, wanted),
        None => rbac::authorize(identity, wanted, store),
    }
}

fn authorize_path(identity: &Identity, wanted: &Attributes, store: &Store) -> Decision {
    let below = |root: &&str| wanted.path == **root || wanted.path.starts_with(&format!("{root}/"));
    if wanted.verb == "get" && (DISCOVERY.iter().any(below) || wanted.path == "/") {
        return Decision::allow("discovery is open to everyone who is known");
    }
    if identity.is_in(COMPONENTS) {
        return Decision::allow("a component of the system");
    }
    rbac::authorize(identity, wanted, store)
}

fn is_self_review(wanted: &Attributes) -> bool {
    let review = matches!(
        (wanted.group.as_str(), wanted.resource.as_str()),
        (
            "authorization.k8s.io",
            "selfsubjectaccessreviews" | "selfsubjectrulesreviews"
        ) | ("authentication.k8s.io", "selfsubjectreviews")
    );
    review && wanted.verb == "create"
}

/// The answer to a request that is not allowed.
pub(crate) fn forbidden(identity: &Identity, wanted: &Attributes, because: &str) -> ApiError {
    let mut why = if wanted.resource.is_empty() {
        format!(
            "User {:?} cannot {} path {:?}",
            identity.user, wanted.verb, wanted.path
        )
    } else {
        let resource = match wanted.subresource.as_str() {
            "" => wanted.resource.clone(),
            sub => format!("{}/{sub}", wanted.resource),
        };
        let place = match wanted.namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        format!(
            "User {:?} cannot {} resource {resource:?} in API group {:?} {place}",
            identity.user, wanted.verb, wanted.group
        )
    };
    if !because.is_empty() {
        why = format!("{why}: {because}");
    }
    let subject = Subject {
        group: &wanted.group,
        resource: &wanted.resource,
        name: &wanted.name,
    };
    ApiError::forbidden(subject, &why)
}
