//! Rules of the embedding program, run in process before an object is written.
//!
//! A hook sees what will be stored and may replace or refuse it. It runs inside the write, so it must be quick and
//! must not call back into the server.

use std::fmt::Debug;

use http::StatusCode;

use crate::auth::{NODE_USER_PREFIX, NODES};
use crate::catalog::Definition;
use crate::meta::Object;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

/// A write that is about to happen.
#[derive(Debug)]
pub struct AdmissionRequest<'a> {
    pub operation: Operation,
    pub definition: &'a Definition,
    pub namespace: &'a str,
    pub name: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// What will be stored; `None` for a delete.
    pub object: Option<&'a Object>,
    /// What is stored now; `None` for a create.
    pub old: Option<&'a Object>,
    pub user: &'a str,
    pub groups: &'a [String],
    pub dry_run: bool,
}

impl AdmissionRequest<'_> {
    /// Returns the name of the node that sends the request, if a node does.
    pub fn node_name(&self) -> Option<&str> {
        let name = self.user.strip_prefix(NODE_USER_PREFIX)?;
        self.groups.iter().any(|group| group == NODES).then_some(name)
    }
}

/// Why a hook refused, in words for the person who wrote the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub code: StatusCode,
    pub message: String,
}

impl Rejection {
    /// The usual refusal.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            code: StatusCode::FORBIDDEN,
            message: message.into(),
        }
    }
}

/// A rule about writes.
pub trait Admission: Send + Sync + Debug {
    /// Accepts, accepts with changes (the whole new object), or refuses.
    fn review(&self, request: &AdmissionRequest<'_>) -> Result<Option<Object>, Rejection>;
}
