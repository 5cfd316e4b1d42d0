//! Compiler from the `openAPIV3Schema` of a CRD to a schema.
//!
//! It is lenient and ignores unknown keywords. [`super::structural`] validates a schema when its CRD is written.

use serde_json::Value;

use super::checks::{NumericBound, ValueChecks};
use super::model::{
    AdditionalMembers, JsonType, ListType, MapType, NodeId, NodeTable, PatchRule, Schema, SchemaNode,
    SchemaProperty,
};
use super::pattern::GoPattern;
use super::rules::CelRules;

/// Compiles a structural schema.
pub fn compile(schema: &Value) -> Schema {
    let mut table = NodeTable::default();
    let root = add(&mut table, schema);
    table.finish(root)
}

fn add(table: &mut NodeTable, schema: &Value) -> NodeId {
    let mut node = SchemaNode {
        json_type: json_type(schema),
        nullable: flag(schema, "nullable"),
        list_type: list_type(schema),
        map_type: map_type(schema),
        preserve_unknown: flag(schema, "x-kubernetes-preserve-unknown-fields"),
        embedded_resource: flag(schema, "x-kubernetes-embedded-resource"),
        default: schema.get("default").filter(|value| !value.is_null()).cloned(),
        items: schema
            .get("items")
            .filter(|items| items.is_object())
            .map(|items| add(table, items)),
        rules: CelRules::compile(schema).map(Box::new),
        ..SchemaNode::default()
    };
    node.additional = match schema.get("additionalProperties") {
        Some(values @ Value::Object(_)) => AdditionalMembers::Schema(add(table, values)),
        Some(Value::Bool(true)) => AdditionalMembers::Schemaless,
        _ => AdditionalMembers::Unknown,
    };
    let members = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let properties = members
        .map(|(name, member)| SchemaProperty {
            name: name.as_str().into(),
            node: add(table, member),
            patch: PatchRule::default(),
        })
        .collect();
    node.set_properties(properties);
    let checks = checks(table, schema);
    node.checks = (!checks.is_empty()).then(|| Box::new(checks));
    table.push(node)
}

fn json_type(schema: &Value) -> JsonType {
    if flag(schema, "x-kubernetes-int-or-string") {
        return JsonType::IntOrString;
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => JsonType::Object,
        Some("array") => JsonType::Array,
        Some("string") => JsonType::String,
        Some("integer") => JsonType::Integer,
        Some("number") => JsonType::Number,
        Some("boolean") => JsonType::Boolean,
        _ => JsonType::Any,
    }
}

fn list_type(schema: &Value) -> ListType {
    match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(texts(schema, "x-kubernetes-list-map-keys")),
        _ => ListType::Atomic,
    }
}

fn map_type(schema: &Value) -> MapType {
    match schema.get("x-kubernetes-map-type").and_then(Value::as_str) {
        Some("atomic") => MapType::Atomic,
        _ => MapType::Granular,
    }
}

fn checks(table: &mut NodeTable, schema: &Value) -> ValueChecks {
    let mut nested = |name: &str| -> Vec<NodeId> {
        let alternatives = schema.get(name).and_then(Value::as_array).into_iter().flatten();
        alternatives.map(|alternative| add(table, alternative)).collect()
    };
    let all_of = nested("allOf");
    let any_of = nested("anyOf");
    let one_of = nested("oneOf");
    ValueChecks {
        required: texts(schema, "required"),
        format: schema.get("format").and_then(Value::as_str).map(Into::into),
        maximum: bound(schema, "maximum", "exclusiveMaximum"),
        minimum: bound(schema, "minimum", "exclusiveMinimum"),
        multiple_of: schema.get("multipleOf").and_then(Value::as_f64),
        max_length: count(schema, "maxLength"),
        min_length: count(schema, "minLength"),
        pattern: schema
            .get("pattern")
            .and_then(Value::as_str)
            .and_then(|text| GoPattern::compile(text).ok()),
        max_items: count(schema, "maxItems"),
        min_items: count(schema, "minItems"),
        max_properties: count(schema, "maxProperties"),
        min_properties: count(schema, "minProperties"),
        enumeration: schema
            .get("enum")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default(),
        all_of,
        any_of,
        one_of,
        not: schema
            .get("not")
            .filter(|not| not.is_object())
            .map(|not| add(table, not)),
    }
}

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

fn count(schema: &Value, name: &str) -> Option<usize> {
    schema
        .get(name)
        .and_then(Value::as_u64)
        .and_then(|count| usize::try_from(count).ok())
}

fn bound(schema: &Value, name: &str, exclusive: &str) -> Option<NumericBound> {
    let value = schema.get(name).and_then(Value::as_f64)?;
    Some(NumericBound {
        value,
        exclusive: flag(schema, exclusive),
    })
}

fn texts(schema: &Value, name: &str) -> Vec<Box<str>> {
    let items = schema.get(name).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(Into::into).collect()
}
