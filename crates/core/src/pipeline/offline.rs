//! A directory of manifests as an offline cluster: its MachineConfigs, pools and ControllerConfig.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use mco_api::machine_config_pool::MachineConfigPoolSpec;
use mco_api::vocabulary::{labels, names};
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool};
use serde::de::DeserializeOwned;
use serde_json::json;
use thiserror::Error;

use crate::config::manifest::{Manifest, ManifestError, ManifestOrigin};
use crate::config::node_files::SecretVersions;
use crate::config::pools;
use crate::config::remote::{ContentState, RemoteContents};
use crate::config::remote_store;
use crate::config::render::Rendered;

const GROUP: &str = "machineconfiguration.openshift.io/";

/// The objects of a directory that are relevant for rendering.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    pub configs: Vec<MachineConfig>,
    pub pools: Vec<MachineConfigPool>,
    pub controller_config: Option<ControllerConfig>,
    /// The remote contents that the MachineConfigs refer to, from the ConfigMaps that have them.
    pub contents: RemoteContents,
    /// Objects of kinds that are irrelevant for rendering.
    pub skipped: Vec<Skipped>,
    origins: BTreeMap<(String, String), ManifestOrigin>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    pub origin: ManifestOrigin,
    pub api_version: String,
    pub kind: String,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InventoryError {
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("{second}: {kind} {name:?} is already defined at {first}; keep one of them")]
    Twice {
        kind: String,
        name: String,
        first: ManifestOrigin,
        second: ManifestOrigin,
    },
}

impl Inventory {
    /// Sorts manifests by kind. All errors are reported, not only the first.
    pub fn gather(manifests: Vec<Manifest>) -> Result<Self, Vec<InventoryError>> {
        let mut inventory = Self::default();
        let mut errors = Vec::new();
        for manifest in manifests {
            if let Err(error) = inventory.add(manifest) {
                errors.push(error);
            }
        }
        if errors.is_empty() {
            Ok(inventory)
        } else {
            Err(errors)
        }
    }

    fn add(&mut self, manifest: Manifest) -> Result<(), InventoryError> {
        let ours = manifest.api_version.starts_with(GROUP);
        match manifest.kind.as_str() {
            "MachineConfig" if ours => self.configs.push(decode(&manifest)?),
            "MachineConfigPool" if ours => self.pools.push(decode(&manifest)?),
            "ControllerConfig" if ours => self.controller_config = Some(decode(&manifest)?),
            "ConfigMap" if remote_store::is_stored(&manifest.value) => {
                let stored: ConfigMap = decode(&manifest)?;
                if let Some((key, contents)) = remote_store::read(&stored) {
                    self.contents.set(key, ContentState::Available(contents));
                }
                return Ok(());
            }
            "ConfigMap" if manifest.name == names::config_map::SECRET_VERSIONS => {
                self.contents.secrets = SecretVersions::of_config_map(&decode(&manifest)?);
                return Ok(());
            }
            _ => {
                let Manifest {
                    origin,
                    api_version,
                    kind,
                    name,
                    ..
                } = manifest;
                self.skipped.push(Skipped {
                    origin,
                    api_version,
                    kind,
                    name,
                });
                return Ok(());
            }
        }
        let Manifest {
            origin, kind, name, ..
        } = manifest;
        match self.origins.insert((kind.clone(), name.clone()), origin.clone()) {
            Some(first) if !name.is_empty() => Err(InventoryError::Twice {
                kind,
                name,
                first,
                second: origin,
            }),
            _ => Ok(()),
        }
    }

    /// Returns where an object was defined.
    pub fn origin(&self, kind: &str, name: &str) -> Option<&ManifestOrigin> {
        self.origins.get(&(kind.to_owned(), name.to_owned()))
    }
}

/// Returns the pool with the rendered config as its target, in spec and status.
pub fn with_target(pool: &MachineConfigPool, rendered: &Rendered) -> MachineConfigPool {
    let sources = rendered.provenance.sources().iter().map(String::as_str);
    with_target_from(pool, rendered.name(), sources)
}

/// Like [`with_target`], with these sources.
pub(crate) fn with_target_from<'n>(
    pool: &MachineConfigPool,
    rendered: &str,
    sources: impl Iterator<Item = &'n str>,
) -> MachineConfigPool {
    let sources = sources.map(|name| {
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "name": name})
    });
    let configuration = json!({"name": rendered, "source": sources.collect::<Vec<_>>()});
    let mut pool = pool.clone();
    if let Ok(configuration) =
        serde_json::from_value::<mco_api::machine_config_pool::MachineConfigPoolConfiguration>(configuration)
    {
        pool.status.get_or_insert_default().configuration = configuration.clone();
        pool.spec.configuration = configuration;
    }
    pool
}

fn decode<T: DeserializeOwned>(manifest: &Manifest) -> Result<T, ManifestError> {
    manifest.decode()
}

/// Returns the pools of every cluster, for manifests without any.
pub fn built_in_pools() -> [MachineConfigPool; 2] {
    [pools::MASTER, pools::WORKER].map(built_in_pool)
}

/// Returns a built-in pool as the release defines it.
pub fn built_in_pool(name: &str) -> MachineConfigPool {
    let selector =
        |key: String, value: &str| serde_json::from_value(json!({"matchLabels": {key: value}})).ok();
    let spec = MachineConfigPoolSpec {
        machine_config_selector: selector(labels::ROLE.to_owned(), name),
        node_selector: selector(labels::node_role(name), ""),
        ..MachineConfigPoolSpec::default()
    };
    let mut pool = MachineConfigPool::new(name, spec);
    let mut own = BTreeMap::from([
        (labels::BUILT_IN.to_owned(), String::new()),
        (labels::pool(name), String::new()),
    ]);
    if name != pools::WORKER {
        own.insert(labels::REQUIRED_FOR_UPGRADE.to_owned(), String::new());
    }
    pool.metadata.labels = Some(own);
    pool
}
