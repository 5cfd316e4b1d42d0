//! Schema pieces that several kinds share, in our words, for `#[schemars(schema_with = ...)]` and
//! `#[schemars(extend(...))]`.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// One CEL rule and what the API server says when it does not hold.
pub(crate) fn rule(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message})
}

/// A point in time as Kubernetes writes it.
pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

/// A point in time that may be an explicit `null`.
pub(crate) fn nullable_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time", "nullable": true})
}

/// Bytes, base64-encoded in JSON.
pub(crate) fn bytes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "byte"})
}

/// Bytes, base64-encoded in JSON, or an explicit `null`.
pub(crate) fn nullable_bytes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "byte", "nullable": true})
}

/// Any object; its fields are neither checked nor pruned.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A number or a string such as a percentage.
pub(crate) fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": true,
    })
}

/// A label query.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "description": "Labels an object must carry, each with exactly this value.",
                "type": "object",
                "additionalProperties": {"type": "string"},
            },
            "matchExpressions": {
                "description": "Further requirements; all of them must hold.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {
                            "description": "The label to look at.",
                            "type": "string",
                        },
                        "operator": {
                            "description": "In, NotIn, Exists or DoesNotExist.",
                            "type": "string",
                        },
                        "values": {
                            "description": "What In and NotIn compare with; empty for the other operators.",
                            "type": "array",
                            "items": {"type": "string"},
                            "x-kubernetes-list-type": "atomic",
                        },
                    },
                },
            },
        },
    })
}

/// A reference to another object.
pub(crate) fn object_reference(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": object_reference_properties(),
    })
}

/// A list of references to other objects, replaced as a whole.
pub(crate) fn object_references(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": object_reference(generator),
        "x-kubernetes-list-type": "atomic",
    })
}

/// The fields of an object reference, for types that have them beside others.
pub(crate) fn object_reference_properties() -> Value {
    json!({
        "apiVersion": {"description": "Group and version of the object.", "type": "string"},
        "fieldPath": {"description": "A part of the object, as a field access expression.", "type": "string"},
        "kind": {"description": "Kind of the object.", "type": "string"},
        "name": {"description": "Name of the object.", "type": "string"},
        "namespace": {"description": "Namespace of the object.", "type": "string"},
        "resourceVersion": {"description": "The exact version of the object.", "type": "string"},
        "uid": {"description": "UID of the object.", "type": "string"},
    })
}

/// Adds the fields of an object reference to a type that flattens one.
pub(crate) fn with_object_reference_properties(schema: &mut Schema) {
    let Value::Object(reference) = object_reference_properties() else {
        return;
    };
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.extend(reference);
    }
}

/// OS image streams are named like DNS subdomains.
pub(crate) fn stream_name_rule() -> Value {
    rule(
        "!format.dns1123Subdomain().validate(self).hasValue()",
        "a RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and \
         end with an alphanumeric character.",
    )
}
