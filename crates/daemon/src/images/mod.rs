//! Pulls the images of PinnedImageSets in advance and pins them, so that they are not garbage-collected.
//!
//! Everything here blocks for as long as pulls take. It touches no path that a config manages, so it runs in parallel
//! with updates.

mod fetch;
mod pin;

use std::collections::BTreeSet;

use mco_core::rollout::pinned_images_on_node::{ImageSet, StorageError};
use mco_host::runtime::RuntimeError;
use mco_host::systemd::ServiceError;
use mco_host::{FsError, Machine};
use thiserror::Error;

use crate::disk::DiskError;
use crate::live::LiveError;
pub use fetch::{FetchResult, Terms, fetch};
pub use pin::{pin, unpin};

#[derive(Debug, Error)]
pub enum ImagesError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Files(#[from] FsError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error("could not configure the container runtime's pinned images: {0}")]
    Reload(#[from] ServiceError),
}

/// The wanted images that are present on the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    pub present: BTreeSet<String>,
    pub missing: BTreeSet<String>,
}

pub fn survey(machine: &Machine, sets: &[ImageSet]) -> Result<Survey, ImagesError> {
    let wanted: BTreeSet<&String> = sets.iter().flat_map(|set| &set.images).collect();
    if wanted.is_empty() {
        return Ok(Survey::default());
    }
    let stored = machine.runtime.images(&machine.root)?;
    let (present, missing): (BTreeSet<&String>, BTreeSet<&String>) =
        wanted.into_iter().partition(|image| stored.contains(*image));
    Ok(Survey {
        present: present.into_iter().cloned().collect(),
        missing: missing.into_iter().cloned().collect(),
    })
}
