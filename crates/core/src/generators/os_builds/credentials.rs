//! Registry credentials of builds: validated, and converted from the legacy format.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

const CONFIG_TYPE: &str = "kubernetes.io/dockerconfigjson";
const CONFIG_KEY: &str = ".dockerconfigjson";
const LEGACY_TYPE: &str = "kubernetes.io/dockercfg";
const LEGACY_KEY: &str = ".dockercfg";
/// Keys of the current format.
const CONFIG_FIELDS: [&str; 3] = ["auths", "credHelpers", "credsStore"];

/// Why a Secret cannot be used. No message contains any of its data.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("Secret {namespace}/{name} {problem}; create it with kubectl create secret docker-registry")]
pub struct CredentialsError {
    pub namespace: String,
    pub name: String,
    pub problem: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Credential {
    #[serde(skip_serializing_if = "String::is_empty")]
    username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    password: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    email: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    auth: String,
}

type Credentials = BTreeMap<String, Credential>;

#[derive(Serialize)]
struct CanonicalConfig {
    auths: Credentials,
}

/// Checks the type and the keys of a Secret, and returns the bytes of its credentials.
pub fn validate_secret(secret: &Secret) -> Result<&[u8], CredentialsError> {
    let data = secret.data.as_ref().filter(|data| !data.is_empty());
    let data = data.ok_or_else(|| error(secret, "is empty"))?;
    let (key, other) = match secret.type_.as_deref() {
        Some(CONFIG_TYPE) => (CONFIG_KEY, LEGACY_KEY),
        Some(LEGACY_TYPE) => (LEGACY_KEY, CONFIG_KEY),
        None | Some("") => return Err(error(secret, "has no type")),
        Some(type_) => {
            let problem = format!("has type {type_:?}, but must have {CONFIG_TYPE} or {LEGACY_TYPE}");
            return Err(error(secret, problem));
        }
    };
    if data.contains_key(other) {
        return Err(error(
            secret,
            format!("has key {other:?}, which its type does not allow"),
        ));
    }
    let value = data.get(key).filter(|value| !value.0.is_empty());
    let value = value.ok_or_else(|| error(secret, format!("has no value for key {key:?}")))?;
    Ok(&value.0)
}

/// Returns the credentials of a Secret in the current format.
pub fn canonical_credentials(secret: &Secret) -> Result<String, CredentialsError> {
    let bytes = validate_secret(secret)?;
    let auths = read(bytes).map_err(|problem| error(secret, problem))?;
    let text = serde_json::to_string(&CanonicalConfig { auths })
        .map_err(|_| error(secret, "cannot be written as JSON"))?;
    Ok(escape_for_html(&text))
}

/// Returns a Secret without any credentials.
pub fn empty_credentials(name: &str) -> Secret {
    let mut secret = Secret {
        type_: Some(CONFIG_TYPE.to_owned()),
        data: Some(BTreeMap::from([(
            CONFIG_KEY.to_owned(),
            ByteString(b"{}".to_vec()),
        )])),
        ..Secret::default()
    };
    secret.metadata.name = Some(name.to_owned());
    secret
}

/// The contents decide which format it is, not the type. Messages of the parser may quote the data, so they are left
/// out.
fn read(bytes: &[u8]) -> Result<Credentials, &'static str> {
    let value: Value = serde_json::from_slice(bytes).map_err(|_| "is not valid JSON")?;
    let Value::Object(config) = value else {
        return Err("is not a JSON object");
    };
    match current_format(&config) {
        Some(auths) => Ok(auths),
        None if CONFIG_FIELDS
            .iter()
            .any(|field| holds_something(config.get(*field))) =>
        {
            Err("is not in the format of registry credentials: unknown fields, or values of the wrong type")
        }
        None => serde_json::from_value(Value::Object(config))
            .map_err(|_| "is not in the format of registry credentials: a host has unknown fields"),
    }
}

fn current_format(config: &Map<String, Value>) -> Option<Credentials> {
    let is_known = |key: &String| CONFIG_FIELDS.contains(&key.as_str());
    if !config.keys().all(is_known) {
        return None;
    }
    match config.get("auths") {
        Some(Value::Null) | None => Some(Credentials::default()),
        Some(auths) => serde_json::from_value(auths.clone()).ok(),
    }
}

fn holds_something(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Object(members)) => !members.is_empty(),
        Some(Value::String(text)) => !text.is_empty(),
        Some(_) => true,
    }
}

/// Writes the characters that Go's encoder escapes, so that the result has the same bytes.
fn escape_for_html(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            c => escaped.push(c),
        }
    }
    escaped
}

fn error(secret: &Secret, problem: impl Into<String>) -> CredentialsError {
    CredentialsError {
        namespace: secret.metadata.namespace.clone().unwrap_or_default(),
        name: secret.metadata.name.clone().unwrap_or_default(),
        problem: problem.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(type_: &str, key: &str, text: &str) -> Secret {
        serde_json::from_value(json!({
            "metadata": {"name": "push", "namespace": "ns"},
            "type": type_,
            "data": {key: base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text)},
        }))
        .unwrap()
    }

    #[test]
    fn both_formats_become_the_current_one() {
        for (text, expected) in [
            ("{}", r#"{"auths":{}}"#),
            (r#"{"auths":{}}"#, r#"{"auths":{}}"#),
            (
                r#"{"auths":{"b":{"auth":"x"},"a":{"email":"e","username":"u"}},"credsStore":"s"}"#,
                r#"{"auths":{"a":{"username":"u","email":"e"},"b":{"auth":"x"}}}"#,
            ),
            (
                r#"{"a.example":{"username":"u","password":"<p&w>"}}"#,
                r#"{"auths":{"a.example":{"username":"u","password":"\u003cp\u0026w\u003e"}}}"#,
            ),
        ] {
            // The type does not decide the format of the contents.
            for (type_, key) in [(CONFIG_TYPE, CONFIG_KEY), (LEGACY_TYPE, LEGACY_KEY)] {
                assert_eq!(
                    canonical_credentials(&secret(type_, key, text)).unwrap(),
                    expected
                );
            }
        }
    }

    #[test]
    fn unusable_secrets_are_rejected_without_their_data() {
        for (type_, key, text, problem) in [
            ("Opaque", CONFIG_KEY, "{}", "has type \"Opaque\""),
            ("", CONFIG_KEY, "{}", "has no type"),
            (CONFIG_TYPE, LEGACY_KEY, "{}", "does not allow"),
            (
                CONFIG_TYPE,
                "other",
                "{}",
                "has no value for key \".dockerconfigjson\"",
            ),
            (CONFIG_TYPE, CONFIG_KEY, "", "has no value"),
            (CONFIG_TYPE, CONFIG_KEY, "hunter2", "is not valid JSON"),
            (CONFIG_TYPE, CONFIG_KEY, "null", "is not a JSON object"),
            (
                CONFIG_TYPE,
                CONFIG_KEY,
                r#"{"auths":{"a":{"auth":"hunter2"}},"extra":1}"#,
                "unknown fields",
            ),
            (
                LEGACY_TYPE,
                LEGACY_KEY,
                r#"{"a":{"token":"hunter2"}}"#,
                "a host has unknown fields",
            ),
        ] {
            let error = canonical_credentials(&secret(type_, key, text))
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(problem) && error.starts_with("Secret ns/push "),
                "{error}"
            );
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
