//! Authorization: one decision per request.

use std::fmt::Debug;
use std::sync::Arc;

use super::{COMPONENTS, Identity, MASTERS, node, rbac};
use crate::error::{ApiError, ErrorSubject};
use crate::store::ObjectStore;

/// The attributes of a request that authorization depends on.
#[derive(Clone, Debug, Default)]
pub struct RequestAttributes {
    pub verb: String,
    pub group: String,
    pub version: String,
    /// Empty for a non-resource path.
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub path: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorizationDecision {
    Allowed { because: String },
    Denied { because: String },
}

impl AuthorizationDecision {
    pub fn allow(because: impl Into<String>) -> Self {
        Self::Allowed {
            because: because.into(),
        }
    }

    pub fn deny(because: impl Into<String>) -> Self {
        Self::Denied {
            because: because.into(),
        }
    }

    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed { .. })
    }
}

/// Authorization rules of the embedding program.
///
/// They are consulted for callers that the built-in rules do not allow: after the node authorizer for nodes, before
/// RBAC for other users. For components they come first.
pub trait Authorizer: Send + Sync + Debug {
    /// Returns a final decision, or `None` to leave the request to the next authorizer.
    ///
    /// `store` holds the objects that the decision may depend on, such as the caller's own.
    fn authorize(
        &self,
        identity: &Identity,
        wanted: &RequestAttributes,
        store: &ObjectStore,
    ) -> Option<AuthorizationDecision>;
}

/// Paths that every authenticated client may read for discovery.
const DISCOVERY: &[&str] = &[
    "/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz",
];

/// Returns whether the caller may send this request.
pub fn authorize(
    identity: &Identity,
    wanted: &RequestAttributes,
    store: &ObjectStore,
    extra: &[Arc<dyn Authorizer>],
) -> AuthorizationDecision {
    if identity.is_in(MASTERS) {
        return AuthorizationDecision::allow("");
    }
    if wanted.resource.is_empty() {
        return authorize_path(identity, wanted, store);
    }
    if is_self_review(wanted) {
        return AuthorizationDecision::allow("everyone may ask about themselves");
    }
    if identity.is_in(COMPONENTS) {
        return authorize_component(identity, wanted, store, extra);
    }
    let by_node_rules = identity.node_name().map(|node| node::authorize(node, wanted));
    if let Some(allowed) = by_node_rules.as_ref().filter(|decision| decision.is_allowed()) {
        return allowed.clone();
    }
    let by_extra_rules = extra
        .iter()
        .find_map(|authorizer| authorizer.authorize(identity, wanted, store));
    by_extra_rules
        .or(by_node_rules)
        .unwrap_or_else(|| rbac::authorize(identity, wanted, store))
}

/// Components may do anything but act as other users, unless the embedding program denies it.
fn authorize_component(
    identity: &Identity,
    wanted: &RequestAttributes,
    store: &ObjectStore,
    extra: &[Arc<dyn Authorizer>],
) -> AuthorizationDecision {
    if wanted.verb == "impersonate" {
        return AuthorizationDecision::deny("a component of the system acts as itself");
    }
    extra
        .iter()
        .find_map(|authorizer| authorizer.authorize(identity, wanted, store))
        .unwrap_or_else(|| AuthorizationDecision::allow("a component of the system"))
}

fn authorize_path(
    identity: &Identity,
    wanted: &RequestAttributes,
    store: &ObjectStore,
) -> AuthorizationDecision {
    let below = |root: &&str| wanted.path == **root || wanted.path.starts_with(&format!("{root}/"));
    if wanted.verb == "get" && (DISCOVERY.iter().any(below) || wanted.path == "/") {
        return AuthorizationDecision::allow("discovery is open to every authenticated user");
    }
    if identity.is_in(COMPONENTS) {
        return AuthorizationDecision::allow("a component of the system");
    }
    rbac::authorize(identity, wanted, store)
}

fn is_self_review(wanted: &RequestAttributes) -> bool {
    let review = matches!(
        (wanted.group.as_str(), wanted.resource.as_str()),
        (
            "authorization.k8s.io",
            "selfsubjectaccessreviews" | "selfsubjectrulesreviews"
        ) | ("authentication.k8s.io", "selfsubjectreviews")
    );
    review && wanted.verb == "create"
}

/// Returns the error for a request that is not allowed.
pub(crate) fn forbidden(identity: &Identity, wanted: &RequestAttributes, because: &str) -> ApiError {
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
    let subject = ErrorSubject {
        group: &wanted.group,
        resource: &wanted.resource,
        name: &wanted.name,
    };
    ApiError::forbidden(subject, &why)
}
