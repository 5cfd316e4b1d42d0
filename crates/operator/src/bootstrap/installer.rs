//! Facts about the new cluster from an installer's manifests: the same that a running cluster provides.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use mco_api::foreign::image::Image;
use mco_api::foreign::infrastructure::Infrastructure;
use mco_api::foreign::proxy::Proxy;
use mco_api::vocabulary::names;
use mco_core::config::goyaml;
use mco_core::config::manifest::{Manifest, ManifestError};
use serde::de::DeserializeOwned;

use super::{BootstrapFilesError, BootstrapInputs};
use crate::facts::{Cloud, ObservedFacts, entries_of};

const CONFIG_GROUP: &str = "config.openshift.io/";
const CORE: &str = "v1";
const CA_BUNDLE: &str = "ca-bundle.crt";

/// Returns the last manifest of each object. An installer's directory may hold a default and its replacement.
pub(super) fn last_of_each(manifests: &[Manifest]) -> Vec<&Manifest> {
    let mut last = BTreeMap::new();
    for (index, manifest) in manifests.iter().enumerate() {
        let group = manifest.api_version.split('/').next().unwrap_or_default();
        let namespace = manifest.value.pointer("/metadata/namespace");
        let namespace = namespace.and_then(serde_json::Value::as_str).unwrap_or_default();
        last.insert((group, &manifest.kind, namespace, &manifest.name), index);
    }
    let mut kept: Vec<usize> = last.into_values().collect();
    kept.sort_unstable();
    kept.into_iter().map(|index| &manifests[index]).collect()
}

/// Returns all inputs of the ControllerConfig except images.
pub(super) fn facts(
    manifests: &[&Manifest],
    inputs: &BootstrapInputs,
) -> Result<ObservedFacts, BootstrapFilesError> {
    let infrastructure: Option<Infrastructure> = singleton(manifests, "Infrastructure", names::SINGLETON)?;
    let proxy: Option<Proxy> = singleton(manifests, "Proxy", names::SINGLETON)?;
    let image: Option<Image> = singleton(manifests, "Image", names::SINGLETON)?;
    let trusted = proxy.as_ref().and_then(|proxy| proxy.spec.trusted_ca.as_ref());
    let trust_bundle = match trusted.filter(|reference| !reference.name.is_empty()) {
        Some(reference) => {
            named(manifests, &reference.name, "spec.trustedCA of the Proxy")?.remove(CA_BUNDLE)
        }
        None => None,
    };
    let cloud = infrastructure
        .as_ref()
        .and_then(|infra| infra.spec.cloud_config.as_ref());
    let cloud_config = match cloud.filter(|reference| !reference.name.is_empty()) {
        Some(reference) => {
            let by = "spec.cloudConfig of the Infrastructure";
            named(manifests, &reference.name, by)?.remove(&reference.key)
        }
        None => None,
    };
    let registries = image
        .as_ref()
        .and_then(|image| image.spec.additional_trusted_ca.as_ref());
    let user_registry_authorities = match registries.filter(|reference| !reference.name.is_empty()) {
        Some(reference) => named(
            manifests,
            &reference.name,
            "spec.additionalTrustedCA of the Image",
        )?,
        None => BTreeMap::new(),
    };
    Ok(ObservedFacts {
        api_server: singleton(manifests, "APIServer", names::SINGLETON)?,
        network: singleton(manifests, "Network", names::SINGLETON)?,
        dns: singleton(manifests, "DNS", names::SINGLETON)?,
        feature_gate: singleton(manifests, "FeatureGate", names::SINGLETON)?,
        client_authorities: inputs.kube_ca.clone(),
        installer_authority: inputs.root_ca.clone(),
        trust_bundle: trust_bundle.unwrap_or_default(),
        cloud: Cloud {
            config: String::from_utf8_lossy(&cloud_config.unwrap_or_default()).into_owned(),
            authorities: inputs.cloud_provider_ca.clone(),
        },
        user_registry_authorities,
        infrastructure,
        proxy,
        ..ObservedFacts::default()
    })
}

/// Returns the Secret with the registry credentials: from its option, or from the manifests.
pub(super) fn pull_secret(
    manifests: &[&Manifest],
    inputs: &BootstrapInputs,
) -> Result<Option<Vec<u8>>, BootstrapFilesError> {
    if let Some(given) = &inputs.pull_secret {
        return Ok(Some(given.clone()));
    }
    let found = manifests.iter().find(|manifest| {
        is(manifest, CORE, "Secret", names::secret::PULL_SECRET) && namespace_is_config(manifest)
    });
    let Some(found) = found else {
        return Ok(None);
    };
    // Validated here, so that an error is reported before it reaches the bootstrap machine.
    found.decode::<Secret>()?;
    Ok(Some(goyaml::to_string(&found.value).into_bytes()))
}

fn singleton<T: DeserializeOwned>(
    manifests: &[&Manifest],
    kind: &str,
    name: &str,
) -> Result<Option<T>, ManifestError> {
    let mut found = manifests
        .iter()
        .filter(|manifest| is(manifest, CONFIG_GROUP, kind, name));
    found.next().map(|manifest| manifest.decode()).transpose()
}

/// Returns the entries of a ConfigMap of the cluster's configuration.
fn named(
    manifests: &[&Manifest],
    name: &str,
    by: &'static str,
) -> Result<BTreeMap<String, Vec<u8>>, BootstrapFilesError> {
    let found = manifests
        .iter()
        .find(|manifest| is(manifest, CORE, "ConfigMap", name) && namespace_is_config(manifest));
    let found = found.ok_or_else(|| BootstrapFilesError::Missing {
        namespace: names::CONFIG_NAMESPACE,
        name: name.to_owned(),
        by,
    })?;
    Ok(entries_of(found.decode()?))
}

fn is(manifest: &Manifest, group: &str, kind: &str, name: &str) -> bool {
    manifest.api_version.starts_with(group) && manifest.kind == kind && manifest.name == name
}

fn namespace_is_config(manifest: &Manifest) -> bool {
    let namespace = manifest.value.pointer("/metadata/namespace");
    namespace.and_then(serde_json::Value::as_str) == Some(names::CONFIG_NAMESPACE)
}
