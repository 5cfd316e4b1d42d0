//! Reads JSON into records: tracks the path, matches keys, and collects all errors instead of stopping at the first.

use serde_json::{Map, Value};

use crate::finding::Finding;
use crate::place::Place;
use crate::version::SpecVersion;

/// A key that an object may have.
#[derive(Debug)]
pub(crate) struct ReaderKey {
    pub(crate) name: &'static str,
    pub(crate) since: SpecVersion,
}

/// The state of reading one config.
pub(crate) struct ConfigReader {
    version: SpecVersion,
    place: Place,
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
}

impl ConfigReader {
    pub(crate) fn new(version: SpecVersion) -> Self {
        Self {
            version,
            place: Place::default(),
            errors: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Returns errors and warnings.
    pub(crate) fn finish(self) -> (Vec<Finding>, Vec<Finding>) {
        (self.errors, self.warnings)
    }

    /// Returns the version the config is written in.
    pub(crate) fn version(&self) -> SpecVersion {
        self.version
    }

    /// Calls `read` for each entry with a recognised key, under the key's canonical name.
    pub(crate) fn object(
        &mut self,
        value: &Value,
        keys: &[ReaderKey],
        mut read: impl FnMut(&mut Self, &str, &Value),
    ) {
        match value {
            Value::Null => {}
            Value::Object(entries) => {
                for (written, value) in entries {
                    if let Some(name) = self.recognise(written, entries, keys) {
                        let mark = self.place.enter_field(name);
                        read(self, name, value);
                        self.place.leave(mark);
                    }
                }
            }
            other => self
                .wrong_type::<()>("an object", "write it as key: value pairs", other)
                .unwrap_or_default(),
        }
    }

    /// Calls `read` for each element of a list.
    pub(crate) fn list(&mut self, value: &Value, mut read: impl FnMut(&mut Self, &Value)) {
        match value {
            Value::Null => {}
            Value::Array(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    let mark = self.place.enter_element(index);
                    read(self, element);
                    self.place.leave(mark);
                }
            }
            other => self
                .wrong_type::<()>("a list", "write it as a list, even with one entry", other)
                .unwrap_or_default(),
        }
    }

    /// Reports a value of the wrong type at the current path; it is then treated as absent.
    pub(crate) fn wrong_type<T>(&mut self, expected: &str, hint: &str, found: &Value) -> Option<T> {
        let message = format!("expected {expected}, found {}", kind(found));
        self.errors
            .push(Finding::new(self.place.as_str(), message).with_hint(hint));
        None
    }

    /// Returns the version that introduced a key at this path: at first only the contents of files could be compressed.
    fn since(&self, key: &ReaderKey) -> SpecVersion {
        if key.name == "compression" && self.place.as_str().starts_with("ignition.") {
            SpecVersion::V3_1
        } else {
            key.since
        }
    }

    /// Returns the canonical name of a key; warns about a key that is misspelt, too new or unknown.
    fn recognise(
        &mut self,
        written: &str,
        entries: &Map<String, Value>,
        keys: &[ReaderKey],
    ) -> Option<&'static str> {
        let key = keys.iter().find(|key| same_key(written, key.name));
        let (name, hint) = match key {
            Some(key) if self.since(key) > self.version => {
                let since = self.since(key);
                (
                    None,
                    format!("not supported in spec {}; introduced in {since}", self.version),
                )
            }
            Some(key) if key.name == written => return Some(key.name),
            Some(key) if entries.contains_key(key.name) => (
                None,
                format!("{} is also present and is used; remove this one", key.name),
            ),
            Some(key) => (
                Some(key.name),
                format!("Ignition reads it nevertheless; write {}", key.name),
            ),
            None => (None, "remove it, or check its spelling and place".to_owned()),
        };
        let mark = self.place.enter_field(written);
        self.warnings
            .push(Finding::new(self.place.as_str(), format!("unused key {written}")).with_hint(hint));
        self.place.leave(mark);
        name
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

/// Compares keys case-insensitively as Ignition does, including the two non-ASCII letters that fold into ASCII.
pub(super) fn same_key(written: &str, name: &str) -> bool {
    let fold = |letter: char| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    written == name || written.chars().map(fold).eq(name.chars().map(fold))
}
