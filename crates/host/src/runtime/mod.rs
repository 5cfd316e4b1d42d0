//! The container runtime of a machine: lists and pulls images. Which images a machine should have is decided elsewhere.

mod containerd;
mod crictl;
mod crio;
mod detected;
mod manifest;
mod simulated;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::command::CommandError;
use crate::root::{FsError, Root};
pub use containerd::Containerd;
pub use crio::Crio;
pub use detected::DetectedRuntime;
pub use simulated::SimulatedRuntime;

#[derive(Debug, Error)]
pub enum RuntimeError {
    #[error("this machine has no container runtime that supports pinned images: {0}")]
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

/// A container runtime backend.
pub trait ContainerRuntime: fmt::Debug + Send + Sync {
    /// Returns every reference by digest that an image is stored under.
    fn images(&self, root: &Root) -> Result<BTreeSet<String>, RuntimeError>;

    /// Returns the layers of an image according to its registry; the image need not be present.
    fn layers(&self, root: &Root, image: &str) -> Result<Vec<Layer>, RuntimeError>;

    /// Pulls an image. `credential` is `user:password` in base64.
    fn pull(&self, root: &Root, image: &str, credential: Option<&str>) -> Result<(), RuntimeError>;

    /// Returns the free bytes where images are stored, if that can be determined.
    fn free_space(&self, root: &Root) -> Option<u64>;

    /// Pins exactly these images, where that is not a matter of the runtime's configuration.
    fn pin(&self, _root: &Root, _images: &BTreeSet<String>) -> Result<Pinning, RuntimeError> {
        Ok(Pinning::Configured)
    }
}

/// How a runtime pins images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinning {
    /// By a configuration file, which the caller writes.
    Configured,
    Done {
        changed: bool,
    },
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

    fn pin(&self, root: &Root, images: &BTreeSet<String>) -> Result<Pinning, RuntimeError> {
        (**self).pin(root, images)
    }
}
