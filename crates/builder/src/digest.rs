//! Publishes the digest of a built image as a ConfigMap, which the builder reads.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use mco_runtime::is_already_exists;

use crate::context::FIELD_MANAGER;
use crate::error::Error;

/// The ConfigMap with the digest of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DigestConfigMap {
    pub namespace: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub digest: String,
}

impl DigestConfigMap {
    /// Reads a digest file, and labels in the form `key=value,key=value`.
    pub fn new(namespace: &str, name: &str, labels: &str, digest: &str) -> Result<Self, Error> {
        let digest = digest.trim();
        if digest.is_empty() {
            return Err(Error::Invalid(
                "the digest file is empty; was the image pushed?".to_owned(),
            ));
        }
        let parsed = labels.split(',').filter(|label| !label.is_empty()).map(|label| {
            let pair = label.split_once('=').filter(|(_, value)| !value.contains('='));
            let pair =
                pair.ok_or_else(|| Error::Invalid(format!("label {label:?} is not of the form key=value")));
            pair.map(|(key, value)| (key.to_owned(), value.to_owned()))
        });
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            labels: parsed.collect::<Result<_, _>>()?,
            digest: digest.to_owned(),
        })
    }
}

/// Creates the ConfigMap, or replaces the contents of an existing one.
pub async fn publish_digest(client: Client, digest: &DigestConfigMap) -> Result<(), Error> {
    let api: Api<ConfigMap> = Api::namespaced(client, &digest.namespace);
    let object = ConfigMap {
        metadata: ObjectMeta {
            name: Some(digest.name.clone()),
            labels: Some(digest.labels.clone()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("digest".to_owned(), digest.digest.clone())])),
        ..ConfigMap::default()
    };
    match api.create(&FIELD_MANAGER.post_params(), &object).await {
        Err(error) if is_already_exists(&error) => {
            let attempt = format!("replacing ConfigMap {}", digest.name);
            mco_runtime::patch::merge(&api, &digest.name, FIELD_MANAGER, &object)
                .await
                .map_err(Error::api(attempt))?;
            Ok(())
        }
        created => created
            .map(|_| ())
            .map_err(Error::api(format!("creating ConfigMap {}", digest.name))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_digests_are_validated() {
        let parsed = DigestConfigMap::new("ns", "digest-x", "a=,b=c", " sha256:1\n").unwrap();
        assert_eq!(parsed.digest, "sha256:1");
        assert_eq!(parsed.labels.get("a").map(String::as_str), Some(""));
        assert_eq!(parsed.labels.get("b").map(String::as_str), Some("c"));
        for (labels, digest) in [("a", "sha256:1"), ("a=b=c", "sha256:1"), ("a=b", " \n")] {
            assert!(
                DigestConfigMap::new("ns", "n", labels, digest).is_err(),
                "{labels} {digest}"
            );
        }
    }
}
