//! Removes secrets from objects and texts before they leave a cluster in a support bundle.
//!
//! Fields that hold secrets are removed by their path, and text with the pattern of a secret is removed everywhere.
//! The replacement has a keyed hash where that helps to compare, and none where it would help to guess. The key is
//! random and not part of the bundle: equal contents of one bundle have equal hashes, and guesses cannot be verified.
//! Objects of other kinds are only matched by patterns.

use std::sync::LazyLock;

use hmac::{Hmac, KeyInit as _, Mac as _};
use regex::Regex;
use serde_json::{Map, Value};
use sha2::Sha256;

use mco_core::config::hex;

const REMOVED: &str = "<removed>";

/// Fields whose value is always a secret, in any object. Lower case, without separators.
const SECRET_FIELDS: [&str; 14] = [
    "password",
    "passwordhash",
    "passwd",
    "token",
    "bearertoken",
    "accesstoken",
    "authorization",
    "auth",
    "privatekey",
    "clientkeydata",
    "clientsecret",
    "secretkey",
    "apikey",
    "dockerconfigjson",
];

/// Fields with arbitrary contents, which are replaced by size and hash. Certificates are among them only because of
/// their length.
const CONTENT_FIELDS: [&str; 14] = [
    "internalRegistryPullSecret",
    "additionalTrustBundle",
    "cloudProviderCAData",
    "cloudProviderConfig",
    "kubeAPIServerServingCAData",
    "rootCAData",
    "imageRegistryBundleData",
    "imageRegistryBundleUserData",
    "data",
    "binaryData",
    "stringData",
    "content",
    "caBundle",
    "certificate",
];

/// The bytes of a hash that are shown, enough to distinguish contents.
const HASH_BYTES: usize = 16;
/// Sizes are shown rounded up, because the exact size of a short secret helps to guess it.
const SMALLEST_SIZE: usize = 64;

/// Removes the secrets from the objects of one bundle.
pub struct Redactor {
    key: [u8; 32],
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").finish_non_exhaustive()
    }
}

impl Redactor {
    /// Creates the redactor of one bundle. The key has to be random, and must not be stored.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    /// Removes the secrets from an object of the Kubernetes API.
    pub fn object(&self, object: &mut Value) {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                // Contains a copy of the whole object as it was last applied.
                annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
            }
        }
        match kind.as_str() {
            "Secret" | "ConfigMap" => self.contents_of(object, &["data", "stringData", "binaryData"]),
            "MachineConfig" => self.machine_config(object),
            "ControllerConfig" => {
                if let Some(spec) = object.get_mut("spec") {
                    self.contents_of(spec, &CONTENT_FIELDS);
                }
            }
            "MachineOSConfig" => {
                let files = object
                    .pointer_mut("/spec/containerFile")
                    .and_then(Value::as_array_mut);
                for file in files.into_iter().flatten() {
                    self.contents_of(file, &["content"]);
                }
            }
            _ => {}
        }
        by_pattern(object, None);
    }

    fn machine_config(&self, object: &mut Value) {
        match object.pointer_mut("/spec/config") {
            Some(config) if config.is_object() => self.ignition(config),
            // A config is an object; any other value is invalid and not needed.
            Some(config) => self.replace_with_hash(config),
            None => {}
        }
        let lists = [
            "/spec/kernelArguments",
            "/spec/config/kernelArguments/shouldExist",
            "/spec/config/kernelArguments/shouldNotExist",
        ];
        for list in lists {
            let arguments = object.pointer_mut(list).and_then(Value::as_array_mut);
            arguments
                .into_iter()
                .flatten()
                .for_each(|argument| self.kernel_argument(argument));
        }
    }

    /// Replaces the value of a kernel argument whose name is that of a secret. One entry may have several arguments.
    fn kernel_argument(&self, argument: &mut Value) {
        let Some(text) = argument.as_str() else { return };
        let redacted = text.split(' ').map(|word| match word.split_once('=') {
            Some((name, value)) if !value.is_empty() && is_secret_argument(name, value) => {
                format!("{name}={}", self.hash(value.as_bytes()))
            }
            _ => word.to_owned(),
        });
        *argument = Value::String(redacted.collect::<Vec<_>>().join(" "));
    }

    /// Returns the rounded size and the keyed hash of contents, which can be shown without revealing them.
    fn hash(&self, bytes: &[u8]) -> String {
        let size = bytes.len().max(SMALLEST_SIZE).next_power_of_two();
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.key) else {
            // HMAC accepts keys of any length.
            return REMOVED.to_owned();
        };
        mac.update(bytes);
        let hash = mac.finalize().into_bytes();
        let shown = hash.get(..HASH_BYTES).unwrap_or_default();
        format!("<up to {size} bytes, hmac:{}>", hex::encode(shown))
    }

    fn replace_with_hash(&self, value: &mut Value) {
        *value = match &*value {
            Value::String(text) => Value::String(self.hash(text.as_bytes())),
            Value::Null => Value::Null,
            other => Value::String(self.hash(other.to_string().as_bytes())),
        };
    }

    /// Replaces these fields; for a map each value, so that its keys stay.
    fn contents_of(&self, value: &mut Value, fields: &[&str]) {
        for field in fields {
            match value.get_mut(*field) {
                Some(Value::Object(entries)) => {
                    entries
                        .values_mut()
                        .for_each(|value| self.replace_with_hash(value));
                }
                Some(value) => self.replace_with_hash(value),
                None => {}
            }
        }
    }

    /// Replaces everything except for the structure of an Ignition config of any version.
    fn ignition(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => fields.iter_mut().for_each(|(key, value)| match key.as_str() {
                "source" | "contents" | "inline" | "passwordHash" | "keyFile" | "config" | "value"
                    if value.is_string() =>
                {
                    self.replace_with_hash(value);
                }
                "sshAuthorizedKeys" => {
                    for key in value.as_array_mut().into_iter().flatten() {
                        self.replace_with_hash(key);
                    }
                }
                _ => self.ignition(value),
            }),
            Value::Array(items) => items.iter_mut().for_each(|item| self.ignition(item)),
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Whether a kernel argument is a secret by its name, or sets a variable with such a name (`systemd.setenv=TOKEN=...`).
fn is_secret_argument(name: &str, value: &str) -> bool {
    let is_secret = |name: &str| {
        let matches = |pattern: &LazyLock<Option<Regex>>| {
            pattern.as_ref().is_some_and(|pattern| pattern.is_match(name))
        };
        matches(&SECRET_NAME) || matches(&SECRET_ARGUMENT)
    };
    is_secret(name)
        || value
            .split_once('=')
            .is_some_and(|(variable, _)| is_secret(variable))
}

/// Removes everything with the pattern of a secret from a text, such as a log.
pub fn text(text: &str) -> String {
    let mut clean = text.to_owned();
    for (pattern, replacement) in PATTERNS.iter() {
        if let std::borrow::Cow::Owned(changed) = pattern.replace_all(&clean, *replacement) {
            clean = changed;
        }
    }
    clean
}

/// Traverses an object and removes values that are secrets by the name of their field or by their pattern.
fn by_pattern(value: &mut Value, field: Option<&str>) {
    match value {
        Value::Object(fields) => {
            by_name_and_value(fields);
            for (name, value) in fields.iter_mut() {
                by_pattern(value, Some(name));
            }
        }
        Value::Array(items) => {
            for item in items {
                by_pattern(item, field);
            }
        }
        Value::String(found) => {
            *found = if field.is_some_and(is_secret_field) && !found.is_empty() && !found.starts_with('<') {
                REMOVED.to_owned()
            } else {
                text(found)
            };
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Handles `{name: DB_PASSWORD, value: ...}`, the form of a container's environment.
fn by_name_and_value(fields: &mut Map<String, Value>) {
    let named_secret = fields
        .get("name")
        .and_then(Value::as_str)
        .is_some_and(|name| SECRET_NAME.as_ref().is_some_and(|pattern| pattern.is_match(name)));
    if let Some(value) = fields
        .get_mut("value")
        .filter(|value| named_secret && value.is_string())
    {
        *value = Value::String(REMOVED.to_owned());
    }
}

fn is_secret_field(name: &str) -> bool {
    let plain: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    SECRET_FIELDS.contains(&plain.as_str())
}

static SECRET_NAME: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)(passw|secret|token|credential|private|api_?key)").ok());

/// Further names of secrets among kernel arguments, where a whole part of the name has to match: `rd.luks.key`.
static SECRET_ARGUMENT: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)(^|[._-])(key|auth|psk|pin|chap)($|[._-])").ok());

/// The patterns of secrets, and their replacements.
static PATTERNS: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    [
        // Private keys, complete or truncated.
        (
            r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)",
            "<removed private key>",
        ),
        // JSON web tokens.
        (r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*", "<removed token>"),
        // Headers.
        (
            r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,}",
            "$1 <removed>",
        ),
        // User names and passwords in URLs.
        (r"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s:@]+:[^/\s@]+@", "$1<removed>@"),
        // Password hashes as in /etc/shadow.
        (r"\$(1|2[abxy]?|5|6|7|y|gy|argon2[id]{1,2})\$[^\s:\x22']{8,}", "<removed password hash>"),
        // Bootstrap tokens.
        (r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b", "<removed token>"),
        // JSON fields inside text, escaped or not.
        (
            r#"(?i)(\\?"(?:password|passwordhash|token|auth|authorization|secret|client-key-data|clientsecret)\\?"\s*:\s*\\?")[^"\\]+"#,
            "$1<removed>",
        ),
        // Options and settings.
        (
            r#"(?i)\b([A-Za-z0-9_-]*(?:password|passwd|token|secret|api_?key))(\s*=\s*|:\s+)(?:"[^"]+"|'[^']+'|[^\s"',;&<]+)"#,
            "$1$2<removed>",
        ),
    ]
    .into_iter()
    .filter_map(|(pattern, replacement)| Some((Regex::new(pattern).ok()?, replacement)))
    .collect()
});

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use sha2::Digest as _;

    use super::*;

    const PLANTED: &str = "hunter2-planted";

    fn cleaned(mut value: Value) -> String {
        Redactor::new([7; 32]).object(&mut value);
        value.to_string()
    }

    #[test]
    fn every_pattern_is_well_formed() {
        assert_eq!(PATTERNS.len(), 8);
        assert!(SECRET_NAME.is_some() && SECRET_ARGUMENT.is_some());
    }

    #[test]
    fn secrets_in_their_usual_places_are_gone() {
        for (name, value) in [
            (
                "a Secret",
                json!({"kind": "Secret", "data": {"key": PLANTED}, "stringData": {"other": PLANTED}}),
            ),
            (
                "a ConfigMap",
                json!({"kind": "ConfigMap", "data": {"config.yaml": PLANTED}}),
            ),
            (
                "a file",
                json!({"kind": "MachineConfig", "spec": {"config": {"storage": {"files": [{"path": "/etc/x",
                    "contents": {"source": format!("data:,{PLANTED}"),
                        "httpHeaders": [{"name": "X-Key", "value": PLANTED}]},
                    "append": [{"source": format!("data:,{PLANTED}")}]}]}}}}),
            ),
            (
                "a unit and its drop-in",
                json!({"kind": "MachineConfig", "spec": {"config": {"systemd": {"units": [{"name": "a.service",
                    "contents": PLANTED, "dropins": [{"name": "b", "contents": PLANTED}]}]}}}}),
            ),
            (
                "a password and a key",
                json!({"kind": "MachineConfig", "spec": {"config": {"passwd": {"users": [{"name": "core",
                    "passwordHash": PLANTED, "sshAuthorizedKeys": [PLANTED]}]}}}}),
            ),
            (
                "an old password",
                json!({"kind": "MachineConfig", "spec": {"config": {"passwd": {"users": [{"name": "core",
                    "create": {"passwordHash": PLANTED}}]}}}}),
            ),
            (
                "a pull secret",
                json!({"kind": "ControllerConfig", "spec": {"internalRegistryPullSecret": PLANTED,
                    "proxy": {"httpProxy": format!("http://me:{PLANTED}@proxy:3128")}}}),
            ),
            (
                "an annotation with the whole object",
                json!({"kind": "Node", "metadata": {"annotations":
                    {"kubectl.kubernetes.io/last-applied-configuration": PLANTED}}}),
            ),
            (
                "a pod's environment",
                json!({"kind": "Pod", "spec": {"containers": [{"env": [{"name": "DB_PASSWORD", "value": PLANTED}]}]}}),
            ),
            (
                "an image's recipe",
                json!({"kind": "MachineOSConfig", "spec": {"containerFile": [{"content": PLANTED}]}}),
            ),
            (
                "kernel arguments",
                json!({"kind": "MachineConfig", "spec": {
                    "kernelArguments": [
                        format!("rd.luks.key={PLANTED}"), format!("quiet rd.iscsi.password={PLANTED}"),
                        format!("systemd.setenv=API_TOKEN={PLANTED}"),
                    ],
                    "config": {"kernelArguments": {"shouldExist": [format!("my_secret={PLANTED}")]}},
                }}),
            ),
            (
                "a field of an unknown kind",
                json!({"kind": "New", "spec": {"client-secret": PLANTED}}),
            ),
        ] {
            let text = cleaned(value);
            assert!(!text.contains(PLANTED), "{name}: {text}");
        }
    }

    #[test]
    fn what_looks_like_a_secret_is_gone_from_texts() {
        for (dirty, clean) in [
            (
                "Authorization: Bearer abcdefgh12345678",
                "Authorization: Bearer <removed>",
            ),
            (
                "got eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2ln here",
                "got <removed token> here",
            ),
            ("https://me:pw@example.com/x", "https://<removed>@example.com/x"),
            (
                "core:$6$saltsalt$hashhashhash:19000",
                "core:<removed password hash>:19000",
            ),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nrest",
                "<removed private key>\nrest",
            ),
            (
                "{\"auth\":\"dXNlcjpwdw==\",\"email\":\"a\"}",
                "{\"auth\":\"<removed>\",\"email\":\"a\"}",
            ),
            ("--token=abc123 --port=1", "--token=<removed> --port=1"),
            ("join with abcdef.0123456789abcdef", "join with <removed token>"),
            (
                "nothing to hide: node worker-1 is drained",
                "nothing to hide: node worker-1 is drained",
            ),
        ] {
            assert_eq!(text(dirty), clean);
        }
    }

    #[test]
    fn what_helps_to_understand_stays() {
        let text = cleaned(
            json!({"kind": "MachineConfig", "metadata": {"name": "50-x"}, "spec": {
                "kernelArguments": ["audit=1 rd.vconsole.keymap=us", "root=UUID=1234"],
                "config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
                    {"path": "/etc/x", "mode": 420, "contents": {"source": "data:,hello"}}]}},
            }}),
        );
        for kept in [
            "50-x",
            "audit=1 rd.vconsole.keymap=us",
            "root=UUID=1234",
            "3.5.0",
            "/etc/x",
            "420",
            "<up to 64 bytes, hmac:",
        ] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
    }

    #[test]
    fn a_guess_cannot_be_verified_without_the_key_of_the_bundle() {
        let secret =
            || json!({"kind": "Secret", "data": {"a": "cGFzc3dvcmQ=", "b": "cGFzc3dvcmQ=", "c": "eA=="}});
        let redacted = |key: [u8; 32]| {
            let mut secret = secret();
            Redactor::new(key).object(&mut secret);
            secret
        };
        let (first, second) = (redacted([1; 32]), redacted([2; 32]));
        assert_eq!(first["data"]["a"], first["data"]["b"], "comparable in one bundle");
        assert_ne!(first["data"]["a"], second["data"]["a"], "not across bundles");
        let plain = hex::encode(&Sha256::digest(b"cGFzc3dvcmQ="));
        assert!(!first.to_string().contains(&plain[..32]), "{first}");
        let size = |value: &Value| value.as_str().unwrap().split(',').next().unwrap().to_owned();
        assert_eq!(
            size(&first["data"]["a"]),
            size(&first["data"]["c"]),
            "no exact size"
        );
    }

    proptest! {
        #[test]
        fn the_contents_of_a_file_never_survive(secret in "[a-zA-Z0-9]{12,40}") {
            let text = cleaned(json!({"kind": "MachineConfig", "spec": {"config": {"storage": {"files": [
                {"path": "/etc/x", "contents": {"source": format!("data:,{secret}")}}]}}}}));
            prop_assert!(!text.contains(&secret));
        }
    }
}
