//! New contents beside their destinations, old contents under a second name: everything that needs space or time is
//! done before anything becomes visible.

use std::collections::BTreeMap;

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
    sync_files(root, plan, journal, checkpoints)?;
    sync_directories(root, journal, checkpoints)
}

/// Files are synced together at the end: the disk can order the writes. Beyond a certain number it is cheaper to sync
/// everything that is waiting to be written, ours or not.
fn sync_files(
    root: &Root,
    plan: &Plan<'_>,
    journal: &Journal,
    checkpoints: &dyn Checkpoints,
) -> Result<(), Failure> {
    let written = plan
        .steps
        .iter()
        .enumerate()
        .filter(|(_, step)| matches!(step.action, Action::Write { .. }));
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

/// Where syncing one by one becomes slower than syncing all at once, on disks that take milliseconds for each.
const SYNC_EACH: usize = 16;

/// EPERM: what filesystems without hard links answer.
const NO_LINKS_HERE: i32 = 1;
