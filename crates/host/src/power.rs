//! Boot IDs and reboots.

use std::fmt;
use std::sync::Arc;

use rustix::rand::GetRandomFlags;
use thiserror::Error;

use crate::command::{CommandError, Commands, succeed};
use crate::path::RootedPath;
use crate::root::{Attributes, FsError, Root};
use crate::systemd::Bus;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const SIMULATED_BOOT_ID: &str = "/run/machine-config-daemon/simulated-boot-id";
const REBOOT_UNIT: &str = "machine-config-daemon-reboot";
/// Writes a staged deployment when it stops, so it must be running before a shutdown.
const FINALIZE: &str = "ostree-finalize-staged.service";

/// Identifies one boot of a machine. Two equal IDs mean that there was no reboot in between.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct BootId(pub String);

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Error)]
pub enum PowerError {
    #[error("could not read the boot ID: {0}")]
    BootId(FsError),
    #[error("could not read the boot ID: {BOOT_ID} is missing")]
    NoBootId,
    #[error("reboot command failed, something is seriously wrong: {0}")]
    Reboot(#[from] CommandError),
    #[error("could not simulate a boot: {0}")]
    Simulation(FsError),
}

/// The result of a reboot request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reboot {
    /// The machine will go down; this process ends with it.
    Queued,
    /// The machine is a directory and has already "rebooted"; this process starts over.
    Simulated,
}

pub trait Power: fmt::Debug + Send + Sync {
    fn boot_id(&self, root: &Root) -> Result<BootId, PowerError>;
    fn reboot(&self, root: &Root, because: &str) -> Result<Reboot, PowerError>;
}

/// A machine managed by systemd.
#[derive(Debug)]
pub struct SystemdPower {
    /// The D-Bus for requests to logind, which honours inhibitor delays before a shutdown.
    pub bus: Option<Bus>,
    pub commands: Arc<dyn Commands>,
    /// On ostree systems the staged deployment must be finalized during the shutdown.
    pub finalizes_deployment: bool,
}

impl Power for SystemdPower {
    fn boot_id(&self, root: &Root) -> Result<BootId, PowerError> {
        read_id(root, BOOT_ID)
            .map_err(PowerError::BootId)?
            .ok_or(PowerError::NoBootId)
    }

    fn reboot(&self, _: &Root, because: &str) -> Result<Reboot, PowerError> {
        let description = format!("machine-config-daemon: {because}");
        let finalize = self.finalizes_deployment.then_some(FINALIZE);
        if let Some(bus) = &self.bus {
            match bus.reboot(&description, finalize) {
                Ok(()) => return Ok(Reboot::Queued),
                Err(error) => {
                    tracing::info!(%error, "logind was not asked; the reboot goes through systemd-run")
                }
            }
        }
        let mut arguments = vec!["--unit", REBOOT_UNIT, "--collect", "--description", &description];
        if self.finalizes_deployment {
            arguments.extend(["-p", "Requires=ostree-finalize-staged.service"]);
            arguments.extend(["-p", "After=ostree-finalize-staged.service"]);
        }
        arguments.extend(["/bin/sh", "-c", "systemctl reboot"]);
        match succeed(self.commands.as_ref(), "systemd-run", &arguments) {
            // Another process has requested it before; the machine is going down anyway.
            Err(CommandError::Failed { complaint, .. }) if complaint.contains("already exists") => {
                Ok(Reboot::Queued)
            }
            other => other.map(|_| Reboot::Queued).map_err(PowerError::from),
        }
    }
}

/// A directory whose boots are counted in a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct SimulatedPower;

impl Power for SimulatedPower {
    fn boot_id(&self, root: &Root) -> Result<BootId, PowerError> {
        match read_id(root, SIMULATED_BOOT_ID).map_err(PowerError::BootId)? {
            Some(id) => Ok(id),
            None => new_boot(root),
        }
    }

    fn reboot(&self, root: &Root, _: &str) -> Result<Reboot, PowerError> {
        new_boot(root).map(|_| Reboot::Simulated)
    }
}

fn read_id(root: &Root, path: &str) -> Result<Option<BootId>, FsError> {
    let text = root.read_text(&RootedPath::new(path)?, 4096)?;
    Ok(text
        .map(|text| BootId(text.trim().to_owned()))
        .filter(|id| !id.0.is_empty()))
}

fn new_boot(root: &Root) -> Result<BootId, PowerError> {
    let write = || {
        let id = BootId(random_name());
        let path = RootedPath::new(SIMULATED_BOOT_ID)?;
        if let Some(parent) = path.parent() {
            root.create_directories(&parent, Attributes::root(0o755))?;
        }
        root.write_atomically(&path, Attributes::root(0o644), id.0.as_bytes())?;
        Ok(id)
    };
    write().map_err(PowerError::Simulation)
}

/// Returns sixteen random hexadecimal digits, unique for practical purposes.
pub fn random_name() -> String {
    let mut bytes = [0_u8; 8];
    // getrandom fails only early in boot, long before any daemon runs; process ID and clock are then unique enough for
    // a name.
    if rustix::rand::getrandom(&mut bytes[..], GetRandomFlags::empty()).is_err() {
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        let mixed =
            u64::from(std::process::id()) ^ u64::from(since.subsec_nanos()).rotate_left(32) ^ since.as_secs();
        bytes = mixed.to_le_bytes();
    }
    bytes
        .iter()
        .fold(String::new(), |name, byte| name + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::testing::Recorded;
    use crate::root::Ownership;

    #[test]
    fn a_simulated_boot_changes_the_id_and_nothing_else_does() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        let first = SimulatedPower.boot_id(&root).unwrap();
        assert_eq!(SimulatedPower.boot_id(&root).unwrap(), first);
        assert_eq!(SimulatedPower.reboot(&root, "test").unwrap(), Reboot::Simulated);
        assert_ne!(SimulatedPower.boot_id(&root).unwrap(), first);
    }

    #[test]
    fn a_real_reboot_waits_for_the_staged_deployment() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        let commands = Arc::new(Recorded::answering(&[("systemd-run", "")]));
        let power = SystemdPower {
            bus: None,
            commands: Arc::new(Arc::clone(&commands)),
            finalizes_deployment: true,
        };
        assert_eq!(
            power.reboot(&root, "Node will reboot into config x").unwrap(),
            Reboot::Queued
        );
        assert_eq!(
            commands.invocations(),
            [
                "systemd-run --unit machine-config-daemon-reboot --collect --description machine-config-daemon: Node \
              will reboot into config x -p Requires=ostree-finalize-staged.service -p \
              After=ostree-finalize-staged.service /bin/sh -c systemctl reboot"
            ]
        );
    }
}
