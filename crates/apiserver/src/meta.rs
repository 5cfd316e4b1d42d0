//! Access to `metadata` of an object held as a JSON map.
//!
//! Absent and empty are the same for readers, and writing an empty value removes the field, as the API does.

use serde_json::{Map, Value};

/// An object as the registry processes it.
pub type JsonObject = Map<String, Value>;

pub fn text<'a>(object: &'a JsonObject, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

pub fn metadata(object: &JsonObject) -> Option<&JsonObject> {
    object.get("metadata").and_then(Value::as_object)
}

/// Returns the metadata, created if absent. A value of another type is replaced.
pub fn metadata_mut(object: &mut JsonObject) -> &mut JsonObject {
    let slot = object
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    match slot {
        Value::Object(metadata) => metadata,
        _ => unreachable!("metadata was replaced by an object"),
    }
}

pub fn meta_text<'a>(object: &'a JsonObject, field: &str) -> &'a str {
    metadata(object)
        .and_then(|metadata| metadata.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub fn name(object: &JsonObject) -> &str {
    meta_text(object, "name")
}

pub fn namespace(object: &JsonObject) -> &str {
    meta_text(object, "namespace")
}

pub fn uid(object: &JsonObject) -> &str {
    meta_text(object, "uid")
}

pub fn resource_version(object: &JsonObject) -> &str {
    meta_text(object, "resourceVersion")
}

pub fn generation(object: &JsonObject) -> i64 {
    metadata(object)
        .and_then(|metadata| metadata.get("generation"))
        .and_then(Value::as_i64)
        .unwrap_or(0)
}

pub fn is_deleting(object: &JsonObject) -> bool {
    !meta_text(object, "deletionTimestamp").is_empty()
}

pub fn finalizers(object: &JsonObject) -> Vec<String> {
    let list = metadata(object).and_then(|metadata| metadata.get("finalizers"));
    let items = list
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    items
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

pub fn set_finalizers(object: &mut JsonObject, finalizers: &[String]) {
    if finalizers.is_empty() {
        metadata_mut(object).remove("finalizers");
    } else {
        set_meta(object, "finalizers", Value::from(finalizers.to_vec()));
    }
}

pub fn set_meta(object: &mut JsonObject, field: &str, value: impl Into<Value>) {
    metadata_mut(object).insert(field.to_owned(), value.into());
}

pub fn labels(object: &JsonObject) -> Option<&JsonObject> {
    metadata(object)?.get("labels")?.as_object()
}

pub fn annotation<'a>(object: &'a JsonObject, key: &str) -> Option<&'a str> {
    metadata(object)?
        .get("annotations")?
        .as_object()?
        .get(key)?
        .as_str()
}

/// Copies a field from one object to another, or removes it there if the source has none.
pub fn copy_field(from: &JsonObject, to: &mut JsonObject, field: &str) {
    match from.get(field) {
        Some(value) => {
            to.insert(field.to_owned(), value.clone());
        }
        None => {
            to.remove(field);
        }
    }
}
