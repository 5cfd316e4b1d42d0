//! Reads a machine's files. Reads of paths that may be missing return an `Option`.

use std::fs::File;
use std::io::Read as _;

use rustix::fs::{AtFlags, Dir, OFlags};
use rustix::io::Errno;

use super::metadata::{effective_owner, owner_note};
use super::{FileEntry, FileKind, FsError, Ownership, ResolveError, Root, failed};
use crate::path::RootedPath;

impl Root {
    /// Returns the metadata of a path, without following a link.
    pub fn entry(&self, path: &RootedPath) -> Result<Option<FileEntry>, FsError> {
        let examine = || {
            let parent = self.parent_of(path)?;
            let stat = rustix::fs::statat(&parent, path.name(), AtFlags::SYMLINK_NOFOLLOW)?;
            let note = || {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd = rustix::fs::openat(&parent, path.name(), flags, rustix::fs::Mode::empty()).ok()?;
                owner_note(fd)
            };
            // The file is opened only to read the recorded owner, and a special file must not be opened at all.
            let plain = matches!(
                rustix::fs::FileType::from_raw_mode(stat.st_mode),
                rustix::fs::FileType::RegularFile | rustix::fs::FileType::Directory
            );
            let owner = effective_owner(self.ownership, &stat, || if plain { note() } else { None });
            Ok(FileEntry::new(&stat, owner))
        };
        absent_as_none(examine()).map_err(failed("stat file", path))
    }

    /// Returns the contents of a regular file, following links below the root.
    pub fn read(&self, path: &RootedPath, limit: u64) -> Result<Option<Vec<u8>>, FsError> {
        let Some(file) = self.open_file(path)? else {
            return Ok(None);
        };
        let mut contents = Vec::new();
        file.take(limit.saturating_add(1))
            .read_to_end(&mut contents)
            .map_err(|source| FsError::Failed {
                attempted: "read file",
                path: path.to_string(),
                source,
            })?;
        if contents.len() as u64 > limit {
            return Err(FsError::TooLarge {
                path: path.to_string(),
                limit,
            });
        }
        Ok(Some(contents))
    }

    /// Like [`Root::read`], as text. Invalid UTF-8 is replaced.
    pub fn read_text(&self, path: &RootedPath, limit: u64) -> Result<Option<String>, FsError> {
        Ok(self
            .read(path, limit)?
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Opens a regular file for streaming reads, following links below the root.
    pub fn open_file(&self, path: &RootedPath) -> Result<Option<File>, FsError> {
        // Without NONBLOCK a pipe planted at the path would block forever.
        let opened = self.open_at(path.as_str(), OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY);
        let Some(fd) = absent_as_none(opened).map_err(failed("open file", path))? else {
            return Ok(None);
        };
        let stat = rustix::fs::fstat(&fd).map_err(failed("stat file", path))?;
        match FileEntry::new(&stat, super::metadata::owner_of(&stat)).kind {
            FileKind::File => Ok(Some(File::from(fd))),
            found => Err(FsError::WrongKind {
                path: path.to_string(),
                found,
                wanted: "a regular file",
            }),
        }
    }

    /// Returns the target of a symbolic link, as stored.
    pub fn read_link(&self, path: &RootedPath) -> Result<Option<String>, FsError> {
        let read = || {
            let parent = self.parent_of(path)?;
            Ok(rustix::fs::readlinkat(parent, path.name(), Vec::new())?)
        };
        let target = match read() {
            Err(ResolveError::Failed(Errno::INVAL)) => return Ok(None),
            other => absent_as_none(other).map_err(failed("read link", path))?,
        };
        Ok(target.map(|target| String::from_utf8_lossy(target.as_bytes()).into_owned()))
    }

    /// Returns whether a path exists, following links below the root.
    pub fn exists(&self, path: &RootedPath) -> Result<bool, FsError> {
        let found =
            absent_as_none(self.open_at(path.as_str(), OFlags::PATH)).map_err(failed("look for", path))?;
        Ok(found.is_some())
    }

    /// Returns the names in a directory, sorted; empty if there is no such directory.
    pub fn list(&self, path: &RootedPath) -> Result<Vec<String>, FsError> {
        let Some(fd) =
            absent_as_none(self.open_directory(path.as_str())).map_err(failed("list directory", path))?
        else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for entry in Dir::new(fd).map_err(failed("list directory", path))? {
            let entry = entry.map_err(failed("list directory", path))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Opens a directory for watching; `None` if there is no such directory.
    pub(crate) fn open_for_watching(
        &self,
        path: &RootedPath,
    ) -> Result<Option<std::os::fd::OwnedFd>, FsError> {
        absent_as_none(self.open_at(path.as_str(), OFlags::PATH | OFlags::DIRECTORY))
            .map_err(failed("open directory", path))
    }

    /// Returns the bytes that an unprivileged process can still write on the filesystem of a path, or of its closest
    /// existing parent.
    pub fn free_space(&self, path: &RootedPath) -> Result<u64, FsError> {
        let mut place = Some(path.clone());
        let fd = loop {
            let name = place.as_ref().map_or("/", RootedPath::as_str);
            match self.open_at(name, OFlags::PATH) {
                Err(ResolveError::Failed(Errno::NOENT)) if place.is_some() => {
                    place = place.as_ref().and_then(RootedPath::parent);
                }
                opened => break opened.map_err(failed("look for", path))?,
            }
        };
        let found = rustix::fs::fstatvfs(&fd).map_err(failed("measure the disk of", path))?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// Returns whether arbitrary owners can be stored, and differences thus be detected.
    pub fn records_owners(&self) -> bool {
        self.ownership == Ownership::Enforced || self.can_note_owners()
    }

    fn can_note_owners(&self) -> bool {
        let Ok(fd) = self.open_directory("/") else {
            return false;
        };
        !matches!(
            rustix::fs::fgetxattr(&fd, "user.mco.probe", &mut [0_u8; 1][..]),
            Err(Errno::OPNOTSUPP)
        )
    }
}

/// Maps ENOTDIR to `None`: a path through a non-directory is missing.
fn absent_as_none<T>(result: Result<T, ResolveError>) -> Result<Option<T>, ResolveError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(ResolveError::Failed(Errno::NOENT | Errno::NOTDIR)) => Ok(None),
        Err(error) => Err(error),
    }
}
