//! Controls running services: reload, restart and enable, with verification of the result.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use thiserror::Error;

use super::bus::{Bus, BusError};
use crate::command::{CommandError, Commands, succeed};

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ServiceAction {
    DaemonReload,
    Reload(String),
    Restart(String),
    /// Enables a unit for the next boot. Only for units of our own: units of configs are enabled in the transaction
    /// that writes them.
    Enable(String),
}

impl fmt::Display for ServiceAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DaemonReload => f.write_str("daemon-reload"),
            Self::Reload(unit) => write!(f, "reload {unit}"),
            Self::Restart(unit) => write!(f, "restart {unit}"),
            Self::Enable(unit) => write!(f, "enable {unit}"),
        }
    }
}

#[derive(Debug, Error)]
pub enum ServiceError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error("{unit} is {state} after {action}, with result {result}")]
    NotRunning {
        unit: String,
        action: String,
        state: String,
        result: String,
    },
}

/// The service manager of a machine.
pub trait Services: fmt::Debug + Send + Sync {
    /// Performs the action and waits until the service manager reports success.
    fn perform(&self, action: &ServiceAction) -> Result<(), ServiceError>;
}

/// Units that provide the bus itself: the result of their restart could not be received over it.
const CARRIERS: [&str; 3] = ["dbus.service", "dbus.socket", "dbus-broker.service"];

/// systemd over its bus, or through `systemctl` where there is none.
#[derive(Debug)]
pub struct SystemdServices {
    bus: Bus,
    systemctl: Systemctl,
    reported: AtomicBool,
}

impl SystemdServices {
    pub fn new(bus: Bus, commands: Arc<dyn Commands>) -> Self {
        Self {
            bus,
            systemctl: Systemctl { commands },
            reported: AtomicBool::new(false),
        }
    }
}

/// The unit that updates the trusted CAs of CoreOS. Other systems have a command instead.
const TRUST_UNIT: &str = "coreos-update-ca-trust.service";
/// The commands of Fedora and of Debian.
const TRUST_COMMANDS: [&str; 2] = ["update-ca-trust", "update-ca-certificates"];

/// The runtime that the built-in policies name, and the one that other clusters have.
const CRIO: &str = "crio.service";
const CONTAINERD: &str = "containerd.service";

impl Services for SystemdServices {
    fn perform(&self, action: &ServiceAction) -> Result<(), ServiceError> {
        let performed = self.perform_on_systemd(action);
        match (performed, action) {
            (Err(error), ServiceAction::Restart(unit)) if unit == TRUST_UNIT => self.update_trust(error),
            (Err(error), ServiceAction::Reload(unit) | ServiceAction::Restart(unit)) if unit == CRIO => {
                self.restart_containerd(error)
            }
            (performed, _) => performed,
        }
    }
}

impl SystemdServices {
    /// Updates the trusted CAs by the command that the machine has. Without one, the unit's failure is returned.
    fn update_trust(&self, failure: ServiceError) -> Result<(), ServiceError> {
        for program in TRUST_COMMANDS {
            match succeed(self.systemctl.commands.as_ref(), program, &[]) {
                Ok(_) => {
                    tracing::info!("{TRUST_UNIT} cannot be restarted ({failure}); {program} was run instead");
                    return Ok(());
                }
                Err(CommandError::Missing { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(failure)
    }

    /// Restarts containerd, which cannot be reloaded, on a machine without CRI-O. Without either runtime, no process
    /// has read the files that changed: podman reads them at each start. A CRI-O that exists and fails stays a failure.
    fn restart_containerd(&self, failure: ServiceError) -> Result<(), ServiceError> {
        let property = |name: &'static str, unit| self.systemctl.property(name, unit).unwrap_or_default();
        if property("LoadState", CRIO) != "not-found" {
            return Err(failure);
        }
        // A restart would start a containerd that the administrator has stopped.
        if property("ActiveState", CONTAINERD) != "active" {
            tracing::info!("this machine has no {CRIO}, and no running {CONTAINERD} to restart instead");
            return Ok(());
        }
        tracing::info!("this machine has no {CRIO}; {CONTAINERD} is restarted instead");
        self.perform_on_systemd(&ServiceAction::Restart(CONTAINERD.to_owned()))
    }

    fn perform_on_systemd(&self, action: &ServiceAction) -> Result<(), ServiceError> {
        if matches!(action, ServiceAction::Restart(unit) if CARRIERS.contains(&unit.as_str())) {
            return self.systemctl.perform(action);
        }
        match self.bus.perform(action) {
            Err(ServiceError::Bus(BusError::Unreachable(why))) => {
                if !self.reported.swap(true, Ordering::Relaxed) {
                    tracing::info!(why, "without D-Bus, services are controlled through systemctl");
                }
                self.systemctl.perform(action)
            }
            other => other,
        }
    }
}

/// systemd through `systemctl` alone.
#[derive(Debug)]
pub struct Systemctl {
    pub commands: Arc<dyn Commands>,
}

impl Services for Systemctl {
    fn perform(&self, action: &ServiceAction) -> Result<(), ServiceError> {
        let commands = self.commands.as_ref();
        match action {
            ServiceAction::DaemonReload => succeed(commands, "systemctl", &["daemon-reload"])?,
            ServiceAction::Reload(unit) => succeed(commands, "systemctl", &["reload", "--", unit])?,
            ServiceAction::Restart(unit) => succeed(commands, "systemctl", &["restart", "--", unit])?,
            ServiceAction::Enable(unit) => succeed(commands, "systemctl", &["enable", "--", unit])?,
        };
        match action {
            ServiceAction::DaemonReload | ServiceAction::Enable(_) => Ok(()),
            ServiceAction::Reload(unit) | ServiceAction::Restart(unit) => self.verify(unit, action),
        }
    }
}

impl Systemctl {
    fn property(&self, name: &str, unit: &str) -> Result<String, CommandError> {
        let wanted = format!("--property={name}");
        let text = succeed(
            self.commands.as_ref(),
            "systemctl",
            &["show", &wanted, "--", unit],
        )?;
        Ok(value_of(name, &text))
    }

    /// Verifies that a unit has not failed. A service that has finished counts as well as a running one.
    fn verify(&self, unit: &str, action: &ServiceAction) -> Result<(), ServiceError> {
        let text = succeed(
            self.commands.as_ref(),
            "systemctl",
            &["show", "--property=ActiveState,Result", "--", unit],
        )?;
        let (state, result) = (value_of("ActiveState", &text), value_of("Result", &text));
        if state != "failed" && matches!(result.as_str(), "success" | "") {
            return Ok(());
        }
        Err(ServiceError::NotRunning {
            unit: unit.to_owned(),
            action: action.to_string(),
            state,
            result,
        })
    }
}

/// Returns the value of a property that `systemctl show` has printed.
fn value_of(name: &str, text: &str) -> String {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_default().to_owned()
}

/// A directory has no services: actions are recorded, and selected units fail.
#[derive(Debug, Default)]
pub struct SimulatedServices {
    performed: Mutex<Vec<ServiceAction>>,
    failing: Mutex<BTreeSet<String>>,
}

impl SimulatedServices {
    /// Makes reloads and restarts of this unit fail; `false` makes them succeed again.
    pub fn set_failing(&self, unit: &str, fails: bool) {
        let mut failing = lock(&self.failing);
        if fails {
            failing.insert(unit.to_owned());
        } else {
            failing.remove(unit);
        }
    }

    pub fn performed(&self) -> Vec<ServiceAction> {
        lock(&self.performed).clone()
    }
}

impl Services for SimulatedServices {
    fn perform(&self, action: &ServiceAction) -> Result<(), ServiceError> {
        lock(&self.performed).push(action.clone());
        match action {
            ServiceAction::Reload(unit) | ServiceAction::Restart(unit)
                if lock(&self.failing).contains(unit) =>
            {
                Err(ServiceError::NotRunning {
                    unit: unit.clone(),
                    action: action.to_string(),
                    state: "failed".to_owned(),
                    result: "exit-code".to_owned(),
                })
            }
            _ => Ok(()),
        }
    }
}

impl<T: Services + ?Sized> Services for Arc<T> {
    fn perform(&self, action: &ServiceAction) -> Result<(), ServiceError> {
        (**self).perform(action)
    }
}

/// Ignores poisoning: a panic while the lock was held cannot leave these simple values inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::testing::Recorded;

    fn systemctl(show: &str) -> (Arc<Recorded>, Systemctl) {
        let recorded = Arc::new(Recorded::answering(&[
            ("systemctl", ""),
            (
                "systemctl show --property=ActiveState,Result -- crio.service",
                show,
            ),
        ]));
        let commands = Arc::new(Arc::clone(&recorded));
        (recorded, Systemctl { commands })
    }

    #[test]
    fn a_reload_is_verified() {
        let (recorded, services) = systemctl("ActiveState=active\nResult=success\n");
        services
            .perform(&ServiceAction::Reload("crio.service".to_owned()))
            .unwrap();
        assert_eq!(
            recorded.invocations(),
            [
                "systemctl reload -- crio.service",
                "systemctl show --property=ActiveState,Result -- crio.service"
            ]
        );
    }

    #[test]
    fn a_service_that_died_after_the_restart_is_a_failure() {
        let (_, services) = systemctl("ActiveState=failed\nResult=exit-code\n");
        let error = services
            .perform(&ServiceAction::Restart("crio.service".to_owned()))
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "crio.service is failed after restart crio.service, with result exit-code"
        );
    }

    #[test]
    fn a_machine_without_a_bus_is_asked_by_commands() {
        let recorded = Arc::new(Recorded::answering(&[("systemctl", "")]));
        let root = tempfile::tempdir().unwrap();
        let services = SystemdServices::new(Bus::at(root.path()), Arc::new(Arc::clone(&recorded)));
        services.perform(&ServiceAction::DaemonReload).unwrap();
        services
            .perform(&ServiceAction::Enable("mco-daemon.service".to_owned()))
            .unwrap();
        assert_eq!(
            recorded.invocations(),
            [
                "systemctl daemon-reload",
                "systemctl enable -- mco-daemon.service"
            ]
        );
    }

    /// A machine without the unit of CoreOS was rolled back after every change of the user's CA bundle.
    #[test]
    fn a_changed_ca_bundle_failed_on_machines_without_coreos() {
        let perform = |commands: &[(&str, &str)]| {
            let recorded = Recorded::answering(commands).failing("systemctl", 5, "Unit not found.");
            let recorded = Arc::new(recorded);
            let root = tempfile::tempdir().unwrap();
            let services = SystemdServices::new(Bus::at(root.path()), Arc::new(Arc::clone(&recorded)));
            let outcome = services.perform(&ServiceAction::Restart(TRUST_UNIT.to_owned()));
            (outcome.map_err(|error| error.to_string()), recorded.invocations())
        };
        let restart = "systemctl restart -- coreos-update-ca-trust.service";
        let (outcome, calls) = perform(&[("update-ca-trust", "")]);
        assert_eq!(
            (outcome, calls),
            (Ok(()), vec![restart.to_owned(), "update-ca-trust".to_owned()])
        );
        let (outcome, calls) = perform(&[("update-ca-certificates", "")]);
        assert_eq!(outcome, Ok(()));
        assert_eq!(calls, [restart, "update-ca-trust", "update-ca-certificates"]);
        let (outcome, _) = perform(&[]);
        assert!(outcome.unwrap_err().contains("Unit not found."));
    }

    /// A changed registries.conf was rolled back on hosts of podman and on nodes with containerd.
    #[test]
    fn changed_registries_were_rolled_back_on_machines_without_crio() {
        let loaded = "systemctl show --property=LoadState -- crio.service";
        let active = "systemctl show --property=ActiveState -- containerd.service";
        let restart = "systemctl restart -- containerd.service";
        let verify = "systemctl show --property=ActiveState,Result -- containerd.service";
        let perform = |action: ServiceAction, answers: &[(&str, &str)]| {
            let recorded =
                Recorded::answering(answers).failing("systemctl", 5, "crio.service cannot be reloaded.");
            let recorded = Arc::new(recorded);
            let root = tempfile::tempdir().unwrap();
            let services = SystemdServices::new(Bus::at(root.path()), Arc::new(Arc::clone(&recorded)));
            let outcome = services.perform(&action).map_err(|error| error.to_string());
            (outcome, recorded.invocations().split_off(1))
        };
        let reload = || ServiceAction::Reload(CRIO.to_owned());
        let absent = (loaded, "LoadState=not-found\n");
        let running = (active, "ActiveState=active\n");
        let stopped = (active, "ActiveState=inactive\n");
        let succeeds = [(restart, ""), (verify, "ActiveState=active\nResult=success\n")];

        for action in [reload(), ServiceAction::Restart(CRIO.to_owned())] {
            let (outcome, calls) = perform(action, &[absent, running, succeeds[0], succeeds[1]]);
            assert_eq!(
                (outcome, calls),
                (
                    Ok(()),
                    [loaded, active, restart, verify].map(str::to_owned).to_vec()
                )
            );
        }
        let (outcome, calls) = perform(reload(), &[absent, stopped]);
        assert_eq!(
            (outcome, calls),
            (Ok(()), [loaded, active].map(str::to_owned).to_vec())
        );

        let (outcome, _) = perform(
            reload(),
            &[absent, running, (restart, ""), (verify, "ActiveState=failed\n")],
        );
        assert!(outcome.unwrap_err().contains("containerd.service is failed"));
        for state in ["LoadState=loaded\n", "LoadState=masked\n", ""] {
            let (outcome, calls) = perform(reload(), &[(loaded, state), running]);
            assert!(
                outcome.unwrap_err().contains("crio.service cannot be reloaded."),
                "{state}"
            );
            assert_eq!(calls, [loaded]);
        }
        let (outcome, calls) = perform(ServiceAction::Restart("other.service".to_owned()), &[absent]);
        assert!(outcome.is_err() && calls.is_empty());
    }

    #[test]
    fn a_oneshot_that_ran_to_its_end_is_fine() {
        let (_, services) = systemctl("ActiveState=inactive\nResult=success\n");
        services
            .perform(&ServiceAction::Restart("crio.service".to_owned()))
            .unwrap();
    }
}
