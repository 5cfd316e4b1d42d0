//! Keeping watch over a machine between changes: woken by the kernel, certain by hashes.

mod policy;

use std::collections::BTreeSet;
use std::time::Duration;

use mco_host::{FsError, Machine, RootedPath, Watcher};
use thiserror::Error;

use crate::config::NodeConfig;
use crate::paths;
use crate::target::{self, TargetError};
use crate::validate::{self, Mismatch, ValidateError};
pub use policy::{DriftPolicy, HealBudget};

/// Editors replace a file in several steps; what is still changing after this long is looked at anyway.
const SETTLING: Duration = Duration::from_millis(50);
const LONGEST_SETTLING: u32 = 20;

#[derive(Debug, Error)]
pub enum DriftError {
    #[error(transparent)]
    Files(#[from] FsError),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Validate(#[from] ValidateError),
    #[error("cannot watch files: {0}")]
    Watch(#[from] std::io::Error),
}

/// Watches everything a config manages, also what is missing now.
#[derive(Debug)]
pub struct Monitor<'a> {
    machine: &'a Machine,
    config: &'a NodeConfig,
    watcher: Watcher,
    managed: BTreeSet<RootedPath>,
}

/// What a wait ended with.
#[derive(Debug, PartialEq, Eq)]
pub enum Watch {
    /// Nothing that matters happened.
    Quiet,
    /// Something was touched, and everything is as it should be.
    Intact,
    Drifted(Vec<Mismatch>),
}

impl<'a> Monitor<'a> {
    pub fn start(machine: &'a Machine, config: &'a NodeConfig) -> Result<Self, DriftError> {
        let mut managed: BTreeSet<RootedPath> = target::managed_paths(config)?
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        if !config.ignition.passwd.users.is_empty() {
            managed.insert(RootedPath::new(paths::AUTHORIZED_KEYS).map_err(FsError::from)?);
        }
        for live in paths::LIVE_CONTENT {
            managed.remove(&RootedPath::new(live).map_err(FsError::from)?);
        }
        let mut monitor = Self {
            machine,
            config,
            watcher: Watcher::new()?,
            managed,
        };
        monitor.watch_directories()?;
        Ok(monitor)
    }

    /// Waits for drift. Several changes in quick succession are looked at once.
    pub fn wait(&mut self, longest: Duration) -> Result<Watch, DriftError> {
        let mut seen = self.watcher.wait(longest)?;
        if seen.is_empty() {
            return Ok(Watch::Quiet);
        }
        for _ in 0..LONGEST_SETTLING {
            let more = self.watcher.wait(SETTLING)?;
            if more.is_empty() {
                break;
            }
            seen.everything |= more.everything;
            seen.paths.extend(more.paths);
        }
        // A directory on the way to a managed path counts as well: it may have been replaced as a whole.
        let matters = |changed: &RootedPath| self.managed.iter().any(|path| path.is_within(changed.as_str()));
        if !seen.everything && !seen.paths.iter().any(matters) {
            return Ok(Watch::Quiet);
        }
        self.watch_directories()?;
        let mismatches = validate::validate_files(self.machine, self.config)?;
        Ok(if mismatches.is_empty() {
            Watch::Intact
        } else {
            Watch::Drifted(mismatches)
        })
    }

    /// Watching a directory twice is watching it once, so this also picks up directories that were replaced.
    fn watch_directories(&mut self) -> Result<(), DriftError> {
        let directories: BTreeSet<RootedPath> = self.managed.iter().filter_map(RootedPath::parent).collect();
        for directory in &directories {
            self.watcher.add(&self.machine.root, directory)?;
        }
        Ok(())
    }
}
