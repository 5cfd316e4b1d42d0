//! Recovers an interrupted transaction: rolls it back or completes it.

use mco_host::os::OsError;
use mco_host::{CommandError, FsError, Machine, Root, RootedPath};

use super::journal::{self, Journal, JournalPhase};
use super::swap::{remove_leftovers, swap, swap_back};
use super::{Checkpoints, TransactionError, TransactionFailure};
use crate::os_stage;

/// The state found at start.
#[derive(Debug)]
pub enum Recovered {
    /// No change was in progress.
    Nothing,
    /// The change was not prepared yet and was rolled back.
    RolledBack {
        from: String,
        to: String,
        because: String,
    },
    /// All files are in place; services still have to be reloaded, or the machine rebooted.
    InPlace(Journal),
    /// All files were in place and a reboot was due. The boot IDs show whether it happened.
    AwaitingBoot(Journal),
}

/// Completes or rolls back the change that was in progress when the machine or the daemon stopped.
pub fn recover(machine: &Machine, checkpoints: &dyn Checkpoints) -> Result<Recovered, TransactionError> {
    let stuck = |error: TransactionFailure| TransactionError::Stuck {
        cause: "while recovering".to_owned(),
        rollback: error,
    };
    remove_temporaries(&machine.root).map_err(|error| stuck(error.into()))?;
    let Some(mut journal) = journal::read(&machine.root).map_err(|error| stuck(error.into()))? else {
        let leftover = journal::undo_path().and_then(|path| machine.root.remove_file(&path));
        leftover.map_err(|error| stuck(error.into()))?;
        remove_leftovers(&machine.root).map_err(|error| stuck(error.into()))?;
        journal::remove_empty_directory(&machine.root).map_err(|error| stuck(error.into()))?;
        return Ok(Recovered::Nothing);
    };
    match journal.phase {
        JournalPhase::Swapped => Ok(Recovered::InPlace(journal)),
        JournalPhase::AwaitingBoot => Ok(Recovered::AwaitingBoot(journal)),
        JournalPhase::Staging | JournalPhase::RollingBack => {
            let because = journal
                .because
                .clone()
                .unwrap_or_else(|| "interrupted while staging".to_owned());
            roll_back(machine, &mut journal, &because, checkpoints).map_err(stuck)?;
            Ok(Recovered::RolledBack {
                from: journal.from,
                to: journal.to,
                because,
            })
        }
        JournalPhase::Prepared => match go_on(machine, &mut journal, checkpoints) {
            Ok(()) => Ok(Recovered::InPlace(journal)),
            Err(cause) => {
                let because = cause.to_string();
                roll_back(machine, &mut journal, &because, checkpoints).map_err(stuck)?;
                Ok(Recovered::RolledBack {
                    from: journal.from,
                    to: journal.to,
                    because,
                })
            }
        },
    }
}

fn go_on(
    machine: &Machine,
    journal: &mut Journal,
    checkpoints: &dyn Checkpoints,
) -> Result<(), TransactionFailure> {
    if let Some(change) = &journal.os
        && machine.power.boot_id(&machine.root)? != journal.boot
    {
        // A staged deployment does not survive a power failure. Staging is idempotent.
        checkpoints.reach("stage operating system")?;
        journal.deployment = Some(os_stage::stage(machine, change)?);
    }
    swap(machine, journal, checkpoints)?;
    Ok(journal.enter(machine, JournalPhase::Swapped, checkpoints)?)
}

/// Rolls back a change from any phase. Files are restored even if the operating system cannot be; the journal then
/// stays for the next attempt.
pub fn roll_back(
    machine: &Machine,
    journal: &mut Journal,
    because: &str,
    checkpoints: &dyn Checkpoints,
) -> Result<(), TransactionFailure> {
    let phase = journal.phase;
    journal.begin_undoing(machine, because, checkpoints)?;
    let discarded = discard_system(machine, journal, phase, checkpoints);
    swap_back(machine, journal, checkpoints)?;
    if let Err(error) = discarded {
        journal.keep_system_only(machine, because, checkpoints)?;
        return Err(error);
    }
    Ok(journal.close_undone(machine, checkpoints)?)
}

/// Discards a deployment that may have been staged.
fn discard_system(
    machine: &Machine,
    journal: &Journal,
    phase: JournalPhase,
    checkpoints: &dyn Checkpoints,
) -> Result<(), TransactionFailure> {
    let Some(change) = journal.os.as_ref().filter(|_| journal.os_touched) else {
        return Ok(());
    };
    checkpoints.reach("discard operating system")?;
    match os_stage::discard(machine, change) {
        // Without the tool, nothing can have been staged.
        Err(OsError::Command(CommandError::Missing { .. }) | OsError::Unsupported { .. })
            if phase == JournalPhase::Staging =>
        {
            Ok(())
        }
        other => Ok(other?),
    }
}

/// Removes temporary files of interrupted atomic writes.
fn remove_temporaries(root: &Root) -> Result<(), FsError> {
    for path in [
        journal::journal_path()?,
        journal::undo_path()?,
        RootedPath::new("/etc/shadow")?,
    ] {
        root.remove_file(&Root::temporary_of(&path)?)?;
    }
    Ok(())
}
