//! Stages new contents beside their destinations and links old contents under a second name: everything that needs
//! space or time happens before anything becomes visible.

use std::collections::BTreeMap;

use mco_host::{Durability, FsError, Root};

use super::journal::{Journal, JournalChange};
use super::swap::sync_directories;
use super::{Checkpoints, TransactionFailure};
use crate::plan::{ApplyPlan, PlanAction};

pub(super) fn stage(
    root: &Root,
    plan: &ApplyPlan<'_>,
    journal: &Journal,
    checkpoints: &dyn Checkpoints,
) -> Result<(), TransactionFailure> {
    for (index, (step, entry)) in plan.steps.iter().zip(&journal.steps).enumerate() {
        let staged = journal.staged(index, &step.path)?;
        match &step.action {
            PlanAction::CreateDirectory { attributes } => {
                checkpoints.reach("create directory")?;
                root.create_directory(&step.path, *attributes)?;
            }
            PlanAction::Write { contents, attributes } => {
                checkpoints.reach("stage file")?;
                let bytes = contents.bytes(&step.path)?;
                root.create_file(&staged, *attributes, &bytes, Some(&step.path), Durability::Later)?;
            }
            PlanAction::Copy { from } => {
                checkpoints.reach("stage copy")?;
                root.copy_file(from, &staged)?;
            }
            PlanAction::Link { target } => {
                checkpoints.reach("stage link")?;
                root.symlink(target, &staged)?;
            }
            PlanAction::Remove
            | PlanAction::RemoveDirectory
            | PlanAction::ChangeAttributes { .. }
            | PlanAction::SetPassword { .. } => {}
        }
        if matches!(
            entry.change,
            JournalChange::Put { replaces: true } | JournalChange::Remove
        ) {
            checkpoints.reach("keep old contents")?;
            keep_old(root, journal, index, plan)?;
        }
    }
    sync_files(root, plan, journal, checkpoints)?;
    sync_directories(root, journal, checkpoints)
}

/// Syncs all files at the end, so that the disk can order the writes. Above a threshold, syncing the whole filesystem
/// is cheaper.
fn sync_files(
    root: &Root,
    plan: &ApplyPlan<'_>,
    journal: &Journal,
    checkpoints: &dyn Checkpoints,
) -> Result<(), TransactionFailure> {
    let written = plan
        .steps
        .iter()
        .enumerate()
        .filter(|(_, step)| matches!(step.action, PlanAction::Write { .. }));
    let written: Vec<_> = written.collect();
    if written.len() <= SYNC_EACH {
        for (index, step) in written {
            checkpoints.reach("sync file")?;
            root.sync_file(&journal.staged(index, &step.path)?)?;
        }
        return Ok(());
    }
    let mut filesystems = BTreeMap::new();
    for (_, step) in written {
        filesystems
            .entry(root.filesystem_of(&step.path)?)
            .or_insert(&step.path);
    }
    for path in filesystems.values() {
        checkpoints.reach("sync filesystem")?;
        root.sync_filesystem(path)?;
    }
    Ok(())
}

/// Keeps the old contents under a second hard link, which costs nothing and preserves the inode. Filesystems without
/// hard links get a copy.
fn keep_old(root: &Root, journal: &Journal, index: usize, plan: &ApplyPlan<'_>) -> Result<(), FsError> {
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

/// The number of files above which syncing the filesystem is faster, on disks that take milliseconds per sync.
const SYNC_EACH: usize = 16;

/// EPERM: returned by filesystems without hard links.
const NO_LINKS_HERE: i32 = 1;
