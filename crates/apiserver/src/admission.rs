//! Admission plugins of the embedding program, run in process before an object is written.
//!
//! A plugin may replace or reject the object. It runs inside the write, so it must be fast and must not call the
//! server.

use std::fmt::Debug;

use http::StatusCode;

use crate::auth::{NODE_USER_PREFIX, NODES};
use crate::catalog::ResourceDefinition;
use crate::meta::JsonObject;
use crate::store::ObjectStore;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionOperation {
    Create,
    Update,
    Delete,
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
