//! YAML text exactly as go-yaml v2 writes it, and in [`read`] as it reads it.
//!
//! The name of a rendered config is a hash over that text, so every quoting rule, line fold and key order of
//! that emitter is part of our compatibility with existing clusters. This module emulates the subset that can
//! occur: block collections, strings, numbers, booleans and null, from a JSON value. It is not a general YAML
//! writer and must not become one; when a new case matters, prove it against the real emitter first.

mod emitter;
mod keys;
mod number;
pub(crate) mod read;
mod resolve;
mod scalar;
mod sorting;

use serde_json::Value;

/// Returns the YAML document for `value`, ending in a newline.
pub fn to_string(value: &Value) -> String {
    emitter::Emitter::new().document(value)
}

/// Converts a boolean or number to a string, where a string is expected.
///
/// Unquoted `y` and `0644` are resolved to a boolean and a number before the type of the field is considered; a Go
/// program that decodes YAML directly into its types turns them back into `true` and `420`. Objects from the API or
/// from a list of manifests are JSON by then, and a wrong type in them is an error.
pub(crate) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(number::short_text(number)),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::too_many_lines, reason = "tables of cases are long")]
mod tests;
