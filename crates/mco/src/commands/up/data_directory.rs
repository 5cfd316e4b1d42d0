//! The data directory of `mco up`.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use rustix::fs::{Access, access};

use crate::rotating_file::RotatingFile;

/// Marks a directory as ours.
const STORE: &str = "store.redb";
const NODES: &str = "nodes";

/// The files in it, apart from the roots of nodes. Those that exist must have been created by `mco up`.
const FILES: [&str; 20] = [
    STORE,
    "console",
    "join-tokens.json",
    "kubeconfig",
    "mco.log",
    "mco.log.1",
    "mco.log.2",
    "mco.log.3",
    "mco.log.4",
    "pki/ca.crt",
    "pki/ca.key",
    "pki/client-ca.crt",
    "pki/client-ca.key",
    "server/bootstrap/ca.crt",
    "server/bootstrap/token",
    "server/ca.crt",
    "server/tls.crt",
    "server/tls.key",
    "server/tokens.json",
    "tokens.json",
];
const DIRECTORIES: [&str; 5] = ["", NODES, "pki", "server", "server/bootstrap"];

/// The size at which the log is rotated, and the number of earlier logs.
const LOG_BYTES: u64 = 16 << 20;
const OLD_LOGS: u8 = 4;

/// The remedy when something in the directory is broken.
pub const START_OVER: &str = "to start over with an empty directory, use --fresh";

#[derive(Debug, Clone)]
pub struct DataDirectory {
    path: PathBuf,
    is_default: bool,
}

impl DataDirectory {
    /// Opens the directory, creating it if it is missing; `fresh` empties it first.
    pub fn open(chosen: Option<PathBuf>, fresh: bool) -> anyhow::Result<Self> {
        let is_default = chosen.is_none();
        let path = chosen_or_default(chosen)?;
        if fresh {
            clear(&path)?;
        }
        let unusable = |error: io::Error| {
            anyhow!(
                "cannot create {}: {error}; choose another --data-dir",
                path.display()
            )
        };
        fs::create_dir_all(&path).map_err(unusable)?;
        let path = path.canonicalize().map_err(unusable)?;
        make_private(&path)?;
        Ok(Self { path, is_default })
    }

    /// Finds early what would fail later with worse messages: files of another type, and missing permissions.
    pub fn examine(&self, nodes: impl IntoIterator<Item = String>) -> anyhow::Result<()> {
        let roots = nodes.into_iter().map(|name| self.node(&name));
        let directories = DIRECTORIES.iter().map(|name| self.path.join(name)).chain(roots);
        for path in directories {
            examine(&path, EntryKind::Directory)?;
        }
        for name in FILES {
            examine(&self.path.join(name), EntryKind::File)?;
        }
        Ok(())
    }

    /// Returns the directory of a running `mco up`, without creating anything.
    pub fn existing(chosen: Option<PathBuf>) -> anyhow::Result<Self> {
        let is_default = chosen.is_none();
        let path = chosen_or_default(chosen)?;
        Ok(Self { path, is_default })
    }

    /// Returns the option by which another command uses this directory.
    pub fn option(&self) -> String {
        if self.is_default {
            String::new()
        } else {
            format!(" --data-dir {}", self.path.display())
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    /// Returns the file with the address for the next login to the console.
    pub fn console(&self) -> PathBuf {
        self.path.join("console")
    }

    /// Returns the root of a local node.
    pub fn node(&self, name: &str) -> PathBuf {
        self.nodes().join(name)
    }

    pub fn nodes(&self) -> PathBuf {
        self.path.join(NODES)
    }

    pub fn log_path(&self) -> PathBuf {
        self.path.join("mco.log")
    }

    pub fn log(&self) -> anyhow::Result<RotatingFile> {
        let path = self.log_path();
        RotatingFile::open(&path, LOG_BYTES, OLD_LOGS)
            .map_err(|error| anyhow!("cannot write {}: {error}; {NO_PERMISSION}", path.display()))
    }

    /// Returns whether an `mco up` has created this directory.
    pub fn has_store(&self) -> bool {
        self.path.join(STORE).exists()
    }

    /// Returns whether an `mco up` runs on this directory.
    pub fn is_in_use(&self) -> bool {
        is_locked(&self.path)
    }
}

/// Makes the directory accessible to its owner only: it holds all Secrets and CA keys. A directory of another user is
/// rejected, because that user could replace files in it. A directory with files of other programs keeps its mode; the
/// files that `mco up` creates in it are private on their own.
fn make_private(path: &Path) -> anyhow::Result<()> {
    let show = path.display();
    let metadata = fs::metadata(path).with_context(|| format!("cannot read {show}"))?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        bail!("{show} belongs to another user; {NO_PERMISSION}");
    }
    let is_ours =
        path.join(STORE).exists() || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    if is_ours && metadata.mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))
            .with_context(|| format!("cannot change the permissions of {show}"))?;
    }
    Ok(())
}

const NO_PERMISSION: &str = "change its owner, or choose another --data-dir";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryKind {
    File,
    Directory,
}

fn examine(path: &Path, expected: EntryKind) -> anyhow::Result<()> {
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => {
            found.map_err(|error| anyhow!("cannot read {}: {error}; {NO_PERMISSION}", path.display()))?
        }
    };
    let (is_right, rights, word) = match expected {
        EntryKind::File => (found.is_file(), Access::READ_OK | Access::WRITE_OK, "file"),
        EntryKind::Directory => (
            found.is_dir(),
            Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK,
            "directory",
        ),
    };
    if !is_right {
        bail!(
            "{} is not a {word}; move it away, or {START_OVER}",
            path.display()
        );
    }
    access(path, rights).map_err(|error| {
        let error = io::Error::from(error);
        anyhow!(
            "cannot read and write {}: {error}; {NO_PERMISSION}",
            path.display()
        )
    })
}

fn chosen_or_default(chosen: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    match chosen {
        Some(path) => Ok(path),
        None => default_path(),
    }
}

fn default_path() -> anyhow::Result<PathBuf> {
    let from = |variable: &str| {
        std::env::var_os(variable)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    from("XDG_DATA_HOME")
        .or_else(|| from("HOME").map(|home| home.join(".local/share")))
        .map(|data| data.join("mco"))
        .context("no home directory for the data; use --data-dir")
}

/// Removes the files of an earlier start, and never another directory.
fn clear(path: &Path) -> anyhow::Result<()> {
    let unusable = |error: io::Error| {
        anyhow!(
            "cannot empty {}: {error}; choose another --data-dir",
            path.display()
        )
    };
    let mut entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(unusable)?,
    };
    let empty = entries.next().is_none();
    let store = path.join(STORE);
    if !empty && !store.exists() {
        bail!(
            "{} holds something that mco up did not make; --fresh would delete it, so choose another --data-dir",
            path.display()
        );
    }
    if is_locked(path) {
        return Err(in_use(path));
    }
    fs::remove_dir_all(path).map_err(unusable)
}

/// Returns whether a process uses the store, which holds a lock on it.
fn is_locked(path: &Path) -> bool {
    File::open(path.join(STORE)).is_ok_and(|store| matches!(store.try_lock(), Err(TryLockError::WouldBlock)))
}

pub fn in_use(path: &Path) -> anyhow::Error {
    anyhow!(
        "another mco up works in {}; stop it, or choose another --data-dir",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_start_forgets_only_what_is_ours() {
        let scratch = tempfile::tempdir().unwrap();
        let ours = scratch.path().join("ours");
        fs::create_dir(&ours).unwrap();
        fs::write(ours.join(STORE), "").unwrap();
        fs::write(ours.join("tokens.json"), "").unwrap();
        DataDirectory::open(Some(ours.clone()), true).unwrap();
        assert_eq!(fs::read_dir(&ours).unwrap().count(), 0);

        let photos = scratch.path().join("photos");
        fs::create_dir(&photos).unwrap();
        fs::write(photos.join("cat.jpg"), "").unwrap();
        let refusal = DataDirectory::open(Some(photos.clone()), true).unwrap_err();
        assert!(
            refusal.to_string().contains("choose another --data-dir"),
            "{refusal}"
        );
        assert!(photos.join("cat.jpg").exists());
    }

    #[test]
    fn the_store_was_readable_by_every_local_user() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let directory = DataDirectory::open(Some(path.clone()), false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        directory.log().unwrap();
        assert_eq!(fs::metadata(directory.log_path()).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_directory_of_other_programs_keeps_its_mode() {
        let shared = tempfile::tempdir().unwrap();
        fs::write(shared.path().join("theirs"), "x").unwrap();
        fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o755)).unwrap();
        DataDirectory::open(Some(shared.path().to_owned()), false).unwrap();
        assert_eq!(fs::metadata(shared.path()).unwrap().mode() & 0o777, 0o755);
    }
}
