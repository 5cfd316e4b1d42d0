//! Examines a machine after the boot of a change: whether the new deployment has booted, and what to do if it has not.
//!
//! A deployment that was lost, by a power cut or a full `/boot`, is staged again. If that does not help, or if the new
//! deployment is of no use, OS and config are rolled back together, and the target is not attempted again.

use mco_host::os::{OsBackend, OsError};
use mco_host::{Attributes, BootId, FsError, Machine, RootedPath};
use serde::{Deserialize, Serialize};

use crate::apply::ConfigApplyError;
use crate::disk::{self, DiskError};
use crate::guard;
use crate::once::OnceError;
use crate::paths;
use crate::transaction::{self, Checkpoints, Journal, JournalPhase};
use crate::validate::{self, Mismatch};

/// How often a lost deployment is staged again. A power cut takes one; a second failure is no coincidence.
const MOST_RESTAGES: u32 = 2;
const LARGEST: u64 = 1 << 20;

/// The result of an examination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootProof {
    Proven,
    /// The change, or the state before it, needs another boot.
    AnotherBoot {
        because: String,
    },
}

/// What the machine shows after a boot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct BootEvidence {
    /// The change has a part of the OS.
    changes_os: bool,
    restaged: u32,
    /// Why the OS is not that of the change.
    system: Option<String>,
    /// A file, unit or key differs.
    files: bool,
    /// The daemon, or the machine itself, has rolled the OS back.
    rollback: Option<String>,
    /// A rollback was requested in this boot: it waits for the next one.
    rollback_due: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum BootVerdict {
    Proven,
    /// The rollback of the OS has not booted yet.
    Boot {
        because: String,
    },
    StageAgain {
        because: String,
    },
    RollBack {
        because: String,
    },
    Unproven,
}

fn verdict(seen: &BootEvidence) -> BootVerdict {
    if let Some(because) = &seen.rollback_due {
        return BootVerdict::Boot {
            because: because.clone(),
        };
    }
    if let Some(because) = &seen.rollback {
        return BootVerdict::RollBack {
            because: because.clone(),
        };
    }
    match &seen.system {
        Some(because) if seen.changes_os && seen.restaged < MOST_RESTAGES => BootVerdict::StageAgain {
            because: because.clone(),
        },
        Some(because) if seen.changes_os => BootVerdict::RollBack {
            because: because.clone(),
        },
        Some(_) => BootVerdict::Unproven,
        None if seen.files => BootVerdict::Unproven,
        None => BootVerdict::Proven,
    }
}

/// A deployment that is being rolled back, for the daemon that finds the previous one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollbackRequest {
    /// The ID of the change.
    pub id: String,
    /// The boot in which it was requested.
    pub boot: BootId,
    pub because: String,
}

/// A target that was rolled back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolledBackTarget {
    pub config: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The config that it was rolled back to.
    #[serde(default)]
    pub from: String,
    pub because: String,
}

/// Examines the machine after the boot of a change. Stages the change again or rolls it back, if necessary.
pub fn examine(
    machine: &Machine,
    journal: &Journal,
    checkpoints: &dyn Checkpoints,
) -> Result<BootProof, OnceError> {
    let (seen, mismatches) = evidence(machine, journal)?;
    match verdict(&seen) {
        BootVerdict::Proven => Ok(BootProof::Proven),
        BootVerdict::Unproven => Err(OnceError::Unproven(mismatches)),
        BootVerdict::Boot { because } => Ok(BootProof::AnotherBoot { because }),
        BootVerdict::StageAgain { because } => {
            tracing::warn!(
                config = journal.to,
                because,
                "the staged deployment was lost; staging it again"
            );
            let mut journal = journal.clone();
            transaction::restage(machine, &mut journal, checkpoints)?;
            Ok(BootProof::AnotherBoot {
                because: journal.aftermath.reboot.unwrap_or_default(),
            })
        }
        BootVerdict::RollBack { because } => Ok(BootProof::AnotherBoot {
            because: roll_back_config(machine, journal, &because, checkpoints)?,
        }),
    }
}

fn evidence(machine: &Machine, journal: &Journal) -> Result<(BootEvidence, Vec<Mismatch>), OnceError> {
    let mut seen = BootEvidence {
        changes_os: journal.os.is_some(),
        restaged: journal.restaged,
        ..BootEvidence::default()
    };
    if let Some(request) = rollback_request(machine, journal)? {
        if machine.power.boot_id(&machine.root)? == request.boot {
            seen.rollback_due = Some(request.because);
            return Ok((seen, Vec::new()));
        }
        seen.rollback = Some(request.because);
    }
    let Some(config) = disk::current_config(&machine.root)? else {
        return Ok((seen, Vec::new()));
    };
    let mut mismatches = validate::validate_system(machine, &config)?;
    mismatches.extend(lost_deployment(machine, journal)?);
    seen.system = match mismatches.first() {
        Some(first) => Some(with_finalization(machine, &first.cause)?),
        None => None,
    };
    let files = validate::validate_files(machine, &config)?;
    seen.files = !files.is_empty();
    mismatches.extend(files);
    Ok((seen, mismatches))
}

/// Compares digests: a tag has the same name before and after.
fn lost_deployment(machine: &Machine, journal: &Journal) -> Result<Option<Mismatch>, OnceError> {
    let images = journal.os.as_ref().is_some_and(|change| change.image.is_some());
    let Some(staged) = journal.deployment.as_ref().filter(|_| images) else {
        return Ok(None);
    };
    let state = machine.os.state(&machine.root).map_err(ConfigApplyError::from)?;
    Ok(staged.lost_digest(&state).map(|digest| {
        let booted = state.digest.clone().unwrap_or_default();
        let cause = format!("expected the staged deployment with digest {digest:?}, have {booted:?}");
        Mismatch::plain("osImageURL", cause)
    }))
}

fn with_finalization(machine: &Machine, cause: &str) -> Result<String, OnceError> {
    let failure = machine
        .os
        .finalization_failure()
        .map_err(ConfigApplyError::from)?;
    Ok(match failure {
        Some(failure) => format!("{cause}; possible root cause: {failure}"),
        None => cause.to_owned(),
    })
}

/// Rolls back a change with which the node is not healthy; returns why the machine has to reboot, which the caller
/// requests. One reboot is enough, except for a new deployment: its `/etc` goes with it, and the previous deployment,
/// which has the new files too, rolls them back with a second reboot.
pub fn give_up(
    machine: &Machine,
    journal: &Journal,
    because: &str,
    checkpoints: &dyn Checkpoints,
) -> Result<String, OnceError> {
    if rollback_request(machine, journal)?.is_none() && runs_new_deployment(machine, journal)? {
        roll_back_system(machine, journal, because)?;
        return Ok(because.to_owned());
    }
    match rollback_request(machine, journal)? {
        Some(request) if machine.power.boot_id(&machine.root)? == request.boot => Ok(request.because),
        request => {
            let because = request.map_or_else(|| because.to_owned(), |request| request.because);
            roll_back_config(machine, journal, &because, checkpoints)
        }
    }
}

/// Returns whether the deployment of a change is the booted one.
fn runs_new_deployment(machine: &Machine, journal: &Journal) -> Result<bool, OnceError> {
    // A boot loader has no previous deployment: its change is undone with the files.
    let has_deployments = machine.os.backend() != OsBackend::PackageMode;
    if !has_deployments || journal.os.is_none() || journal.phase != JournalPhase::AwaitingBoot {
        return Ok(false);
    }
    if machine.power.boot_id(&machine.root)? == journal.boot {
        return Ok(false);
    }
    Ok(evidence(machine, journal)?.0.system.is_none())
}

/// Returns whether the previous deployment has booted for a rollback of which only the config is left.
pub fn rollback_is_due(machine: &Machine, journal: &Journal) -> Result<bool, OnceError> {
    Ok(match rollback_request(machine, journal)? {
        Some(request) => machine.power.boot_id(&machine.root)? != request.boot,
        None => false,
    })
}

/// Rolls back the OS of a change that has booted, and requests that of the config. The caller reboots.
fn roll_back_system(machine: &Machine, journal: &Journal, because: &str) -> Result<(), OnceError> {
    let request = RollbackRequest {
        id: journal.id.clone(),
        boot: machine.power.boot_id(&machine.root)?,
        because: because.to_owned(),
    };
    write(machine, paths::ROLLBACK_REQUEST, &request)?;
    if let Some(change) = &journal.os {
        machine
            .os
            .roll_back(&machine.root, change)
            .map_err(ConfigApplyError::from)?;
    }
    Ok(())
}

/// Rolls back the config of a change whose OS did not boot, or was rolled back. Services have started with the new
/// files, so that another boot is due.
fn roll_back_config(
    machine: &Machine,
    journal: &Journal,
    because: &str,
    checkpoints: &dyn Checkpoints,
) -> Result<String, OnceError> {
    tracing::error!(config = journal.to, because, "rolling back");
    let current = disk::current_config(&machine.root)?;
    let target = RolledBackTarget {
        config: journal.to.clone(),
        from: journal.from.clone(),
        image: current.and_then(|config| config.built_image),
        because: because.to_owned(),
    };
    write(machine, paths::ROLLED_BACK, &target)?;
    let mut journal = journal.clone();
    let boots = format!(
        "Node will reboot into config {} again, after a rollback",
        journal.from
    );
    journal.owe(Some(boots.clone()));
    transaction::roll_back(machine, &mut journal, because, checkpoints)?;
    guard::disarm(machine)?;
    remove(machine, paths::ROLLBACK_REQUEST)?;
    Ok(boots)
}

fn rollback_request(machine: &Machine, journal: &Journal) -> Result<Option<RollbackRequest>, OnceError> {
    let request: Option<RollbackRequest> = read(machine, paths::ROLLBACK_REQUEST)?;
    Ok(request.filter(|request| request.id == journal.id))
}

/// Returns the target that was rolled back, until another one is reached.
pub fn rolled_back(machine: &Machine) -> Result<Option<RolledBackTarget>, DiskError> {
    Ok(read(machine, paths::ROLLED_BACK)?)
}

/// Forgets a rolled back target once the node has reached another config than the one that it was rolled back to.
pub fn forget_rolled_back_after(machine: &Machine, reached: &str) -> Result<(), DiskError> {
    match rolled_back(machine)? {
        Some(target) if target.from == reached => Ok(()),
        _ => forget_rolled_back(machine),
    }
}

/// Forgets a rolled back target, because it is to be attempted again.
pub fn forget_rolled_back(machine: &Machine) -> Result<(), DiskError> {
    Ok(remove(machine, paths::ROLLED_BACK)?)
}

fn read<T: for<'a> Deserialize<'a>>(machine: &Machine, path: &str) -> Result<Option<T>, FsError> {
    let bytes = machine.root.read(&RootedPath::new(path)?, LARGEST)?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

fn write(machine: &Machine, path: &str, value: &impl Serialize) -> Result<(), FsError> {
    let path = RootedPath::new(path)?;
    if let Some(parent) = path.parent() {
        machine
            .root
            .create_directories(&parent, Attributes::root(0o755))?;
    }
    let text = serde_json::to_vec(value).unwrap_or_default();
    machine
        .root
        .write_atomically(&path, Attributes::root(0o600), &text)
}

fn remove(machine: &Machine, path: &str) -> Result<(), FsError> {
    machine.root.remove_file(&RootedPath::new(path)?)?;
    Ok(())
}

impl From<OsError> for OnceError {
    fn from(error: OsError) -> Self {
        Self::Apply(ConfigApplyError::from(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_deployment_is_staged_again_and_then_rolled_back() {
        let lost = Some("lost".to_owned());
        let seen =
            |changes_os, restaged, system: &Option<String>, files, rollback: Option<&str>| BootEvidence {
                changes_os,
                restaged,
                system: system.clone(),
                files,
                rollback: rollback.map(str::to_owned),
                rollback_due: None,
            };
        let because = |text: &str| text.to_owned();
        let again = BootVerdict::StageAgain {
            because: because("lost"),
        };
        let back = |text: &str| BootVerdict::RollBack {
            because: because(text),
        };
        for (name, seen, expected) in [
            ("in order", seen(true, 0, &None, false, None), BootVerdict::Proven),
            ("lost once", seen(true, 0, &lost, false, None), again.clone()),
            ("lost twice", seen(true, 1, &lost, true, None), again),
            ("lost for good", seen(true, 2, &lost, false, None), back("lost")),
            (
                "another change",
                seen(false, 0, &lost, false, None),
                BootVerdict::Unproven,
            ),
            (
                "drifted files",
                seen(true, 0, &None, true, None),
                BootVerdict::Unproven,
            ),
            (
                "rolled back",
                seen(true, 0, &lost, false, Some("unhealthy")),
                back("unhealthy"),
            ),
        ] {
            assert_eq!(verdict(&seen), expected, "{name}");
        }
        let due = BootEvidence {
            rollback_due: Some("unhealthy".to_owned()),
            ..BootEvidence::default()
        };
        assert_eq!(
            verdict(&due),
            BootVerdict::Boot {
                because: because("unhealthy")
            }
        );
    }
}
