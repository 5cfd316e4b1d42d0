//! Backs up what was at a path before any config managed it, and restores it.

use mco_host::{Attributes, FileEntry, FileKind, FsError, Root, RootedPath};

use super::{Builder, NewContents, PlanAction, PlanError};
use crate::paths;

const STAMP_ATTRIBUTES: Attributes = Attributes::root(0o644);

fn original(path: &RootedPath) -> Result<RootedPath, FsError> {
    Ok(RootedPath::new(&format!(
        "{}{path}{}",
        paths::ORIGINALS,
        paths::ORIGINAL_SUFFIX
    ))?)
}

fn no_original(path: &RootedPath) -> Result<RootedPath, FsError> {
    Ok(RootedPath::new(&format!(
        "{}{path}{}",
        paths::NO_ORIGINALS,
        paths::NO_ORIGINAL_SUFFIX
    ))?)
}

/// Before a config takes over a path: backs up its contents, or records that there was none. An existing backup is
/// kept.
pub(super) fn keep(
    builder: &mut Builder<'_, '_>,
    path: &RootedPath,
    entry: Option<FileEntry>,
) -> Result<(), PlanError> {
    let root = builder.root();
    let (original, no_original) = (original(path)?, no_original(path)?);
    if root.entry(&original)?.is_some() || root.entry(&no_original)?.is_some() {
        return Ok(());
    }
    match entry {
        Some(_) => {
            let action = copy(root, path)?;
            builder.add(original, action);
        }
        None => builder.add(
            no_original,
            PlanAction::Write {
                contents: NewContents::Bytes(Vec::new()),
                attributes: STAMP_ATTRIBUTES,
            },
        ),
    }
    Ok(())
}

/// Drops the backup of a file that is changed in place instead of being restored.
pub(super) fn forget(builder: &mut Builder<'_, '_>, path: &RootedPath) -> Result<(), PlanError> {
    for kept in [original(path)?, no_original(path)?] {
        if builder.root().entry(&kept)?.is_some() {
            builder.add(kept, PlanAction::Remove);
        }
    }
    Ok(())
}

/// Backs up a file at once, outside of a transaction. An existing backup is kept.
pub(crate) fn keep_now(root: &Root, path: &RootedPath) -> Result<(), FsError> {
    let original = original(path)?;
    if root.entry(&original)?.is_some() || root.entry(&no_original(path)?)?.is_some() {
        return Ok(());
    }
    if let Some(parent) = original.parent() {
        root.create_directories(&parent, Attributes::root(0o755))?;
    }
    root.copy_atomically(path, &original)
}

/// Restores a backup at once, outside of a transaction; returns false if there is none.
pub(crate) fn give_back_now(root: &Root, path: &RootedPath) -> Result<bool, FsError> {
    let original = original(path)?;
    if root.entry(&original)?.is_none() {
        return Ok(false);
    }
    root.copy_atomically(&original, path)?;
    root.remove_file(&original)?;
    Ok(true)
}

/// When a config releases a path: restores the backup, otherwise the distribution's copy, otherwise removes the file.
pub(super) fn give_back(builder: &mut Builder<'_, '_>, path: &RootedPath) -> Result<(), PlanError> {
    let root = builder.root();
    let (original, no_original) = (original(path)?, no_original(path)?);
    let there = root.entry(path)?;
    if root.entry(&no_original)?.is_some() {
        if there.is_some_and(|entry| entry.kind != FileKind::Directory) {
            builder.add(path.clone(), PlanAction::Remove);
        }
        builder.add(no_original, PlanAction::Remove);
        return Ok(());
    }
    if root.entry(&original)?.is_some() {
        builder.add(path.clone(), copy(root, &original)?);
        builder.add(original, PlanAction::Remove);
        return Ok(());
    }
    match distribution_copy(root, path)? {
        Some(from) => builder.add(path.clone(), PlanAction::Copy { from }),
        None if there.is_some_and(|entry| entry.kind != FileKind::Directory) => {
            builder.add(path.clone(), PlanAction::Remove);
        }
        None => {}
    }
    Ok(())
}

/// Returns the pristine version of a configuration file, which image-based systems provide.
fn distribution_copy(root: &Root, path: &RootedPath) -> Result<Option<RootedPath>, FsError> {
    if !path.is_within("/etc") {
        return Ok(None);
    }
    let pristine = RootedPath::new(&format!("/usr{path}"))?;
    let is_file = root
        .entry(&pristine)?
        .is_some_and(|entry| entry.kind == FileKind::File);
    Ok(is_file.then_some(pristine))
}

fn copy<'a>(root: &Root, from: &RootedPath) -> Result<PlanAction<'a>, FsError> {
    Ok(match root.read_link(from)? {
        Some(target) => PlanAction::Link { target },
        None => PlanAction::Copy { from: from.clone() },
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use mco_host::Ownership;

    use super::*;

    const PATH: &str = "/etc/hosts";

    /// A root with a file, and the leftover of a copy to `to` that was cut off.
    fn interrupted(to: impl Fn(&RootedPath) -> RootedPath) -> (tempfile::TempDir, Root, RootedPath) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        let path = RootedPath::new(PATH).unwrap();
        let leftover = Root::temporary_of(&to(&path)).unwrap();
        for (path, text) in [(&path, "the administrator's\n"), (&leftover, "the admi")] {
            let parent = path.parent().unwrap();
            root.create_directories(&parent, Attributes::root(0o755)).unwrap();
            fs::write(directory.path().join(path.as_str().trim_start_matches('/')), text).unwrap();
        }
        (directory, root, path)
    }

    fn read(root: &Root, path: &RootedPath) -> Option<String> {
        root.read_text(path, 100).unwrap()
    }

    #[test]
    fn a_backup_that_was_cut_off_blocked_all_later_ones() {
        let (_directory, root, path) = interrupted(|path| original(path).unwrap());
        keep_now(&root, &path).unwrap();
        let backup = original(&path).unwrap();
        assert_eq!(read(&root, &backup).unwrap(), "the administrator's\n");
        assert_eq!(root.list(&backup.parent().unwrap()).unwrap(), [backup.name()]);
    }

    #[test]
    fn a_restored_backup_that_was_cut_off_blocked_all_later_ones() {
        let (directory, root, path) = interrupted(RootedPath::clone);
        keep_now(&root, &path).unwrap();
        fs::write(directory.path().join("etc/hosts"), "ours\n").unwrap();
        assert!(give_back_now(&root, &path).unwrap());
        assert_eq!(read(&root, &path).unwrap(), "the administrator's\n");
        assert_eq!(read(&root, &original(&path).unwrap()), None);
        assert_eq!(read(&root, &Root::temporary_of(&path).unwrap()), None);
    }
}
