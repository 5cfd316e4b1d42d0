//! Secrets by reference: which key of which Secret a file has, and in which version.
//!
//! The version is a keyed hash of the value. It changes with the value, so that a rotation is a new rendered config, and
//! without the key, which only the operator has, it reveals nothing about a value that could be guessed.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::vocabulary::labels::SECRET_FILES;
use mco_api::vocabulary::names::{self, NAMESPACE};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::config::hex;

/// The key of the ConfigMap with all versions.
const VERSIONS_KEY: &str = "versions.json";
/// 128 bits: no two values of a key have the same version.
const VERSION_BYTES: usize = 16;
const BLOCK: usize = 64;
const LONGEST_NAME: usize = 253;

/// One key of a Secret in the namespace of the operator.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretReference {
    pub name: String,
    pub key: String,
}

impl fmt::Display for SecretReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAMESPACE}/{}/{}", self.name, self.key)
    }
}

impl FromStr for SecretReference {
    type Err = String;

    /// Parses `NAME/KEY`, also after the namespace of the operator.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let (name, key) = match parts.as_slice() {
            [name, key] => (*name, *key),
            [namespace, name, key] if *namespace == NAMESPACE => (*name, *key),
            [namespace, _, _] => {
                return Err(format!(
                    "{text:?} names namespace {namespace:?}; only Secrets in namespace {NAMESPACE} are written to nodes"
                ));
            }
            _ => return Err(format!("{text:?} is not of the form NAME/KEY")),
        };
        let is_name = |character: char| {
            character.is_ascii_lowercase() || character.is_ascii_digit() || "-.".contains(character)
        };
        let is_key = |character: char| character.is_ascii_alphanumeric() || "-._".contains(character);
        let is_dotted = name.starts_with(['.', '-']) || name.ends_with(['.', '-']);
        if name.is_empty() || name.len() > LONGEST_NAME || is_dotted || !name.chars().all(is_name) {
            return Err(format!("{name:?} is not the name of a Secret"));
        }
        if key.is_empty() || key.len() > LONGEST_NAME || key.starts_with("..") || !key.chars().all(is_key) {
            return Err(format!("{key:?} is not the key of a Secret"));
        }
        Ok(Self {
            name: name.to_owned(),
            key: key.to_owned(),
        })
    }
}

impl Serialize for SecretReference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SecretReference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Where the values of the Secrets of a config are served: this path and the name of the config.
pub const ANSWER_PATH: &str = "/secret-files/";

/// The values of the Secrets of a config, for one of its nodes.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct SecretAnswer {
    pub files: Vec<SecretValue>,
}

/// The value of a file.
#[derive(Clone, Serialize, Deserialize)]
pub struct SecretValue {
    pub path: String,
    pub version: String,
    /// In base64.
    pub value: String,
}

impl fmt::Debug for SecretAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values", self.files.len())
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value for {}", self.path)
    }
}

/// Returns whether the owner of a Secret allows its values on nodes. Otherwise a writer of MachineConfigs could read every
/// Secret of the namespace.
pub fn is_opted_in(secret: &Secret) -> bool {
    let labels = secret.metadata.labels.as_ref();
    labels.is_some_and(|all| all.get(SECRET_FILES).is_some_and(|value| value == "true"))
}

/// Returns the value of a key, or why it may not be written to nodes.
pub fn value_of<'s>(secret: &'s Secret, key: &str) -> Result<&'s [u8], String> {
    if !is_opted_in(secret) {
        return Err(format!("nodes may have it only with label {SECRET_FILES}=true"));
    }
    let value = secret.data.as_ref().and_then(|data| data.get(key));
    let value = value.ok_or_else(|| format!("it has no key {key}"))?;
    Ok(&value.0)
}

/// Returns the version of a value: the HMAC-SHA256 of the reference and the value under a key that only the operator has.
pub fn version(key: &[u8], reference: &SecretReference, value: &[u8]) -> String {
    let name = reference.to_string();
    let length = u64::try_from(name.len()).unwrap_or_default().to_be_bytes();
    let hash = keyed_hash(key, &[&length, name.as_bytes(), value]);
    hex::encode(hash.get(..VERSION_BYTES).unwrap_or(&hash))
}

/// HMAC-SHA256 (RFC 2104) of concatenated parts.
pub fn keyed_hash(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut block = [0_u8; BLOCK];
    if key.len() > BLOCK {
        let hashed = Sha256::digest(key);
        block.iter_mut().zip(hashed).for_each(|(byte, key)| *byte = key);
    } else {
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte = *key);
    }
    let mut inner = Sha256::new();
    inner.update(block.map(|byte| byte ^ 0x36));
    for part in parts {
        inner.update(part);
    }
    let mut outer = Sha256::new();
    outer.update(block.map(|byte| byte ^ 0x5c));
    outer.update(inner.finalize());
    outer.finalize().into()
}

/// The versions of all values that nodes may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretVersions {
    versions: BTreeMap<SecretReference, String>,
    /// Whether the operator has published them.
    published: bool,
}

impl SecretVersions {
    /// Computes the versions of the values of Secrets. Those that are not opted in have none.
    pub fn of_secrets<'s>(key: &[u8], secrets: impl IntoIterator<Item = &'s Secret>) -> Self {
        let mut versions = BTreeMap::new();
        for secret in secrets.into_iter().filter(|secret| is_opted_in(secret)) {
            let name = secret.metadata.name.clone().unwrap_or_default();
            for (data_key, value) in secret.data.iter().flatten() {
                let reference = SecretReference {
                    name: name.clone(),
                    key: data_key.clone(),
                };
                let version = version(key, &reference, &value.0);
                versions.insert(reference, version);
            }
        }
        Self {
            versions,
            published: true,
        }
    }

    /// Reads what the operator has published.
    pub fn of_config_map(published: &ConfigMap) -> Self {
        let text = published.data.as_ref().and_then(|data| data.get(VERSIONS_KEY));
        let versions: BTreeMap<String, String> = text
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let versions = versions
            .into_iter()
            .filter_map(|(name, version)| Some((name.parse().ok()?, version)));
        Self {
            versions: versions.collect(),
            published: true,
        }
    }

    /// Returns the ConfigMap with which the operator publishes them.
    pub fn to_config_map(&self) -> ConfigMap {
        let versions: BTreeMap<String, &String> = self
            .versions
            .iter()
            .map(|(reference, version)| (reference.to_string(), version))
            .collect();
        let text = serde_json::to_string(&versions).unwrap_or_default();
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(names::config_map::SECRET_VERSIONS.to_owned()),
                namespace: Some(NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(VERSIONS_KEY.to_owned(), text)])),
            ..ConfigMap::default()
        }
    }

    /// Returns the version of a value, or why there is none.
    pub fn get(&self, reference: &SecretReference) -> Result<&str, String> {
        let found = self.versions.get(reference);
        found.map(String::as_str).ok_or_else(|| {
            let SecretReference { name, key } = reference;
            if !self.published {
                return format!(
                    "the version of Secret {name} is not known: there is no ConfigMap {NAMESPACE}/{}, which the operator \
                     writes for Secrets with label {SECRET_FILES}=true in namespace {NAMESPACE}",
                    names::config_map::SECRET_VERSIONS
                );
            }
            let has_name = self.versions.keys().any(|known| known.name == *name);
            if has_name {
                format!("Secret {name} in namespace {NAMESPACE} has no key {key}")
            } else {
                format!(
                    "there is no Secret {name} with label {SECRET_FILES}=true in namespace {NAMESPACE}; create it there, \
                     or allow its use with: kubectl -n {NAMESPACE} label secret {name} {SECRET_FILES}=true"
                )
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    #[test]
    fn keyed_hashes_are_those_of_rfc_4231() {
        let key = [0x0b; 20];
        assert_eq!(
            hex::encode(&keyed_hash(&key, &[b"Hi ", b"There"])),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            hex::encode(&keyed_hash(
                &[0xaa; 131],
                &[b"Test Using Larger Than Block-Size Key - Hash Key First"]
            )),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    fn secret(name: &str, labels: &serde_json::Value, value: &[u8]) -> Secret {
        let mut secret: Secret =
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap();
        secret.data = Some([("token".to_owned(), ByteString(value.to_vec()))].into());
        secret
    }

    #[test]
    fn a_writer_of_machine_configs_could_read_every_secret_of_the_namespace() {
        let allowed = json!({"mco.dev/secret-files": "true"});
        let all = [
            secret("a", &allowed, b"1"),
            secret("b", &json!({}), b"1"),
            secret("c", &json!({"mco.dev/secret-files": "false"}), b"1"),
        ];
        let versions = SecretVersions::of_secrets(b"key", &all);
        let get = |text: &str| versions.get(&text.parse().unwrap()).map(str::to_owned);
        assert_eq!(get("a/token").unwrap().len(), 32);
        for other in ["b/token", "c/token", "d/token"] {
            let why = get(other).unwrap_err();
            assert!(why.contains("label mco.dev/secret-files=true"), "{why}");
        }
        assert!(get("a/other").unwrap_err().ends_with("has no key other"));
        assert_eq!(value_of(&all[0], "token"), Ok(b"1".as_slice()));
        assert!(value_of(&all[1], "token").is_err() && value_of(&all[2], "token").is_err());
        assert_eq!(SecretVersions::of_config_map(&versions.to_config_map()), versions);
    }

    #[test]
    fn references_outside_of_the_namespace_are_refused() {
        let parse = |text: &str| text.parse::<SecretReference>();
        assert_eq!(
            parse("a/b").unwrap(),
            parse("openshift-machine-config-operator/a/b").unwrap()
        );
        for (text, expected) in [
            (
                "kube-system/a/b",
                "only Secrets in namespace openshift-machine-config-operator",
            ),
            ("a", "not of the form NAME/KEY"),
            ("../a", "is not the name of a Secret"),
            ("a/", "is not the key of a Secret"),
            ("a/b c", "is not the key of a Secret"),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(expected), "{text}: {why}");
        }
    }

    #[test]
    fn equal_values_of_two_secrets_have_different_versions() {
        let reference = |text: &str| text.parse().unwrap();
        let one = version(b"k", &reference("a/token"), b"same");
        assert_ne!(one, version(b"k", &reference("b/token"), b"same"));
        assert_ne!(one, version(b"l", &reference("a/token"), b"same"));
        assert_ne!(one, version(b"k", &reference("a/token"), b"other"));
        assert_eq!(one, version(b"k", &reference("a/token"), b"same"));
    }
}
