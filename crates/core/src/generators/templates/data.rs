//! The template data: a ControllerConfig's spec under its Go names, and a few more values.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gotmpl::Value;
use serde_json::Value as Json;

use super::TemplateInputs;
use super::shapes::{CONTROLLER_CONFIG, TemplateField, TemplateFieldKind};

/// The file with the API server's address on nodes.
const API_SERVER_URL_FILE: &str = "/etc/kubernetes/apiserver-url.env";

/// Fields whose members are promoted to the embedding object.
const EMBEDDED: &str = "ObjectMeta";

type TemplateMembers = BTreeMap<Arc<str>, Value>;

/// Returns the root value of every template.
pub(super) fn root(inputs: &TemplateInputs<'_>) -> Value {
    let spec = serde_json::to_value(inputs.spec).unwrap_or_default();
    let mut members = members(CONTROLLER_CONFIG, &spec);
    members.insert("PullSecret".into(), text(inputs.pull_secret));
    members.insert("TLSMinVersion".into(), text(&inputs.tls.min_version));
    let suites = inputs.tls.cipher_suites.iter().map(|suite| text(suite));
    members.insert("TLSCipherSuites".into(), Value::List(suites.collect()));
    members.insert(
        "ServingCertificates".into(),
        Value::Bool(inputs.serving_certificates),
    );
    let constants = TemplateMembers::from([("APIServerURLFile".into(), text(API_SERVER_URL_FILE))]);
    members.insert("Constants".into(), Value::Map(Arc::new(constants)));
    Value::Map(Arc::new(members))
}

pub(super) fn text(text: &str) -> Value {
    Value::String(text.into())
}

fn structure(fields: &[TemplateField], json: &Json) -> Value {
    let mut members = members(fields, json);
    if let Some(Value::Map(embedded)) = members.get(EMBEDDED).cloned() {
        for (name, value) in embedded.iter() {
            members.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    if members.is_empty() {
        // A struct is true in a condition even when it has no fields; an empty map is not.
        members.insert("".into(), Value::Nil);
    }
    Value::Map(Arc::new(members))
}

fn members(fields: &[TemplateField], json: &Json) -> TemplateMembers {
    let mut members: TemplateMembers = fields
        .iter()
        .map(|field| (field.go.into(), convert(field.kind, json.get(field.json))))
        .collect();
    for (name, value) in json.as_object().into_iter().flatten() {
        if !fields.iter().any(|field| field.json == name) {
            members
                .entry(go_name(name).into())
                .or_insert_with(|| unknown(value));
        }
    }
    members
}

fn convert(kind: TemplateFieldKind, json: Option<&Json>) -> Value {
    let json = json.filter(|json| !json.is_null());
    match (kind, json) {
        (TemplateFieldKind::Text, json) => text(json.and_then(Json::as_str).unwrap_or_default()),
        (TemplateFieldKind::Bytes, json) => {
            let decoded = BASE64.decode(json.and_then(Json::as_str).unwrap_or_default());
            text(&String::from_utf8_lossy(&decoded.unwrap_or_default()))
        }
        (TemplateFieldKind::Texts, json) => {
            let items = json.and_then(Json::as_array).into_iter().flatten();
            Value::List(
                items
                    .map(|item| text(item.as_str().unwrap_or_default()))
                    .collect(),
            )
        }
        (TemplateFieldKind::Map, json) => {
            let entries = json.and_then(Json::as_object).into_iter().flatten();
            Value::Map(Arc::new(
                entries
                    .map(|(key, value)| (key.as_str().into(), scalar(value)))
                    .collect(),
            ))
        }
        (TemplateFieldKind::Struct(fields), json) => structure(fields, json.unwrap_or(&Json::Null)),
        (TemplateFieldKind::Pointer(fields), Some(json)) => structure(fields, json),
        (TemplateFieldKind::Structs(fields), json) => {
            let items = json.and_then(Json::as_array).into_iter().flatten();
            Value::List(items.map(|item| structure(fields, item)).collect())
        }
        (TemplateFieldKind::Scalar, Some(json)) => scalar(json),
        (TemplateFieldKind::Scalar, None) => Value::Nil,
        // Both are false in a condition, but accessing a field of nil is an error in Go and not here. Accessing one
        // of a boolean is an error in both.
        (TemplateFieldKind::Pointer(_), None) => Value::Bool(false),
    }
}

/// Converts a field outside the schema: its members get conventional Go names.
fn unknown(json: &Json) -> Value {
    match json {
        Json::Array(items) => Value::List(items.iter().map(unknown).collect()),
        Json::Object(_) => structure(&[], json),
        other => scalar(other),
    }
}

fn scalar(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => Value::Int(whole),
            None => Value::Float(number.as_f64().unwrap_or_default()),
        },
        Json::String(string) => text(string),
        Json::Array(_) | Json::Object(_) => unknown(json),
    }
}

/// Returns the Go name of a JSON field: `apiServerURL` is `APIServerURL`, `machineNetworks` is `MachineNetworks`.
fn go_name(json: &str) -> String {
    const INITIALISMS: [&str; 14] = [
        "api", "aws", "bgp", "ca", "cpu", "dns", "gcp", "http", "https", "id", "ip", "mtu", "os", "url",
    ];
    let end = json.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(json.len());
    let (first, rest) = json.split_at(end);
    if INITIALISMS.contains(&first) {
        return format!("{}{rest}", first.to_ascii_uppercase());
    }
    let mut characters = json.chars();
    characters
        .next()
        .map(|first| format!("{}{}", first.to_ascii_uppercase(), characters.as_str()))
        .unwrap_or_default()
}
