//! The full render of a directory of manifests: base templates, registries, container runtime and kubelet
//! configuration, and from all of them and the user's own MachineConfigs one rendered config per pool.
//!
//! # Defaults for what the manifests omit
//!
//! - Without a ControllerConfig: platform `None`, a highly available control plane, the cluster DNS service at
//!   `10.96.0.10`, the domain `cluster.local`, the API server at `https://api-int.cluster.local:6443`, no proxy, no
//!   additional certificates, no images.
//! - Without a FeatureGate: no feature gate is written into any kubelet configuration.
//! - Without a Node or APIServer of `config.openshift.io`: cgroups version 2, the base's kubelet timing, the
//!   Intermediate TLS profile.
//! - Without any pool: `master` and `worker`.
//! - With a release's list of images (an ImageStream): an OSImageStream that offers nothing yet offers the release's
//!   streams.
//! - A directory with only MachineConfigs and pools, without templates, is rendered from those alone: the base
//!   configuration is added only when something refers to it (a ControllerConfig, templates, or an object that
//!   modifies the base).
//!
//! Objects that an API server has accepted before (they have a `metadata.uid`) are a cluster's: they are rendered as
//! its controllers do, [`Stage::Cluster`]. Others are an installation's.
//!
//! No file access here; the command line reads and writes files.

mod assembled;
mod defaults;
mod error;
mod objects;
mod pre_built_images;
mod pull_secret;

use std::collections::BTreeMap;
use std::sync::Arc;

use mco_api::foreign::api_server::APIServer;
use mco_api::{ClusterBase, ControllerConfig, MachineConfig};

use crate::config::feature_gates::FeatureGates;
use crate::config::manifest::Manifest;
use crate::config::rendered_configs;
use crate::generators::generated::{Origins, generator_of};
use crate::generators::os_streams::{self, ReleaseStreams};
use crate::generators::templates::{TemplateConfig, TemplateTree};
use crate::pipeline::offline::Inventory;
use crate::pipeline::{
    self, BaseConfigs, BaseSettings, ClusterObjects, ClusterStage, GeneratedConfig, GenerationError,
    GenerationResult, GeneratorInputs,
};

pub use assembled::{Current, PoolOutcome};
pub use defaults::controller_config as default_controller_config;
pub use error::BootstrapError;
pub use objects::is_rendered_from;
pub use pull_secret::{PullSecretError, pull_secret};

/// The inputs of a render in addition to the manifests.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootstrapSettings<'a> {
    /// The base templates; `None` uses the built-in ones, if anything refers to the base.
    pub templates: Option<&'a TemplateTree>,
    /// The registry credentials, as compact JSON.
    pub pull_secret: Option<&'a str>,
    /// The source revision of the generating controller.
    pub controller_version: &'a str,
    /// The release whose feature gates apply; `None` uses the ControllerConfig's, or the only one.
    pub payload_version: Option<&'a str>,
    /// Whether the manifests are an installation's or those of a running cluster; with `None` the manifests decide.
    pub stage: Option<ClusterStage>,
    /// The base to render with; `None` uses the one that the ControllerConfig names.
    pub base: Option<ClusterBase>,
}

/// A directory of manifests with everything that is generated from it.
#[derive(Debug, Clone, Default)]
pub struct BootstrapCluster {
    /// All MachineConfigs: first the user's in file order, then the generated ones in generation order.
    pub inventory: Inventory,
    /// The origins of the generated ones.
    pub origins: Origins,
    /// The effective ControllerConfig; `None` if the base is not part of the result.
    pub controller_config: Option<ControllerConfig>,
    pub api_server: Option<APIServer>,
    pub warnings: Vec<String>,
    /// The reports about the objects that configs are generated from.
    pub generation: GenerationResult,
    streams: ReleaseStreams,
}

/// Parses manifests as a cluster and runs the generators. All errors are reported.
pub fn assemble(
    manifests: Vec<Manifest>,
    settings: &BootstrapSettings<'_>,
) -> Result<BootstrapCluster, Vec<BootstrapError>> {
    let stage = settings.stage.unwrap_or_else(|| stage_of(&manifests));
    let (mut objects, mut inventory) = objects::gather(manifests)?;
    let mut cluster = BootstrapCluster {
        api_server: objects.cluster.api_server.clone(),
        ..BootstrapCluster::default()
    };
    let wants_base = settings.templates.is_some()
        || settings.base.is_some()
        || inventory.controller_config.is_some()
        || objects.cluster.refer_to_base();
    let mut gates = FeatureGates::default();
    if wants_base {
        complete(&mut objects.cluster, &mut inventory, stage, settings.base);
        let existing = take_generated(&mut inventory.configs);
        let base = base(&objects.cluster, &existing, settings)?;
        let inputs = GeneratorInputs {
            objects: &objects.cluster,
            base: &base,
            version: settings.controller_version,
            stage,
        };
        let mut generation = pipeline::generate(&inputs, &existing);
        if stage == ClusterStage::Installation {
            check_installation(&mut generation, &objects.cluster)?;
        }
        cluster.add_generation(generation, &mut inventory);
        gates = base.feature_gates;
    }
    if os_streams::are_on(&gates) {
        let published = objects.published_streams(settings.controller_version);
        let published = published.map_err(|error| vec![error.into()])?;
        cluster.streams = ReleaseStreams::of(published.as_ref(), &gates);
    }
    if let (Some(config), Some(default)) =
        (&mut inventory.controller_config, cluster.streams.default_stream())
    {
        default
            .images
            .os
            .clone_into(&mut config.spec.base_os_container_image);
        let extensions = &mut config.spec.base_os_extensions_container_image;
        default.images.extensions.clone_into(extensions);
    }
    if wants_base {
        cluster.controller_config.clone_from(&inventory.controller_config);
    }
    cluster.inventory = inventory;
    Ok(cluster)
}

/// Parses the objects of a running cluster, in which all configs are already generated.
pub fn adopt(manifests: Vec<Manifest>) -> Result<BootstrapCluster, Vec<BootstrapError>> {
    let (objects, inventory) = objects::gather(manifests)?;
    Ok(adopted(&objects.cluster, inventory))
}

fn adopted(objects: &ClusterObjects, inventory: Inventory) -> BootstrapCluster {
    let config = inventory.controller_config.clone().unwrap_or_default();
    let gates = FeatureGates::in_force(objects.feature_gate.as_ref(), &config, None).unwrap_or_default();
    BootstrapCluster {
        api_server: objects.api_server.clone(),
        controller_config: inventory.controller_config.clone(),
        streams: ReleaseStreams::of(objects.os_image_stream.as_ref(), &gates),
        inventory,
        ..BootstrapCluster::default()
    }
}

/// Returns a running cluster after a change. MachineConfigs that the change does not affect are taken from the
/// cluster, so neither its registry credentials nor, in most cases, its templates are needed.
pub fn changed(
    before: Vec<Manifest>,
    after: Vec<Manifest>,
    settings: &BootstrapSettings<'_>,
) -> Result<BootstrapCluster, Vec<BootstrapError>> {
    let (mut old, mut old_inventory) = objects::gather(before)?;
    let (mut new, mut inventory) = objects::gather(after)?;
    if new.cluster.controller_config.is_none() {
        return Ok(adopted(&new.cluster, inventory));
    }
    if let (Some(base), Some(config)) = (settings.base, &mut inventory.controller_config) {
        config.set_base(base);
        new.cluster.controller_config = Some(Arc::new(config.clone()));
    }
    old.cluster.sort();
    new.cluster.sort();
    let existing = take_generated(&mut old_inventory.configs);
    take_generated(&mut inventory.configs);
    let old_base = base(&old.cluster, &existing, settings)?;
    let new_base = if BaseConfigs::depends_on_change(&old.cluster, &new.cluster) {
        changed_base(&old.cluster, &new.cluster, &old_base, settings)?
    } else {
        base(&new.cluster, &existing, settings)?
    };
    let generate = |objects: &ClusterObjects, base: &BaseConfigs| {
        let inputs = GeneratorInputs {
            objects,
            base,
            version: settings.controller_version,
            stage: ClusterStage::Cluster,
        };
        pipeline::generate(&inputs, &existing)
    };
    let unchanged = by_name(&generate(&old.cluster, &old_base));
    let mut generation = generate(&new.cluster, &new_base);
    for config in &mut generation.configs {
        let same = unchanged
            .get(config.name())
            .is_some_and(|old| old.spec == config.object.spec);
        if let Some(present) = existing.get(config.name()).filter(|_| same) {
            config.object = Arc::clone(present);
        }
    }
    let mut cluster = adopted(&new.cluster, Inventory::default());
    cluster.controller_config.clone_from(&inventory.controller_config);
    cluster.streams = ReleaseStreams::of(new.cluster.os_image_stream.as_ref(), &new_base.feature_gates);
    cluster.add_generation(generation, &mut inventory);
    cluster.inventory = inventory;
    Ok(cluster)
}

fn by_name(generation: &GenerationResult) -> BTreeMap<String, Arc<MachineConfig>> {
    let configs = generation.configs.iter();
    configs
        .map(|config| (config.name().to_owned(), Arc::clone(&config.object)))
        .collect()
}

/// Returns the base after a change of its inputs. Only templates that reproduce the cluster's current base can
/// predict the next one.
fn changed_base(
    old: &ClusterObjects,
    new: &ClusterObjects,
    present: &BaseConfigs,
    settings: &BootstrapSettings<'_>,
) -> Result<BaseConfigs, Vec<BootstrapError>> {
    let pull_secret = settings.pull_secret.unwrap_or(present.pull_secret());
    let has_templates = |objects: &ClusterObjects| {
        let config = objects.controller_config.as_deref();
        config.is_some_and(|config| config.base().is_ok_and(ClusterBase::has_templates))
    };
    // A base without templates is rendered without them, and predicts nothing about one with them.
    if has_templates(old) && has_templates(new) && !present.templates.is_empty() {
        let before = rendered_base(old, pull_secret, settings)?;
        if !before.has_same_files(present) {
            return Err(vec![BootstrapError::OtherTemplates]);
        }
    }
    rendered_base(new, pull_secret, settings)
}

/// Returns the base as the cluster has it, or renders it if it has none or templates are passed.
fn base(
    objects: &ClusterObjects,
    existing: &BTreeMap<String, Arc<MachineConfig>>,
    settings: &BootstrapSettings<'_>,
) -> Result<BaseConfigs, Vec<BootstrapError>> {
    let config = objects.controller_config.clone().unwrap_or_default();
    if settings.templates.is_none() {
        let configs = existing.values().map(Arc::as_ref);
        let base = BaseConfigs::of_cluster(objects, &config, configs, settings.payload_version)
            .map_err(|error| vec![error.into()])?;
        if !base.templates.is_empty() || !base.base.has_templates() {
            return Ok(base);
        }
    }
    rendered_base(objects, settings.pull_secret.unwrap_or_default(), settings)
}

fn rendered_base(
    objects: &ClusterObjects,
    pull_secret: &str,
    settings: &BootstrapSettings<'_>,
) -> Result<BaseConfigs, Vec<BootstrapError>> {
    let embedded = TemplateTree::embedded();
    let config = objects.controller_config.clone().unwrap_or_default();
    let settings = BaseSettings {
        templates: settings.templates.unwrap_or(&embedded),
        pull_secret,
        version: settings.controller_version,
        payload_version: settings.payload_version,
    };
    BaseConfigs::render(objects, &config, &settings).map_err(|error| vec![error.into()])
}

fn stage_of(manifests: &[Manifest]) -> ClusterStage {
    let is_stored = |manifest: &Manifest| {
        let uid = manifest.value.pointer("/metadata/uid");
        uid.and_then(|uid| uid.as_str())
            .is_some_and(|uid| !uid.is_empty())
    };
    if manifests.iter().any(is_stored) {
        ClusterStage::Cluster
    } else {
        ClusterStage::Installation
    }
}

/// Adds the pools and the ControllerConfig that every cluster has.
fn complete(
    objects: &mut ClusterObjects,
    inventory: &mut Inventory,
    stage: ClusterStage,
    base: Option<ClusterBase>,
) {
    let config = inventory
        .controller_config
        .get_or_insert_with(defaults::controller_config);
    if let Some(base) = base {
        config.set_base(base);
    }
    objects.controller_config = Some(Arc::new(config.clone()));
    let has_templates = config.base().is_ok_and(ClusterBase::has_templates);
    if inventory.pools.is_empty() && has_templates {
        inventory.pools = crate::pipeline::offline::built_in_pools().into();
    }
    inventory
        .pools
        .sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    objects.pools.clone_from(&inventory.pools);
    if stage == ClusterStage::Cluster {
        objects.sort();
    }
}

/// Splits off the configs that generators wrote before.
fn take_generated(configs: &mut Vec<MachineConfig>) -> BTreeMap<String, Arc<MachineConfig>> {
    configs.retain(|config| rendered_configs::pool_of(&config.metadata).is_none());
    let is_generated = |config: &MachineConfig| {
        generator_of(&config.metadata).is_some() || TemplateConfig::is_of_cluster(config)
    };
    let (generated, users): (Vec<_>, Vec<_>) = configs.drain(..).partition(is_generated);
    *configs = users;
    let named = generated.into_iter().map(|config| {
        let name = config.metadata.name.clone().unwrap_or_default();
        (name, Arc::new(config))
    });
    named.collect()
}

/// Rejects invalid objects at installation; only an object that selects no pool is merely a warning.
fn check_installation(
    generation: &mut GenerationResult,
    objects: &ClusterObjects,
) -> Result<(), Vec<BootstrapError>> {
    let mut errors = Vec::new();
    for failure in std::mem::take(&mut generation.failures) {
        if let GenerationError::NoPool(_) = failure.error {
            generation.warnings.push(format!(
                "{}: could not find any MachineConfigPool: its machineConfigPoolSelector matches the labels of none",
                failure.object
            ));
        } else {
            errors.push(failure.into());
        }
    }
    for image in pre_built_images::generate(&objects.os_configs, &objects.pools) {
        match image {
            Ok(generated) => generation.configs.push(generated.into()),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

impl BootstrapCluster {
    /// Adds the generated MachineConfigs after the users', replacing those of the same names.
    fn add_generation(&mut self, mut generation: GenerationResult, inventory: &mut Inventory) {
        let generated = std::mem::take(&mut generation.configs);
        let names: Vec<&str> = generated.iter().map(GeneratedConfig::name).collect();
        inventory.configs.retain(|config| {
            let name = config.metadata.name.as_deref().unwrap_or_default();
            !names.contains(&name)
        });
        for config in generated {
            if let Some(origin) = &config.origin {
                self.origins.insert(config.name(), origin.clone());
            }
            inventory.configs.push(Arc::unwrap_or_clone(config.object));
        }
        self.warnings = std::mem::take(&mut generation.warnings);
        let failures = generation.failures.iter().map(ToString::to_string);
        let skipped = generation.skipped.iter().map(|object| {
            format!(
                "{} {:?} is left out of the registry settings: {}",
                object.kind, object.name, object.error
            )
        });
        self.warnings.extend(failures.chain(skipped));
        self.generation = generation;
    }
}
