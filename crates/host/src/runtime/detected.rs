//! The container runtime that a machine has: containerd where it listens and CRI-O does not.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{ContainerRuntime, Containerd, Crio, Layer, Pinning, RuntimeError};
use crate::command::Commands;
use crate::root::Root;

/// Chooses at every call, because a runtime may start after the daemon.
#[derive(Debug)]
pub struct DetectedRuntime {
    crio: Crio,
    containerd: Containerd,
}

impl DetectedRuntime {
    pub fn new(commands: &Arc<dyn Commands>) -> Self {
        Self {
            crio: Crio::new(Arc::clone(commands)),
            containerd: Containerd::new(Arc::clone(commands)),
        }
    }

    fn on(&self, root: &Root) -> Result<&dyn ContainerRuntime, RuntimeError> {
        // Other programs use a containerd of their own on machines whose kubelet uses CRI-O.
        if !Crio::is_present(root)? && Containerd::is_present(root)? {
            return Ok(&self.containerd);
        }
        Ok(&self.crio)
    }
}

impl ContainerRuntime for DetectedRuntime {
    fn images(&self, root: &Root) -> Result<BTreeSet<String>, RuntimeError> {
        self.on(root)?.images(root)
    }

    fn layers(&self, root: &Root, image: &str) -> Result<Vec<Layer>, RuntimeError> {
        self.on(root)?.layers(root, image)
    }

    fn pull(&self, root: &Root, image: &str, credential: Option<&str>) -> Result<(), RuntimeError> {
        self.on(root)?.pull(root, image, credential)
    }

    fn free_space(&self, root: &Root) -> Option<u64> {
        self.on(root).ok()?.free_space(root)
    }

    fn pin(&self, root: &Root, images: &BTreeSet<String>) -> Result<Pinning, RuntimeError> {
        self.on(root)?.pin(root, images)
    }
}
