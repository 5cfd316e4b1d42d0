//! Errors in a directory of manifests. Every message names its object.

use thiserror::Error;

use super::pull_secret::PullSecretError;
use crate::generators::os_streams::published::PublishError;
use crate::pipeline::offline::InventoryError;
use crate::pipeline::{BaseError, GenerationFailure};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BootstrapError {
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    #[error(transparent)]
    PullSecret(#[from] PullSecretError),
    #[error(transparent)]
    Base(#[from] BaseError),
    #[error(transparent)]
    Generation(#[from] GenerationFailure),
    #[error(
        "the change affects the base configuration, and these templates do not produce the cluster's current one\n  \
         hint: pass the cluster's own template tree with --templates"
    )]
    OtherTemplates,
    #[error("OSImageStream: {0}")]
    Streams(#[from] PublishError),
    #[error("MachineOSConfig {name:?}: {message}")]
    PreBuiltImage { name: String, message: String },
}
