//! Stages new contents beside their destinations and links old contents into a directory of ours: everything that needs
//! space or time happens before anything becomes visible.

use std::collections::BTreeMap;

use mco_host::{Attributes, Durability, FsError, Root, RootedPath};

use super::journal::Journal;
use super::swap::sync_directories;
use super::{Checkpoints, TransactionFailure};
use crate::paths;
use crate::plan::{ApplyPlan, PlanAction};

pub(super) fn stage(
    root: &Root,
    plan: &ApplyPlan<'_>,
    journal: &Journal,
    checkpoints: &dyn Checkpoints,
) -> Result<(), TransactionFailure> {
    if journal.keeps_old() {
        checkpoints.reach("create directory of old contents")?;
        let directory = RootedPath::new(paths::OLD_CONTENTS).map_err(FsError::from)?;
        // Not readable for others: the directory of a secret may have been the only protection of its old contents.
        root.create_directories(&directory, Attributes::root(0o700))?;
    }
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
        if entry.change.replaces_contents() {
            checkpoints.reach("keep old contents")?;
            keep_old(root, journal, index, &entry.path)?;
        }
    }
    sync_files(root, plan, journal, checkpoints)?;
    if journal.keeps_old() {
        checkpoints.reach("sync directory of old contents")?;
        root.sync_parent(&journal.kept(0)?)?;
    }
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

/// Keeps the old contents under a second hard link, which costs nothing and preserves the inode. On another filesystem
/// than the directory of old contents, and on those without hard links, they are copied. A copy may be cut off: it is
/// not read before the journal says that staging is complete.
fn keep_old(root: &Root, journal: &Journal, index: usize, path: &RootedPath) -> Result<(), FsError> {
    let kept = journal.kept(index)?;
    match root.hard_link(path, &kept) {
        Err(FsError::Failed { source, .. })
            if source.raw_os_error().is_some_and(|code| NO_LINKS.contains(&code)) =>
        {
            root.copy_entry(path, &kept)
        }
        other => other,
    }
}

/// The number of files above which syncing the filesystem is faster, on disks that take milliseconds per sync.
const SYNC_EACH: usize = 16;

/// EPERM of filesystems without hard links, EXDEV across filesystems, EMLINK of a file with too many links.
const NO_LINKS: [i32; 3] = [1, 18, 31];
