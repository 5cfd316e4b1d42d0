//! Drift detection: inotify wakes it up, hashes confirm it.

mod difference;
mod policy;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use mco_host::systemd::{self, RootUnits};
use mco_host::{FsError, Machine, RootedPath, WatchedState, Watcher};
use mco_runtime::{BlockingWorkFailed, run_blocking};
use thiserror::Error;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use crate::config::NodeConfig;
use crate::target::{self, TargetError};
use crate::validate::{self, Mismatch, ValidateError};
use crate::{PANIC_COMPONENT, paths};
pub use difference::unified;
pub use policy::HealBudget;

/// The debounce interval: editors replace a file in several steps, so files are compared once nothing has changed for
/// this long.
const SETTLING: Duration = Duration::from_millis(50);
/// The maximum debounce delay: files that keep changing are compared after this long.
const LONGEST_SETTLING: Duration = Duration::from_secs(1);
/// The interval of full validations, for changes that inotify does not report: owners of parents, kernel arguments,
/// lost events.
const FULL_COMPARISON: Duration = Duration::from_mins(10);

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
    #[error("the comparison was interrupted: {0}")]
    Panicked(#[from] BlockingWorkFailed),
}

/// Watches all paths that a config manages, including missing ones. Idle while nothing changes.
#[derive(Debug)]
pub struct Monitor {
    machine: Arc<Machine>,
    config: Arc<NodeConfig>,
    watcher: AsyncFd<Watcher>,
    managed: BTreeSet<RootedPath>,
    /// When a managed path was first touched since the last comparison.
    touched: Option<Instant>,
    next_full_comparison: Instant,
}

/// The result of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub enum DriftCheck {
    Intact,
    Drifted(Vec<Mismatch>),
}

impl Monitor {
    /// Starts watching. Must be called within an async runtime.
    pub fn start(machine: Arc<Machine>, config: Arc<NodeConfig>) -> Result<Self, DriftError> {
        let mut managed: BTreeSet<RootedPath> = target::managed_paths(&config)?
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        let keys = target::key_files(&config, &config, &machine.root, machine.accounts())?;
        managed.extend(keys.into_iter().map(|keys| keys.path));
        for unit in config
            .ignition
            .systemd
            .units
            .iter()
            .filter(|unit| unit.enabled.is_some())
        {
            managed.extend(systemd::links(&unit.name, &RootUnits(&machine.root))?.into_keys());
        }
        // Not a managed path, but its creation must wake up the agent.
        managed.insert(RootedPath::new(paths::FORCE_FILE).map_err(FsError::from)?);
        for live in paths::LIVE_CONTENT {
            managed.remove(&RootedPath::new(live).map_err(FsError::from)?);
        }
        let mut monitor = Self {
            machine,
            config,
            watcher: watched(Watcher::new()?)?,
            managed,
            touched: None,
            next_full_comparison: Instant::now() + FULL_COMPARISON,
        };
        monitor.watch_directories()?;
        Ok(monitor)
    }

    /// Returns the config that the machine is compared with.
    pub fn config(&self) -> &Arc<NodeConfig> {
        &self.config
    }

    /// Waits until a managed path is touched and has settled, then compares. Changes in quick succession are coalesced.
    /// Cancel-safe: no change is lost if the future is dropped.
    pub async fn wait(&mut self) -> Result<DriftCheck, DriftError> {
        self.touched_and_at_rest().await?;
        self.watch_directories()?;
        let everything = self.next_full_comparison <= Instant::now();
        let (machine, config) = (Arc::clone(&self.machine), Arc::clone(&self.config));
        let compare = move || {
            if everything {
                validate::validate(&machine, &config)
            } else {
                validate::validate_files(&machine, &config)
            }
        };
        let object = format!("config {:?}", self.config.name());
        let mismatches = run_blocking(PANIC_COMPONENT, object, compare).await??;
        self.touched = None;
        if everything {
            self.next_full_comparison = Instant::now() + FULL_COMPARISON;
        }
        Ok(if mismatches.is_empty() {
            DriftCheck::Intact
        } else {
            DriftCheck::Drifted(mismatches)
        })
    }

    async fn touched_and_at_rest(&mut self) -> Result<(), DriftError> {
        loop {
            let now = Instant::now();
            let deadline = match self.touched {
                Some(since) if now >= since + LONGEST_SETTLING => return Ok(()),
                Some(_) => now + SETTLING,
                None => self.next_full_comparison,
            };
            let Ok(ready) = tokio::time::timeout_at(deadline, self.watcher.readable_mut()).await else {
                return Ok(());
            };
            let mut ready = ready?;
            let seen = ready.get_inner_mut().take()?;
            ready.clear_ready();
            if self.matters(&seen) {
                self.touched.get_or_insert(now);
            }
        }
    }

    /// Returns whether an event affects a managed path. Its ancestors count, because they may be replaced as a whole.
    fn matters(&self, seen: &WatchedState) -> bool {
        let on_the_way =
            |changed: &RootedPath| self.managed.iter().any(|path| path.is_within(changed.as_str()));
        seen.everything || seen.paths.iter().any(on_the_way)
    }

    /// Watches all parent directories. Idempotent, so it also picks up directories that were replaced.
    fn watch_directories(&mut self) -> Result<(), DriftError> {
        let directories: BTreeSet<RootedPath> = self.managed.iter().filter_map(RootedPath::parent).collect();
        for directory in &directories {
            self.watcher.get_mut().add(&self.machine.root, directory)?;
        }
        Ok(())
    }
}

#[expect(
    deprecated,
    reason = "its replacement is unsafe to call for descriptors that come and go; a Watcher owns one for life"
)]
fn watched(watcher: Watcher) -> std::io::Result<AsyncFd<Watcher>> {
    AsyncFd::with_interest(watcher, Interest::READABLE)
}
