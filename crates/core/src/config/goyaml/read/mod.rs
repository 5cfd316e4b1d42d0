//! YAML text read exactly as go-yaml v2 reads it, which every Kubernetes tool uses.
//!
//! Templates and manifests become machine configs whose name is a hash over their content, so a line feed more
//! at the end of a block scalar, or `yes` as a text, changes a name and reboots nodes. That reader knows YAML
//! 1.1 with its own limits (no JSON-like keys, no tabs after a dash, five kinds of line breaks) and is not
//! strict: of equal keys the last one counts, and what follows the first document is ignored. The result is a
//! JSON value, as the Kubernetes tools convert it.
//!
//! It holds no state, does no input or output, never panics, and bounds nesting and what aliases expand to.

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

/// Deeper nesting is an attack or a mistake. JSON from the API is limited to the same depth, and all that handles a value
/// afterwards recurses.
const DEEPEST: usize = 128;

/// One document and where its content starts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Document {
    pub line: u64,
    pub value: Value,
    pub repeated: Vec<RepeatedKey>,
}

/// A key that replaced an equal one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RepeatedKey {
    pub line: u64,
    pub key: String,
}

/// Text that is not YAML, and where that shows. Lines and columns count from one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message} at line {line}, column {column}")]
pub(crate) struct YamlError {
    pub line: u64,
    pub column: u64,
    pub message: String,
}

/// The first document of the text, if it has one, and whether anything follows it.
pub(crate) fn first_document(text: &str) -> Result<(Option<Document>, Rest), YamlError> {
    let mut parser = parser::Parser::new(text)?;
    let document = parser.document()?;
    let rest = if document.is_none() || parser.is_at_end() {
        Rest::Nothing
    } else {
        Rest::Ignored
    };
    Ok((document, rest))
}

/// What follows the first document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    Nothing,
    Ignored,
}

#[cfg(test)]
mod tests;
