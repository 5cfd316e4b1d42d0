//! The one record of a change under way. It says what to do when the machine stops in the middle, and never what is in
//! the files.

use mco_host::os::OsChange;
use mco_host::systemd::ServiceAction;
use mco_host::{Attributes, BootId, FsError, Machine, Root, RootedPath};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Checkpoints, Failure, Subject};
use crate::paths;
use crate::plan::{Action, Plan};

const FORMAT: u32 = 1;
const LARGEST: u64 = 256 << 20;
/// It holds password hashes.
const ATTRIBUTES: Attributes = Attributes::root(0o600);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Journal {
    format: u32,
    /// Part of all temporary names.
    pub id: String,
    pub from: String,
    pub to: String,
    pub phase: Phase,
    /// The boot in which the phase was entered.
    pub boot: BootId,
    /// Why the change is being undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<OsChange>,
    #[serde(default)]
    pub aftermath: Aftermath,
    /// A boot that was due before this change and stays due if it is undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owed: Option<String>,
    /// Whether undoing began after renaming had begun.
    #[serde(default)]
    swapping_began: bool,
    /// Whether staging of the operating system may have begun. Not written: after a stop it has to be assumed.
    #[serde(skip, default = "assumed")]
    pub(super) os_touched: bool,
    pub(super) steps: Vec<Entry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    Staging,
    Prepared,
    Swapped,
    AwaitingBoot,
    RollingBack,
}

/// What remains to be done once everything is in place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Aftermath {
    pub services: Vec<ServiceAction>,
    /// Why the machine has to boot, if it has to.
    pub reboot: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub path: RootedPath,
    pub change: Change,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Change {
    Put {
        replaces: bool,
    },
    Remove,
    CreateDirectory,
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
    pub(super) fn new(machine: &Machine, plan: &Plan<'_>, subject: Subject) -> Result<Self, Failure> {
        let mut steps = Vec::with_capacity(plan.steps.len());
        for step in &plan.steps {
            let change = match &step.action {
                Action::Write { .. } | Action::Copy { .. } | Action::Link { .. } => Change::Put {
                    replaces: machine.root.entry(&step.path)?.is_some(),
                },
                Action::Remove => Change::Remove,
                Action::CreateDirectory { .. } => Change::CreateDirectory,
                Action::ChangeAttributes { before, after } => Change::Attributes {
                    before: *before,
                    after: *after,
                },
                Action::SetPassword { user, before, after } => Change::SetPassword {
                    user: user.clone(),
                    before: before.clone(),
                    after: after.clone(),
                },
            };
            steps.push(Entry {
                path: step.path.clone(),
                change,
            });
        }
        Ok(Self {
            format: FORMAT,
            id: mco_host::random_name(),
            from: subject.from,
            to: subject.to,
            phase: Phase::Staging,
            boot: machine.power.boot_id(&machine.root)?,
            because: None,
            os: subject.os.filter(|change| !change.is_empty()),
            aftermath: subject.aftermath,
            owed: subject.reboot_owed,
            swapping_began: false,
            os_touched: false,
            steps,
        })
    }

    /// Whether new contents may be at their destinations.
    pub(super) fn may_have_swapped(&self) -> bool {
        self.swapping_began
    }

    /// After undoing: forgets the change, but not a boot that was due before it.
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
        self.os = None;
        self.because = None;
        self.aftermath = Aftermath {
            services: Vec::new(),
            reboot: Some(because),
        };
        self.enter(machine, Phase::AwaitingBoot, checkpoints)
    }

    /// After the files were brought back and the operating system was not: only the latter is left to be undone. A file
    /// that appears meanwhile at a path of this change is not its file.
    pub(super) fn keep_system_only(
        &mut self,
        machine: &Machine,
        because: &str,
        checkpoints: &dyn Checkpoints,
    ) -> Result<(), JournalError> {
        self.steps.clear();
        self.because.get_or_insert_with(|| because.to_owned());
        self.enter(machine, Phase::RollingBack, checkpoints)
    }

    /// How many paths change.
    pub fn paths(&self) -> usize {
        self.steps.len()
    }

    /// Where the new contents of a step wait.
    pub(super) fn staged(&self, index: usize, path: &RootedPath) -> Result<RootedPath, FsError> {
        Ok(path.with_name(&format!(".mco-{}-{index}.new", self.id))?)
    }

    /// Where the old contents of a step are kept.
    pub(super) fn kept(&self, index: usize, path: &RootedPath) -> Result<RootedPath, FsError> {
        Ok(path.with_name(&format!(".mco-{}-{index}.old", self.id))?)
    }

    pub(super) fn enter(
        &mut self,
        machine: &Machine,
        phase: Phase,
        checkpoints: &dyn Checkpoints,
    ) -> Result<(), JournalError> {
        checkpoints.reach(match phase {
            Phase::Staging => "journal staging",
            Phase::Prepared => "journal prepared",
            Phase::Swapped => "journal swapped",
            Phase::AwaitingBoot => "journal awaiting boot",
            Phase::RollingBack => "journal rolling back",
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

    /// Writes the journal of undoing in advance, because undoing is needed most when the disk is full.
    pub(super) fn prepare_undoing(
        &self,
        root: &Root,
        checkpoints: &dyn Checkpoints,
    ) -> Result<(), JournalError> {
        checkpoints.reach("journal undoing in advance")?;
        let undoing = Self {
            phase: Phase::RollingBack,
            swapping_began: true,
            ..self.clone()
        };
        undoing.write(root, &undo_path()?)
    }

    /// From here on the change is undone, even if the machine stops in between.
    pub(super) fn begin_undoing(
        &mut self,
        machine: &Machine,
        because: &str,
        checkpoints: &dyn Checkpoints,
    ) -> Result<(), JournalError> {
        match self.phase {
            Phase::RollingBack => return Ok(()),
            // While staging, undoing is what a stop would lead to anyway.
            Phase::Staging => {
                self.phase = Phase::RollingBack;
                return Ok(());
            }
            Phase::Prepared | Phase::Swapped | Phase::AwaitingBoot => {}
        }
        self.swapping_began = true;
        self.because = Some(because.to_owned());
        let Err(error) = self.enter(machine, Phase::RollingBack, checkpoints) else {
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

    /// Removes the one journal there is.
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
struct Format {
    format: u32,
}

/// The change under way, if there is one.
pub fn read(root: &Root) -> Result<Option<Journal>, JournalError> {
    let Some(bytes) = root.read(&journal_path()?, LARGEST)? else {
        return Ok(None);
    };
    let format: Format = serde_json::from_slice(&bytes).map_err(JournalError::Unreadable)?;
    if format.format > FORMAT {
        return Err(JournalError::TooNew(format.format));
    }
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(JournalError::Unreadable)
}

/// The first change of a machine makes the directory; if it is undone, nothing of it should remain.
pub(super) fn remove_empty_directory(root: &Root) -> Result<(), FsError> {
    root.remove_directory(&RootedPath::new(paths::STATE_DIRECTORY)?)?;
    Ok(())
}

pub(super) fn undo_path() -> Result<RootedPath, FsError> {
    Ok(RootedPath::new(paths::UNDO_JOURNAL)?)
}

pub(super) fn journal_path() -> Result<RootedPath, FsError> {
    Ok(RootedPath::new(paths::JOURNAL)?)
}
