//! Runs the generators. Each returns all MachineConfigs that it owns, and reports about the objects they are
//! generated from.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::MachineConfig;
use thiserror::Error;

use super::{
    BaseConfigs, ClusterObjects, ExistingConfigs, credential_provider, kubelet, registries, user_configs,
};
use crate::config::selector::SelectorError;
use crate::generators::base_refusal::BaseRefusal;
use crate::generators::container_runtime::ContainerRuntimeError;
use crate::generators::credential_provider::{CredentialProviderError, CredentialProviderOutcome};
use crate::generators::generated::assign::Assigned;
use crate::generators::generated::condition::GenerationOutcome;
use crate::generators::generated::suffix::SuffixError;
use crate::generators::generated::{ConfigOrigin, Generated, Generator};
use crate::generators::kubelet::KubeletError;
use crate::generators::registries::{PolicyConflict, RegistryError};

/// Whether the cluster is running or being installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClusterStage {
    /// Names are recorded on the objects; an invalid object is reported in its status, and its pools keep their
    /// configs.
    #[default]
    Cluster,
    /// The first render, before any controller runs: at most one KubeletConfig and one ContainerRuntimeConfig per
    /// pool, and every object must be valid.
    Installation,
}

/// The inputs of the generators.
#[derive(Debug, Clone, Copy)]
pub struct GeneratorInputs<'a> {
    pub objects: &'a ClusterObjects,
    pub base: &'a BaseConfigs,
    /// The source revision of the generating controller.
    pub version: &'a str,
    pub stage: ClusterStage,
}

/// A MachineConfig that a generator owns.
#[derive(Debug, Clone)]
pub struct GeneratedConfig {
    pub object: Arc<MachineConfig>,
    /// Its origin; `None` if generating it failed and it is kept unchanged.
    pub origin: Option<ConfigOrigin>,
}

impl GeneratedConfig {
    pub fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }
}

impl From<Generated> for GeneratedConfig {
    fn from(generated: Generated) -> Self {
        Self {
            object: Arc::new(generated.config),
            origin: Some(generated.origin),
        }
    }
}

/// The report for a KubeletConfig or ContainerRuntimeConfig: the names to record on it, and its condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectReport {
    pub kind: &'static str,
    pub name: String,
    pub assigned: Assigned,
    pub outcome: GenerationOutcome,
}

/// An object of the registry settings that is invalid on its own and is therefore skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedObject {
    pub kind: &'static str,
    pub namespace: Option<String>,
    pub name: String,
    pub error: RegistryError,
}

/// Why generating failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GenerationError {
    #[error(transparent)]
    Base(#[from] BaseRefusal),
    #[error(transparent)]
    Kubelet(#[from] KubeletError),
    #[error(transparent)]
    ContainerRuntime(#[from] ContainerRuntimeError),
    #[error(transparent)]
    Registries(#[from] RegistryError),
    #[error(transparent)]
    CredentialProvider(#[from] CredentialProviderError),
    #[error("invalid label selector: {0}")]
    Selector(SelectorError),
    #[error("{0}")]
    NoPool(String),
    #[error("could not get {key} key: {source}")]
    Name { key: &'static str, source: SuffixError },
    #[error(
        "error found multiple {several} targeting MachineConfigPool {pool}. Please apply only one {kind} manifest for each \
         pool during installation (here: {first:?} and {second:?})"
    )]
    Multiple {
        several: &'static str,
        kind: &'static str,
        pool: String,
        first: String,
        second: String,
    },
}

/// An object, or the settings of a cluster, from which generating failed. The existing configs stay in force.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct GenerationFailure {
    /// Such as `KubeletConfig "large-pods"`.
    pub object: String,
    pub error: GenerationError,
}

impl fmt::Display for GenerationFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            // These errors already name their objects.
            GenerationError::Multiple { .. } | GenerationError::Registries(_) => self.error.fmt(formatter),
            error => write!(formatter, "{}: {error}", self.object),
        }
    }
}

/// The result of the generators.
#[derive(Debug, Clone, Default)]
pub struct GenerationResult {
    /// All MachineConfigs of the generators, in generation order. Others that they own must be deleted.
    pub configs: Vec<GeneratedConfig>,
    pub reports: Vec<ObjectReport>,
    /// KubeletConfigs and ContainerRuntimeConfigs that are being deleted, by kind and name.
    pub deleted: Vec<(&'static str, String)>,
    pub failures: Vec<GenerationFailure>,
    pub skipped: Vec<SkippedObject>,
    /// Namespaced image policies whose scope a cluster-wide one covers.
    pub conflicts: Vec<PolicyConflict>,
    pub credential_provider: Option<CredentialProviderOutcome>,
    /// Why the requested latency profile of the cluster's node settings is not in force.
    pub prohibited_profile: Option<String>,
    pub warnings: Vec<String>,
}

impl GenerationResult {
    pub(super) fn push(&mut self, generated: Generated) {
        self.configs.push(generated.into());
    }

    /// Keeps a config as it was generated last.
    pub(super) fn keep(&mut self, existing: Option<Arc<MachineConfig>>) {
        let kept = existing.map(|object| GeneratedConfig { object, origin: None });
        self.configs.extend(kept);
    }

    pub(super) fn fail(&mut self, object: &str, error: impl Into<GenerationError>) {
        let failure = GenerationFailure {
            object: object.to_owned(),
            error: error.into(),
        };
        if !self.failures.contains(&failure) {
            self.failures.push(failure);
        }
    }

    pub(super) fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn append(&mut self, other: Self) {
        self.configs.extend(other.configs);
        self.reports.extend(other.reports);
        self.deleted.extend(other.deleted);
        self.failures.extend(other.failures);
        self.skipped.extend(other.skipped);
        self.conflicts.extend(other.conflicts);
        self.credential_provider = self.credential_provider.take().or(other.credential_provider);
        self.prohibited_profile = self.prohibited_profile.take().or(other.prohibited_profile);
        for warning in other.warnings {
            self.warn(warning);
        }
    }
}

/// Runs all generators.
pub fn generate(inputs: &GeneratorInputs<'_>, existing: &impl ExistingConfigs) -> GenerationResult {
    let mut result = GenerationResult::default();
    for generator in Generator::ALL {
        result.append(run_generator(generator, inputs, existing));
    }
    result
}

/// Runs one generator.
pub fn run_generator(
    generator: Generator,
    inputs: &GeneratorInputs<'_>,
    existing: &impl ExistingConfigs,
) -> GenerationResult {
    let mut result = GenerationResult::default();
    match generator {
        Generator::Templates => {
            let templates = inputs.base.templates.iter();
            result
                .configs
                .extend(templates.map(|config| config.generated.clone().into()));
        }
        Generator::Registries => registries::run(inputs, existing, &mut result),
        Generator::ContainerRuntime => {
            let objects = &inputs.objects.runtime_configs;
            user_configs::run(objects, (), inputs, existing, &mut result);
        }
        Generator::Kubelet => kubelet::run(inputs, existing, &mut result),
        Generator::CredentialProvider => credential_provider::run(inputs, existing, &mut result),
    }
    result
}

pub(super) fn name_of(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}
