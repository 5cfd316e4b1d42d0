//! Variables of a transcript: `$name` in paths, bodies and shell lines.
//!
//! Only names that have a value are replaced, because `$patch` and `$setElementOrder` are part of the API.

use std::collections::BTreeMap;

use serde_json::Value;

#[derive(Debug, Clone, Default)]
pub struct Variables {
    values: BTreeMap<String, Value>,
}

impl Variables {
    pub fn set(&mut self, name: &str, value: Value) {
        self.values.insert(name.to_owned(), value);
    }

    /// Returns the text with every defined variable replaced; longer names win over their prefixes.
    pub fn text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            let end = after
                .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .unwrap_or(after.len());
            match self.values.get(&after[..end]) {
                Some(Value::String(value)) => out.push_str(value),
                Some(value) => out.push_str(&value.to_string()),
                None => out.push_str(&rest[at..=at + end]),
            }
            rest = &after[end..];
        }
        out.push_str(rest);
        out
    }

    /// Returns a copy of the document with the variables in every string and key replaced; a string that is one
    /// variable takes the variable's own type.
    pub fn document(&self, document: &Value) -> Value {
        match document {
            Value::String(text) => match text.strip_prefix('$').and_then(|name| self.values.get(name)) {
                Some(value) => value.clone(),
                None => Value::String(self.text(text)),
            },
            Value::Array(items) => items.iter().map(|item| self.document(item)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| (self.text(key), self.document(value)))
                .collect(),
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn variables() -> Variables {
        let mut variables = Variables::default();
        variables.set("ns", json!("parity"));
        variables.set("rv", json!("17"));
        variables.set("count", json!(3));
        variables
    }

    #[test]
    fn known_names_are_replaced_and_api_directives_are_kept() {
        let variables = variables();
        for (text, expected) in [
            (
                "/api/v1/namespaces/$ns/pods?resourceVersion=$rv",
                "/api/v1/namespaces/parity/pods?resourceVersion=17",
            ),
            ("$patch", "$patch"),
            ("$setElementOrder/containers", "$setElementOrder/containers"),
            ("$nsx", "$nsx"),
            ("$count-$ns$", "3-parity$"),
        ] {
            assert_eq!(variables.text(text), expected);
        }
    }

    #[test]
    fn a_whole_string_takes_the_type_of_its_variable() {
        let document = json!({"$patch": "delete", "replicas": "$count", "names": ["a-$ns"]});
        let expected = json!({"$patch": "delete", "replicas": 3, "names": ["a-parity"]});
        assert_eq!(variables().document(&document), expected);
    }
}
