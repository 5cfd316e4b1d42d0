//! Decoding of JSON request bodies, with strict validation of fields.
//!
//! Duplicate keys are visible only while bytes are read, so they are found here. For built-in kinds unknown fields are
//! found in the same pass, in the order of the body. Unknown fields of custom resources are found when they are pruned.

mod scalars;
mod strict;
mod syntax;
mod types;

pub use types::type_error;

use serde_json::Value;

use crate::schema::Schema;

/// The `fieldValidation` parameter: what happens to unknown and duplicate fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    /// The default of the API: a warning header.
    #[default]
    Warn,
    Strict,
}

impl FieldValidation {
    /// Parses the query parameter; `None` for an invalid value.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Warn" => Some(Self::Warn),
            "Ignore" => Some(Self::Ignore),
            "Strict" => Some(Self::Strict),
            _ => None,
        }
    }
}

/// A decoded body and its strict decoding errors, as Kubernetes words them.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedBody {
    pub value: Value,
    /// Such as `unknown field "spec.x"` or `duplicate field "spec.y"`.
    pub strict_errors: Vec<String>,
}

/// The body is not JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotJson(pub String);

/// Decodes a body and finds duplicate keys and, with a schema, unknown fields.
pub fn decode(body: &[u8], schema: Option<&Schema>) -> Result<DecodedBody, NotJson> {
    strict::decode(body, schema).map_err(|error| NotJson(syntax::go_message(body, &error)))
}

/// Joins strict decoding errors into the message of a rejected request.
pub fn strict_message(strict_errors: &[String]) -> String {
    format!("strict decoding error: {}", strict_errors.join(", "))
}

#[cfg(test)]
mod tests;
