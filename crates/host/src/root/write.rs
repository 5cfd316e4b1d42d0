//! Writes a machine's files. New contents are always created under a new name first.

use std::fs::File;
use std::io::{self, Write as _};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::metadata::{SELINUX_LABEL, copy_attributes, set_owner};
use super::record::{FsOperation, parent_text};
use super::{Attributes, FileKind, FsError, Ownership, ResolveError, Root, failed};
use crate::path::RootedPath;

/// Whether a new file is synced when it is written, or later with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Now,
    Later,
}

impl Root {
    /// Creates a file that must not exist yet.
    ///
    /// It gets the security label of `label_of` if that exists, so that a replaced file keeps its label.
    pub fn create_file(
        &self,
        path: &RootedPath,
        attributes: Attributes,
        contents: &[u8],
        label_of: Option<&RootedPath>,
        durability: Durability,
    ) -> Result<(), FsError> {
        let mut file = self.create(path)?;
        self.set_attributes(&file, path, attributes)
            .map_err(failed("set attributes of", path))?;
        if let Some(model) = label_of {
            self.copy_label(model, &file)?;
        }
        let failure = |source| FsError::Failed {
            attempted: "write file",
            path: path.to_string(),
            source,
        };
        file.write_all(contents).map_err(failure)?;
        self.record(|| FsOperation::Write {
            path: path.to_string(),
            contents: contents.to_vec(),
        });
        match durability {
            Durability::Now => self.sync_open_file(&file, path).map_err(failure),
            Durability::Later => Ok(()),
        }
    }

    /// Copies a regular file with all its attributes to a path that must not exist yet.
    pub fn copy_file(&self, from: &RootedPath, to: &RootedPath) -> Result<(), FsError> {
        let missing = || FsError::Failed {
            attempted: "copy file",
            path: from.to_string(),
            source: io::ErrorKind::NotFound.into(),
        };
        let mut source = self.open_file(from)?.ok_or_else(missing)?;
        let entry = self.entry_of(&source, from)?;
        let mut copy = self.create(to)?;
        let attributes = Attributes {
            mode: entry.mode,
            owner: entry.owner,
        };
        self.set_attributes(&copy, to, attributes)
            .map_err(failed("set attributes of", to))?;
        copy_attributes(&source, &copy, |_| true).map_err(failed("copy attributes to", to))?;
        self.record(|| FsOperation::CopyAttributes {
            from: from.to_string(),
            path: to.to_string(),
        });
        let failure = |source| FsError::Failed {
            attempted: "copy file to",
            path: to.to_string(),
            source,
        };
        io::copy(&mut source, &mut copy).map_err(failure)?;
        self.record_copy(from, to);
        self.sync_open_file(&copy, to).map_err(failure)
    }

    /// Copies a file or a symbolic link to a path that must not exist yet.
    pub fn copy_entry(&self, from: &RootedPath, to: &RootedPath) -> Result<(), FsError> {
        match self.read_link(from)? {
            Some(target) => self.symlink(&target, to),
            None => self.copy_file(from, to),
        }
    }

    /// Copies a file or a symbolic link atomically: a reader or a crash sees what was at the destination or the whole
    /// copy, which is durable when this returns.
    pub fn copy_atomically(&self, from: &RootedPath, to: &RootedPath) -> Result<(), FsError> {
        let temporary = Self::temporary_of(to)?;
        self.remove_file(&temporary)?;
        let copied = self
            .copy_entry(from, &temporary)
            .and_then(|()| self.rename(&temporary, to));
        if copied.is_err() {
            // Frees space on a full disk. The original error is more important than a failed removal.
            let _ = self.remove_file(&temporary);
        }
        copied?;
        self.sync_parent(to)
    }

    /// Copies the contents of an open file of any filesystem to a path that must not exist yet, and syncs it. It gets the
    /// security label of `label_of` if that exists.
    pub fn import_file(
        &self,
        source: &mut File,
        path: &RootedPath,
        attributes: Attributes,
        label_of: &RootedPath,
    ) -> Result<(), FsError> {
        let mut file = self.create(path)?;
        self.set_attributes(&file, path, attributes)
            .map_err(failed("set attributes of", path))?;
        self.copy_label(label_of, &file)?;
        let failure = |source| FsError::Failed {
            attempted: "write file",
            path: path.to_string(),
            source,
        };
        io::copy(source, &mut file).map_err(failure)?;
        self.sync_open_file(&file, path).map_err(failure)
    }

    /// Syncs a file that was written with [`Durability::Later`].
    pub fn sync_file(&self, path: &RootedPath) -> Result<(), FsError> {
        match self.open_file(path)? {
            Some(file) => self
                .sync_open_file(&file, path)
                .map_err(|source| FsError::Failed {
                    attempted: "sync file",
                    path: path.to_string(),
                    source,
                }),
            None => Ok(()),
        }
    }

    /// Writes a file atomically: a reader or a crash sees the old contents or the new ones.
    pub fn write_atomically(
        &self,
        path: &RootedPath,
        attributes: Attributes,
        contents: &[u8],
    ) -> Result<(), FsError> {
        let temporary = Self::temporary_of(path)?;
        self.remove_file(&temporary)?;
        let written = self
            .create_file(&temporary, attributes, contents, Some(path), Durability::Now)
            .and_then(|()| self.rename(&temporary, path));
        if written.is_err() {
            // Frees space on a full disk. The original error is more important than a failed removal.
            let _ = self.remove_file(&temporary);
        }
        written?;
        self.sync_parent(path)
    }

    /// Returns the temporary name used by [`Root::write_atomically`] and [`Root::copy_atomically`]; a crash may leave it
    /// behind, the next write removes it.
    pub fn temporary_of(path: &RootedPath) -> Result<RootedPath, FsError> {
        let short: String = path.name().chars().take(60).collect();
        Ok(path.with_name(&format!(".{short}.mco-tmp"))?)
    }

    /// Acquires a lock that lasts until the value is dropped or the process ends; `None` if another process holds it.
    pub fn try_lock(&self, path: &RootedPath) -> Result<Option<File>, FsError> {
        if let Some(parent) = path.parent() {
            self.create_directories(&parent, Attributes::root(0o755))?;
        }
        let open = || {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let parent = self.parent_of(path)?;
            Ok::<_, ResolveError>(rustix::fs::openat(
                parent,
                path.name(),
                flags,
                Mode::from_raw_mode(0o600),
            )?)
        };
        let file = open().map(File::from).map_err(failed("open lock", path))?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(failed("lock", path)(errno)),
        }
    }

    /// Creates a hard link under a name that must be free.
    pub fn hard_link(&self, from: &RootedPath, to: &RootedPath) -> Result<(), FsError> {
        let operation = || FsOperation::HardLink {
            from: from.to_string(),
            to: to.to_string(),
        };
        let link = || {
            self.permit(operation)?;
            let (source, target) = (self.parent_of(from)?, self.parent_of(to)?);
            Ok::<_, ResolveError>(rustix::fs::linkat(
                source,
                from.name(),
                target,
                to.name(),
                AtFlags::empty(),
            )?)
        };
        link().map_err(failed("keep a second link to", from))?;
        self.record(operation);
        Ok(())
    }

    pub fn symlink(&self, target: &str, path: &RootedPath) -> Result<(), FsError> {
        let link = || {
            let parent = self.parent_of(path)?;
            Ok::<_, ResolveError>(rustix::fs::symlinkat(target, parent, path.name())?)
        };
        link().map_err(failed("create link", path))?;
        self.record(|| FsOperation::Symlink {
            target: target.to_owned(),
            path: path.to_string(),
        });
        Ok(())
    }

    /// Replaces one name by another, atomically.
    pub fn rename(&self, from: &RootedPath, to: &RootedPath) -> Result<(), FsError> {
        let operation = || FsOperation::Rename {
            from: from.to_string(),
            to: to.to_string(),
        };
        let rename = || {
            self.permit(operation)?;
            let (source, target) = (self.parent_of(from)?, self.parent_of(to)?);
            Ok::<_, ResolveError>(rustix::fs::renameat(source, from.name(), target, to.name())?)
        };
        rename().map_err(failed("put in place", to))?;
        self.record(operation);
        Ok(())
    }

    /// Removes a file or link; returns false if there was none.
    pub fn remove_file(&self, path: &RootedPath) -> Result<bool, FsError> {
        let remove = || self.unlink(path, AtFlags::empty());
        let is_removed = removed(remove()).map_err(failed("remove", path))?;
        if is_removed {
            self.record(|| FsOperation::RemoveFile {
                path: path.to_string(),
            });
        }
        Ok(is_removed)
    }

    /// Creates one directory; its parent must exist.
    pub fn create_directory(&self, path: &RootedPath, attributes: Attributes) -> Result<(), FsError> {
        let create = || {
            let parent = self.parent_of(path)?;
            rustix::fs::mkdirat(&parent, path.name(), Mode::from_raw_mode(0o700))?;
            let created = open_child(&parent, path)?;
            require_new(&created)?;
            self.record(|| FsOperation::CreateDirectory {
                path: path.to_string(),
            });
            Ok::<_, ResolveError>(self.set_attributes(created, path, attributes)?)
        };
        create().map_err(failed("create directory", path))
    }

    /// Changes mode and owner of a directory.
    pub fn set_directory_attributes(&self, path: &RootedPath, attributes: Attributes) -> Result<(), FsError> {
        let change = || {
            let directory = open_child(self.parent_of(path)?, path)?;
            Ok::<_, ResolveError>(self.set_attributes(directory, path, attributes)?)
        };
        change().map_err(failed("set attributes of", path))
    }

    /// Creates a directory and its missing parents, all with these attributes.
    pub fn create_directories(&self, path: &RootedPath, attributes: Attributes) -> Result<(), FsError> {
        for directory in self.missing_directories(path)? {
            self.create_directory(&directory, attributes)?;
            self.sync_directory(&directory)?;
            self.sync_parent(&directory)?;
        }
        Ok(())
    }

    /// Returns the missing directories among a path and its parents, outermost first.
    pub fn missing_directories(&self, path: &RootedPath) -> Result<Vec<RootedPath>, FsError> {
        let mut missing = Vec::new();
        let mut next = Some(path.clone());
        while let Some(directory) = next {
            match self.open_directory(directory.as_str()) {
                Ok(_) => break,
                Err(ResolveError::Failed(Errno::NOENT | Errno::NOTDIR)) => {}
                Err(error) => return Err(failed("open directory", &directory)(error)),
            }
            // The entry exists and is not a directory: a file, or a dangling link.
            if let Some(entry) = self.entry(&directory)? {
                let (path, found) = (directory.to_string(), entry.kind);
                return Err(FsError::WrongKind {
                    path,
                    found,
                    wanted: "a directory",
                });
            }
            next = directory.parent();
            missing.push(directory);
        }
        missing.reverse();
        Ok(missing)
    }

    /// Removes a directory; returns false if there is none or it is not empty.
    pub fn remove_directory(&self, path: &RootedPath) -> Result<bool, FsError> {
        let remove = || self.unlink(path, AtFlags::REMOVEDIR);
        match remove() {
            Err(ResolveError::Failed(Errno::NOTEMPTY | Errno::EXIST)) => Ok(false),
            other => {
                let is_removed = removed(other).map_err(failed("remove directory", path))?;
                if is_removed {
                    self.record(|| FsOperation::RemoveDirectory {
                        path: path.to_string(),
                    });
                }
                Ok(is_removed)
            }
        }
    }

    /// Syncs the parent directory of a path, which makes its names durable.
    pub fn sync_parent(&self, path: &RootedPath) -> Result<(), FsError> {
        let sync = || Ok(rustix::fs::fsync(self.parent_of(path)?)?);
        match sync() {
            Ok(()) => {
                self.record(|| FsOperation::SyncDirectory {
                    path: parent_text(path),
                });
                Ok(())
            }
            Err(ResolveError::Failed(Errno::NOENT | Errno::NOTDIR)) => Ok(()),
            Err(error) => Err(failed("sync the directory of", path)(error)),
        }
    }

    /// Syncs a directory, which makes its names, its mode and its owner durable. A missing one is ignored.
    pub fn sync_directory(&self, path: &RootedPath) -> Result<(), FsError> {
        let sync = || Ok(rustix::fs::fsync(self.open_directory(path.as_str())?)?);
        match sync() {
            Ok(()) => {
                self.record(|| FsOperation::SyncDirectory {
                    path: path.to_string(),
                });
                Ok(())
            }
            Err(ResolveError::Failed(Errno::NOENT | Errno::NOTDIR)) => Ok(()),
            Err(error) => Err(failed("sync directory", path)(error)),
        }
    }

    /// Syncs the whole filesystem of a path: one wait instead of one for each file.
    pub fn sync_filesystem(&self, path: &RootedPath) -> Result<(), FsError> {
        let sync = || Ok::<_, ResolveError>(rustix::fs::syncfs(self.parent_of(path)?)?);
        sync().map_err(failed("sync the filesystem of", path))?;
        self.record(|| FsOperation::SyncFilesystem);
        Ok(())
    }

    /// Returns the device ID of the filesystem of a path.
    pub fn filesystem_of(&self, path: &RootedPath) -> Result<u64, FsError> {
        let stat = || Ok::<_, ResolveError>(rustix::fs::fstat(self.parent_of(path)?)?);
        stat()
            .map(|stat| stat.st_dev)
            .map_err(failed("stat the directory of", path))
    }

    /// Opens a lock file.
    pub(crate) fn open_lock(&self, path: &RootedPath) -> Result<Option<File>, FsError> {
        match self.open_at(path.as_str(), OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY) {
            Ok(fd) => Ok(Some(File::from(fd))),
            Err(ResolveError::Failed(Errno::NOENT | Errno::NOTDIR)) => Ok(None),
            Err(error) => Err(failed("open lock", path)(error)),
        }
    }

    fn unlink(&self, path: &RootedPath, flags: AtFlags) -> Result<(), ResolveError> {
        let parent = self.parent_of(path)?;
        Ok(rustix::fs::unlinkat(parent, path.name(), flags)?)
    }

    fn create(&self, path: &RootedPath) -> Result<File, FsError> {
        let create = || {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let parent = self.parent_of(path)?;
            Ok::<_, ResolveError>(rustix::fs::openat(
                parent,
                path.name(),
                flags,
                Mode::from_raw_mode(0o600),
            )?)
        };
        let file = create().map(File::from).map_err(failed("create file", path))?;
        self.record(|| FsOperation::CreateFile {
            path: path.to_string(),
        });
        Ok(file)
    }

    fn entry_of(&self, file: &File, path: &RootedPath) -> Result<super::FileEntry, FsError> {
        let stat = rustix::fs::fstat(file).map_err(failed("stat file", path))?;
        let owner =
            super::metadata::effective_owner(self.ownership, &stat, || super::metadata::owner_note(file));
        Ok(super::FileEntry::new(&stat, owner))
    }

    /// Sets owner, then mode: changing the owner clears setuid bits, and they must not be set for the wrong owner even
    /// briefly.
    fn set_attributes(
        &self,
        fd: impl std::os::fd::AsFd,
        path: &RootedPath,
        attributes: Attributes,
    ) -> Result<(), Errno> {
        set_owner(&fd, self.ownership, attributes.owner)?;
        self.record(|| FsOperation::SetOwner {
            path: path.to_string(),
            owner: attributes.owner,
        });
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(attributes.mode))?;
        self.record(|| FsOperation::SetMode {
            path: path.to_string(),
            mode: attributes.mode,
        });
        Ok(())
    }

    fn sync_open_file(&self, file: &File, path: &RootedPath) -> io::Result<()> {
        file.sync_all()?;
        self.record(|| FsOperation::SyncFile {
            path: path.to_string(),
        });
        Ok(())
    }

    /// Records the contents of a copied file.
    fn record_copy(&self, from: &RootedPath, to: &RootedPath) {
        if let Some(contents) = self
            .recorder
            .as_ref()
            .and_then(|_| self.read(from, u64::MAX).ok().flatten())
        {
            self.record(|| FsOperation::Write {
                path: to.to_string(),
                contents,
            });
        }
    }

    fn copy_label(&self, model: &RootedPath, file: &File) -> Result<(), FsError> {
        if self.ownership == Ownership::Recorded {
            return Ok(());
        }
        let is_file = self
            .entry(model)?
            .is_some_and(|entry| entry.kind == FileKind::File);
        let Some(model_file) = (if is_file { self.open_file(model)? } else { None }) else {
            return Ok(());
        };
        copy_attributes(&model_file, file, |name| name == SELINUX_LABEL.as_bytes())
            .map_err(failed("keep the security label of", model))
    }
}

fn open_child(parent: impl std::os::fd::AsFd, path: &RootedPath) -> rustix::io::Result<std::os::fd::OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, path.name(), flags, Mode::empty())
}

/// Refuses a directory other than the one just created: the owner of its parent may have exchanged the two, to get
/// the other one's owner changed.
fn require_new(directory: impl std::os::fd::AsFd) -> rustix::io::Result<()> {
    let stat = rustix::fs::fstat(directory)?;
    let is_ours = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o777 == 0o700;
    if is_ours { Ok(()) } else { Err(Errno::EXIST) }
}

fn removed(result: Result<(), ResolveError>) -> Result<bool, ResolveError> {
    match result {
        Ok(()) => Ok(true),
        Err(ResolveError::Failed(Errno::NOENT | Errno::NOTDIR)) => Ok(false),
        Err(error) => Err(error),
    }
}
