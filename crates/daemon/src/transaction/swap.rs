//! The renames of a transaction. Each function is idempotent and can be repeated after a crash.

use std::collections::BTreeMap;

use mco_host::{FsError, Machine, Root, RootedPath};

use super::journal::{Journal, JournalChange, JournalEntry};
use super::{Checkpoints, TransactionFailure};
use crate::paths;

/// Renames all staged contents to their destinations.
pub(super) fn swap(
    machine: &Machine,
    journal: &Journal,
    checkpoints: &dyn Checkpoints,
) -> Result<(), TransactionFailure> {
    let root = &machine.root;
    for (index, entry) in journal.steps.iter().enumerate() {
        match &entry.change {
            JournalChange::Put { .. } => {
                let staged = journal.staged(index, &entry.path)?;
                checkpoints.reach("put in place")?;
                if root.entry(&staged)?.is_some() {
                    root.rename(&staged, &entry.path)?;
                }
            }
            JournalChange::Remove => {
                checkpoints.reach("remove")?;
                root.remove_file(&entry.path)?;
            }
            JournalChange::Attributes { after, .. } => {
                checkpoints.reach("change attributes")?;
                root.set_directory_attributes(&entry.path, *after)?;
            }
            JournalChange::SetPassword { user, after, .. } => {
                checkpoints.reach("set password")?;
                machine.accounts().set_password_hash(user, after)?;
            }
            JournalChange::CreateDirectory | JournalChange::RemoveDirectory => {}
        }
    }
    sync_directories(root, journal, checkpoints)
}

/// Restores the state from before staging.
pub(super) fn swap_back(
    machine: &Machine,
    journal: &Journal,
    checkpoints: &dyn Checkpoints,
) -> Result<(), TransactionFailure> {
    let root = &machine.root;
    for (index, entry) in journal.steps.iter().enumerate().rev() {
        if journal.may_have_swapped() {
            undo_step(machine, journal, index, entry, checkpoints)?;
        } else {
            discard_step(root, journal, index, entry, checkpoints)?;
        }
    }
    root.remove_directory(&RootedPath::new(paths::OLD_CONTENTS).map_err(FsError::from)?)?;
    sync_directories(root, journal, checkpoints)
}

/// Removes what staging has created for a step. Its destination is untouched, and what is kept of it may be half a copy.
fn discard_step(
    root: &Root,
    journal: &Journal,
    index: usize,
    entry: &JournalEntry,
    checkpoints: &dyn Checkpoints,
) -> Result<(), TransactionFailure> {
    let path = &entry.path;
    match &entry.change {
        JournalChange::Put { .. } | JournalChange::Remove => {
            checkpoints.reach("discard staged")?;
            root.remove_file(&journal.staged(index, path)?)?;
            root.remove_file(&journal.kept(index)?)?;
            root.remove_file(&journal.kept_beside(index, path)?)?;
        }
        JournalChange::CreateDirectory => {
            checkpoints.reach("remove directory")?;
            root.remove_directory(path)?;
        }
        JournalChange::RemoveDirectory
        | JournalChange::Attributes { .. }
        | JournalChange::SetPassword { .. } => {}
    }
    Ok(())
}

fn undo_step(
    machine: &Machine,
    journal: &Journal,
    index: usize,
    entry: &JournalEntry,
    checkpoints: &dyn Checkpoints,
) -> Result<(), TransactionFailure> {
    let (root, path) = (&machine.root, &entry.path);
    match &entry.change {
        JournalChange::Put { replaces } => {
            checkpoints.reach("bring back")?;
            let never_placed = root.remove_file(&journal.staged(index, path)?)?;
            if *replaces {
                bring_back(root, journal, index, path)?;
            } else if !never_placed {
                root.remove_file(path)?;
            }
        }
        JournalChange::Remove => {
            checkpoints.reach("bring back")?;
            root.remove_file(&journal.staged(index, path)?)?;
            bring_back(root, journal, index, path)?;
        }
        JournalChange::CreateDirectory => {
            checkpoints.reach("remove directory")?;
            root.remove_directory(path)?;
        }
        JournalChange::RemoveDirectory => {}
        JournalChange::Attributes { before, .. } => {
            checkpoints.reach("change attributes back")?;
            root.set_directory_attributes(path, *before)?;
        }
        JournalChange::SetPassword { user, before, .. } => {
            checkpoints.reach("set password back")?;
            machine.accounts().set_password_hash(user, before)?;
        }
    }
    Ok(())
}

/// Restores one path. Without kept contents an interrupted rollback has restored it before.
fn bring_back(root: &Root, journal: &Journal, index: usize, path: &RootedPath) -> Result<(), FsError> {
    for kept in [journal.kept(index)?, journal.kept_beside(index, path)?] {
        if root.entry(&kept)?.is_none() {
            continue;
        }
        match root.rename(&kept, path) {
            // Durable before the kept contents are removed: filesystems do not order their writes among each other.
            Err(FsError::Failed { source, .. }) if source.raw_os_error() == Some(OTHER_FILESYSTEM) => {
                root.copy_atomically(&kept, path)?;
            }
            other => other?,
        }
        // Renaming one hard link onto another of the same file is a no-op that leaves both.
        root.remove_file(&kept)?;
        return Ok(());
    }
    Ok(())
}

/// EXDEV.
const OTHER_FILESYSTEM: i32 = 18;

/// Removes the old contents and the directories that are empty without them.
pub(super) fn forget_old(
    root: &Root,
    journal: &Journal,
    checkpoints: &dyn Checkpoints,
) -> Result<(), TransactionFailure> {
    for (index, entry) in journal.steps.iter().enumerate() {
        if entry.change.replaces_contents() {
            checkpoints.reach("forget old contents")?;
            root.remove_file(&journal.kept(index)?)?;
            root.remove_file(&journal.kept_beside(index, &entry.path)?)?;
        }
    }
    root.remove_directory(&RootedPath::new(paths::OLD_CONTENTS).map_err(FsError::from)?)?;
    for entry in &journal.steps {
        if entry.change == JournalChange::RemoveDirectory {
            checkpoints.reach("remove empty directory")?;
            root.remove_directory(&entry.path)?;
            // Without the journal, which is removed next, an empty directory that came back would stay.
            root.sync_parent(&entry.path)?;
        }
    }
    Ok(())
}

/// Removes old contents without a journal: a power failure may have lost their removal, and not that of the journal.
pub(super) fn remove_leftovers(root: &Root) -> Result<(), FsError> {
    let directory = RootedPath::new(paths::OLD_CONTENTS)?;
    for name in root.list(&directory)? {
        if is_kept_name(&name) {
            root.remove_file(&directory.join(&name)?)?;
        }
    }
    Ok(())
}

/// Returns whether a name is that of old contents: the ID of a transaction and the number of a step.
fn is_kept_name(name: &str) -> bool {
    name.split_once('-').is_some_and(|(id, step)| {
        id.len() == 16
            && id.bytes().all(|byte| byte.is_ascii_hexdigit())
            && !step.is_empty()
            && step.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Syncs each directory of a change once, which makes the renames durable. A directory that is new or has new attributes
/// is synced itself: its mode and owner are not part of its parent.
pub(super) fn sync_directories(
    root: &Root,
    journal: &Journal,
    checkpoints: &dyn Checkpoints,
) -> Result<(), TransactionFailure> {
    let mut directories: BTreeMap<Option<RootedPath>, &RootedPath> = BTreeMap::new();
    for entry in &journal.steps {
        directories.insert(entry.path.parent(), &entry.path);
    }
    for path in directories.values() {
        checkpoints.reach("sync directory")?;
        root.sync_parent(path)?;
    }
    let changed = journal.steps.iter().filter(|entry| {
        matches!(
            entry.change,
            JournalChange::CreateDirectory | JournalChange::Attributes { .. }
        )
    });
    for entry in changed {
        if !directories.contains_key(&Some(entry.path.clone())) {
            checkpoints.reach("sync directory")?;
            root.sync_directory(&entry.path)?;
        }
    }
    Ok(())
}
