//! A directory of manifests as a cluster: what is in it, and what its pools would run.

use std::collections::BTreeMap;

use mco_api::machine_config_pool::MachineConfigPoolSpec;
use mco_api::vocabulary::{annotations, labels};
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool};
use serde::de::DeserializeOwned;
use serde_json::json;
use thiserror::Error;

use crate::manifest::{Manifest, ManifestError, Origin};
use crate::merge::DefaultImages;
use crate::pools::{self, SelectError};
use crate::problem::InvalidObject;
use crate::render::{self, Identity, RenderError, Rendered};
use crate::validate::{self, CheckedConfig};

const GROUP: &str = "machineconfiguration.openshift.io/";

/// The objects of a directory that rendering looks at.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    pub configs: Vec<MachineConfig>,
    pub pools: Vec<MachineConfigPool>,
    pub controller_config: Option<ControllerConfig>,
    /// Objects of kinds that have no part in rendering.
    pub skipped: Vec<Skipped>,
    origins: BTreeMap<(String, String), Origin>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    pub origin: Origin,
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
        first: Origin,
        second: Origin,
    },
}

/// What became of one pool.
#[derive(Debug)]
pub struct PoolOutcome {
    pub pool: MachineConfigPool,
    pub result: Result<Rendered, PoolError>,
}

impl PoolOutcome {
    pub fn name(&self) -> &str {
        self.pool.metadata.name.as_deref().unwrap_or_default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PoolError {
    #[error(transparent)]
    Select(#[from] SelectError),
    #[error("{}", join(.0))]
    Inputs(Vec<InvalidObject>),
    #[error(transparent)]
    Render(#[from] RenderError),
}

fn join(invalid: &[InvalidObject]) -> String {
    invalid
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

impl Inventory {
    /// Sorts manifests by kind. Everything that is wrong is reported, not just the first.
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

    /// Where an object was defined.
    pub fn origin(&self, kind: &str, name: &str) -> Option<&Origin> {
        self.origins.get(&(kind.to_owned(), name.to_owned()))
    }

    /// Renders every pool. One that cannot be rendered does not stop the others.
    pub fn render(&self, identity: Identity<'_>) -> Vec<PoolOutcome> {
        let checked: Vec<_> = self.configs.iter().map(validate::check).collect();
        let release = self.release_version();
        let identity = Identity {
            release_version: release.unwrap_or(identity.release_version),
            ..identity
        };
        let mut pools = self.pools.clone();
        if pools.is_empty() {
            pools = built_in_pools()
                .into_iter()
                .filter(|pool| self.has_configs_for(pool))
                .collect();
        }
        pools.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        pools
            .into_iter()
            .map(|pool| {
                let result = self.render_pool(&pool, &checked, identity);
                PoolOutcome { pool, result }
            })
            .collect()
    }

    fn has_configs_for(&self, pool: &MachineConfigPool) -> bool {
        let selector = pools::config_selector(pool);
        selector.is_ok_and(|selector| {
            self.configs
                .iter()
                .any(|config| selector.matches(config.metadata.labels.as_ref()))
        })
    }

    fn render_pool(
        &self,
        pool: &MachineConfigPool,
        checked: &[Result<CheckedConfig<'_>, InvalidObject>],
        identity: Identity<'_>,
    ) -> Result<Rendered, PoolError> {
        let selector = pools::config_selector(pool)?;
        let mut usable = Vec::new();
        let mut invalid = Vec::new();
        for (config, result) in self.configs.iter().zip(checked) {
            match result {
                _ if !selector.matches(config.metadata.labels.as_ref()) => {}
                Ok(checked) => usable.push(checked),
                Err(error) => invalid.push(error.clone()),
            }
        }
        if usable.is_empty() && invalid.is_empty() {
            let pool = pool.metadata.name.clone().unwrap_or_default();
            return Err(SelectError::SelectsNothing { pool }.into());
        }
        if !invalid.is_empty() {
            return Err(PoolError::Inputs(invalid));
        }
        Ok(render::render(pool, &usable, self.default_images(), identity)?)
    }

    fn default_images(&self) -> DefaultImages<'_> {
        self.controller_config
            .as_ref()
            .map_or_else(DefaultImages::default, |config| DefaultImages {
                os: &config.spec.base_os_container_image,
                extensions: &config.spec.base_os_extensions_container_image,
            })
    }

    fn release_version(&self) -> Option<&str> {
        let all = self.controller_config.as_ref()?.metadata.annotations.as_ref()?;
        all.get(annotations::RELEASE_IMAGE_VERSION).map(String::as_str)
    }
}

/// The pool as it stands after its config was rendered: it targets and reports that config.
pub fn with_target(pool: &MachineConfigPool, rendered: &Rendered) -> MachineConfigPool {
    let sources = rendered.provenance.sources().iter().map(|name| {
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "name": name})
    });
    let configuration = json!({"name": rendered.name(), "source": sources.collect::<Vec<_>>()});
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

/// The pools every cluster has, for manifests that bring none.
fn built_in_pools() -> [MachineConfigPool; 2] {
    [pools::MASTER, pools::WORKER].map(|name| {
        let selector =
            |key: String, value: &str| serde_json::from_value(json!({"matchLabels": {key: value}})).ok();
        let spec = MachineConfigPoolSpec {
            machine_config_selector: selector(labels::ROLE.to_owned(), name),
            node_selector: selector(labels::node_role(name), ""),
            ..MachineConfigPoolSpec::default()
        };
        MachineConfigPool::new(name, spec)
    })
}
