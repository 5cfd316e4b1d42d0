//! The full render of a directory of manifests: base templates, registries, container runtime and kubelet
//! configuration, and from all of them and the user's own MachineConfigs one rendered config per pool.
//!
//! # What is assumed when the manifests do not say it
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
//! - A directory with nothing but MachineConfigs and pools, and no templates given, is rendered from those alone: the
//!   base configuration is added only when something refers to it (a ControllerConfig, given templates, or an object
//!   that the base is changed by).
//!
//! Nothing here reads or writes files; the command line does.

mod defaults;
mod error;
mod generate;
mod objects;
mod pull_secret;

use mco_api::foreign::api_server::APIServer;
use mco_api::{ControllerConfig, MachineConfigPool};

use crate::feature_gates::FeatureGates;
use crate::generated::Origins;
use crate::manifest::Manifest;
use crate::offline::{Inventory, PoolError, PoolOutcome};
use crate::os_streams::{self, Streams};
use crate::pools;
use crate::render::{Identity, Rendered};
use crate::runtime_check;
use crate::templates::TemplateTree;

pub use defaults::controller_config as default_controller_config;
pub use error::BootstrapError;
pub use objects::is_rendered_from;
pub use pull_secret::{PullSecretError, pull_secret};

/// What a render is told beside the manifests.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    /// The base templates; none stands for our own, used when something refers to the base at all.
    pub templates: Option<&'a TemplateTree>,
    /// The registry credentials, as compact JSON.
    pub pull_secret: Option<&'a str>,
    /// The source revision of the generating controller.
    pub controller_version: &'a str,
    /// The release whose feature gates count; none takes the ControllerConfig's, or the only one there is.
    pub payload_version: Option<&'a str>,
}

/// A directory of manifests, completed with everything that is generated from it.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// All MachineConfigs: first the user's in the order of their files, then the generated ones in the order of
    /// their generation.
    pub inventory: Inventory,
    /// What the generated ones were made from.
    pub origins: Origins,
    /// The ControllerConfig in force; none if the base is no part of the result.
    pub controller_config: Option<ControllerConfig>,
    pub api_server: Option<APIServer>,
    pub warnings: Vec<String>,
    streams: Streams,
}

/// Reads manifests as a cluster and generates what its objects ask for. Everything that is wrong is reported.
pub fn assemble(manifests: Vec<Manifest>, settings: &Settings<'_>) -> Result<Cluster, Vec<BootstrapError>> {
    let (objects, mut inventory) = objects::gather(manifests)?;
    let mut cluster = Cluster {
        api_server: objects.api_server.clone(),
        ..Cluster::default()
    };
    let wants_base =
        settings.templates.is_some() || inventory.controller_config.is_some() || objects.refer_to_base();
    let mut gates = FeatureGates::default();
    if wants_base {
        let controller_config = inventory
            .controller_config
            .clone()
            .unwrap_or_else(defaults::controller_config);
        if inventory.pools.is_empty() {
            inventory.pools = crate::offline::built_in_pools().into();
        }
        inventory
            .pools
            .sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let generation = generate::generate(&objects, &inventory.pools, &controller_config, settings)?;
        for generated in generation.configs {
            cluster.origins.insert(
                generated.config.metadata.name.as_deref().unwrap_or_default(),
                generated.origin,
            );
            inventory.configs.push(generated.config);
        }
        cluster.warnings = generation.warnings;
        gates = generation.feature_gates;
        inventory.controller_config = Some(controller_config);
    }
    if os_streams::are_on(&gates) {
        let published = objects.published_streams(settings.controller_version);
        let published = published.map_err(|error| vec![error.into()])?;
        cluster.streams = Streams::of(published.as_ref(), &gates);
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

/// Reads the objects of a running cluster, in which everything has been generated already.
pub fn adopt(manifests: Vec<Manifest>) -> Result<Cluster, Vec<BootstrapError>> {
    let (objects, inventory) = objects::gather(manifests)?;
    let config = inventory.controller_config.clone().unwrap_or_default();
    let gates = FeatureGates::in_force(objects.feature_gate.as_ref(), &config, None).unwrap_or_default();
    Ok(Cluster {
        api_server: objects.api_server.clone(),
        controller_config: inventory.controller_config.clone(),
        streams: Streams::of(objects.os_image_stream.as_ref(), &gates),
        inventory,
        ..Cluster::default()
    })
}

impl Cluster {
    /// Renders every pool. One that cannot be rendered does not stop the others.
    pub fn render(&self, identity: Identity<'_>) -> Vec<PoolOutcome> {
        let images = |pool: &MachineConfigPool| {
            let stream = self.streams.of_pool(pool, self.worker())?;
            Ok(stream.map(|stream| stream.images))
        };
        let outcomes = self.inventory.render_with(identity, images);
        outcomes
            .into_iter()
            .map(|outcome| self.check_runtime(outcome))
            .collect()
    }

    fn worker(&self) -> Option<&MachineConfigPool> {
        let mut pools = self.inventory.pools.iter();
        pools.find(|pool| pool.metadata.name.as_deref() == Some(pools::WORKER))
    }

    fn check_runtime(&self, outcome: PoolOutcome) -> PoolOutcome {
        let PoolOutcome { pool, result } = outcome;
        let result = result.and_then(|rendered| {
            let stream = self.streams.of_pool(&pool, self.worker())?;
            let name = pool.metadata.name.as_deref().unwrap_or_default();
            runtime_check::check(name, &rendered.ignition, stream.map(|stream| stream.name))
                .map(|()| rendered)
                .map_err(|error| PoolError::Runtime(error.to_string()))
        });
        PoolOutcome { pool, result }
    }

    /// The pool as it stands after its config was rendered. With a base, its sources are all MachineConfigs there
    /// are, as other implementations list them; without one, those it is made of.
    pub fn with_target(&self, pool: &MachineConfigPool, rendered: &Rendered) -> MachineConfigPool {
        if self.controller_config.is_none() {
            return crate::offline::with_target(pool, rendered);
        }
        let all = self.inventory.configs.iter();
        let names = all.filter_map(|config| config.metadata.name.as_deref());
        crate::offline::with_target_from(pool, rendered.name(), names)
    }
}
