//! Limits on alias expansion, so that a few lines cannot expand to gigabytes.

use serde_json::Value;

use super::YamlError;
use super::input::YamlMark;

/// Maximum bytes of text that anchors and aliases may copy within one document.
const MOST_COPIED_BYTES: usize = 32 << 20;
/// Maximum number of values that anchors and aliases may copy within one document.
const MOST_COPIED_VALUES: usize = 1_000_000;

/// The counters of one document.
#[derive(Debug, Default)]
pub(super) struct Usage {
    values: usize,
    /// The number of `values` that came from an alias.
    expanded: usize,
    copied_values: usize,
    copied_bytes: usize,
}

impl Usage {
    /// Counts one literal value.
    pub(super) fn value(&mut self) {
        self.values += 1;
    }

    /// Counts the value stored for an anchor.
    pub(super) fn copy(&mut self, value: &Value, at: YamlMark) -> Result<(), YamlError> {
        let (values, bytes) = size(value);
        self.copied_values += values;
        self.copied_bytes += bytes;
        if self.copied_values > MOST_COPIED_VALUES || self.copied_bytes > MOST_COPIED_BYTES {
            return Err(at.error("too much is repeated by anchors and aliases"));
        }
        Ok(())
    }

    /// Counts the value that an alias expands to.
    pub(super) fn expand(&mut self, value: &Value, at: YamlMark) -> Result<(), YamlError> {
        self.copy(value, at)?;
        let (values, _) = size(value);
        self.values += values;
        self.expanded += values;
        let suspicious = self.expanded > 100 && self.values > 1000;
        if suspicious && ratio(self.expanded, self.values) > allowed_ratio(self.values) {
            return Err(at.error("too much is repeated by aliases"));
        }
        Ok(())
    }
}

/// Returns the number of values, including keys, and the bytes of their text.
fn size(value: &Value) -> (usize, usize) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => (1, size_of::<Value>()),
        Value::String(text) => (1, size_of::<Value>() + text.len()),
        Value::Array(items) => items.iter().map(size).fold((1, 0), add),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| add(size(value), (1, size_of::<String>() + key.len())))
            .fold((1, 0), add),
    }
}

fn add(a: (usize, usize), b: (usize, usize)) -> (usize, usize) {
    (a.0 + b.0, a.1 + b.1)
}

/// Returns the maximum share of values from aliases: nearly all in a small document, a tenth in a large one, as in
/// go-yaml.
fn allowed_ratio(values: usize) -> f64 {
    const SMALL: usize = 400_000;
    const LARGE: usize = 4_000_000;
    match values {
        0..=SMALL => 0.99,
        LARGE.. => 0.10,
        _ => 0.99 - 0.89 * ratio(values - SMALL, LARGE - SMALL),
    }
}

#[allow(clippy::cast_precision_loss, reason = "a share need not be exact")]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}
