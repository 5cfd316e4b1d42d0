//! The one directory that holds everything `mco up` knows.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Tells our directory from one that happens to have the name.
const STORE: &str = "store.redb";

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
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let path = path
            .canonicalize()
            .with_context(|| format!("cannot use {}", path.display()))?;
        Ok(Self { path, is_default })
    }

    /// The directory of an `mco up` that runs; nothing is made there.
    pub fn existing(chosen: Option<PathBuf>) -> anyhow::Result<Self> {
        let is_default = chosen.is_none();
        let path = chosen_or_default(chosen)?;
        Ok(Self { path, is_default })
    }

    /// How another command is told to use this directory.
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

    /// Where the address for the next login to the console is.
    pub fn console(&self) -> PathBuf {
        self.path.join("console")
    }

    /// The root of a local node.
    pub fn node(&self, name: &str) -> PathBuf {
        self.path.join("nodes").join(name)
    }

    pub fn log_path(&self) -> PathBuf {
        self.path.join("mco.log")
    }

    pub fn log(&self) -> anyhow::Result<File> {
        let path = self.log_path();
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("cannot write {}", path.display()))
    }
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
        .context("there is no home directory to keep data in; use --data-dir")
}

/// Removes what an earlier start kept, and never a directory that is something else.
fn clear(path: &Path) -> anyhow::Result<()> {
    let mut entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let empty = entries.next().is_none();
    if !empty && !path.join(STORE).is_file() {
        bail!(
            "{} holds something that mco up did not make; --fresh would delete it, so choose another --data-dir",
            path.display()
        );
    }
    fs::remove_dir_all(path).with_context(|| format!("cannot empty {}", path.display()))
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
}
