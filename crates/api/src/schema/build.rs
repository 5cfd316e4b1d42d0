//! A builder for hand-written structural schemas, for the parts that none of our types describes.

use schemars::Schema;
use serde_json::{Map, Value, json};

/// A schema under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct SchemaBuilder(Map<String, Value>);

pub(crate) fn string() -> SchemaBuilder {
    SchemaBuilder::default().with("type", "string")
}

pub(crate) fn int64() -> SchemaBuilder {
    SchemaBuilder::default()
        .with("type", "integer")
        .with("format", "int64")
}

pub(crate) fn object() -> SchemaBuilder {
    SchemaBuilder::default().with("type", "object")
}

/// An object with any keys and values of one kind.
pub(crate) fn map_of(values: SchemaBuilder) -> SchemaBuilder {
    object().with("additionalProperties", values.0)
}

/// A list that is replaced as a whole.
pub(crate) fn atomic_list_of(items: SchemaBuilder) -> SchemaBuilder {
    list_of(items).with("x-kubernetes-list-type", "atomic")
}

/// A list without duplicates.
pub(crate) fn set_of(items: SchemaBuilder) -> SchemaBuilder {
    list_of(items).with("x-kubernetes-list-type", "set")
}

/// A list whose items are identified by the values of these fields.
pub(crate) fn list_by(keys: &[&str], items: SchemaBuilder) -> SchemaBuilder {
    list_of(items)
        .with("x-kubernetes-list-type", "map")
        .with("x-kubernetes-list-map-keys", json!(keys))
}

/// A list without a list type.
pub(crate) fn list_of(items: SchemaBuilder) -> SchemaBuilder {
    SchemaBuilder::default()
        .with("type", "array")
        .with("items", items.0)
}

/// A number or a string.
pub(crate) fn int_or_string() -> SchemaBuilder {
    SchemaBuilder::default()
        .with("anyOf", json!([{"type": "integer"}, {"type": "string"}]))
        .with("x-kubernetes-int-or-string", true)
}

impl SchemaBuilder {
    /// Sets any keyword.
    pub(crate) fn with(mut self, keyword: &str, value: impl Into<Value>) -> Self {
        self.0.insert(keyword.to_owned(), value.into());
        self
    }

    pub(crate) fn about(self, description: &str) -> Self {
        self.with("description", description)
    }

    pub(crate) fn nullable(self) -> Self {
        self.with("nullable", true)
    }

    pub(crate) fn format(self, format: &str) -> Self {
        self.with("format", format)
    }

    pub(crate) fn pattern(self, pattern: &str) -> Self {
        self.with("pattern", pattern)
    }

    pub(crate) fn one_of(self, values: &[&str]) -> Self {
        self.with("enum", json!(values))
    }

    pub(crate) fn min_length(self, least: u32) -> Self {
        self.with("minLength", least)
    }

    pub(crate) fn max_length(self, most: u32) -> Self {
        self.with("maxLength", most)
    }

    pub(crate) fn length(self, least: u32, most: u32) -> Self {
        self.min_length(least).max_length(most)
    }

    pub(crate) fn max_items(self, most: u32) -> Self {
        self.with("maxItems", most)
    }

    pub(crate) fn minimum(self, least: i64) -> Self {
        self.with("minimum", least)
    }

    /// Makes the object atomic: replaced as a whole, not merged field by field.
    pub(crate) fn atomic(self) -> Self {
        self.with("x-kubernetes-map-type", "atomic")
    }

    /// Adds a CEL rule and the message of a violation.
    pub(crate) fn rule(self, rule: &str, message: &str) -> Self {
        self.push_rule(json!({"rule": rule, "message": message}))
    }

    pub(crate) fn push_rule(mut self, rule: Value) -> Self {
        let rules = self
            .0
            .entry("x-kubernetes-validations")
            .or_insert_with(|| json!([]));
        if let Value::Array(rules) = rules {
            rules.push(rule);
        }
        self
    }

    /// Adds an optional field.
    pub(crate) fn field(mut self, name: &str, schema: SchemaBuilder) -> Self {
        let properties = self.0.entry("properties").or_insert_with(|| json!({}));
        if let Value::Object(properties) = properties {
            properties.insert(name.to_owned(), schema.into());
        }
        self
    }

    /// Adds a required field.
    pub(crate) fn required(mut self, name: &str, schema: SchemaBuilder) -> Self {
        let required = self.0.entry("required").or_insert_with(|| json!([]));
        if let Value::Array(required) = required {
            required.push(name.into());
        }
        self.field(name, schema)
    }
}

impl From<SchemaBuilder> for Value {
    fn from(node: SchemaBuilder) -> Self {
        Self::Object(node.0)
    }
}

impl From<SchemaBuilder> for Schema {
    fn from(node: SchemaBuilder) -> Self {
        Self::from(node.0)
    }
}

impl From<Schema> for SchemaBuilder {
    fn from(schema: Schema) -> Self {
        match Value::from(schema) {
            Value::Object(keywords) => Self(keywords),
            _ => Self::default(),
        }
    }
}
