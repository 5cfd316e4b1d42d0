//! Extracts the registry credentials from their Secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;
use thiserror::Error;

use crate::config::manifest::{self, ManifestError};
use crate::generators::templates::compact_json;

const TYPE: &str = "kubernetes.io/dockerconfigjson";
const KEY: &str = ".dockerconfigjson";

/// Errors whose messages never contain the contents, which are credentials.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PullSecretError {
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("{file}: expected one Secret, found {found}")]
    NotASecret { file: String, found: String },
    #[error("{file}: Secret {name:?}: expected secret type {TYPE} found {found}")]
    Type {
        file: String,
        name: String,
        found: String,
    },
    #[error("{file}: Secret {name:?}: data[\"{KEY}\"] is not base64-encoded JSON")]
    Contents { file: String, name: String },
}

/// Returns the credentials of a Secret manifest, as compact JSON. Plain credentials in JSON are accepted as well.
pub fn pull_secret(file: &str, bytes: &[u8]) -> Result<String, PullSecretError> {
    if let Ok(Value::Object(plain)) = serde_json::from_slice::<Value>(bytes)
        && plain.contains_key("auths")
        && let Some(compact) = compact_json(bytes)
    {
        return Ok(compact);
    }
    let manifests = manifest::read(file, bytes)?;
    let [secret] = manifests.as_slice() else {
        return Err(PullSecretError::NotASecret {
            file: file.to_owned(),
            found: format!("{} objects", manifests.len()),
        });
    };
    if secret.kind != "Secret" {
        return Err(PullSecretError::NotASecret {
            file: file.to_owned(),
            found: secret.kind.clone(),
        });
    }
    let text = |key: &str| secret.value.get(key).and_then(Value::as_str).unwrap_or_default();
    if text("type") != TYPE {
        return Err(PullSecretError::Type {
            file: file.to_owned(),
            name: secret.name.clone(),
            found: text("type").to_owned(),
        });
    }
    let of = |section: &str| {
        let data = secret.value.get(section)?;
        data.get(KEY)?.as_str().map(str::to_owned)
    };
    let decoded = of("data").map(|encoded| BASE64.decode(encoded.trim()).unwrap_or_default());
    decoded
        .or_else(|| of("stringData").map(String::into_bytes))
        .and_then(|json| compact_json(&json))
        .ok_or_else(|| PullSecretError::Contents {
            file: file.to_owned(),
            name: secret.name.clone(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(kind: &str, body: &str) -> String {
        format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: pull-secret}}\n{body}\n")
    }

    #[test]
    fn credentials_come_out_compact_and_never_into_an_error() {
        let encoded = |text: &str| BASE64.encode(text);
        let good = encoded("{ \"auths\": {} }\n");
        let broken = encoded("hunter2 is not JSON");
        let typed = |data: &str| format!("type: {TYPE}\ndata: {{\"{KEY}\": {data}}}");
        let cases = [
            (secret("Secret", &typed(&good)), Ok("{\"auths\":{}}")),
            (
                secret(
                    "Secret",
                    &format!("type: {TYPE}\nstringData: {{\"{KEY}\": '{{\"auths\": {{}} }}'}}"),
                ),
                Ok("{\"auths\":{}}"),
            ),
            ("{\"auths\": {}}".to_owned(), Ok("{\"auths\":{}}")),
            (
                secret("Secret", &typed(&broken)),
                Err("is not base64-encoded JSON"),
            ),
            (
                secret("Secret", &typed("hunter2!")),
                Err("is not base64-encoded JSON"),
            ),
            (
                secret("Secret", "type: Opaque"),
                Err("expected secret type kubernetes.io/dockerconfigjson found Opaque"),
            ),
            (
                secret("ConfigMap", ""),
                Err("expected one Secret, found ConfigMap"),
            ),
            (String::new(), Err("expected one Secret, found 0 objects")),
        ];
        for (text, expected) in cases {
            match (pull_secret("p.yaml", text.as_bytes()), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(error), Err(expected)) => {
                    let error = error.to_string();
                    assert!(error.contains(expected), "{error}");
                    assert!(!error.contains("hunter2"), "{error}");
                }
                (result, expected) => panic!("{result:?} instead of {expected:?}"),
            }
        }
    }
}
