//! The operating system: its image, packages, kernel and kernel arguments.
//!
//! Every change is staged for the next boot and can be discarded until then. Which packages make up a kernel or an
//! extension is decided by the caller.

mod bls;
mod bootc;
mod bootloader;
mod change;
mod credentials;
mod finalization;
mod fips;
mod grub;
mod image;
mod kernel_arguments;
mod lock;
mod nic_names;
mod package_mode;
mod podman;
mod policy;
mod preflight;
mod release;
mod retry;
mod rpm_ostree;
mod simulated;
mod state;
#[cfg(test)]
mod testing;

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use thiserror::Error;

use crate::command::{CommandError, Commands};
use crate::path::RootedPath;
use crate::root::{FsError, Root};
pub use bootc::Bootc;
pub use change::{KernelSwap, OsChange};
pub use fips::fips_enabled;
pub use image::{reference_url, same_image};
pub use kernel_arguments::{missing as missing_kernel_arguments, split as split_kernel_arguments};
pub use nic_names::{NicNamesError, persist_nic_names};
pub use package_mode::PackageMode;
pub use release::OsRelease;
pub use retry::{Sleeper, ThreadSleeper};
pub use rpm_ostree::RpmOstree;
pub use simulated::SimulatedOs;
pub use state::{OsDeployment, OsState, StagedDeployment};

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
    #[error("image {image} cannot be used on this machine: {why}")]
    Rejected { image: String, why: String },
    #[error(
        "this machine boots from an ostree repository (/run/ostree-booted exists), but neither rpm-ostree nor bootc is \
         installed; install one of them"
    )]
    NoImageTool,
}

/// Whether a staged deployment boots at the next shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OsHold {
    /// It waits for its configuration: a shutdown before that boots the present deployment again.
    Locked,
    Released,
}

/// A backend for one kind of operating system. A change goes through these steps: inspect ([`Self::state`]), check, stage,
/// verify what is staged, then either discard it or boot; after the boot, check the finalization, and roll back if the
/// new deployment is of no use.
pub trait OperatingSystem: fmt::Debug + Send + Sync {
    fn backend(&self) -> OsBackend;

    /// Prepares the tools once per start: credentials and proxy, and no leftovers of an interrupted change. Idempotent.
    fn prepare(&self, _: &Root) -> Result<(), OsError> {
        Ok(())
    }

    fn state(&self, root: &Root) -> Result<OsState, OsError>;

    /// Checks whether the change is possible, without the network. Changes nothing, so that it can run before a drain.
    fn check(&self, root: &Root, change: &OsChange) -> Result<(), OsError>;

    /// Checks the image of the change at its registry. Changes nothing.
    fn preflight(&self, _: &Root, _: &OsChange) -> Result<(), OsError> {
        Ok(())
    }

    /// Returns whether a change can be staged before the machine's configuration is changed, see [`OsHold::Locked`].
    fn stages_ahead(&self) -> bool {
        false
    }

    /// Stages the change for the next boot, in place of what is staged. On failure nothing is left staged.
    fn stage(&self, root: &Root, change: &OsChange) -> Result<(), OsError>;

    /// Returns the staged deployment if it has everything of the change.
    fn verify_staged(&self, _: &Root, _: &OsChange) -> Result<StagedDeployment, OsError> {
        Ok(StagedDeployment::default())
    }

    /// Sets whether what is staged boots at the next shutdown.
    fn hold(&self, _: &Root, _: OsHold) -> Result<(), OsError> {
        Ok(())
    }

    /// Discards the staged change, and stages again what it had replaced. `change` is the argument of
    /// [`OperatingSystem::stage`].
    fn discard(&self, root: &Root, change: &OsChange) -> Result<(), OsError>;

    /// Returns why the previous boot could not finalize a staged change, where the backend reports it.
    fn finalization_failure(&self) -> Result<Option<String>, OsError> {
        Ok(None)
    }

    /// Makes the next boot that of the system before the change, which has booted.
    fn roll_back(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        self.discard(root, change)
    }

    /// Removes the previous deployment, which takes space in `/boot`. It can no longer be rolled back to.
    fn remove_rollback(&self, _: &Root) -> Result<(), OsError> {
        Ok(())
    }

    /// Returns the packages that are not installed in the running system.
    fn absent_packages(&self, root: &Root, packages: &[&str]) -> Result<Vec<String>, OsError> {
        let present = self.state(root)?.packages;
        let absent = packages
            .iter()
            .filter(|package| !present.iter().any(|one| one == *package));
        Ok(absent.map(|package| (*package).to_owned()).collect())
    }
}

/// Detects the kind of operating system, by what is installed. Whether the tool works is not asked here: a failure must
/// not change what the machine is.
pub fn probe(root: &Root, commands: &Arc<dyn Commands>) -> Result<Box<dyn OperatingSystem>, OsError> {
    let image_based = root.exists(&RootedPath::new("/run/ostree-booted").map_err(FsError::from)?)?;
    if !image_based {
        return Ok(Box::new(PackageMode::new(Arc::clone(commands))));
    }
    if is_installed(commands.as_ref(), "rpm-ostree") {
        return Ok(Box::new(RpmOstree::new(Arc::clone(commands))));
    }
    if is_installed(commands.as_ref(), "bootc") {
        return Ok(Box::new(Bootc::new(Arc::clone(commands))));
    }
    Err(OsError::NoImageTool)
}

/// Returns whether a program exists; it may fail.
fn is_installed(commands: &dyn Commands, program: &str) -> bool {
    !matches!(
        commands.run(program, &["--version"]),
        Err(CommandError::Missing { .. })
    )
}

/// Returns the arguments the running kernel was booted with.
fn booted_kernel_arguments(root: &Root) -> Result<Vec<String>, FsError> {
    let text = root
        .read_text(&RootedPath::new("/proc/cmdline")?, 64 << 10)?
        .unwrap_or_default();
    Ok(split_kernel_arguments(&text))
}
