//! The status of a node for `mco daemon status`, read from its disk alone.

use mco_host::{Machine, PowerError};
use serde::Serialize;
use thiserror::Error;

use crate::agent::{self, Activity};
use crate::config::NodeConfig;
use crate::disk::{self, DiskError};
use crate::transaction::{JournalError, JournalPhase, read_journal};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonStatusReport {
    /// The config on disk; `None` on a machine that no config was applied to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    pub activity: DaemonActivity,
    /// The agent's activity; `None` if no agent has run since the machine booted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<Activity>,
    pub operating_system: String,
    pub boot_id: String,
    /// Whether the next update skips all validation.
    pub forced: bool,
    /// Whether the node has not registered with its cluster yet.
    pub new_node: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum DaemonActivity {
    Idle,
    /// A change was interrupted; the next start completes or rolls it back.
    Interrupted {
        from: String,
        to: String,
        step: &'static str,
        paths: usize,
    },
    /// The change is in place and waits for a reboot.
    AwaitingBoot {
        to: String,
        because: String,
    },
    /// The reboot has happened and is not verified yet.
    Booted {
        to: String,
    },
    /// The services were restarted with the change, and the health of the node is waited for.
    Restarted {
        to: String,
    },
}

#[derive(Debug, Error)]
pub enum StatusError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Power(#[from] PowerError),
}

pub fn status(machine: &Machine) -> Result<DaemonStatusReport, StatusError> {
    let root = &machine.root;
    let current = disk::current_config(root)?;
    let boot = machine.power.boot_id(root)?;
    let activity = match read_journal(root)? {
        None => DaemonActivity::Idle,
        Some(journal) if journal.phase == JournalPhase::AwaitingBoot => {
            if journal.boot == boot {
                DaemonActivity::AwaitingBoot {
                    to: journal.to,
                    because: journal.aftermath.reboot.unwrap_or_default(),
                }
            } else {
                DaemonActivity::Booted { to: journal.to }
            }
        }
        Some(journal) if journal.awaits_confirmation() => DaemonActivity::Restarted { to: journal.to },
        Some(journal) => DaemonActivity::Interrupted {
            step: match journal.phase {
                JournalPhase::Staging => "staging new contents",
                JournalPhase::Prepared => "moving new contents into place",
                JournalPhase::Swapped | JournalPhase::AwaitingBoot => "reloading services",
                JournalPhase::RollingBack => "rolling back to the old contents",
            },
            paths: journal.paths(),
            from: journal.from,
            to: journal.to,
        },
    };
    Ok(DaemonStatusReport {
        image: current.as_ref().and_then(|config| config.built_image.clone()),
        config: current
            .as_ref()
            .map(|config: &NodeConfig| config.name().to_owned()),
        activity,
        agent: agent::read_activity(root).map_err(DiskError::from)?,
        operating_system: machine.os.backend().to_string(),
        boot_id: boot.to_string(),
        forced: disk::is_forced(root)?,
        new_node: disk::node_annotations(root)?.is_some(),
    })
}
