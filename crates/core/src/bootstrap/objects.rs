//! The objects of a directory, sorted by kind.

use std::collections::BTreeMap;

use mco_api::foreign::api_server::APIServer;
use mco_api::foreign::feature_gate::FeatureGate;
use mco_api::foreign::image::Image;
use mco_api::foreign::image_policy::{ClusterImagePolicy, ImagePolicy};
use mco_api::foreign::mirrors::{ImageContentSourcePolicy, ImageDigestMirrorSet, ImageTagMirrorSet};
use mco_api::foreign::node::Node;
use mco_api::vocabulary::names;
use mco_api::{ContainerRuntimeConfig, KubeletConfig, MachineConfigPool, MachineOSConfig, OSImageStream};

use super::error::BootstrapError;
use crate::manifest::{Manifest, ManifestError};
use crate::offline::{self, Inventory, InventoryError};
use crate::os_streams::published::{self, Decision, PublishError, Release, Sources};
use crate::os_streams::release::ReleaseImages;

/// Everything beside MachineConfigs, pools and the ControllerConfig that has a part in rendering.
#[derive(Debug, Clone, Default)]
pub(super) struct Objects {
    pub kubelet_configs: Vec<KubeletConfig>,
    pub runtime_configs: Vec<ContainerRuntimeConfig>,
    pub digest_mirrors: Vec<ImageDigestMirrorSet>,
    pub tag_mirrors: Vec<ImageTagMirrorSet>,
    pub content_policies: Vec<ImageContentSourcePolicy>,
    pub cluster_policies: Vec<ClusterImagePolicy>,
    pub policies: Vec<ImagePolicy>,
    pub os_configs: Vec<MachineOSConfig>,
    pub image: Option<Image>,
    pub feature_gate: Option<FeatureGate>,
    pub node: Option<Node>,
    pub api_server: Option<APIServer>,
    pub os_image_stream: Option<OSImageStream>,
    /// What the release consists of.
    pub release: Option<ReleaseImages>,
}

impl Objects {
    /// Whether any of them changes the base configuration, which must then be there.
    pub fn refer_to_base(&self) -> bool {
        !self.kubelet_configs.is_empty()
            || !self.runtime_configs.is_empty()
            || !self.digest_mirrors.is_empty()
            || !self.tag_mirrors.is_empty()
            || !self.content_policies.is_empty()
            || !self.cluster_policies.is_empty()
            || !self.policies.is_empty()
            || !self.os_configs.is_empty()
            || self.image.is_some()
            || self.feature_gate.is_some()
            || self.node.is_some()
            || self.api_server.is_some()
    }

    /// The OSImageStream with the streams it offers. One that offers none yet, as installers write it, gets those of the
    /// release.
    pub fn published_streams(&self, version: &str) -> Result<Option<OSImageStream>, PublishError> {
        let existing = self.os_image_stream.as_ref();
        let is_published = existing.is_some_and(|object| object.status.is_some());
        let Some(images) = self.release.as_ref().filter(|_| !is_published) else {
            return Ok(existing.cloned());
        };
        let release = Release {
            installed: Some(&images.version),
            ..Release::default()
        };
        let decision = published::decide(existing, &Sources::of_release(images), release, version)?;
        Ok(match decision {
            Decision::Publish(object) => Some(*object),
            Decision::Nothing | Decision::Wait(_) => existing.cloned(),
        })
    }

    /// Takes the manifest if its kind belongs here.
    fn add(&mut self, manifest: &Manifest) -> Result<bool, ManifestError> {
        let (group, _) = manifest.api_version.split_once('/').unwrap_or_default();
        let singleton = manifest.name == names::SINGLETON;
        match (group, manifest.kind.as_str()) {
            ("machineconfiguration.openshift.io", "KubeletConfig") => {
                self.kubelet_configs.push(manifest.decode()?);
            }
            ("machineconfiguration.openshift.io", "ContainerRuntimeConfig") => {
                self.runtime_configs.push(manifest.decode()?);
            }
            ("machineconfiguration.openshift.io", "MachineOSConfig") => {
                self.os_configs.push(manifest.decode()?);
            }
            ("machineconfiguration.openshift.io", "OSImageStream") => {
                self.os_image_stream = Some(manifest.decode()?);
            }
            ("image.openshift.io", "ImageStream") => match ReleaseImages::read(&manifest.value) {
                Ok(images) if images.is_release() => self.release = Some(images),
                _ => return Ok(false),
            },
            ("config.openshift.io", "ImageDigestMirrorSet") => self.digest_mirrors.push(manifest.decode()?),
            ("config.openshift.io", "ImageTagMirrorSet") => self.tag_mirrors.push(manifest.decode()?),
            ("config.openshift.io", "ClusterImagePolicy") => self.cluster_policies.push(manifest.decode()?),
            ("config.openshift.io", "ImagePolicy") => self.policies.push(manifest.decode()?),
            ("config.openshift.io", "Image") => self.image = Some(manifest.decode()?),
            ("config.openshift.io", "FeatureGate") if singleton => {
                self.feature_gate = Some(manifest.decode()?);
            }
            ("config.openshift.io", "Node") if singleton => self.node = Some(manifest.decode()?),
            ("config.openshift.io", "APIServer") if singleton => self.api_server = Some(manifest.decode()?),
            ("operator.openshift.io", "ImageContentSourcePolicy") => {
                self.content_policies.push(manifest.decode()?);
            }
            _ => return Ok(false),
        }
        Ok(true)
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
    // One that cannot be understood is told about by whoever renders.
    (is_own && has_part) || Objects::default().add(manifest).unwrap_or(true)
}

/// Sorts manifests. Everything that is wrong is reported, not just the first.
pub(super) fn gather(manifests: Vec<Manifest>) -> Result<(Objects, Inventory), Vec<BootstrapError>> {
    let mut objects = Objects::default();
    let mut errors = Vec::new();
    let mut rest = Vec::new();
    let mut seen = BTreeMap::new();
    for manifest in manifests {
        match objects.add(&manifest) {
            // A release is the same wherever it is described.
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
        (Ok(inventory), true) => Ok((objects, inventory)),
        (inventory, _) => {
            errors.extend(inventory.err().unwrap_or_default());
            Err(errors.into_iter().map(BootstrapError::from).collect())
        }
    }
}

/// An installation's directory has the product's own pools beside the user's. Of two pools with one name, a pool as
/// the product brings it yields; otherwise the last one counts. The last ControllerConfig counts as well.
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
