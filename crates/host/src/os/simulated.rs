//! The simulated OS of a directory machine: a file holds the "running" deployment and the one for the next simulated
//! boot.

use serde::{Deserialize, Serialize};

use super::{
    KernelSwap, OperatingSystem, OsBackend, OsChange, OsDeployment, OsError, OsHold, OsState,
    StagedDeployment, image,
};
use crate::path::RootedPath;
use crate::power::{BootId, Power, SimulatedPower};
use crate::root::{Attributes, FsError, Root};

const STATE_FILE: &str = "/var/lib/mco-simulated-os.json";

#[derive(Debug, Default)]
pub struct SimulatedOs;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct SimulatedDisk {
    running: SimulatedDeployment,
    /// Replaces `running` once the boot ID differs from the one that staged it.
    next: Option<(BootId, SimulatedDeployment)>,
    /// Whether `next` is lost at the next boot.
    #[serde(default)]
    locked: bool,
    /// What ran before `running`, while it is kept.
    #[serde(default)]
    previous: Option<SimulatedDeployment>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct SimulatedDeployment {
    image: Option<String>,
    kernel_arguments: Vec<String>,
    packages: Vec<String>,
    removed_packages: Vec<String>,
}

impl SimulatedDeployment {
    fn described(&self) -> OsDeployment {
        OsDeployment {
            image: self.image.clone(),
            digest: self.image.as_deref().and_then(image::digest).map(str::to_owned),
            checksum: String::new(),
            packages: self.packages.clone(),
        }
    }

    fn changed_by(&self, change: &OsChange) -> Self {
        let mut next = self.clone();
        if let Some(image) = &change.image {
            next.image = Some(image.clone());
        }
        next.kernel_arguments
            .retain(|argument| !change.delete_kernel_arguments.contains(argument));
        next.kernel_arguments
            .extend(change.append_kernel_arguments.iter().cloned());
        if change.kernel.is_some() {
            next.removed_packages.clear();
            next.packages
                .retain(|package| !package.starts_with("kernel-rt-") && !package.starts_with("kernel-64k-"));
        }
        if let Some(KernelSwap::Replace { remove, install }) = &change.kernel {
            next.removed_packages.clone_from(remove);
            next.packages.extend(install.iter().cloned());
        }
        next.packages
            .retain(|package| !change.uninstall_packages.contains(package));
        next.packages.extend(change.install_packages.iter().cloned());
        next
    }
}

impl SimulatedOs {
    fn load(root: &Root) -> Result<SimulatedDisk, OsError> {
        let path = RootedPath::new(STATE_FILE).map_err(FsError::from)?;
        // An unreadable file counts as a fresh machine, because it exists for simulations only.
        let mut disk: SimulatedDisk = root
            .read(&path, 1 << 20)?
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let boot = SimulatedPower.boot_id(root).ok();
        if let Some((staged_in, deployment)) = disk.next.take() {
            if boot.as_ref() == Some(&staged_in) {
                disk.next = Some((staged_in, deployment));
            } else if !std::mem::take(&mut disk.locked) {
                disk.previous = Some(std::mem::replace(&mut disk.running, deployment));
            }
        }
        Ok(disk)
    }

    fn set_next(root: &Root, mut disk: SimulatedDisk, next: SimulatedDeployment) -> Result<(), OsError> {
        let boot = SimulatedPower
            .boot_id(root)
            .map_err(|error| OsError::Unsupported {
                what: "the simulated system",
                why: error.to_string(),
            })?;
        disk.next = Some((boot, next));
        disk.locked = false;
        Self::store(root, &disk)
    }

    fn store(root: &Root, disk: &SimulatedDisk) -> Result<(), OsError> {
        let path = RootedPath::new(STATE_FILE).map_err(FsError::from)?;
        if let Some(parent) = path.parent() {
            root.create_directories(&parent, Attributes::root(0o755))?;
        }
        let text = serde_json::to_vec(disk).unwrap_or_default();
        Ok(root.write_atomically(&path, Attributes::root(0o644), &text)?)
    }
}

impl OperatingSystem for SimulatedOs {
    fn backend(&self) -> OsBackend {
        OsBackend::Simulated
    }

    fn state(&self, root: &Root) -> Result<OsState, OsError> {
        let disk = Self::load(root)?;
        let staged = disk.next.as_ref().map(|(_, next)| next.described());
        let rollback = disk.previous.as_ref().map(SimulatedDeployment::described);
        let SimulatedDeployment {
            image,
            kernel_arguments,
            packages,
            removed_packages,
        } = disk.running;
        Ok(OsState {
            digest: image.as_deref().and_then(image::digest).map(str::to_owned),
            image,
            kernel_arguments,
            packages,
            removed_packages,
            local_changes: Vec::new(),
            staged,
            rollback,
        })
    }

    fn check(&self, _: &Root, _: &OsChange) -> Result<(), OsError> {
        Ok(())
    }

    fn stages_ahead(&self) -> bool {
        true
    }

    fn stage(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        let disk = Self::load(root)?;
        let next = disk.running.changed_by(change);
        Self::set_next(root, disk, next)
    }

    fn verify_staged(&self, root: &Root, _: &OsChange) -> Result<StagedDeployment, OsError> {
        let next = Self::load(root)?.next;
        let (_, next) = next.ok_or_else(|| OsError::Incomplete("altogether".to_owned()))?;
        Ok(StagedDeployment {
            checksum: None,
            digest: next.described().digest,
        })
    }

    fn hold(&self, root: &Root, hold: OsHold) -> Result<(), OsError> {
        let mut disk = Self::load(root)?;
        let locked = hold == OsHold::Locked;
        if disk.locked != locked {
            disk.locked = locked;
            Self::store(root, &disk)?;
        }
        Ok(())
    }

    fn discard(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        // An interruption during staging may have left the temporary file behind.
        let path = RootedPath::new(STATE_FILE).map_err(FsError::from)?;
        root.remove_file(&Root::temporary_of(&path)?)?;
        let mut disk = Self::load(root)?;
        if let Some(replaced) = &change.replaces {
            let next = disk.running.changed_by(replaced);
            return Self::set_next(root, disk, next);
        }
        if disk.next.take().is_some() {
            disk.locked = false;
            Self::store(root, &disk)?;
        }
        Ok(())
    }

    fn roll_back(&self, root: &Root, _: &OsChange) -> Result<(), OsError> {
        let mut disk = Self::load(root)?;
        match disk.previous.take() {
            Some(previous) => Self::set_next(root, disk, previous),
            None => Err(OsError::Unsupported {
                what: "the simulated system",
                why: "there is no previous deployment".to_owned(),
            }),
        }
    }

    fn remove_rollback(&self, root: &Root) -> Result<(), OsError> {
        let mut disk = Self::load(root)?;
        if disk.previous.take().is_some() {
            Self::store(root, &disk)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Ownership;

    #[test]
    fn a_staged_change_is_there_after_the_next_boot_and_not_before() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        let change = OsChange {
            image: Some("x@sha256:1".to_owned()),
            append_kernel_arguments: vec!["nosmt".to_owned()],
            ..OsChange::default()
        };
        SimulatedOs.stage(&root, &change).unwrap();
        let state = SimulatedOs.state(&root).unwrap();
        assert_eq!((state.image, state.kernel_arguments), (None, Vec::new()));
        SimulatedPower.reboot(&root, "test").unwrap();
        let state = SimulatedOs.state(&root).unwrap();
        assert_eq!(
            (state.image.as_deref(), state.kernel_arguments),
            (Some("x@sha256:1"), vec!["nosmt".to_owned()])
        );
    }

    #[test]
    fn a_discarded_change_never_comes() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        let change = OsChange {
            image: Some("x".to_owned()),
            ..OsChange::default()
        };
        SimulatedOs.stage(&root, &change).unwrap();
        SimulatedOs.discard(&root, &change).unwrap();
        SimulatedPower.reboot(&root, "test").unwrap();
        assert_eq!(SimulatedOs.state(&root).unwrap().image, None);
    }
}
