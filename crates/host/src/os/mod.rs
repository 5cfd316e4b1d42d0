//! The operating system: its image, packages, kernel and kernel arguments.
//!
//! Every change is staged for the next boot and can be discarded until then. Which packages make up a kernel or an
//! extension is decided by the caller.

mod bootc;
mod bootloader;
mod finalization;
mod grub;
mod image;
mod kernel_arguments;
mod package_mode;
mod podman;
mod release;
mod rpm_ostree;
mod simulated;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::command::{CommandError, Commands};
use crate::path::RootedPath;
use crate::root::{FsError, Root};
pub use bootc::Bootc;
pub use image::{reference_url, same_image};
pub use kernel_arguments::{missing as missing_kernel_arguments, split as split_kernel_arguments};
pub use package_mode::PackageMode;
pub use release::OsRelease;
pub use rpm_ostree::RpmOstree;
pub use simulated::SimulatedOs;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OsBackend {
    RpmOstree,
    Bootc,
    PackageMode,
    Simulated,
}

impl fmt::Display for OsBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RpmOstree => "rpm-ostree",
            Self::Bootc => "bootc",
            Self::PackageMode => "packages",
            Self::Simulated => "simulated",
        })
    }
}

/// The running state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OsState {
    /// The booted image; `None` if the system is not image-based.
    pub image: Option<String>,
    pub kernel_arguments: Vec<String>,
    /// Packages added to the image on request.
    pub packages: Vec<String>,
    /// Packages of the image that were removed on request.
    pub removed_packages: Vec<String>,
}

/// The change to stage for the next boot. Lists are in the order they are applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OsChange {
    pub image: Option<String>,
    pub delete_kernel_arguments: Vec<String>,
    pub append_kernel_arguments: Vec<String>,
    pub kernel: Option<KernelSwap>,
    pub install_packages: Vec<String>,
    pub uninstall_packages: Vec<String>,
    /// The image to install packages from, where they do not come from the system's own repositories.
    pub packages_image: Option<String>,
}

impl OsChange {
    pub fn is_empty(&self) -> bool {
        *self
            == Self {
                packages_image: self.packages_image.clone(),
                ..Self::default()
            }
    }

    fn touches_packages(&self) -> bool {
        self.kernel.is_some() || !self.install_packages.is_empty() || !self.uninstall_packages.is_empty()
    }
}

/// Replaces the image's own kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum KernelSwap {
    /// Restores the image's kernel.
    Reset,
    Replace {
        remove: Vec<String>,
        install: Vec<String>,
    },
}

#[derive(Debug, Error)]
pub enum OsError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Files(#[from] FsError),
    #[error("{what} cannot be changed on this machine: {why}")]
    Unsupported { what: &'static str, why: String },
    #[error("staged deployment is missing {0}")]
    Incomplete(String),
}

/// A backend for one kind of operating system.
pub trait OperatingSystem: fmt::Debug + Send + Sync {
    fn backend(&self) -> OsBackend;

    fn state(&self, root: &Root) -> Result<OsState, OsError>;

    /// Checks whether the change is possible. Changes nothing, so that it can run before a drain.
    fn check(&self, root: &Root, change: &OsChange) -> Result<(), OsError>;

    /// Stages the change for the next boot. On failure nothing is left staged.
    fn stage(&self, root: &Root, change: &OsChange) -> Result<(), OsError>;

    /// Discards the staged change. `change` is the argument of [`OperatingSystem::stage`].
    fn discard(&self, root: &Root, change: &OsChange) -> Result<(), OsError>;

    /// Returns why the previous boot could not finalize a staged change, where the backend reports it.
    fn finalization_failure(&self) -> Result<Option<String>, OsError> {
        Ok(None)
    }
}

/// Detects the kind of operating system.
pub fn probe(root: &Root, commands: &Arc<dyn Commands>) -> Result<Box<dyn OperatingSystem>, OsError> {
    let image_based = root.exists(&RootedPath::new("/run/ostree-booted").map_err(FsError::from)?)?;
    if image_based {
        let rpm_ostree = RpmOstree::new(Arc::clone(commands));
        if rpm_ostree.responds() {
            return Ok(Box::new(rpm_ostree));
        }
        let bootc = Bootc::new(Arc::clone(commands));
        if bootc.responds() {
            return Ok(Box::new(bootc));
        }
    }
    Ok(Box::new(PackageMode::new(Arc::clone(commands))))
}

/// Returns the arguments the running kernel was booted with.
fn booted_kernel_arguments(root: &Root) -> Result<Vec<String>, FsError> {
    let text = root
        .read_text(&RootedPath::new("/proc/cmdline")?, 64 << 10)?
        .unwrap_or_default();
    Ok(split_kernel_arguments(&text))
}
