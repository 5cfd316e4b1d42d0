//! Roles and bindings.

use serde_json::Value;

use super::items;
use crate::field_error::FieldError;

pub(super) fn role(new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, rule) in items(new, "/rules") {
        let empty = |field: &str| rule[field].as_array().is_none_or(Vec::is_empty);
        let mut require = |field: &str, why: &str| {
            errors.push(FieldError::required(format!("rules[{index}].{field}"), why));
        };
        if empty("verbs") {
            require("verbs", "verbs must contain at least one value");
        }
        if !empty("nonResourceURLs") {
            continue;
        }
        if empty("apiGroups") {
            require("apiGroups", "resource rules must supply at least one api group");
        }
        if empty("resources") {
            require("resources", "resource rules must supply at least one resource");
        }
    }
    errors
}

pub(super) fn binding(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let role = &new["roleRef"];
    if old.is_none_or(|old| old["roleRef"] == *role) {
        return Vec::new();
    }
    let mut error = FieldError::invalid("roleRef", &Value::Null, "cannot change roleRef");
    // The message contains the fields under their names in Go.
    let shown = format!(
        "{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}",
        role["apiGroup"], role["kind"], role["name"]
    );
    error.body = error.body.replacen("null", &shown, 1);
    vec![error]
}
