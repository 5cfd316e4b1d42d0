//! A machine's filesystem as a capability: all access is confined to one open directory.
//!
//! Every path is resolved by the kernel with that directory as its root, so that neither a symbolic link nor a `..`, in
//! a path or planted on disk, leads outside. Links that an unprivileged user controls are not followed at all. The last
//! name of a path is never followed when something is written. No function here accesses `/`.

mod metadata;
mod read;
mod record;
mod resolve;
mod write;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use thiserror::Error;

use crate::path::{PathError, RootedPath};
pub use metadata::{Attributes, FileEntry, FileKind, FileOwner};
pub use record::{FsOperation, FsRecorder};
use resolve::ResolveError;
pub use write::Durability;

/// An open directory that is the root of a machine.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    path: PathBuf,
    ownership: Ownership,
    /// Only in tests.
    recorder: Option<Arc<dyn FsRecorder>>,
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
    #[error(
        "could not {attempted} {path:?}: the symbolic link {link:?} is under the control of user {owner}, so it could \
         redirect a write as root to any file; remove the link, or use a path without it"
    )]
    UntrustedLink {
        attempted: &'static str,
        path: String,
        link: String,
        owner: u32,
    },
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

/// Maps an error of the kernel or of the resolution of a path to the attempted operation.
fn failed<E: Into<ResolveError>>(attempted: &'static str, path: &RootedPath) -> impl Fn(E) -> FsError {
    move |error| match error.into() {
        ResolveError::Failed(errno) => FsError::Failed {
            attempted,
            path: path.to_string(),
            source: errno.into(),
        },
        ResolveError::UntrustedLink { link, owner } => FsError::UntrustedLink {
            attempted,
            path: path.to_string(),
            link,
            owner,
        },
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
            recorder: None,
        })
    }

    /// Returns the path of the root, for messages and for commands that have a root option.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn ownership(&self) -> Ownership {
        self.ownership
    }
}
