//! Applies a config to a machine without a cluster. Idempotent.

use mco_core::config::disruption::{Cost, DisruptionPolicy};
use mco_core::config::reconcilable::Overrides;
use mco_host::os::OsChange;
use mco_host::{FsError, Machine, PowerError, Reboot, RootedPath};
use thiserror::Error;

use crate::apply::{self, ApplyRequest, ApplyResult, Circumstances, ConfigApplyError};
use crate::boot_proof::{self, BootProof};
use crate::config::NodeConfig;
use crate::custody::Custody;
use crate::disk::{self, DiskError};
use crate::guard;
use crate::paths;
use crate::plan::PlanStep;
use crate::transaction::{self, Checkpoints, Journal, Recovered, TransactionError, TransactionFailure};
use crate::validate::{Mismatch, ValidateError};

/// Whether a change that needs a reboot may request it at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebootPolicy {
    WhenNeeded,
    Never,
}

/// The result of applying a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OnceOutcome {
    /// The machine was already up to date.
    Unchanged,
    /// The machine is up to date; `changed` paths were written.
    Applied { changed: usize },
    /// A reboot is needed and not requested yet.
    NeedsReboot { because: String, changed: usize },
    /// A reboot was requested.
    Rebooting { because: String, changed: usize },
}

#[derive(Debug, Error)]
pub enum OnceError {
    #[error("another daemon is running on this machine")]
    Busy,
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Files(#[from] FsError),
    #[error(transparent)]
    Apply(#[from] ConfigApplyError),
    #[error(transparent)]
    Recovery(#[from] TransactionError),
    #[error(transparent)]
    Proof(#[from] TransactionFailure),
    #[error(transparent)]
    Power(#[from] PowerError),
    #[error(transparent)]
    Validate(#[from] ValidateError),
    #[error("the machine has booted, but {}", .0.first().map_or("", |first| first.cause.as_str()))]
    Unproven(Vec<Mismatch>),
}

/// The machine's exclusive lock, held while it is being changed.
#[derive(Debug)]
pub struct Lock(std::fs::File);

impl Drop for Lock {
    /// Unlocks explicitly. Closing is not enough: a command that another thread has just forked still has the file
    /// open.
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "could not release the machine's lock");
        }
    }
}

pub fn lock(machine: &Machine) -> Result<Lock, OnceError> {
    let path = RootedPath::new(paths::LOCK).map_err(FsError::from)?;
    machine.root.try_lock(&path)?.map(Lock).ok_or(OnceError::Busy)
}

/// Applies the config, after completing or rolling back an interrupted change.
pub fn apply(
    machine: &Machine,
    new: &NodeConfig,
    reboots: RebootPolicy,
    checkpoints: &dyn Checkpoints,
) -> Result<OnceOutcome, OnceError> {
    let _lock = lock(machine)?;
    let owed = settle_past(machine, checkpoints)?;
    let old = disk::current_config(&machine.root)?.unwrap_or_else(NodeConfig::empty);
    // Without a cluster nothing is declared: the starting point is the record on disk, or nothing.
    let custody = match Custody::of(&machine.root)? {
        Custody::Adopted => Custody::Adopted,
        Custody::Installed | Custody::Declared => Custody::Installed,
    };
    let change = ConfigChange {
        old: &old,
        new,
        circumstances: Circumstances::Standalone,
        custody,
        reboot_owed: owed.as_deref(),
        steps: Vec::new(),
    };
    apply_change(machine, change, reboots, checkpoints)
}

/// A change from one config to another, of a machine whose earlier changes are settled.
#[derive(Debug)]
pub(crate) struct ConfigChange<'a> {
    pub old: &'a NodeConfig,
    pub new: &'a NodeConfig,
    pub circumstances: Circumstances,
    pub custody: Custody,
    /// The reason of a reboot that is due regardless of this change.
    pub reboot_owed: Option<&'a str>,
    /// What is written in addition.
    pub steps: Vec<PlanStep<'a>>,
}

impl ConfigChange<'_> {
    /// Determines what the change costs. Changes nothing.
    pub fn cost(&self, machine: &Machine) -> Result<Cost, OnceError> {
        let waiting = self.waiting(machine)?;
        let policy = DisruptionPolicy::default();
        Ok(apply::prepare(machine, &self.request(&policy, waiting.as_ref()))?.cost)
    }

    /// Returns the change that waits for the reboot that is due.
    fn waiting(&self, machine: &Machine) -> Result<Option<Journal>, OnceError> {
        Ok(match self.reboot_owed {
            Some(_) => transaction::read_journal(&machine.root).map_err(TransactionFailure::from)?,
            None => None,
        })
    }

    fn request<'b>(&'b self, policy: &'b DisruptionPolicy, waiting: Option<&'b Journal>) -> ApplyRequest<'b> {
        ApplyRequest {
            old: self.old,
            new: self.new,
            policy,
            overrides: Overrides::default(),
            circumstances: self.circumstances,
            reboot_owed: self.reboot_owed,
            pending_os: waiting.and_then(|journal| journal.os.as_ref()),
            custody: self.custody,
        }
    }
}

/// Applies a change whose lock the caller holds.
pub(crate) fn apply_change(
    machine: &Machine,
    mut change: ConfigChange<'_>,
    reboots: RebootPolicy,
    checkpoints: &dyn Checkpoints,
) -> Result<OnceOutcome, OnceError> {
    let steps = std::mem::take(&mut change.steps);
    let waiting = change.waiting(machine)?;
    let policy = DisruptionPolicy::default();
    let prepared = apply::prepare(machine, &change.request(&policy, waiting.as_ref()))?;
    let superseded = match (
        change.reboot_owed,
        transaction::read_journal(&machine.root).map_err(TransactionFailure::from)?,
    ) {
        (Some(because), Some(journal))
            if prepared.changed_paths().next().is_none()
                && prepared.system_change().is_none_or(OsChange::repeats_replaced) =>
        {
            // The same config again, still waiting for the same reboot.
            return finish(machine, &journal, because.to_owned(), reboots, 0, checkpoints);
        }
        (_, journal) => journal,
    };
    if let Some(journal) = superseded {
        // The pending change becomes the old state of this one.
        transaction::supersede(machine, &journal, checkpoints)?;
    }
    let Some(journal) = apply::commit(machine, prepared.with_steps(steps), checkpoints)? else {
        return Ok(OnceOutcome::Unchanged);
    };
    let changed = journal.paths();
    match apply::settle(machine, journal.clone(), checkpoints)? {
        ApplyResult::Done | ApplyResult::AwaitingConfirmation => Ok(OnceOutcome::Applied { changed }),
        ApplyResult::AwaitingBoot { because } => {
            finish(machine, &journal, because, reboots, changed, checkpoints)
        }
    }
}

/// Completes or rolls back an interrupted change. Returns the reason of a reboot that is still due.
pub fn settle_past(machine: &Machine, checkpoints: &dyn Checkpoints) -> Result<Option<String>, OnceError> {
    let Some(journal) = settle_past_unproven(machine, checkpoints)? else {
        return Ok(None);
    };
    if journal.awaits_confirmation() {
        // Without a cluster there is nothing to wait for: the next change replaces this one.
        transaction::prove(machine, &journal, checkpoints)?;
        guard::disarm(machine)?;
        return Ok(None);
    }
    if machine.power.boot_id(&machine.root)? == journal.boot {
        return Ok(journal.aftermath.reboot);
    }
    match prove_boot(machine, &journal, checkpoints)? {
        BootProof::Proven => Ok(None),
        BootProof::AnotherBoot { because } => Ok(Some(because)),
    }
}

/// Like [`settle_past`], but leaves a change that waits for a reboot, or for its proof, to the caller.
pub fn settle_past_unproven(
    machine: &Machine,
    checkpoints: &dyn Checkpoints,
) -> Result<Option<Journal>, OnceError> {
    match transaction::recover(machine, checkpoints)? {
        Recovered::Nothing | Recovered::RolledBack { .. } => Ok(None),
        Recovered::AwaitingBoot(journal) => Ok(Some(journal)),
        Recovered::InPlace(journal) => match apply::settle(machine, journal, checkpoints)? {
            ApplyResult::Done => Ok(None),
            ApplyResult::AwaitingBoot { .. } | ApplyResult::AwaitingConfirmation => {
                Ok(transaction::read_journal(&machine.root).map_err(TransactionFailure::from)?)
            }
        },
    }
}

/// Examines the machine after it has booted into the change, and drops the old state if the change is proven.
pub fn prove_boot(
    machine: &Machine,
    journal: &Journal,
    checkpoints: &dyn Checkpoints,
) -> Result<BootProof, OnceError> {
    let proof = boot_proof::examine(machine, journal, checkpoints)?;
    if proof == BootProof::Proven {
        transaction::prove(machine, journal, checkpoints)?;
        guard::disarm(machine)?;
    }
    Ok(proof)
}

fn finish(
    machine: &Machine,
    journal: &Journal,
    because: String,
    reboots: RebootPolicy,
    changed: usize,
    checkpoints: &dyn Checkpoints,
) -> Result<OnceOutcome, OnceError> {
    if reboots == RebootPolicy::Never {
        return Ok(OnceOutcome::NeedsReboot { because, changed });
    }
    match apply::reboot(machine, &because)? {
        Reboot::Queued => Ok(OnceOutcome::Rebooting { because, changed }),
        Reboot::Simulated => match prove_boot(machine, journal, checkpoints)? {
            BootProof::Proven => Ok(OnceOutcome::Applied { changed }),
            BootProof::AnotherBoot { because } => Ok(OnceOutcome::NeedsReboot { because, changed }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_although_another_process_still_has_its_file_open() {
        let directory = tempfile::tempdir().unwrap();
        let machine = Machine::directory(directory.path()).unwrap();
        let first = lock(&machine).unwrap();
        let inherited = first.0.try_clone().unwrap();
        assert!(matches!(lock(&machine), Err(OnceError::Busy)));
        drop(first);
        lock(&machine).unwrap();
        drop(inherited);
    }
}
