//! New contents beside their destinations, old contents under a second name: everything that needs space or time is
//! done before anything becomes visible.

use mco_host::{Durability, FsError, Root};

use super::journal::{Change, Journal};
use super::swap::sync_directories;
use super::{Checkpoints, Failure};
use crate::plan::{Action, Plan};

pub(super) fn stage(
    root: &Root,
    plan: &Plan<'_>,
    journal: &Journal,
    checkpoints: &dyn Checkpoints,
) -> Result<(), Failure> {
    for (index, (step, entry)) in plan.steps.iter().zip(&journal.steps).enumerate() {
        let staged = journal.staged(index, &step.path)?;
        match &step.action {
            Action::CreateDirectory { attributes } => {
                checkpoints.reach("create directory")?;
                root.create_directory(&step.path, *attributes)?;
            }
            Action::Write { contents, attributes } => {
                checkpoints.reach("stage file")?;
                let bytes = contents.bytes(&step.path)?;
                root.create_file(&staged, *attributes, &bytes, Some(&step.path), Durability::Later)?;
            }
            Action::Copy { from } => {
                checkpoints.reach("stage copy")?;
                root.copy_file(from, &staged)?;
            }
            Action::Link { target } => {
                checkpoints.reach("stage link")?;
                root.symlink(target, &staged)?;
            }
            Action::Remove | Action::ChangeAttributes { .. } | Action::SetPassword { .. } => {}
        }
        if matches!(entry.change, Change::Put { replaces: true } | Change::Remove) {
            checkpoints.reach("keep old contents")?;
            keep_old(root, journal, index, plan)?;
        }
    }
    // Synced together at the end: the disk can order the writes, and most of them are done when their turn comes.
    for (index, step) in plan.steps.iter().enumerate() {
        if matches!(step.action, Action::Write { .. }) {
            checkpoints.reach("sync file")?;
            root.sync_file(&journal.staged(index, &step.path)?)?;
        }
    }
    sync_directories(root, journal, checkpoints)
}

/// A second link costs nothing and keeps everything, the inode included. Filesystems without links get a copy.
fn keep_old(root: &Root, journal: &Journal, index: usize, plan: &Plan<'_>) -> Result<(), FsError> {
    let Some(step) = plan.steps.get(index) else {
        return Ok(());
    };
    let kept = journal.kept(index, &step.path)?;
    match root.hard_link(&step.path, &kept) {
        Err(FsError::Failed { source, .. }) if source.raw_os_error() == Some(NO_LINKS_HERE) => {
            root.copy_file(&step.path, &kept)
        }
        other => other,
    }
}

/// EPERM: what filesystems without hard links answer.
const NO_LINKS_HERE: i32 = 1;
