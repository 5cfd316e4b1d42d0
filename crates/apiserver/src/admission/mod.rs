//! Admission: what is decided about a write before it is stored.
//!
//! | step | decides |
//! |---|---|
//! | mutating webhooks | MutatingWebhookConfigurations; each may patch the object |
//! | plugins | [`Admission`] of the embedding program, in process; each may replace or reject the object |
//! | policies | ValidatingAdmissionPolicies and their bindings, after the object was validated |
//! | validating webhooks | ValidatingWebhookConfigurations, all at once |
//!
//! A plugin runs inside the write, so it must be fast and must not call the server.

mod attributes;
mod chain;
mod configuration;
mod expression;
mod matching;
mod params;
mod policy;
mod webhook;

use std::fmt::Debug;
use std::sync::Arc;

use http::StatusCode;
use parking_lot::Mutex;

pub(crate) use attributes::AdmissionAttributes;
pub(crate) use chain::{AdmissionChain, AdmissionStage};
pub(crate) use configuration::POLICIES;
pub(crate) use expression::{ExpressionUse, PolicyDeclarations, condition_declarations};

use crate::auth::{NODE_USER_PREFIX, NODES};
use crate::catalog::ResourceDefinition;
use crate::meta::JsonObject;
use crate::store::ObjectStore;

/// The API group of policies and webhook configurations.
pub(crate) const GROUP: &str = "admissionregistration.k8s.io";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionOperation {
    Create,
    Update,
    Delete,
}

impl AdmissionOperation {
    /// Returns the name in rules and reviews.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }

    fn options_kind(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Delete => "DeleteOptions",
        }
    }
}

/// Which writes policies and webhooks review.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdmissionScope {
    /// The request names the object.
    #[default]
    Object,
    /// The object is one of a collection; the request has no name.
    CollectionItem,
    /// The write is a part of a request that was reviewed as a whole, or one that the server itself depends on.
    Reviewed,
}

/// The warnings that policies and webhooks add to the response. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct AdmissionWarnings(Arc<Mutex<Vec<String>>>);

impl AdmissionWarnings {
    /// The maximum number of warnings of one response; each is a header.
    const MOST: usize = 32;
    /// The maximum length of a warning.
    const LONGEST: usize = 1024;

    /// Adds a warning once.
    pub fn add(&self, warning: &str) {
        let warning: String = warning
            .chars()
            .filter(|c| !c.is_control())
            .take(Self::LONGEST)
            .collect();
        let mut warnings = self.0.lock();
        if !warning.is_empty() && warnings.len() < Self::MOST && !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    /// Removes and returns all warnings.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

/// A write that admission reviews.
#[derive(Debug)]
pub struct AdmissionRequest<'a> {
    pub operation: AdmissionOperation,
    pub definition: &'a ResourceDefinition,
    pub namespace: &'a str,
    pub name: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// The object that will be stored; `None` for a delete.
    pub object: Option<&'a JsonObject>,
    /// The stored object; `None` for a create.
    pub old: Option<&'a JsonObject>,
    pub user: &'a str,
    pub groups: &'a [String],
    pub dry_run: bool,
    /// The objects that the decision may depend on.
    pub store: &'a ObjectStore,
}

impl AdmissionRequest<'_> {
    /// Returns the name of the node that sends the request, if a node does.
    pub fn node_name(&self) -> Option<&str> {
        let name = self.user.strip_prefix(NODE_USER_PREFIX)?;
        self.groups.iter().any(|group| group == NODES).then_some(name)
    }
}

/// The reason why a plugin rejects a write, as shown to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub code: StatusCode,
    pub message: String,
}

impl Rejection {
    /// Returns a rejection with status 403.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            code: StatusCode::FORBIDDEN,
            message: message.into(),
        }
    }
}

/// An admission plugin.
pub trait Admission: Send + Sync + Debug {
    /// Accepts the write (`None`), accepts it with changes (the whole new object), or rejects it.
    fn review(&self, request: &AdmissionRequest<'_>) -> Result<Option<JsonObject>, Rejection>;
}
