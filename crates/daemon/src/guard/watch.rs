//! The process of the guard: waits for the confirmation of a change, and reverts it after the deadline.

use std::sync::Arc;
use std::time::Duration;

use mco_host::Machine;
use thiserror::Error;
use tokio::time::Instant;

use super::{RequiredHealth, checks};
use crate::boot_proof;
use crate::once::{self, OnceError};
use crate::transaction::{Journal, JournalError, JournalPhase, Uninterrupted, read_journal};

/// How often the guard checks.
#[derive(Debug, Clone, Copy)]
pub struct GuardTiming {
    pub interval: Duration,
    /// How long a node that became healthy late must stay so: a service that fails is restarted again and again.
    pub stable: Duration,
}

impl Default for GuardTiming {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            stable: Duration::from_secs(30),
        }
    }
}

/// Why the guard ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardEnd {
    /// There is no change, or none that is guarded: it was confirmed or rolled back.
    NotNeeded,
    /// The node is healthy, so that the daemon can confirm the change.
    Healthy,
    /// The change was rolled back, and a reboot was requested.
    Reverted { config: String, because: String },
}

#[derive(Debug, Error)]
pub enum GuardError {
    #[error(transparent)]
    Once(Box<OnceError>),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("the work on the machine was interrupted: {0}")]
    Cut(#[from] tokio::task::JoinError),
}

impl From<OnceError> for GuardError {
    fn from(error: OnceError) -> Self {
        Self::Once(Box::new(error))
    }
}

/// The state of the guarded change.
#[derive(Debug)]
enum GuardedChange {
    None,
    /// The reboot of the change has not happened yet.
    AwaitingBoot,
    Unconfirmed(RequiredHealth),
    /// A rollback has begun. It is completed without a deadline.
    RollingBack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuardStep {
    Wait,
    Leave,
    Revert,
}

/// Decides after a check. `healthy` is how long the node has been healthy without interruption.
fn step(elapsed: Duration, deadline: Duration, healthy: Option<Duration>, stable: Duration) -> GuardStep {
    match healthy {
        _ if elapsed < deadline => GuardStep::Wait,
        Some(healthy) if healthy >= stable => GuardStep::Leave,
        Some(_) if elapsed < deadline + 2 * stable => GuardStep::Wait,
        Some(_) | None => GuardStep::Revert,
    }
}

/// Watches over the change of this machine until it is confirmed, the node is healthy at the deadline, or the change is
/// reverted. At most one revert is possible: afterwards no change is guarded any more.
pub async fn watch(machine: Arc<Machine>, timing: GuardTiming) -> Result<GuardEnd, GuardError> {
    let mut unconfirmed_since = None;
    let mut healthy_since = None;
    let mut last_problem = String::new();
    loop {
        let because = match blocking(&machine, look).await? {
            GuardedChange::None => return Ok(GuardEnd::NotNeeded),
            GuardedChange::AwaitingBoot => None,
            GuardedChange::RollingBack => Some("the rollback was interrupted".to_owned()),
            GuardedChange::Unconfirmed(required) => {
                match checks::problem(&required).await {
                    None => {
                        healthy_since.get_or_insert_with(Instant::now);
                    }
                    Some(problem) => {
                        if problem != last_problem {
                            tracing::warn!("{problem}");
                        }
                        last_problem = problem;
                        healthy_since = None;
                    }
                }
                let healthy = healthy_since.map(|since| since.elapsed());
                let elapsed = unconfirmed_since.get_or_insert_with(Instant::now).elapsed();
                match step(elapsed, required.deadline(), healthy, timing.stable) {
                    GuardStep::Wait => None,
                    GuardStep::Leave => return Ok(GuardEnd::Healthy),
                    GuardStep::Revert => Some(format!(
                        "the node was not healthy within {} s: {last_problem}",
                        required.deadline().as_secs()
                    )),
                }
            }
        };
        if let Some(because) = because
            && let Some(end) = blocking(&machine, move |machine| revert(machine, &because)).await?
        {
            return Ok(end);
        }
        tokio::time::sleep(timing.interval).await;
    }
}

async fn blocking<T: Send + 'static>(
    machine: &Arc<Machine>,
    work: impl FnOnce(&Machine) -> Result<T, GuardError> + Send + 'static,
) -> Result<T, GuardError> {
    let machine = Arc::clone(machine);
    tokio::task::spawn_blocking(move || work(&machine)).await?
}

fn look(machine: &Machine) -> Result<GuardedChange, GuardError> {
    Ok(match read_journal(&machine.root)? {
        Some(journal) => state(machine, &journal)?,
        None => GuardedChange::None,
    })
}

fn state(machine: &Machine, journal: &Journal) -> Result<GuardedChange, GuardError> {
    // While staging nothing has changed yet: the next start of the daemon cleans up.
    let staging = journal.phase == JournalPhase::Staging;
    let Some(required) = journal.health.clone().filter(|_| !staging) else {
        return Ok(GuardedChange::None);
    };
    if journal.phase == JournalPhase::RollingBack || boot_proof::rollback_is_due(machine, journal)? {
        return Ok(GuardedChange::RollingBack);
    }
    let same_boot = machine.power.boot_id(&machine.root).map_err(OnceError::from)? == journal.boot;
    Ok(if journal.phase == JournalPhase::AwaitingBoot && same_boot {
        GuardedChange::AwaitingBoot
    } else {
        GuardedChange::Unconfirmed(required)
    })
}

/// Rolls the change back and reboots, unless a daemon is running, which then does so itself; returns `None` in that case.
fn revert(machine: &Machine, because: &str) -> Result<Option<GuardEnd>, GuardError> {
    let _lock = match once::lock(machine) {
        Ok(lock) => lock,
        Err(OnceError::Busy) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // The daemon may have confirmed it before it ended.
    let Some(journal) = read_journal(&machine.root)? else {
        return Ok(Some(GuardEnd::NotNeeded));
    };
    if !matches!(
        state(machine, &journal)?,
        GuardedChange::Unconfirmed(_) | GuardedChange::RollingBack
    ) {
        return Ok(None);
    }
    let config = journal.to.clone();
    let because = journal.because.clone().unwrap_or_else(|| because.to_owned());
    let reboot = boot_proof::give_up(machine, &journal, &because, &Uninterrupted)?;
    while let Err(error) = machine.power.reboot(&machine.root, &reboot) {
        tracing::error!(%error, "cannot reboot after the revert of {config}; trying again");
        std::thread::sleep(REBOOT_INTERVAL);
    }
    Ok(Some(GuardEnd::Reverted { config, because }))
}

/// Without the reboot, services run with the reverted config.
const REBOOT_INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_reverted_only_after_the_deadline_and_only_if_it_is_not_healthy() {
        let seconds = Duration::from_secs;
        let stable = seconds(30);
        for (name, elapsed, healthy, expected) in [
            ("in time", 0, None, GuardStep::Wait),
            ("healthy in time", 50, Some(40), GuardStep::Wait),
            ("not healthy", 60, None, GuardStep::Revert),
            ("healthy", 60, Some(30), GuardStep::Leave),
            ("only just healthy", 60, Some(5), GuardStep::Wait),
            ("healthy now and then", 120, Some(5), GuardStep::Revert),
        ] {
            let healthy = healthy.map(seconds);
            assert_eq!(
                step(seconds(elapsed), seconds(60), healthy, stable),
                expected,
                "{name}"
            );
        }
    }
}
