//! Reading JSON into records: keeps the path, matches keys, and collects what does not fit instead of stopping.

use std::fmt::Write as _;

use serde_json::Value;

use crate::finding::Finding;
use crate::version::SpecVersion;

/// The state of reading one config.
pub(crate) struct Reader {
    version: SpecVersion,
    path: String,
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
}

impl Reader {
    pub(super) fn new(version: SpecVersion) -> Self {
        Self {
            version,
            path: String::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Errors, then warnings.
    pub(super) fn finish(self) -> (Vec<Finding>, Vec<Finding>) {
        (self.errors, self.warnings)
    }

    /// Whether `key` of the document is the field `name`, and the version being read has it.
    pub(crate) fn understands(&self, key: &str, name: &str, since: SpecVersion) -> bool {
        self.version >= since && same_key(key, name)
    }

    /// Offers each entry of an object to `read`, which says whether it knew the key.
    pub(crate) fn object(&mut self, value: &Value, mut read: impl FnMut(&mut Self, &str, &Value) -> bool) {
        match value {
            Value::Null => {}
            Value::Object(entries) => {
                for (key, value) in entries {
                    let length = self.path.len();
                    if length > 0 {
                        self.path.push('.');
                    }
                    self.path.push_str(key);
                    if !read(self, key, value) {
                        self.unknown_key(key);
                    }
                    self.path.truncate(length);
                }
            }
            other => self.wrong_type::<()>("an object", other).unwrap_or_default(),
        }
    }

    /// Offers each element of a list to `read`.
    pub(crate) fn list(&mut self, value: &Value, mut read: impl FnMut(&mut Self, &Value)) {
        match value {
            Value::Null => {}
            Value::Array(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    let length = self.path.len();
                    let _ = write!(self.path, "[{index}]");
                    read(self, element);
                    self.path.truncate(length);
                }
            }
            other => self.wrong_type::<()>("a list", other).unwrap_or_default(),
        }
    }

    /// Reports the value at the current path; it is then read as absent.
    pub(crate) fn wrong_type<T>(&mut self, expected: &str, found: &Value) -> Option<T> {
        let message = format!("expected {expected}, found {}", kind(found));
        self.errors.push(Finding::new(self.path.clone(), message));
        None
    }

    fn unknown_key(&mut self, key: &str) {
        self.warnings
            .push(Finding::new(self.path.clone(), format!("unused key {key}")));
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a number that is no integer",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Ignition matches keys without regard to case, and the two letters outside ASCII whose case folds into it.
fn same_key(key: &str, name: &str) -> bool {
    let fold = |letter: char| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    key == name || key.chars().map(fold).eq(name.chars().map(fold))
}
