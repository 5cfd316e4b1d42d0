//! Schemas of custom resources and of lists, as documents publish them.

use serde_json::{Map, Value, json};

use super::built_in::{CommonMembers, meta, reference};
use super::{DocumentedResource, OpenApiFlavour};

/// Keywords that OpenAPI v2 and its clients do not support.
const ONLY_V3: [&str; 8] = [
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "nullable",
    "default",
    "x-kubernetes-validations",
    "example",
];

/// Returns the published form of a CRD's schema.
pub(super) fn schema(open_api: &Value, flavour: OpenApiFlavour, common: &CommonMembers) -> Value {
    let mut schema = open_api.clone();
    restyle(&mut schema, flavour, common);
    add_type(&mut schema, flavour, common);
    schema
}

/// Returns the schema of a list of resources.
pub(super) fn list(resource: &DocumentedResource, definition: &str, common: &CommonMembers) -> Value {
    let mut properties = common.type_members.clone();
    properties.insert("metadata".to_owned(), reference(&meta("ListMeta")));
    properties.insert(
        "items".to_owned(),
        json!({"type": "array", "items": reference(definition), "description": format!("List of {}.", resource.plural)}),
    );
    json!({
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "type": "object",
        "required": ["items"],
        "properties": properties,
    })
}

/// Adds the type and metadata fields, which every resource has.
fn add_type(schema: &mut Value, flavour: OpenApiFlavour, common: &CommonMembers) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    let properties = fields
        .entry("properties")
        .or_insert_with(|| Value::Object(Map::new()));
    let Some(properties) = properties.as_object_mut() else {
        return;
    };
    properties.extend(common.type_members.clone());
    let mut metadata = match flavour {
        OpenApiFlavour::V2 => reference(&meta("ObjectMeta")),
        OpenApiFlavour::V3 => json!({"allOf": [reference(&meta("ObjectMeta"))]}),
    };
    metadata["description"] = common.metadata_description.clone();
    properties.insert("metadata".to_owned(), metadata);
}

fn restyle(schema: &mut Value, flavour: OpenApiFlavour, common: &CommonMembers) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    let is_int_or_string = fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
    match flavour {
        OpenApiFlavour::V3 => {
            if is_int_or_string && !fields.contains_key("anyOf") && !fields.contains_key("allOf") {
                fields.insert(
                    "anyOf".to_owned(),
                    json!([{"type": "integer"}, {"type": "string"}]),
                );
            }
        }
        OpenApiFlavour::V2 => {
            let is_nullable = fields.get("nullable") == Some(&Value::Bool(true));
            for keyword in ONLY_V3 {
                fields.remove(keyword);
            }
            // A v2 client would reject null for any type, so the type is omitted.
            if is_nullable {
                for keyword in ["type", "items", "properties", "additionalProperties"] {
                    fields.remove(keyword);
                }
            }
            if fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) {
                fields.remove("items");
                fields.remove("properties");
                if fields.get("type").and_then(Value::as_str) != Some("object") {
                    fields.remove("type");
                }
            }
        }
    }
    let is_embedded = fields.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
    for part in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(part) {
            restyle(inner, flavour, common);
        }
    }
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        for (_, member) in properties {
            restyle(member, flavour, common);
        }
    }
    if is_embedded && flavour == OpenApiFlavour::V3 {
        add_type(schema, flavour, common);
    }
}
