//! Uniqueness of items in sets and keyed lists.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::correlate::key_of;
use super::model::{AdditionalMembers, ListType, Schema, SchemaNode};
use crate::field_error::FieldError;
use crate::go_text;

/// Returns an error for every duplicate item of a set or keyed list.
pub fn validate_lists(schema: &Schema, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, schema.root(), object, "", &mut errors);
    errors
}

fn walk(schema: &Schema, node: &SchemaNode, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Array(items) => {
            match &node.list_type {
                ListType::Atomic => {}
                ListType::Set => errors.extend(set_errors(items, path)),
                ListType::Map(keys) => errors.extend(keyed_errors(items, keys, path)),
            }
            if let Some(child) = schema.items(node) {
                for (index, item) in items.iter().enumerate() {
                    walk(schema, child, item, &format!("{path}[{index}]"), errors);
                }
            }
        }
        Value::Object(fields) => {
            for (name, member) in fields {
                if let Some(property) = node.property(name) {
                    let path = if path.is_empty() {
                        name.clone()
                    } else {
                        format!("{path}.{name}")
                    };
                    walk(schema, schema.node(property.node), member, &path, errors);
                } else if let AdditionalMembers::Schema(id) = node.additional {
                    walk(
                        schema,
                        schema.node(id),
                        member,
                        &format!("{path}[{name}]"),
                        errors,
                    );
                }
            }
        }
        _ => {}
    }
}

fn set_errors(items: &[Value], path: &str) -> Vec<FieldError> {
    repeated(items.iter().map(go_text::json))
        .filter_map(|index| {
            Some(FieldError::duplicate(
                format!("{path}[{index}]"),
                items.get(index)?,
            ))
        })
        .collect()
}

fn keyed_errors(items: &[Value], keys: &[Box<str>], path: &str) -> Vec<FieldError> {
    if let Some(at) = items
        .iter()
        .position(|item| !(item.is_null() || item.is_object()))
    {
        let detail = "must be an object for an array of list-type map";
        return vec![FieldError::invalid(format!("{path}[{at}]"), &items[at], detail)];
    }
    let nothing = Map::new();
    let identities: Vec<Value> = items
        .iter()
        .map(|item| {
            let fields = item.as_object().unwrap_or(&nothing);
            let present = keys.iter().zip(key_of(fields, keys));
            Value::Object(
                present
                    .filter_map(|(key, value)| Some((key.to_string(), value?.clone())))
                    .collect(),
            )
        })
        .collect();
    repeated(identities.iter().map(go_text::json))
        .filter_map(|index| {
            Some(FieldError::duplicate(
                format!("{path}[{index}]"),
                identities.get(index)?,
            ))
        })
        .collect()
}

/// Returns the position of the second occurrence of each duplicate.
fn repeated(items: impl Iterator<Item = String>) -> impl Iterator<Item = usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut positions = Vec::new();
    for (index, item) in items.enumerate() {
        let times = seen.entry(item).or_insert(0);
        *times += 1;
        if *times == 2 {
            positions.push(index);
        }
    }
    positions.into_iter()
}
