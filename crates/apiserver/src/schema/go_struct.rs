//! Parts of a CRD as Kubernetes prints its own structs in messages: every field, in the order of the type.

use serde_json::{Value, json};

use super::raw::{items, members};
use crate::go_text;

/// `(name in Go, name in JSON, whether absence prints as null)` of a schema's fields; other absences print as the
/// zero of their type.
const SCHEMA_FIELDS: [(&str, &str, Zero); 43] = [
    ("ID", "id", Zero::Text),
    ("Schema", "$schema", Zero::Text),
    ("Ref", "$ref", Zero::Null),
    ("Description", "description", Zero::Text),
    ("Type", "type", Zero::Text),
    ("Nullable", "nullable", Zero::False),
    ("Format", "format", Zero::Text),
    ("Title", "title", Zero::Text),
    ("Default", "default", Zero::Null),
    ("Maximum", "maximum", Zero::Null),
    ("ExclusiveMaximum", "exclusiveMaximum", Zero::False),
    ("Minimum", "minimum", Zero::Null),
    ("ExclusiveMinimum", "exclusiveMinimum", Zero::False),
    ("MaxLength", "maxLength", Zero::Null),
    ("MinLength", "minLength", Zero::Null),
    ("Pattern", "pattern", Zero::Text),
    ("MaxItems", "maxItems", Zero::Null),
    ("MinItems", "minItems", Zero::Null),
    ("UniqueItems", "uniqueItems", Zero::False),
    ("MultipleOf", "multipleOf", Zero::Null),
    ("Enum", "enum", Zero::Null),
    ("MaxProperties", "maxProperties", Zero::Null),
    ("MinProperties", "minProperties", Zero::Null),
    ("Required", "required", Zero::Null),
    ("Items", "items", Zero::Null),
    ("AllOf", "allOf", Zero::Null),
    ("OneOf", "oneOf", Zero::Null),
    ("AnyOf", "anyOf", Zero::Null),
    ("Not", "not", Zero::Null),
    ("Properties", "properties", Zero::Null),
    ("AdditionalProperties", "additionalProperties", Zero::Null),
    ("PatternProperties", "patternProperties", Zero::Null),
    ("Dependencies", "dependencies", Zero::Null),
    ("AdditionalItems", "additionalItems", Zero::Null),
    ("Definitions", "definitions", Zero::Null),
    ("ExternalDocs", "externalDocs", Zero::Null),
    ("Example", "example", Zero::Null),
    (
        "XPreserveUnknownFields",
        "x-kubernetes-preserve-unknown-fields",
        Zero::Null,
    ),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", Zero::False),
    ("XIntOrString", "x-kubernetes-int-or-string", Zero::False),
    ("XListMapKeys", "x-kubernetes-list-map-keys", Zero::Null),
    ("XListType", "x-kubernetes-list-type", Zero::Null),
    ("XMapType", "x-kubernetes-map-type", Zero::Null),
];

#[derive(Clone, Copy)]
enum Zero {
    Null,
    Text,
    False,
}

/// A schema with all of its fields.
pub(super) fn schema(schema: &Value) -> String {
    let mut fields: Vec<String> = SCHEMA_FIELDS
        .iter()
        .map(|(name, key, zero)| {
            let shown = schema
                .get(*key)
                .map_or_else(|| zero.shown().to_owned(), |value| schema_field(key, value));
            format!("\"{name}\":{shown}")
        })
        .collect();
    let rules: Vec<String> = items(schema, "x-kubernetes-validations")
        .iter()
        .map(rule)
        .collect();
    let rules = if rules.is_empty() {
        "null".to_owned()
    } else {
        format!("[{}]", rules.join(","))
    };
    fields.push(format!("\"XValidations\":{rules}"));
    format!("{{{}}}", fields.join(","))
}

/// A rule with all of its fields.
pub(super) fn rule(rule: &Value) -> String {
    let field = |name: &str, absent: Value| go_text::json(rule.get(name).unwrap_or(&absent));
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        field("rule", json!("")),
        field("message", json!("")),
        field("messageExpression", json!("")),
        field("reason", Value::Null),
        field("fieldPath", json!("")),
        field("optionalOldSelf", Value::Null),
    )
}

fn schema_field(key: &str, value: &Value) -> String {
    match (key, value) {
        ("not", value) => schema(value),
        ("items", value) => format!("{{\"Schema\":{},\"JSONSchemas\":null}}", schema(value)),
        ("additionalProperties", Value::Bool(allows)) => format!("{{\"Allows\":{allows},\"Schema\":null}}"),
        ("additionalProperties", value) => format!("{{\"Allows\":true,\"Schema\":{}}}", schema(value)),
        ("allOf" | "anyOf" | "oneOf", Value::Array(alternatives)) => {
            format!(
                "[{}]",
                alternatives.iter().map(schema).collect::<Vec<_>>().join(",")
            )
        }
        ("properties", value) => {
            let holder = json!({"properties": value});
            let shown: Vec<String> = members(&holder, "properties")
                .map(|(name, member)| {
                    format!(
                        "{}:{}",
                        go_text::json(&Value::from(name.as_str())),
                        schema(member)
                    )
                })
                .collect();
            format!("{{{}}}", shown.join(","))
        }
        (_, value) => go_text::json(value),
    }
}

impl Zero {
    fn shown(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Text => "\"\"",
            Self::False => "false",
        }
    }
}
