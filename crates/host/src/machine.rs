//! A machine with all its capabilities.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use thiserror::Error;

use crate::accounts::Accounts;
use crate::command::{Commands, HostCommands};
use crate::directory;
use crate::os::{self, OperatingSystem, OsBackend, OsError, SimulatedOs};
use crate::power::{Power, SimulatedPower, SystemdPower};
use crate::programs::{HostPrograms, Programs, SimulatedPrograms};
use crate::root::{FsError, Ownership, Root};
use crate::runtime::{ContainerRuntime, DetectedRuntime, SimulatedRuntime};
use crate::systemd::{Bus, Services, SimulatedServices, SystemdServices};

/// Paths that only exist below the root of a booted machine: systemd's marker, and the kernel's boot ID.
const RUNNING: [&str; 2] = ["run/systemd/system", "proc/sys/kernel/random/boot_id"];

#[derive(Debug)]
pub struct Machine {
    pub root: Root,
    pub services: Box<dyn Services>,
    pub os: Box<dyn OperatingSystem>,
    pub power: Box<dyn Power>,
    pub runtime: Box<dyn ContainerRuntime>,
    pub programs: Box<dyn Programs>,
}

#[derive(Debug, Error)]
pub enum MachineError {
    #[error(transparent)]
    Root(#[from] FsError),
    #[error("could not detect the operating system: {0}")]
    System(#[from] OsError),
}

impl Machine {
    /// Returns the machine this process runs on.
    pub fn this() -> Result<Self, MachineError> {
        Self::real(Path::new("/"), Vec::new())
    }

    /// Returns the machine whose root is mounted here, for a process in a container. `launcher` is a command prefix
    /// that changes to that root.
    pub fn mounted(root: &Path, launcher: Vec<OsString>) -> Result<Self, MachineError> {
        Self::real(root, launcher)
    }

    fn real(root: &Path, launcher: Vec<OsString>) -> Result<Self, MachineError> {
        let programs = Box::new(HostPrograms::through(launcher.clone()));
        let commands: Arc<dyn Commands> = Arc::new(HostCommands::through(launcher));
        let bus = Bus::at(root);
        let root = Root::open(root, Ownership::Enforced)?;
        let os = os::probe(&root, &commands)?;
        let finalizes_deployment = matches!(os.backend(), OsBackend::RpmOstree | OsBackend::Bootc);
        Ok(Self {
            root,
            services: Box::new(SystemdServices::new(bus.clone(), Arc::clone(&commands))),
            os,
            runtime: Box::new(DetectedRuntime::new(&commands)),
            power: Box::new(SystemdPower {
                bus: Some(bus),
                commands,
                finalizes_deployment,
            }),
            programs,
        })
    }

    /// Returns whether a directory is the root of a running machine, according to systemd and the kernel.
    pub fn runs_at(root: &Path) -> bool {
        RUNNING.iter().all(|path| root.join(path).exists())
    }

    /// Creates a simulated machine in a directory if it does not exist yet. See [`Machine::directory`].
    pub fn create_directory(root: &Path) -> Result<Self, MachineError> {
        directory::lay_out(root).map_err(|source| FsError::Failed {
            attempted: "create a machine in",
            path: root.display().to_string(),
            source,
        })?;
        Self::directory(root)
    }

    /// Returns a machine simulated by a directory. Without privileges, owners are recorded instead of set.
    pub fn directory(root: &Path) -> Result<Self, MachineError> {
        let ownership = if rustix::process::geteuid().is_root() {
            Ownership::Enforced
        } else {
            Ownership::Recorded
        };
        Self::directory_with(root, ownership, Box::new(SimulatedServices::default()))
    }

    pub fn directory_with(
        root: &Path,
        ownership: Ownership,
        services: Box<dyn Services>,
    ) -> Result<Self, MachineError> {
        let root = Root::open(root, ownership)?;
        Ok(Self {
            root,
            services,
            os: Box::new(SimulatedOs),
            power: Box::new(SimulatedPower),
            runtime: Box::new(SimulatedRuntime::default()),
            programs: Box::new(SimulatedPrograms),
        })
    }

    pub fn accounts(&self) -> Accounts<'_> {
        Accounts::new(&self.root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_runs_only_with_a_systemd_and_a_kernel() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        assert!(!Machine::runs_at(root));
        std::fs::create_dir_all(root.join("run/systemd/system")).unwrap();
        assert!(!Machine::runs_at(root), "an image that once ran");
        std::fs::create_dir_all(root.join("proc/sys/kernel/random")).unwrap();
        std::fs::write(root.join("proc/sys/kernel/random/boot_id"), "x\n").unwrap();
        assert!(Machine::runs_at(root));
    }
}
