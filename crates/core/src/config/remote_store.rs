//! Fetched contents as ConfigMaps, so that they are fetched once: a restarted controller and `mco plan` read them there.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::vocabulary::{annotations, labels, names};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::config::hex;
use crate::config::remote::ContentKey;

const DATA_KEY: &str = "contents";
/// Bytes of the hash in the name.
const NAME_BYTES: usize = 16;

/// Returns the name of the ConfigMap with the contents.
pub fn name(key: &ContentKey) -> String {
    let identity = format!("{}\n{}", key.hash, key.compression);
    let digest = Sha256::digest(identity);
    format!(
        "mco-contents-{}",
        hex::encode(digest.get(..NAME_BYTES).unwrap_or(&digest))
    )
}

/// Returns the ConfigMap with the contents, which nothing may edit.
pub fn stored(key: &ContentKey, contents: &[u8]) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name(key)),
            namespace: Some(names::NAMESPACE.to_owned()),
            labels: Some(BTreeMap::from([(
                labels::REMOTE_CONTENTS.to_owned(),
                String::new(),
            )])),
            annotations: Some(BTreeMap::from([
                (annotations::CONTENT_HASH.to_owned(), key.hash.clone()),
                (
                    annotations::CONTENT_COMPRESSION.to_owned(),
                    key.compression.clone(),
                ),
            ])),
            ..ObjectMeta::default()
        },
        binary_data: Some(BTreeMap::from([(
            DATA_KEY.to_owned(),
            ByteString(contents.to_vec()),
        )])),
        immutable: Some(true),
        ..ConfigMap::default()
    }
}

/// Whether a ConfigMap has fetched contents.
pub fn is_stored(object: &Value) -> bool {
    object
        .pointer("/metadata/labels")
        .is_some_and(|all| all.get(labels::REMOTE_CONTENTS).is_some())
}

/// Reads a ConfigMap; `None` if its contents do not have the hash that it names.
pub fn read(stored: &ConfigMap) -> Option<(ContentKey, Arc<Vec<u8>>)> {
    let annotation = |key: &str| stored.metadata.annotations.as_ref()?.get(key).cloned();
    let key = ContentKey {
        hash: annotation(annotations::CONTENT_HASH)?,
        compression: annotation(annotations::CONTENT_COMPRESSION).unwrap_or_default(),
    };
    let contents = &stored.binary_data.as_ref()?.get(DATA_KEY)?.0;
    key.verify(contents).ok()?;
    Some((key, Arc::new(contents.clone())))
}
