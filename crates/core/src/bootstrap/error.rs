//! What can be wrong with a directory of manifests. Every text names the object it is about.

use thiserror::Error;

use super::pull_secret::PullSecretError;
use crate::container_runtime::ContainerRuntimeError;
use crate::feature_gates::FeatureGateError;
use crate::kubelet::KubeletError;
use crate::offline::InventoryError;
use crate::os_streams::published::PublishError;
use crate::registries::RegistryError;
use crate::selector::SelectorError;
use crate::templates::TemplateError;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BootstrapError {
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    #[error(transparent)]
    PullSecret(#[from] PullSecretError),
    #[error(transparent)]
    FeatureGates(#[from] FeatureGateError),
    #[error(transparent)]
    Templates(#[from] TemplateError),
    #[error("{0}")]
    Registries(RegistryError),
    #[error("{object}: {source}")]
    Kubelet { object: String, source: KubeletError },
    #[error("{object}: {source}")]
    ContainerRuntime {
        object: String,
        source: ContainerRuntimeError,
    },
    #[error("{object}: invalid label selector: {source}")]
    Selector { object: String, source: SelectorError },
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
    #[error("OSImageStream: {0}")]
    Streams(#[from] PublishError),
    #[error("MachineOSConfig {name:?}: {message}")]
    PreBuiltImage { name: String, message: String },
}
