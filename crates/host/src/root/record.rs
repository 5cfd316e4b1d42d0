//! Records the operations that change a filesystem, for tests that replay them up to a power failure.
//!
//! Without a recorder, which is the case in every program, an operation costs one comparison.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use super::{FileOwner, FsError, Ownership, Root};
use crate::path::RootedPath;

/// Receives each operation of a [`Root`] after it has succeeded, in order.
pub trait FsRecorder: fmt::Debug + Send + Sync {
    fn record(&self, operation: FsOperation);

    /// Returns the error with which a hard link or a rename fails instead of being done, as across filesystems.
    fn refuse(&self, _operation: &FsOperation) -> Option<Errno> {
        None
    }
}

/// One operation that changes a filesystem or makes changes durable. Paths are absolute below the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FsOperation {
    /// A new, empty file with mode 0600.
    CreateFile {
        path: String,
    },
    /// All contents of a new file.
    Write {
        path: String,
        contents: Vec<u8>,
    },
    SetOwner {
        path: String,
        owner: FileOwner,
    },
    SetMode {
        path: String,
        mode: u32,
    },
    /// Extended attributes of `from` are set on `path` too.
    CopyAttributes {
        from: String,
        path: String,
    },
    /// A new directory with mode 0700.
    CreateDirectory {
        path: String,
    },
    Symlink {
        target: String,
        path: String,
    },
    HardLink {
        from: String,
        to: String,
    },
    Rename {
        from: String,
        to: String,
    },
    RemoveFile {
        path: String,
    },
    RemoveDirectory {
        path: String,
    },
    SyncFile {
        path: String,
    },
    SyncDirectory {
        path: String,
    },
    /// The filesystem of the root; others are not distinguished.
    SyncFilesystem,
}

impl FsOperation {
    /// Returns whether the operation makes others durable.
    pub fn is_sync(&self) -> bool {
        matches!(
            self,
            Self::SyncFile { .. } | Self::SyncDirectory { .. } | Self::SyncFilesystem
        )
    }
}

impl fmt::Display for FsOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateFile { path } => write!(f, "create {path}"),
            Self::Write { path, contents } => write!(f, "write {path} ({} bytes)", contents.len()),
            Self::SetOwner { path, owner } => write!(f, "chown {owner} {path}"),
            Self::SetMode { path, mode } => write!(f, "chmod {mode:o} {path}"),
            Self::CopyAttributes { from, path } => write!(f, "setxattr {path} (from {from})"),
            Self::CreateDirectory { path } => write!(f, "mkdir {path}"),
            Self::Symlink { target, path } => write!(f, "symlink {target} {path}"),
            Self::HardLink { from, to } => write!(f, "link {from} {to}"),
            Self::Rename { from, to } => write!(f, "rename {from} {to}"),
            Self::RemoveFile { path } => write!(f, "unlink {path}"),
            Self::RemoveDirectory { path } => write!(f, "rmdir {path}"),
            Self::SyncFile { path } => write!(f, "fsync file {path}"),
            Self::SyncDirectory { path } => write!(f, "fsync directory {path}"),
            Self::SyncFilesystem => f.write_str("syncfs"),
        }
    }
}

impl Root {
    /// Like [`Root::open`], with a recorder of all changes.
    pub fn open_recorded(
        path: &Path,
        ownership: Ownership,
        recorder: Arc<dyn FsRecorder>,
    ) -> Result<Self, FsError> {
        Ok(Self {
            recorder: Some(recorder),
            ..Self::open(path, ownership)?
        })
    }

    /// Records an operation, which is built only if there is a recorder.
    pub(super) fn record(&self, operation: impl FnOnce() -> FsOperation) {
        if let Some(recorder) = &self.recorder {
            recorder.record(operation());
        }
    }

    /// Fails if the recorder refuses an operation.
    pub(super) fn permit(&self, operation: impl FnOnce() -> FsOperation) -> Result<(), Errno> {
        let recorder = self.recorder.as_ref();
        match recorder.and_then(|recorder| recorder.refuse(&operation())) {
            Some(errno) => Err(errno),
            None => Ok(()),
        }
    }
}

/// Returns the parent directory as text; `/` for the root.
pub(super) fn parent_text(path: &RootedPath) -> String {
    path.parent()
        .map_or_else(|| "/".to_owned(), |parent| parent.to_string())
}
