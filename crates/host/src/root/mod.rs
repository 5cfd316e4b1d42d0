//! A machine's filesystem as a capability: all access is confined to one open directory.
//!
//! Every path is resolved by the kernel with that directory as its root, so that neither a symbolic link nor a `..`, in
//! a path or planted on disk, leads outside. The last name of a path is never followed when something is written. No
//! function here accesses `/`.

mod metadata;
mod read;
mod write;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use thiserror::Error;

use crate::path::{PathError, RootedPath};
pub use metadata::{Attributes, FileEntry, FileKind, FileOwner};
pub use write::Durability;

/// An open directory that is the root of a machine.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    path: PathBuf,
    ownership: Ownership,
}

/// How owners of files are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// In the filesystem, as usual. Needs the privilege to change owners.
    Enforced,
    /// Our own user stands for root; any other owner is recorded in an extended attribute of the file. For directory
    /// nodes that run without privileges.
    Recorded,
}

/// A failed filesystem operation, with its path and cause.
#[derive(Debug, Error)]
pub enum FsError {
    #[error("could not {attempted} {path:?}: {source}")]
    Failed {
        attempted: &'static str,
        path: String,
        source: io::Error,
    },
    #[error("{path:?} is {found}, not {wanted}")]
    WrongKind {
        path: String,
        found: FileKind,
        wanted: &'static str,
    },
    #[error("{path:?} is larger than {limit} bytes")]
    TooLarge { path: String, limit: u64 },
    #[error(transparent)]
    Path(#[from] PathError),
}

impl FsError {
    /// Returns the I/O error, if there was one.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Failed { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Maps a kernel error to the attempted operation.
fn failed(attempted: &'static str, path: &RootedPath) -> impl Fn(rustix::io::Errno) -> FsError {
    move |errno| FsError::Failed {
        attempted,
        path: path.to_string(),
        source: errno.into(),
    }
}

impl Root {
    pub fn open(path: &Path, ownership: Ownership) -> Result<Self, FsError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| FsError::Failed {
            attempted: "open the root directory",
            path: path.display().to_string(),
            source: errno.into(),
        })?;
        Ok(Self {
            fd,
            path: path.to_owned(),
            ownership,
        })
    }

    /// Returns the path of the root, for messages and for commands that have a root option.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn ownership(&self) -> Ownership {
        self.ownership
    }

    /// Opens a path below the root; links are resolved below it.
    fn open_at(&self, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.fd, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    fn open_directory(&self, path: &str) -> rustix::io::Result<OwnedFd> {
        self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Opens the parent directory of a path.
    fn parent_of(&self, path: &RootedPath) -> rustix::io::Result<OwnedFd> {
        let parent = path.parent();
        self.open_directory(parent.as_ref().map_or("/", RootedPath::as_str))
    }
}
