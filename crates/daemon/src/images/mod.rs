//! Keeping the images of PinnedImageSets on a machine: pulled in advance, and pinned so that nobody collects them.
//!
//! Everything here blocks, for as long as pulls take. It touches nothing that a config manages, so it runs beside
//! updates and never in their way.

mod fetch;
mod pin;

use std::collections::BTreeSet;

use mco_core::rollout::kept_images::{ImageSet, StorageError};
use mco_host::runtime::RuntimeError;
use mco_host::systemd::ServiceError;
use mco_host::{FsError, Machine};
use thiserror::Error;

pub use fetch::{Fetched, Terms, fetch};
pub use pin::pin;

#[derive(Debug, Error)]
pub enum ImagesError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Files(#[from] FsError),
    #[error("the container runtime could not be told which images to keep: {0}")]
    Reload(#[from] ServiceError),
}

/// Which of the wanted images are on the machine.
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
