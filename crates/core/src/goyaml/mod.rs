//! YAML text exactly as go-yaml v2 writes it.
//!
//! The name of a rendered config is a hash over that text, so every quoting rule, line fold and key order of
//! that emitter is part of our compatibility with existing clusters. This module emulates the subset that can
//! occur: block collections, strings, numbers, booleans and null, from a JSON value. It is not a general YAML
//! writer and must not become one; when a new case matters, prove it against the real emitter first.

mod emitter;
mod keys;
mod number;
mod resolve;
mod scalar;

use serde_json::Value;

/// The YAML document for `value`, ending in a newline.
pub fn to_string(value: &Value) -> String {
    emitter::Emitter::new().document(value)
}

#[cfg(test)]
#[allow(clippy::too_many_lines, reason = "tables of cases are long")]
mod tests;
