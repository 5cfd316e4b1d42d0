//! Selection of the pull credentials for an image.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use thiserror::Error;

use crate::generators::registries::pull_sources;

/// User and password for one registry. Never logged or shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(String);

impl Credential {
    /// Returns `user:password` in base64, the format of the Authorization header.
    pub fn encoded(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(not shown)")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CredentialsError {
    /// Without the invalid text, which is part of the secret.
    #[error("the node's pull secret is not valid JSON (line {line}, column {column})")]
    PullSecret { line: usize, column: usize },
    #[error("{0}")]
    Registries(String),
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PullSecret {
    auths: BTreeMap<String, CredentialEntry>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CredentialEntry {
    auth: String,
    username: String,
    password: String,
}

impl CredentialEntry {
    fn credential(&self) -> Option<Credential> {
        if !self.auth.is_empty() {
            return Some(Credential(self.auth.clone()));
        }
        let pair = || BASE64.encode(format!("{}:{}", self.username, self.password));
        (!self.username.is_empty()).then(|| Credential(pair()))
    }
}

/// Returns the credentials for an image: those of the first mirror that has any, else those of the image's own
/// registry. With `None` the runtime uses its own configuration.
pub fn credential(
    pull_secret: &[u8],
    registries_conf: &str,
    image: &str,
) -> Result<Option<Credential>, CredentialsError> {
    let secret: PullSecret =
        serde_json::from_slice(pull_secret).map_err(|error| CredentialsError::PullSecret {
            line: error.line(),
            column: error.column(),
        })?;
    let sources = pull_sources(registries_conf, image).map_err(CredentialsError::Registries)?;
    let by_place: BTreeMap<&str, &CredentialEntry> = secret
        .auths
        .iter()
        .map(|(key, entry)| (place(key), entry))
        .collect();
    let found = sources.iter().find_map(|source| {
        // From the repository itself up to its host; a port is part of the host.
        let mut scope = source.as_str();
        loop {
            if let Some(credential) = by_place.get(scope).and_then(|entry| entry.credential()) {
                return Some(credential);
            }
            scope = scope.rsplit_once('/')?.0;
        }
    });
    Ok(found)
}

/// Returns the registry or repository of an entry. Older tools wrote URLs.
fn place(key: &str) -> &str {
    let key = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"))
        .unwrap_or(key)
        .trim_end_matches('/');
    let key = key
        .strip_suffix("/v1")
        .or_else(|| key.strip_suffix("/v2"))
        .unwrap_or(key);
    if key == "index.docker.io" {
        "docker.io"
    } else {
        key
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const CONF: &str = r#"
[[registry]]
location = "quay.example/team"
[[registry.mirror]]
location = "mirror.example:5000/team"
[[registry]]
location = "quay.example/other"
[[registry.mirror]]
location = "unknown.example/other"
"#;

    fn found(image: &str) -> Option<String> {
        let encoded = |text: &str| json!({"auth": BASE64.encode(text)});
        let secret = json!({"auths": {
            "quay.example": encoded("quay"),
            "quay.example/private": encoded("private"),
            "mirror.example": encoded("without port"),
            "mirror.example:5000": encoded("with port"),
            "https://index.docker.io/v1/": {"username": "me", "password": "secret"},
            "empty.example": {},
        }});
        let credential = credential(
            &serde_json::to_vec(&secret).unwrap(),
            CONF,
            &format!("{image}@{DIGEST}"),
        );
        credential
            .unwrap()
            .map(|credential| String::from_utf8(BASE64.decode(credential.encoded()).unwrap()).unwrap())
    }

    #[test]
    fn a_mirrors_credentials_are_sent_and_a_port_has_its_own() {
        for (name, image, expected) in [
            (
                "the mirror's, by its port",
                "quay.example/team/app",
                Some("with port"),
            ),
            (
                "the same host at another port",
                "mirror.example/team/app",
                Some("without port"),
            ),
            (
                "that port asked directly",
                "mirror.example:5000/x",
                Some("with port"),
            ),
            ("a port without an entry", "mirror.example:6000/x", None),
            (
                "a mirror without any: the image's own",
                "quay.example/other/app",
                Some("quay"),
            ),
            ("no mirror", "quay.example/app", Some("quay")),
            ("the narrowest entry", "quay.example/private/app", Some("private")),
            (
                "an address as older tools write it",
                "docker.io/library/app",
                Some("me:secret"),
            ),
            ("an entry without credentials", "empty.example/app", None),
            ("without credentials", "else.example/app", None),
        ] {
            assert_eq!(found(image).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn an_invalid_pull_secret_is_reported_and_not_quoted() {
        let error = credential(b"{\"auths\": hunter2", "", &format!("a.example/b@{DIGEST}")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the node's pull secret is not valid JSON (line 1, column 11)"
        );
        let credential = Credential("c2VjcmV0".to_owned());
        assert!(!format!("{credential:?}").contains("c2VjcmV0"));
    }
}
