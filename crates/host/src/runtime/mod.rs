//! The container runtime of a machine: which images it has, and how it gets more. Which images a machine should have is
//! not known here.

mod crictl;
mod crio;
mod manifest;
mod simulated;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::command::CommandError;
use crate::root::{FsError, Root};
pub use crio::Crio;
pub use simulated::SimulatedRuntime;

#[derive(Debug, Error)]
pub enum RuntimeError {
    #[error("this machine has no container runtime that could keep images: {0}")]
    Absent(String),
    #[error("the disk is full: {0}")]
    Full(CommandError),
    #[error(transparent)]
    Command(CommandError),
    #[error(transparent)]
    Files(#[from] FsError),
}

/// One compressed layer of an image. Images share layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    pub digest: String,
    pub size: u64,
}

/// One way to run containers.
pub trait ContainerRuntime: fmt::Debug + Send + Sync {
    /// Every name by digest that an image is stored under.
    fn images(&self, root: &Root) -> Result<BTreeSet<String>, RuntimeError>;

    /// The layers of an image that need not be here yet, as its registry tells.
    fn layers(&self, root: &Root, image: &str) -> Result<Vec<Layer>, RuntimeError>;

    /// Gets an image. `credential` is `user:password` in base64.
    fn pull(&self, root: &Root, image: &str, credential: Option<&str>) -> Result<(), RuntimeError>;

    /// The bytes that are free where images are stored, where that can be said.
    fn free_space(&self, root: &Root) -> Option<u64>;
}

impl<T: ContainerRuntime + ?Sized> ContainerRuntime for Arc<T> {
    fn images(&self, root: &Root) -> Result<BTreeSet<String>, RuntimeError> {
        (**self).images(root)
    }

    fn layers(&self, root: &Root, image: &str) -> Result<Vec<Layer>, RuntimeError> {
        (**self).layers(root, image)
    }

    fn pull(&self, root: &Root, image: &str, credential: Option<&str>) -> Result<(), RuntimeError> {
        (**self).pull(root, image, credential)
    }

    fn free_space(&self, root: &Root) -> Option<u64> {
        (**self).free_space(root)
    }
}
