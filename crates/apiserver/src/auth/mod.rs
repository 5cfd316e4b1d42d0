//! Authentication and authorization.
//!
//! Authentication is by client certificate or bearer token. Authorization has classes: administrators, the system's own
//! components, nodes (each limited to its own objects), and users with stored RBAC rules. The embedding program adds
//! rules with an [`Authorizer`].

mod authorize;
mod credential;
mod escalation;
mod impersonation;
mod node;
pub(crate) mod node_tokens;
mod pki;
mod policy_rule;
mod rbac;
mod tokens;

use std::collections::BTreeMap;

pub(crate) use authorize::forbidden;
pub use authorize::{AuthorizationDecision, Authorizer, RequestAttributes, authorize};
pub(crate) use credential::{AuthenticatedCaller, Credential, StreamAccess};
pub(crate) use escalation::RbacEscalation;
pub(crate) use impersonation::Impersonation;
pub use node::NodeRestriction;
pub use pki::{Credentials, Pki, PkiError};
pub(crate) use pki::{LIFETIME as CERTIFICATE_LIFETIME, caller_of};
pub use rbac::rules_for;
pub(crate) use tokens::TokenHash;
pub use tokens::{TokenLifetime, TokenStore, TokenStoreError};

/// The group of administrators; its members may do anything.
pub const MASTERS: &str = "system:masters";
/// The group of the components of the embedding program. Its members may do anything but impersonate, except what an
/// [`Authorizer`] denies.
pub const COMPONENTS: &str = "system:mco";
pub const NODES: &str = "system:nodes";
pub const NODE_USER_PREFIX: &str = "system:node:";
const AUTHENTICATED: &str = "system:authenticated";

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub user: String,
    pub groups: Vec<String>,
    /// Empty if unknown.
    pub uid: String,
    /// Further attributes of the user, for admission policies and webhooks.
    pub extra: BTreeMap<String, Vec<String>>,
    /// The caller that impersonates this user, for the audit log.
    pub impersonated_by: Option<String>,
}

impl Identity {
    /// Returns a user in these groups and in `system:authenticated`.
    pub fn new(user: impl Into<String>, groups: &[&str]) -> Self {
        let mut groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self {
            user: user.into(),
            groups,
            uid: String::new(),
            extra: BTreeMap::new(),
            impersonated_by: None,
        }
    }

    pub fn admin() -> Self {
        Self::new("kubernetes-admin", &[MASTERS])
    }

    /// Returns the identity of a component of the embedding program.
    pub fn component(name: &str) -> Self {
        Self::new(format!("system:mco:{name}"), &[COMPONENTS])
    }

    pub fn node(name: &str) -> Self {
        Self::new(format!("{NODE_USER_PREFIX}{name}"), &[NODES])
    }

    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|member| member == group)
    }

    /// Returns the name of the node, if the caller is one.
    pub fn node_name(&self) -> Option<&str> {
        self.user
            .strip_prefix(NODE_USER_PREFIX)
            .filter(|_| self.is_in(NODES))
    }
}
