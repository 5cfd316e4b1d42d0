//! Reverts a config with which the node is not healthy, also where the daemon cannot run.
//!
//! The daemon is usually a pod of the kubelet that a config can break. So each guarded change brings a small unit of the
//! machine's own systemd, `mco-guard.service`, with a copy of this program. It is written in the transaction of the
//! change, starts with the boot, or before the services are restarted, and ends when the daemon has confirmed the
//! change. If the deadline passes first and the node is not healthy, it rolls the transaction back from the journal and
//! reboots once. The daemon does the same with the same rules while it runs and holds the machine's lock; see
//! [`crate::boot_proof::give_up`].
//!
//! A change without [`RequiredHealth`] in its journal is never reverted. The rollback removes that, and the unit.

mod api_server;
pub(crate) mod checks;
mod unit;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use api_server::{find as find_api_server, host_and_port};
pub use unit::{UNIT, disarm, install_program, is_armed, preparation, start};
pub use watch::{GuardEnd, GuardError, GuardTiming, watch};

/// How long a node may take to be healthy if neither its pool nor a RolloutPolicy sets a deadline. Kubelets of large nodes
/// are ready some minutes after a boot.
pub const DEADLINE: Duration = Duration::from_mins(15);

/// What a node must show after a change, and until when: the checks that it passed before. Part of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequiredHealth {
    deadline_seconds: u64,
    /// The health endpoint of the kubelet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<String>,
    /// Host and port of the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server: Option<String>,
}

impl RequiredHealth {
    pub fn new(deadline: Duration, kubelet: Option<String>, api_server: Option<String>) -> Self {
        Self {
            deadline_seconds: deadline.as_secs(),
            kubelet,
            api_server,
        }
    }

    pub fn deadline(&self) -> Duration {
        Duration::from_secs(self.deadline_seconds)
    }

    /// Returns whether there is nothing to check: such a change is not guarded.
    pub fn is_empty(&self) -> bool {
        self.kubelet.is_none() && self.api_server.is_none()
    }

    /// Returns the checks that the node passes now. A node is not reverted for what it did not show before.
    pub async fn passing(self) -> Self {
        let kubelet = Self {
            api_server: None,
            ..self.clone()
        };
        let api_server = Self {
            kubelet: None,
            ..self.clone()
        };
        Self {
            deadline_seconds: self.deadline_seconds,
            kubelet: match checks::problem(&kubelet).await {
                None => self.kubelet,
                Some(_) => None,
            },
            api_server: match checks::problem(&api_server).await {
                None => self.api_server,
                Some(_) => None,
            },
        }
    }
}

/// How changes of a machine are guarded.
#[derive(Debug, Clone)]
pub struct GuardOptions {
    /// This program, or a path to a copy of it.
    pub program: PathBuf,
    /// The health endpoint of the kubelet.
    pub kubelet: String,
    /// Host and port of the API server; by default those of the kubelet's kubeconfig.
    pub api_server: Option<String>,
}
