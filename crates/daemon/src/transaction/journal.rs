//! The journal of the current transaction. It records how to recover from an interruption, and never file contents.

use mco_host::os::{OsChange, StagedDeployment};
use mco_host::systemd::ServiceAction;
use mco_host::{Attributes, BootId, FsError, Machine, Root, RootedPath};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Checkpoints, TransactionFailure, TransactionSubject};
use crate::guard::RequiredHealth;
use crate::paths;
use crate::plan::{ApplyPlan, PlanAction};

const FORMAT: u32 = 1;
const LARGEST: u64 = 256 << 20;
/// Not world-readable, because it contains password hashes.
const ATTRIBUTES: Attributes = Attributes::root(0o600);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Journal {
    format: u32,
    /// Unique ID, part of all temporary names.
    pub id: String,
    pub from: String,
    pub to: String,
    pub phase: JournalPhase,
    /// The ID of the boot in which the phase was entered.
    pub boot: BootId,
    /// Why the change is being rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<OsChange>,
    /// What was staged: it must be what boots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<StagedDeployment>,
    /// How often the OS change was staged again because it did not boot.
    #[serde(default)]
    pub restaged: u32,
    #[serde(default)]
    pub aftermath: Aftermath,
    /// What the node must show before the change is proven. Without it the change is not guarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<RequiredHealth>,
    /// Whether the services have been restarted, so that only the health of the node is waited for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled: bool,
    /// The reason of a reboot that was due before this change and stays due if it is rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owed: Option<String>,
    /// Whether the rollback began after renaming had begun.
    #[serde(default)]
    swapping_began: bool,
    /// Whether staging of the operating system may have begun. Not serialized: after a restart it has to be assumed.
    #[serde(skip, default = "assumed")]
    pub(super) os_touched: bool,
    pub(super) steps: Vec<JournalEntry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JournalPhase {
    Staging,
    Prepared,
    Swapped,
    AwaitingBoot,
    RollingBack,
}

/// What remains to be done once all files are in place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Aftermath {
    pub services: Vec<ServiceAction>,
    /// Why a reboot is needed, if it is.
    pub reboot: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct JournalEntry {
    pub path: RootedPath,
    pub change: JournalChange,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum JournalChange {
    Put {
        replaces: bool,
    },
    Remove,
    CreateDirectory,
    /// Nothing until the change is proven: the old contents of its files are kept in it.
    RemoveDirectory,
    Attributes {
        before: Attributes,
        after: Attributes,
    },
    SetPassword {
        user: String,
        before: String,
        after: String,
    },
}

impl JournalChange {
    pub fn replaces_contents(&self) -> bool {
        matches!(self, Self::Put { replaces: true } | Self::Remove)
    }
}

#[derive(Debug, Error)]
pub enum JournalError {
    #[error(transparent)]
    Files(#[from] FsError),
    #[error("the journal of the last change cannot be read: {0}")]
    Unreadable(serde_json::Error),
    #[error(
        "the journal of the last change was written by a newer version (format {0}); update this program"
    )]
    TooNew(u32),
}

impl Journal {
    pub(super) fn new(
        machine: &Machine,
        plan: &ApplyPlan<'_>,
        subject: TransactionSubject,
    ) -> Result<Self, TransactionFailure> {
        let mut steps = Vec::with_capacity(plan.steps.len());
        for step in &plan.steps {
            let change = match &step.action {
                PlanAction::Write { .. } | PlanAction::Copy { .. } | PlanAction::Link { .. } => {
                    JournalChange::Put {
                        replaces: machine.root.entry(&step.path)?.is_some(),
                    }
                }
                PlanAction::Remove => JournalChange::Remove,
                PlanAction::CreateDirectory { .. } => JournalChange::CreateDirectory,
                PlanAction::RemoveDirectory => JournalChange::RemoveDirectory,
                PlanAction::ChangeAttributes { before, after } => JournalChange::Attributes {
                    before: *before,
                    after: *after,
                },
                PlanAction::SetPassword { user, before, after } => JournalChange::SetPassword {
                    user: user.clone(),
                    before: before.clone(),
                    after: after.clone(),
                },
            };
            steps.push(JournalEntry {
                path: step.path.clone(),
                change,
            });
        }
        Ok(Self {
            format: FORMAT,
            id: mco_host::random_name(),
            from: subject.from,
            to: subject.to,
            phase: JournalPhase::Staging,
            boot: machine.power.boot_id(&machine.root)?,
            because: None,
            os: subject.os.filter(|change| !change.is_empty()),
            deployment: None,
            restaged: 0,
            aftermath: subject.aftermath,
            health: subject.health,
            settled: false,
            owed: subject.reboot_owed,
            swapping_began: false,
            os_touched: false,
            steps,
        })
    }

    /// Returns whether new contents may be at their destinations.
    pub(super) fn may_have_swapped(&self) -> bool {
        self.swapping_began
    }

    /// Removes the journal after a rollback, but keeps a reboot that was due before the change.
    pub(super) fn close_undone(
        &mut self,
        machine: &Machine,
        checkpoints: &dyn Checkpoints,
    ) -> Result<(), JournalError> {
        let Some(because) = self.owed.take() else {
            return Self::remove(&machine.root, checkpoints);
        };
        self.to.clone_from(&self.from);
        self.steps.clear();
        // What this change had replaced is staged again, and waits for the same reboot.
        self.os = self
            .os
            .take()
            .and_then(|change| change.replaces)
            .map(|change| *change);
        self.deployment = None;
        self.because = None;
        self.health = None;
        self.settled = false;
        self.aftermath = Aftermath {
            services: Vec::new(),
            reboot: Some(because),
        };
        self.enter(machine, JournalPhase::AwaitingBoot, checkpoints)
    }

    /// Reduces the journal to the operating system after the files were rolled back and the OS was not. A file that is
    /// created at one of its paths in the meantime does not belong to it.
    pub(super) fn keep_system_only(
        &mut self,
        machine: &Machine,
        because: &str,
        checkpoints: &dyn Checkpoints,
    ) -> Result<(), JournalError> {
        self.steps.clear();
        self.because.get_or_insert_with(|| because.to_owned());
        self.enter(machine, JournalPhase::RollingBack, checkpoints)
    }

    /// Sets the reason of a reboot that is due after a rollback; without one none is.
    pub(crate) fn owe(&mut self, because: Option<String>) {
        self.owed = because;
    }

    /// Returns whether the change is in place and only waits for the health of the node.
    pub fn awaits_confirmation(&self) -> bool {
        self.phase == JournalPhase::Swapped && self.settled
    }

    /// Returns the number of changed paths.
    pub fn paths(&self) -> usize {
        self.steps.len()
    }

    /// Returns the temporary path of a step's new contents.
    pub(super) fn staged(&self, index: usize, path: &RootedPath) -> Result<RootedPath, FsError> {
        Ok(path.with_name(&format!(".mco-{}-{index}.new", self.id))?)
    }

    /// Returns the temporary path of a step's old contents. Not beside the file: services read all files of their
    /// directories.
    pub(super) fn kept(&self, index: usize) -> Result<RootedPath, FsError> {
        Ok(RootedPath::new(&format!(
            "{}/{}-{index}",
            paths::OLD_CONTENTS,
            self.id
        ))?)
    }

    /// Returns where earlier versions kept the old contents, for a change that was interrupted by their update.
    pub(super) fn kept_beside(&self, index: usize, path: &RootedPath) -> Result<RootedPath, FsError> {
        Ok(path.with_name(&format!(".mco-{}-{index}.old", self.id))?)
    }

    /// Returns whether a step has old contents to keep.
    pub(super) fn keeps_old(&self) -> bool {
        self.steps.iter().any(|step| step.change.replaces_contents())
    }

    pub(super) fn enter(
        &mut self,
        machine: &Machine,
        phase: JournalPhase,
        checkpoints: &dyn Checkpoints,
    ) -> Result<(), JournalError> {
        checkpoints.reach(match phase {
            JournalPhase::Staging => "journal staging",
            JournalPhase::Prepared => "journal prepared",
            JournalPhase::Swapped => "journal swapped",
            JournalPhase::AwaitingBoot => "journal awaiting boot",
            JournalPhase::RollingBack => "journal rolling back",
        })?;
        self.phase = phase;
        let path = journal_path()?;
        if let Some(parent) = path.parent() {
            machine
                .root
                .create_directories(&parent, Attributes::root(0o755))?;
        }
        self.write(&machine.root, &path)
    }

    /// Writes the rollback journal in advance, because a rollback is most likely when the disk is full.
    pub(super) fn prepare_undoing(
        &self,
        root: &Root,
        checkpoints: &dyn Checkpoints,
    ) -> Result<(), JournalError> {
        checkpoints.reach("journal undoing in advance")?;
        let undoing = Self {
            phase: JournalPhase::RollingBack,
            swapping_began: true,
            ..self.clone()
        };
        undoing.write(root, &undo_path()?)
    }

    /// Switches to rolling back, which then continues across restarts.
    pub(super) fn begin_undoing(
        &mut self,
        machine: &Machine,
        because: &str,
        checkpoints: &dyn Checkpoints,
    ) -> Result<(), JournalError> {
        match self.phase {
            JournalPhase::RollingBack => return Ok(()),
            // While staging, recovery rolls back anyway.
            JournalPhase::Staging => {
                self.phase = JournalPhase::RollingBack;
                return Ok(());
            }
            JournalPhase::Prepared | JournalPhase::Swapped | JournalPhase::AwaitingBoot => {}
        }
        self.swapping_began = true;
        self.because = Some(because.to_owned());
        let Err(error) = self.enter(machine, JournalPhase::RollingBack, checkpoints) else {
            return Ok(());
        };
        let (undo, journal) = (undo_path()?, journal_path()?);
        if machine.root.entry(&undo)?.is_none() {
            return Err(error);
        }
        machine.root.rename(&undo, &journal)?;
        Ok(machine.root.sync_parent(&journal)?)
    }

    fn write(&self, root: &Root, path: &RootedPath) -> Result<(), JournalError> {
        let text = serde_json::to_vec(self).map_err(JournalError::Unreadable)?;
        Ok(root.write_atomically(path, ATTRIBUTES, &text)?)
    }

    /// Removes the journal.
    pub(super) fn remove(root: &Root, checkpoints: &dyn Checkpoints) -> Result<(), JournalError> {
        checkpoints.reach("remove journal")?;
        let path = journal_path()?;
        root.remove_file(&path)?;
        root.remove_file(&undo_path()?)?;
        root.sync_parent(&path)?;
        Ok(remove_empty_directory(root)?)
    }
}

fn assumed() -> bool {
    true
}

/// The part of a journal that every version can read.
#[derive(Deserialize)]
struct JournalFormat {
    format: u32,
}

/// Reads the journal of the current transaction, if there is one.
pub fn read(root: &Root) -> Result<Option<Journal>, JournalError> {
    let Some(bytes) = root.read(&journal_path()?, LARGEST)? else {
        return Ok(None);
    };
    let format: JournalFormat = serde_json::from_slice(&bytes).map_err(JournalError::Unreadable)?;
    if format.format > FORMAT {
        return Err(JournalError::TooNew(format.format));
    }
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(JournalError::Unreadable)
}

/// Removes the state directory if it is empty, so that rolling back a machine's first change leaves nothing behind.
pub(super) fn remove_empty_directory(root: &Root) -> Result<(), FsError> {
    root.remove_directory(&RootedPath::new(paths::OLD_CONTENTS)?)?;
    root.remove_directory(&RootedPath::new(paths::STATE_DIRECTORY)?)?;
    Ok(())
}

pub(super) fn undo_path() -> Result<RootedPath, FsError> {
    Ok(RootedPath::new(paths::UNDO_JOURNAL)?)
}

pub(super) fn journal_path() -> Result<RootedPath, FsError> {
    Ok(RootedPath::new(paths::JOURNAL)?)
}
