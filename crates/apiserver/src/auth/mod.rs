//! Who asks, and what they may do.
//!
//! Authentication is by client certificate or bearer token; authorisation knows administrators, the system's own
//! components, nodes (each limited to its own objects) and, for everybody else, stored RBAC rules.

mod authorize;
mod joining;
mod node;
mod pki;
mod rbac;
mod tokens;

pub(crate) use authorize::forbidden;
pub use authorize::{Attributes, Decision, authorize};
pub(crate) use joining::hexadecimal;
pub use joining::{Grant, Issued, JoinTokens, Refusal};
pub use node::NodeRestriction;
pub(crate) use pki::identity_of;
pub use pki::{Credentials, Pki, PkiError};
pub use rbac::rules_for;
pub use tokens::{Lasts, Tokens, TokensError};

/// Members may do anything.
pub const MASTERS: &str = "system:masters";
/// Our own components: everything but reading other people's credentials.
pub const COMPONENTS: &str = "system:mco";
pub const NODES: &str = "system:nodes";
pub const NODE_USER_PREFIX: &str = "system:node:";
const AUTHENTICATED: &str = "system:authenticated";

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub user: String,
    pub groups: Vec<String>,
}

impl Identity {
    /// A user in some groups; everybody authenticated is also in the group that says so.
    pub fn new(user: impl Into<String>, groups: &[&str]) -> Self {
        let mut groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self {
            user: user.into(),
            groups,
        }
    }

    pub fn admin() -> Self {
        Self::new("kubernetes-admin", &[MASTERS])
    }

    /// One of our own components.
    pub fn component(name: &str) -> Self {
        Self::new(format!("system:mco:{name}"), &[COMPONENTS])
    }

    pub fn node(name: &str) -> Self {
        Self::new(format!("{NODE_USER_PREFIX}{name}"), &[NODES])
    }

    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|member| member == group)
    }

    /// The name of the node, when a node asks.
    pub fn node_name(&self) -> Option<&str> {
        self.user
            .strip_prefix(NODE_USER_PREFIX)
            .filter(|_| self.is_in(NODES))
    }
}
