//! The pull secret with which nodes pull OS images, also from the registry of the cluster: the global pull secret and
//! those of the service account for OS images.
//!
//! Nodes do not resolve the registry's service name, so its credentials also apply to the host of its default route.

use k8s_openapi::api::core::v1::Secret;
use serde_json::{Map, Value, json};

use crate::generators::os_builds::{CredentialsError, canonical_credentials};

/// The service account that may pull every OS image of the cluster.
pub const SERVICE_ACCOUNT: &str = "machine-os-puller";
/// The ClusterOperator whose absence means that the cluster has no registry.
pub const REGISTRY_OPERATOR: &str = "image-registry";

const SERVICE: &str = "image-registry.openshift-image-registry.svc:5000";
const ROUTE: &str = "default-route-openshift-image-registry.apps.";

/// A merged pull secret, and the Secrets that were left out because they are not valid.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MergedPullSecret {
    /// `None` if the service account has no credentials yet.
    pub json: Option<Vec<u8>>,
    pub left_out: Vec<CredentialsError>,
}

/// Merges the credentials. Those of the service account win, because the global ones for the same host may be of a user.
pub fn merged(global: Option<&Secret>, account: &[Secret], base_domain: Option<&str>) -> MergedPullSecret {
    let mut left_out = Vec::new();
    let mut auths = |secret: &Secret| match canonical_credentials(secret) {
        Ok(text) => auths_of(&text),
        Err(error) => {
            left_out.push(error);
            Map::new()
        }
    };
    let mut own = Map::new();
    for secret in account {
        own.extend(auths(secret));
    }
    if own.is_empty() {
        return MergedPullSecret { json: None, left_out };
    }
    if let Some(credential) = own.get(SERVICE).cloned()
        && let Some(domain) = base_domain.filter(|domain| !domain.is_empty())
    {
        own.entry(format!("{ROUTE}{domain}")).or_insert(credential);
    }
    let mut all = global.map(auths).unwrap_or_default();
    all.extend(own);
    MergedPullSecret {
        json: Some(json!({"auths": all}).to_string().into_bytes()),
        left_out,
    }
}

fn auths_of(text: &str) -> Map<String, Value> {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    value
        .get("auths")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(type_: &str, key: &str, text: &str) -> Secret {
        let mut secret: Secret =
            serde_json::from_value(json!({"metadata": {"name": "s", "namespace": "n"}, "type": type_}))
                .unwrap();
        let data = secret.data.get_or_insert_default();
        data.insert(key.to_owned(), k8s_openapi::ByteString(text.as_bytes().to_vec()));
        secret
    }

    fn global(text: &str) -> Secret {
        secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson", text)
    }

    fn legacy(text: &str) -> Secret {
        secret("kubernetes.io/dockercfg", ".dockercfg", text)
    }

    const OWN: &str = r#"{"image-registry.openshift-image-registry.svc:5000": {"username": "sa", "password": "t", "auth": "c2E6dA=="},
        "172.30.1.2:5000": {"auth": "c2E6dA=="}}"#;

    fn hosts(merged: &MergedPullSecret) -> Vec<String> {
        let value: Value = serde_json::from_slice(merged.json.as_ref().unwrap()).unwrap();
        let auths = value["auths"].as_object().unwrap();
        auths
            .iter()
            .map(|(host, entry)| format!("{host}={}", entry["auth"].as_str().unwrap()))
            .collect()
    }

    #[test]
    fn nodes_can_pull_from_the_registry_by_service_address_and_route() {
        let all =
            global(r#"{"auths": {"quay.io": {"auth": "cQ=="}, "172.30.1.2:5000": {"auth": "b3RoZXI="}}}"#);
        let merged = merged(Some(&all), &[legacy(OWN)], Some("example.com"));
        assert_eq!(merged.left_out, []);
        assert_eq!(
            hosts(&merged),
            [
                "172.30.1.2:5000=c2E6dA==",
                "default-route-openshift-image-registry.apps.example.com=c2E6dA==",
                "image-registry.openshift-image-registry.svc:5000=c2E6dA==",
                "quay.io=cQ==",
            ]
        );
    }

    #[test]
    fn without_credentials_of_the_account_there_is_nothing_to_merge() {
        let all = global(r#"{"auths": {"quay.io": {"auth": "cQ=="}}}"#);
        assert_eq!(
            merged(Some(&all), &[], Some("example.com")),
            MergedPullSecret::default()
        );
        assert_eq!(merged(Some(&all), &[legacy("{}")], None).json, None);
    }

    #[test]
    fn an_invalid_secret_is_reported_and_the_others_are_used() {
        let found = merged(Some(&global("secret!")), &[legacy("{"), legacy(OWN)], None);
        assert_eq!(hosts(&found).len(), 2, "no domain, no route");
        assert_eq!(found.left_out.len(), 2);
        assert!(
            !found
                .left_out
                .iter()
                .any(|error| error.to_string().contains("secret!"))
        );
    }
}
