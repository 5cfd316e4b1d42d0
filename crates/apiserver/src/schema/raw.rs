//! Access to schema documents before they are compiled.

use std::sync::LazyLock;

use serde_json::{Map, Value};

pub(super) fn text<'v>(schema: &'v Value, name: &str) -> &'v str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

pub(super) fn items<'v>(schema: &'v Value, name: &str) -> &'v [Value] {
    schema
        .get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

pub(super) fn members<'v>(schema: &'v Value, name: &str) -> serde_json::map::Iter<'v> {
    static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    schema
        .get(name)
        .and_then(Value::as_object)
        .unwrap_or(&NONE)
        .iter()
}
