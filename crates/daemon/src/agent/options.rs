//! Runtime options of the agent.

use std::net::SocketAddr;
use std::time::Duration;

use mco_http::metrics::ScrapeAccess;

use super::kubelet::KubeletCheck;
use super::node_files::SecretEndpoint;
use crate::guard::{self, GuardOptions};

/// The grace period after a stop: shorter than the five seconds after which callers expect a component to have exited.
const GRACE: Duration = Duration::from_secs(4);

#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The address that serves health endpoints and metrics; `None` disables them.
    pub listen: Option<SocketAddr>,
    /// Access control of the metrics endpoint.
    pub metrics_access: ScrapeAccess,
    /// The kubelet health check; `None` on machines without a kubelet.
    pub kubelet: Option<KubeletCheck>,
    /// The service manager's notification socket: the value of `NOTIFY_SOCKET`.
    pub notify_socket: Option<std::ffi::OsString>,
    /// The grace period for a running step after a stop. The next start completes or rolls back what was interrupted.
    pub grace: Duration,
    /// Set if nothing else runs in this process, so that an idle agent may release unused memory.
    pub alone: bool,
    /// How long a node may take to be healthy with a change, if its Node has no deadline. Then the change is rolled back.
    pub health_deadline: Duration,
    /// How changes are guarded; `None` on simulated machines.
    pub guard: Option<GuardOptions>,
    /// Where the values of Secrets are fetched; by default at the API server, which those of `mco up` serve.
    pub secrets: Option<SecretEndpoint>,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            listen: None,
            metrics_access: ScrapeAccess::default(),
            kubelet: None,
            notify_socket: None,
            grace: GRACE,
            alone: false,
            health_deadline: guard::DEADLINE,
            guard: None,
            secrets: None,
        }
    }
}

impl AgentOptions {
    /// Returns the kubelet check. Only metrics use it, so without a metrics endpoint there is none.
    pub(super) fn kubelet_check(&self) -> Option<&KubeletCheck> {
        self.listen.and(self.kubelet.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelet_is_polled_only_if_metrics_are_served() {
        let listen = "127.0.0.1:8797".parse().ok();
        let kubelet = "http://localhost:10248/healthz"
            .parse()
            .map(KubeletCheck::new)
            .ok();
        for (listen, kubelet, is_asked) in [
            (None, None, false),
            (listen, None, false),
            (None, kubelet.clone(), false),
            (listen, kubelet, true),
        ] {
            let options = AgentOptions {
                listen,
                kubelet,
                ..AgentOptions::default()
            };
            assert_eq!(options.kubelet_check().is_some(), is_asked, "{options:?}");
        }
    }
}
