//! Config maps and secrets: keys, sizes, types, and immutable data.

use std::collections::BTreeSet;

use base64::Engine as _;
use serde_json::{Map, Value};

use crate::decode;
use crate::field_error::FieldError;

const MOST_BYTES: usize = 1 << 20;
const IMMUTABLE: &str = "field is immutable when `immutable` is set";
const REDACTED: &str = "<secret contents redacted>";

pub(super) fn config_map(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let empty = Map::new();
    let map = |field: &str| new.get(field).and_then(Value::as_object).unwrap_or(&empty);
    let (data, binary) = (map("data"), map("binaryData"));
    let mut errors = Vec::new();
    for key in data.keys() {
        errors.extend(key_errors("data", key));
        if binary.contains_key(key) {
            let field = format!("data[{key}]");
            errors.push(FieldError::invalid(
                field,
                &Value::from(key.as_str()),
                "duplicate of key present in binaryData",
            ));
        }
    }
    for key in binary.keys() {
        errors.extend(key_errors("binaryData", key));
    }
    let size =
        data.values().map(text_length).sum::<usize>() + binary.values().map(decoded_length).sum::<usize>();
    if size > MOST_BYTES {
        errors.push(FieldError::too_long("[]", MOST_BYTES));
    }
    errors.extend(frozen(new, old, &["data", "binaryData"]));
    errors
}

pub(super) fn secret(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let empty = Map::new();
    let data = new.get("data").and_then(Value::as_object).unwrap_or(&empty);
    let mut errors: Vec<FieldError> = data.keys().flat_map(|key| key_errors("data", key)).collect();
    if data.values().map(decoded_length).sum::<usize>() > MOST_BYTES {
        errors.push(FieldError::too_long("data", MOST_BYTES));
    }
    let kind = new["type"].as_str().unwrap_or_default();
    errors.extend(required_keys(kind, data));
    if let Some(old) = old {
        if old["type"] != new["type"] {
            errors.push(FieldError::invalid("type", &new["type"], "field is immutable"));
        }
        errors.extend(frozen(new, Some(old), &["data"]));
    }
    errors
}

/// Returns the keys that a secret of a well-known type requires.
fn required_keys(kind: &str, data: &Map<String, Value>) -> Vec<FieldError> {
    let missing = |key: &str| {
        let field = format!("data[{key}]");
        (!data.contains_key(key)).then(|| FieldError::required(field, ""))
    };
    match kind {
        "kubernetes.io/tls" => ["tls.crt", "tls.key"].into_iter().filter_map(missing).collect(),
        "kubernetes.io/ssh-auth" => missing("ssh-privatekey").into_iter().collect(),
        "kubernetes.io/dockerconfigjson" => docker_config(data, ".dockerconfigjson"),
        "kubernetes.io/dockercfg" => docker_config(data, ".dockercfg"),
        "kubernetes.io/basic-auth" if !data.contains_key("username") && !data.contains_key("password") => {
            ["username", "password"].into_iter().filter_map(missing).collect()
        }
        _ => Vec::new(),
    }
}

fn docker_config(data: &Map<String, Value>, key: &str) -> Vec<FieldError> {
    let field = format!("data[{key}]");
    let Some(encoded) = data.get(key).and_then(Value::as_str) else {
        return vec![FieldError::required(field, "")];
    };
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(encoded)
        .unwrap_or_default();
    match decode::decode(&bytes, None) {
        Ok(_) => Vec::new(),
        Err(error) => vec![FieldError::invalid(
            field,
            &Value::from(REDACTED),
            &error.to_string(),
        )],
    }
}

/// An immutable object stays so and keeps its data.
fn frozen(new: &Value, old: Option<&Value>, fields: &[&str]) -> Vec<FieldError> {
    let Some(old) = old.filter(|old| old["immutable"] == true) else {
        return Vec::new();
    };
    let mut errors = Vec::new();
    if new["immutable"] != true {
        errors.push(FieldError::forbidden("immutable", IMMUTABLE));
    }
    for field in fields {
        if old.get(*field) != new.get(*field) {
            errors.push(FieldError::forbidden(*field, IMMUTABLE));
        }
    }
    errors
}

fn key_errors(field: &str, key: &str) -> Vec<FieldError> {
    let problems = key_problems(key);
    let path = format!("{field}[{key}]");
    problems
        .iter()
        .map(|problem| FieldError::invalid(path.clone(), &Value::from(key), problem))
        .collect()
}

fn key_problems(key: &str) -> BTreeSet<String> {
    let mut problems = BTreeSet::new();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if key.len() > 253 {
        problems.insert("must be no more than 253 characters".to_owned());
    }
    if key.is_empty() || !key.bytes().all(allowed) {
        problems.insert(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')".to_owned(),
        );
    }
    if key == "." || key == ".." {
        problems.insert(format!("must not be '{key}'"));
    } else if key.starts_with("..") {
        problems.insert("must not start with '..'".to_owned());
    }
    problems
}

fn text_length(value: &Value) -> usize {
    value.as_str().map_or(0, str::len)
}

fn decoded_length(value: &Value) -> usize {
    value
        .as_str()
        .map_or(0, |text| text.trim_end_matches('=').len() * 3 / 4)
}
