//! Turning request bodies into values, and noticing what does not belong there.
//!
//! Duplicate keys are visible only while bytes are being read, so this is where they are found. For built-in
//! kinds unknown fields are found in the same pass, in the order in which they are written; custom resources
//! report theirs when they are pruned.

mod scalars;
mod strict;
mod syntax;
mod types;

pub use types::type_error;

use crate::schema::Schema;
use serde_json::Value;

/// What a client wants to happen to fields it should not have sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    /// The default of the API: tell the client in a warning header.
    #[default]
    Warn,
    Strict,
}

impl FieldValidation {
    /// Reads the query parameter; `None` for a value the API does not know.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Warn" => Some(Self::Warn),
            "Ignore" => Some(Self::Ignore),
            "Strict" => Some(Self::Strict),
            _ => None,
        }
    }
}

/// A decoded body and what a strict reader would object to, in Kubernetes' words.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    pub value: Value,
    /// Such as `unknown field "spec.x"` or `duplicate field "spec.y"`.
    pub objections: Vec<String>,
}

/// The body is not JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotJson(pub String);

/// Decodes a body, looking for duplicate keys and, when a schema is given, for unknown fields.
pub fn decode(body: &[u8], schema: Option<&Schema>) -> Result<Decoded, NotJson> {
    strict::decode(body, schema).map_err(|error| NotJson(syntax::go_message(body, &error)))
}

/// Joins objections into the message of a refused request.
pub fn strict_message(objections: &[String]) -> String {
    format!("strict decoding error: {}", objections.join(", "))
}

#[cfg(test)]
mod tests;
