//! The fields of built-in objects that field selectors support.
//!
//! Selectors are parsed in [`crate::selector`].

use serde_json::Value;

/// The source of the text of a selectable field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldSource {
    /// A dotted path; absent or null reads as the empty string.
    Path(&'static str),
    /// A dotted path to a boolean; absent reads as `false`.
    Flag(&'static str),
    /// A dotted path to a number; absent reads as `0`.
    Count(&'static str),
    /// The first of two paths that has a non-empty text.
    Either(&'static str, &'static str),
}

/// A label a field selector may use and the field behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectableField {
    pub label: &'static str,
    pub source: FieldSource,
}

/// The error for a field label that the kind does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsupportedLabel {
    /// Kinds with their own conversion function.
    Plain,
    /// Kinds with none: only name and namespace.
    OnlyMetadata,
    /// Kinds whose conversion names the kind.
    NamesKind(&'static str),
}

impl UnsupportedLabel {
    pub fn message(self, label: &str) -> String {
        match self {
            Self::Plain => format!("field label not supported: {label}"),
            Self::OnlyMetadata => format!(
                "{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            ),
            Self::NamesKind(kind) => format!("field label {label:?} not supported for {kind}"),
        }
    }
}

impl SelectableField {
    /// A label that is also the path of its field.
    pub const fn path(label: &'static str) -> Self {
        Self {
            label,
            source: FieldSource::Path(label),
        }
    }

    /// Returns the text that a selector compares with, for one object.
    pub fn text(&self, object: &Value) -> String {
        match self.source {
            FieldSource::Path(path) => text_at(object, path).unwrap_or_default(),
            FieldSource::Flag(path) => text_at(object, path).unwrap_or_else(|| "false".to_owned()),
            FieldSource::Count(path) => text_at(object, path).unwrap_or_else(|| "0".to_owned()),
            FieldSource::Either(first, second) => text_at(object, first)
                .filter(|text| !text.is_empty())
                .or_else(|| text_at(object, second))
                .unwrap_or_default(),
        }
    }
}

/// Returns the text of the scalar at a dotted path; `None` if there is none.
pub fn text_at(object: &Value, dotted: &str) -> Option<String> {
    let mut at = object;
    for step in dotted.split('.') {
        at = match at {
            Value::Object(fields) => fields.get(step)?,
            Value::Array(items) => items.get(step.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    match at {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
