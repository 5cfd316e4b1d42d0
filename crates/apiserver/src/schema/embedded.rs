//! Embedded resources: their type and metadata follow the rules of every resource.

use serde_json::{Map, Value};

use super::model::{AdditionalMembers, Schema, SchemaNode};
use crate::decode;
use crate::field_error::FieldError;
use crate::kinds;
use crate::names;
use crate::object_meta;

/// The definition of ObjectMeta.
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Validates the type and metadata of every embedded resource.
pub fn validate_embedded(schema: &Schema, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit(schema, schema.root(), object, "", &mut |fields, path| {
        errors.extend(resource_errors(fields, path));
    });
    errors
}

/// Returns the metadata of an object and of its embedded resources that cannot be decoded: a malformed request.
///
/// Also drops fields that metadata does not have, and returns their paths.
pub fn coerce_metadata(schema: &Schema, object: &mut Value) -> Result<Vec<String>, String> {
    let mut problem = None;
    visit(schema, schema.root(), object, "", &mut |fields, path| {
        for name in ["apiVersion", "kind"] {
            if let Some(value) = fields.get(name).filter(|value| !value.is_string()) {
                let error = FieldError::invalid(format!("{path}.{name}"), value, "must be a string");
                problem.get_or_insert(error.to_string());
            }
        }
        if let Some(text) = fields.get("metadata").and_then(metadata_error) {
            let path = format!("{path}.metadata");
            let value = fields.get("metadata").unwrap_or(&Value::Null);
            problem.get_or_insert(FieldError::invalid(path, value, &text).to_string());
        }
    });
    if let Some(problem) = object.get("metadata").and_then(metadata_error).or(problem) {
        return Err(problem);
    }
    let mut unknown = Vec::new();
    if let Some(metadata) = object.get_mut("metadata") {
        unknown.extend(
            prune_metadata(metadata)
                .into_iter()
                .map(|path| format!("metadata.{path}")),
        );
    }
    unknown.sort_unstable();
    Ok(unknown)
}

fn metadata_error(metadata: &Value) -> Option<String> {
    let schema = kinds::schema_of(OBJECT_META)?;
    let error = decode::type_error(metadata, &schema)?;
    Some(error)
}

fn prune_metadata(metadata: &mut Value) -> Vec<String> {
    let (Some(schema), Value::Object(fields)) = (kinds::schema_of(OBJECT_META), metadata) else {
        return Vec::new();
    };
    let unknown: Vec<String> = fields
        .keys()
        .filter(|name| schema.root().property(name).is_none())
        .cloned()
        .collect();
    fields.retain(|name, _| !unknown.contains(name));
    unknown
}

fn resource_errors(fields: &Map<String, Value>, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for name in ["apiVersion", "kind"] {
        let field = format!("{path}.{name}");
        match fields.get(name) {
            None => errors.push(FieldError::required(field, "")),
            Some(Value::String(text)) => errors.extend(type_name_error(name, text, field)),
            Some(other) => errors.push(FieldError::invalid(field, other, "must be a string")),
        }
    }
    if let Some(metadata) = fields.get("metadata") {
        errors.extend(object_meta::validate_embedded(
            metadata,
            &format!("{path}.metadata"),
        ));
    }
    errors
}

fn type_name_error(name: &str, text: &str, field: String) -> Option<FieldError> {
    let value = Value::from(text);
    if text.is_empty() {
        return Some(FieldError::invalid(field, &value, "must not be empty"));
    }
    if name == "apiVersion" {
        let detail = format!("unexpected GroupVersion string: {text}");
        return (text.matches('/').count() > 1).then(|| FieldError::invalid(field, &value, &detail));
    }
    let problems = names::dns1035_label(&text.to_lowercase());
    let detail = format!(
        "may have mixed case, but should otherwise match: {}",
        problems.join(",")
    );
    (!problems.is_empty()).then(|| FieldError::invalid(field, &value, &detail))
}

fn visit(
    schema: &Schema,
    node: &SchemaNode,
    value: &Value,
    path: &str,
    found: &mut impl FnMut(&Map<String, Value>, &str),
) {
    match value {
        Value::Object(fields) => {
            if node.embedded_resource {
                found(fields, path);
            }
            for (name, member) in fields {
                if let Some(property) = node.property(name) {
                    let path = if path.is_empty() {
                        name.clone()
                    } else {
                        format!("{path}.{name}")
                    };
                    visit(schema, schema.node(property.node), member, &path, found);
                } else if let AdditionalMembers::Schema(id) = node.additional {
                    visit(schema, schema.node(id), member, &format!("{path}[{name}]"), found);
                }
            }
        }
        Value::Array(items) => {
            if let Some(child) = schema.items(node) {
                for (index, item) in items.iter().enumerate() {
                    visit(schema, child, item, &format!("{path}[{index}]"), found);
                }
            }
        }
        _ => {}
    }
}
