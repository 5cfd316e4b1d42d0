//! Atomic changes of a machine: completely or not at all.
//!
//! ```text
//! stage      journal "staging"; new contents under temporary names beside their destinations, old contents linked
//!            into a directory of ours; the OS staged, but kept from booting; everything on disk
//! prepared   journal records it: from here on recovery rolls forward
//! swap       renames only; directories on disk
//! swapped    journal records it: services are reloaded, or the machine reboots
//! proven     old contents and journal removed
//! ```
//! After an interruption at any point, [`recover`] completes or rolls back the change. What changes is decided in
//! [`crate::plan`].

mod checkpoint;
mod journal;
mod recover;
mod stage;
mod swap;

use mco_host::os::{OsChange, OsError};
use mco_host::{AccountError, FsError, Machine, PowerError};
use thiserror::Error;

use crate::guard::RequiredHealth;
use crate::os_stage;
use crate::plan::ApplyPlan;
use crate::target::TargetError;
pub use checkpoint::{Checkpoints, Uninterrupted};
pub use journal::{Aftermath, Journal, JournalError, JournalPhase, read as read_journal};
pub use recover::{Recovered, recover, roll_back};

/// The subject of a transaction besides the files.
#[derive(Debug, Clone, Default)]
pub struct TransactionSubject {
    pub from: String,
    pub to: String,
    pub os: Option<OsChange>,
    pub aftermath: Aftermath,
    /// Why a reboot was due before this change, if it was.
    pub reboot_owed: Option<String>,
    /// What the node must show before the change is proven.
    pub health: Option<RequiredHealth>,
}

#[derive(Debug, Error)]
pub enum TransactionFailure {
    #[error(transparent)]
    Files(#[from] FsError),
    #[error(transparent)]
    Accounts(#[from] AccountError),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Os(#[from] OsError),
    #[error(transparent)]
    Power(#[from] PowerError),
    #[error(transparent)]
    Journal(#[from] JournalError),
}

#[derive(Debug, Error)]
pub enum TransactionError {
    /// The machine is in its previous state.
    #[error("{0}")]
    RolledBack(TransactionFailure),
    /// The machine is between two states; the journal is kept and the next start retries the rollback.
    #[error("error rolling back files writes: [{rollback}, {cause}]")]
    Stuck {
        cause: String,
        rollback: TransactionFailure,
    },
}

/// Executes a plan. On success all files are in place and the journal waits for its aftermath.
pub fn execute(
    machine: &Machine,
    plan: &ApplyPlan<'_>,
    subject: TransactionSubject,
    checkpoints: &dyn Checkpoints,
) -> Result<Journal, TransactionError> {
    let mut journal = Journal::new(machine, plan, subject).map_err(TransactionError::RolledBack)?;
    match forward(machine, plan, &mut journal, checkpoints) {
        Ok(()) => Ok(journal),
        Err(cause) => match roll_back(machine, &mut journal, &cause.to_string(), checkpoints) {
            Ok(()) => Err(TransactionError::RolledBack(cause)),
            Err(rollback) => Err(TransactionError::Stuck {
                cause: cause.to_string(),
                rollback,
            }),
        },
    }
}

fn forward(
    machine: &Machine,
    plan: &ApplyPlan<'_>,
    journal: &mut Journal,
    checkpoints: &dyn Checkpoints,
) -> Result<(), TransactionFailure> {
    journal.enter(machine, JournalPhase::Staging, checkpoints)?;
    stage::stage(&machine.root, plan, journal, checkpoints)?;
    if let Some(change) = &journal.os {
        checkpoints.reach("stage operating system")?;
        journal.os_touched = true;
        journal.deployment = Some(os_stage::stage(machine, change)?);
    }
    journal.prepare_undoing(&machine.root, checkpoints)?;
    journal.enter(machine, JournalPhase::Prepared, checkpoints)?;
    swap::swap(machine, journal, checkpoints)?;
    journal.enter(machine, JournalPhase::Swapped, checkpoints)?;
    Ok(())
}

/// Marks the change as waiting for a reboot: it is proven only when the machine has booted with it.
pub fn await_boot(
    machine: &Machine,
    journal: &mut Journal,
    checkpoints: &dyn Checkpoints,
) -> Result<(), TransactionFailure> {
    let boot = machine.power.boot_id(&machine.root)?;
    if let Some(change) = &journal.os {
        if machine.os.stages_ahead() {
            // A shutdown since the change was staged has lost it.
            checkpoints.reach("stage operating system")?;
            journal.deployment = Some(os_stage::stage(machine, change)?);
        }
        os_stage::release(machine)?;
    }
    journal.boot = boot;
    Ok(journal.enter(machine, JournalPhase::AwaitingBoot, checkpoints)?)
}

/// Marks the change as waiting for the health of the node, after its services were restarted.
pub fn await_confirmation(
    machine: &Machine,
    journal: &mut Journal,
    checkpoints: &dyn Checkpoints,
) -> Result<(), TransactionFailure> {
    journal.settled = true;
    journal.boot = machine.power.boot_id(&machine.root)?;
    Ok(journal.enter(machine, JournalPhase::Swapped, checkpoints)?)
}

/// Commits the new state: removes the old contents and the journal.
pub fn prove(
    machine: &Machine,
    journal: &Journal,
    checkpoints: &dyn Checkpoints,
) -> Result<(), TransactionFailure> {
    swap::forget_old(&machine.root, journal, checkpoints)?;
    if journal.os.is_some() {
        os_stage::release(machine)?;
    }
    Ok(Journal::remove(&machine.root, checkpoints)?)
}

/// Stages the OS change again after a boot without it, and waits for another boot. The previous deployment is removed: a
/// full `/boot` is the most likely reason, and what runs is proven.
pub fn restage(
    machine: &Machine,
    journal: &mut Journal,
    checkpoints: &dyn Checkpoints,
) -> Result<(), TransactionFailure> {
    machine.os.remove_rollback(&machine.root)?;
    journal.restaged += 1;
    if let Some(change) = journal.os.as_ref().filter(|_| !machine.os.stages_ahead()) {
        machine.os.stage(&machine.root, change)?;
    }
    await_boot(machine, journal, checkpoints)
}

/// Replaces a change that waits for its reboot: its new state becomes the one to roll back to. The journal stays until
/// the next change replaces it, so that the due reboot is not lost.
pub fn supersede(
    machine: &Machine,
    journal: &Journal,
    checkpoints: &dyn Checkpoints,
) -> Result<(), TransactionFailure> {
    swap::forget_old(&machine.root, journal, checkpoints)
}
