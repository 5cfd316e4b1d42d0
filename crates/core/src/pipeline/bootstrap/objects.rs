//! The objects of a directory, sorted by kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use mco_api::{MachineConfigPool, OSImageStream};

use super::error::BootstrapError;
use crate::config::manifest::{Manifest, ManifestError};
use crate::generators::os_streams::published::{
    self, PublishError, StreamDecision, StreamRelease, StreamSources,
};
use crate::generators::os_streams::release::ReleaseImages;
use crate::pipeline::ClusterObjects;
use crate::pipeline::offline::{self, Inventory, InventoryError};

/// The objects of a directory, and the release's list of images, if the directory has one.
#[derive(Debug, Clone, Default)]
pub(super) struct Objects {
    pub cluster: ClusterObjects,
    pub release: Option<ReleaseImages>,
}

impl Objects {
    /// Returns the OSImageStream with its streams. One without streams, as installers write it, gets those of the
    /// release.
    pub fn published_streams(&self, version: &str) -> Result<Option<OSImageStream>, PublishError> {
        let existing = self.cluster.os_image_stream.as_ref();
        let is_published = existing.is_some_and(|object| object.status.is_some());
        let Some(images) = self.release.as_ref().filter(|_| !is_published) else {
            return Ok(existing.cloned());
        };
        let release = StreamRelease {
            installed: Some(&images.version),
            ..StreamRelease::default()
        };
        let decision = published::decide(existing, &StreamSources::of_release(images), release, version)?;
        Ok(match decision {
            StreamDecision::Publish(object) => Some(*object),
            StreamDecision::Nothing | StreamDecision::Wait(_) => existing.cloned(),
        })
    }

    /// Adds the manifest if its kind belongs here.
    fn add(&mut self, manifest: &Manifest) -> Result<bool, ManifestError> {
        let (group, _) = manifest.api_version.split_once('/').unwrap_or_default();
        if group != "image.openshift.io" || manifest.kind != "ImageStream" {
            return self.cluster.add(manifest);
        }
        let release = ReleaseImages::read(&manifest.value).ok();
        let release = release.filter(ReleaseImages::is_release);
        let found = release.is_some();
        self.release = release.or(self.release.take());
        Ok(found)
    }
}

/// Whether configs are rendered from objects of this kind.
pub fn is_rendered_from(manifest: &Manifest) -> bool {
    let is_own = manifest
        .api_version
        .starts_with("machineconfiguration.openshift.io/");
    let has_part = matches!(
        manifest.kind.as_str(),
        "MachineConfig" | "MachineConfigPool" | "ControllerConfig"
    );
    // A manifest that cannot be decoded is reported by the render.
    (is_own && has_part) || Objects::default().add(manifest).unwrap_or(true)
}

/// Sorts manifests. All errors are reported, not only the first.
pub(super) fn gather(manifests: Vec<Manifest>) -> Result<(Objects, Inventory), Vec<BootstrapError>> {
    let mut objects = Objects::default();
    let mut errors = Vec::new();
    let mut rest = Vec::new();
    let mut seen = BTreeMap::new();
    for manifest in manifests {
        match objects.add(&manifest) {
            // Descriptions of the same release are equal, so duplicates are allowed.
            Ok(true) if manifest.kind == "ImageStream" => {}
            Ok(true) => {
                let namespace = manifest.value.pointer("/metadata/namespace").cloned();
                let key = (
                    manifest.kind.clone(),
                    namespace.map(|n| n.to_string()),
                    manifest.name.clone(),
                );
                if let Some(first) = seen.insert(key, manifest.origin.clone()) {
                    errors.push(InventoryError::Twice {
                        kind: manifest.kind,
                        name: manifest.name,
                        first,
                        second: manifest.origin,
                    });
                }
            }
            Ok(false) => rest.push(manifest),
            Err(error) => errors.push(error.into()),
        }
    }
    let inventory = Inventory::gather(without_repeated_pools(rest));
    match (inventory, errors.is_empty()) {
        (Ok(inventory), true) => {
            objects.cluster.pools.clone_from(&inventory.pools);
            objects.cluster.controller_config = inventory.controller_config.clone().map(Arc::new);
            Ok((objects, inventory))
        }
        (inventory, _) => {
            errors.extend(inventory.err().unwrap_or_default());
            Err(errors.into_iter().map(BootstrapError::from).collect())
        }
    }
}

/// Removes duplicate pools. An installation's directory has the built-in pools in addition to the user's: of two
/// pools with one name, an unmodified built-in one is dropped; otherwise the last one wins. The last ControllerConfig
/// wins as well.
fn without_repeated_pools(manifests: Vec<Manifest>) -> Vec<Manifest> {
    let mut chosen: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (index, manifest) in manifests.iter().enumerate() {
        let key = match manifest.kind.as_str() {
            "MachineConfigPool" => (manifest.kind.clone(), manifest.name.clone()),
            "ControllerConfig" => (manifest.kind.clone(), String::new()),
            _ => continue,
        };
        match chosen.get(&key) {
            Some(previous) if is_product_pool(manifest) && !is_product_pool(&manifests[*previous]) => {}
            _ => {
                chosen.insert(key, index);
            }
        }
    }
    let kept = |index: usize, manifest: &Manifest| {
        !matches!(manifest.kind.as_str(), "MachineConfigPool" | "ControllerConfig")
            || chosen.values().any(|chosen| *chosen == index)
    };
    let numbered = manifests.into_iter().enumerate();
    numbered
        .filter(|(index, manifest)| kept(*index, manifest))
        .map(|(_, manifest)| manifest)
        .collect()
}

fn is_product_pool(manifest: &Manifest) -> bool {
    let Ok(pool) = manifest.decode::<MachineConfigPool>() else {
        return false;
    };
    offline::built_in_pools()
        .iter()
        .any(|product| product.metadata.name == pool.metadata.name && product.spec == pool.spec)
}
