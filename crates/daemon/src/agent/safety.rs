//! What makes a change safe: hooks that may refuse it, and the guard that reverts it.

use mco_core::rollout::hooks::{HookPhase, HookResult};
use mco_host::Machine;

use super::error::AgentError;
use super::notes::Note;
use super::work::UpdateRequest;
use crate::apply::{ConfigApplyError, PreparedApply};
use crate::boot_proof;
use crate::disk::DiskError;
use crate::guard::{self, RequiredHealth};
use crate::hooks;
use crate::status::StatusError;
use crate::transaction::{self, Journal, JournalPhase, TransactionError, Uninterrupted, read_journal};

/// Runs the hooks before anything is written.
pub(super) fn before_apply(
    machine: &Machine,
    update: &UpdateRequest,
    notify: &dyn Fn(Note),
) -> Result<(), AgentError> {
    match hooks(machine, HookPhase::BeforeApply, update, notify)? {
        None => Ok(()),
        Some(result) => Err(AgentError::Hook {
            result: Box::new(result),
            outcome: "Nothing was changed",
        }),
    }
}

/// Adds the guard to a change that interrupts anything. Where its program does not run, the daemon alone waits for the
/// health of the node.
pub(super) fn arm<'a>(
    machine: &Machine,
    prepared: PreparedApply<'a>,
    update: &UpdateRequest,
) -> Result<PreparedApply<'a>, AgentError> {
    let Some((program, required)) = update.guard.as_ref().filter(|_| prepared.interrupts()) else {
        return Ok(prepared);
    };
    let prepared = prepared.requiring(required.clone());
    if let Err(error) = guard::install_program(machine, program) {
        tracing::warn!(%error, "the change is not guarded by {}", guard::UNIT);
        return Ok(prepared);
    }
    Ok(prepared.with_steps(guard::preparation(&machine.root).map_err(DiskError::from)?))
}

/// Runs the hooks once all files are in place. A failure undoes the change.
pub(super) fn after_apply(
    machine: &Machine,
    committed: Result<Option<Journal>, ConfigApplyError>,
    update: &UpdateRequest,
    notify: &dyn Fn(Note),
) -> Result<Option<Journal>, AgentError> {
    let mut journal = match committed {
        Ok(Some(journal)) => journal,
        Ok(None) => return Ok(None),
        Err(error) => {
            // The change was rolled back with the unit of the guard, but not its program.
            guard::disarm(machine).map_err(DiskError::from)?;
            return Err(error.into());
        }
    };
    let Some(result) = hooks(machine, HookPhase::AfterApply, update, notify)? else {
        return Ok(Some(journal));
    };
    roll_back(machine, &mut journal, &result.to_string())?;
    Err(AgentError::Hook {
        result: Box::new(result),
        outcome: UNDONE,
    })
}

pub(super) const UNDONE: &str = "The change was undone";

/// Runs the hooks of a phase; returns the one that failed.
fn hooks(
    machine: &Machine,
    phase: HookPhase,
    update: &UpdateRequest,
    notify: &dyn Fn(Note),
) -> Result<Option<HookResult>, AgentError> {
    let (from, to) = (update.old.name(), update.new.name());
    let results = hooks::run(machine, phase, from, to).map_err(DiskError::from)?;
    let failed = results.last().filter(|last| last.failure.is_some()).cloned();
    if !results.is_empty() {
        notify(Note::Hooks(results));
    }
    // A broken hook must not prevent its own repair.
    Ok(failed.filter(|_| !update.forced))
}

/// Runs the hooks of a phase of the change in the journal.
pub(super) fn change_hooks(machine: &Machine, phase: HookPhase) -> Result<Vec<HookResult>, AgentError> {
    Ok(match read_journal(&machine.root).map_err(StatusError::from)? {
        // After a rollback, both are the same.
        Some(journal) if journal.from != journal.to => {
            hooks::run(machine, phase, &journal.from, &journal.to).map_err(DiskError::from)?
        }
        _ => Vec::new(),
    })
}

/// Rolls back the change that waits for its reboot.
pub(super) fn undo(machine: &Machine, because: &str) -> Result<(), AgentError> {
    match read_journal(&machine.root).map_err(StatusError::from)? {
        Some(mut journal) => roll_back(machine, &mut journal, because),
        None => Ok(()),
    }
}

fn roll_back(machine: &Machine, journal: &mut Journal, because: &str) -> Result<(), AgentError> {
    let stuck = |rollback| TransactionError::Stuck {
        cause: because.to_owned(),
        rollback,
    };
    transaction::roll_back(machine, journal, because, &Uninterrupted)
        .map_err(|rollback| ConfigApplyError::from(stuck(rollback)))?;
    Ok(guard::disarm(machine).map_err(DiskError::from)?)
}

/// Returns what the node must show for the change that is not confirmed yet, if there is one.
pub(super) fn required_health(machine: &Machine) -> Result<Option<RequiredHealth>, AgentError> {
    let Some(journal) = read_journal(&machine.root).map_err(StatusError::from)? else {
        return Ok(None);
    };
    let boot = machine.power.boot_id(&machine.root).map_err(StatusError::from)?;
    let has_booted = journal.phase == JournalPhase::AwaitingBoot && journal.boot != boot;
    let is_unconfirmed = has_booted || journal.awaits_confirmation();
    Ok(journal.health.filter(|_| is_unconfirmed))
}

/// Rolls back the change with which the node is not healthy; returns why it has to reboot.
pub(super) fn give_up(machine: &Machine, because: &str) -> Result<String, AgentError> {
    Ok(match read_journal(&machine.root).map_err(StatusError::from)? {
        Some(journal) => boot_proof::give_up(machine, &journal, because, &Uninterrupted)?,
        None => because.to_owned(),
    })
}
