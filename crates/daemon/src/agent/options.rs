//! How an agent is run.

use std::net::SocketAddr;
use std::time::Duration;

/// The callers of components expect them to be gone five seconds after a stop.
const GRACE: Duration = Duration::from_secs(4);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where liveness, readiness and metrics are served; nowhere without it.
    pub listen: Option<SocketAddr>,
    /// The service manager to tell how we are: the value of `NOTIFY_SOCKET`.
    pub notify_socket: Option<std::ffi::OsString>,
    /// How long a step under way may go on after a stop. What is cut off then is finished or undone by the next start.
    pub grace: Duration,
    /// Nothing else runs in this process, so an idle agent may give its memory back.
    pub alone: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: None,
            notify_socket: None,
            grace: GRACE,
            alone: false,
        }
    }
}
