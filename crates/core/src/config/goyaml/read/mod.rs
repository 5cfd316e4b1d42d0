//! YAML parser that is bug-compatible with go-yaml v2, which every Kubernetes tool uses.
//!
//! Templates and manifests become machine configs whose name is a hash over their content, so an additional line feed
//! at the end of a block scalar, or `yes` as a string, changes a name and reboots nodes. go-yaml implements YAML 1.1
//! with its own limits (no JSON-like keys, no tabs after a dash, five kinds of line breaks) and is not strict: of
//! duplicate keys the last one wins, and everything after the first document is ignored. The result is a JSON value,
//! as the Kubernetes tools convert it.
//!
//! It is stateless, does no I/O, never panics, and bounds nesting and alias expansion.

mod aliases;
mod input;
mod parser;
mod scalar;
mod scalars;
mod scanner;
mod tags;
mod token;

use serde_json::Value;
use thiserror::Error;

pub(crate) use self::scalar::whole;

/// Maximum nesting depth. JSON from the API has the same limit, and the code that processes a value recurses.
const DEEPEST: usize = 128;

/// One document and the position of its content.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Document {
    pub line: u64,
    pub value: Value,
    pub repeated: Vec<RepeatedKey>,
}

/// A duplicate key, which replaced an earlier one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RepeatedKey {
    pub line: u64,
    pub key: String,
}

/// A syntax error and its position. Lines and columns count from one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message} at line {line}, column {column}")]
pub(crate) struct YamlError {
    pub line: u64,
    pub column: u64,
    pub message: String,
}

/// Parses the first document of the text, if it has one, and returns whether anything follows it.
pub(crate) fn first_document(text: &str) -> Result<(Option<Document>, Rest), YamlError> {
    let mut parser = parser::YamlParser::new(text)?;
    let document = parser.document()?;
    let rest = if document.is_none() || parser.is_at_end() {
        Rest::Nothing
    } else {
        Rest::Ignored
    };
    Ok((document, rest))
}

/// The kind of text after the first document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    Nothing,
    Ignored,
}

#[cfg(test)]
mod tests;
