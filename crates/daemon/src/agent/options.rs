//! How an agent is run.

use std::net::SocketAddr;
use std::time::Duration;

use mco_http::metrics::ScrapeAccess;

use super::kubelet::KubeletCheck;

/// The callers of components expect them to be gone five seconds after a stop.
const GRACE: Duration = Duration::from_secs(4);

#[derive(Debug, Clone)]
pub struct Options {
    /// Where liveness, readiness and metrics are served; nowhere without it.
    pub listen: Option<SocketAddr>,
    /// Who sees metrics there.
    pub metrics_access: ScrapeAccess,
    /// How the machine's kubelet is asked how it is; machines of ours may have none.
    pub kubelet: Option<KubeletCheck>,
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
            metrics_access: ScrapeAccess::default(),
            kubelet: None,
            notify_socket: None,
            grace: GRACE,
            alone: false,
        }
    }
}

impl Options {
    /// Only metrics tell how the kubelet is, so where nobody can see them nobody asks.
    pub(super) fn kubelet_check(&self) -> Option<&KubeletCheck> {
        self.listen.and(self.kubelet.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelet_is_asked_only_where_somebody_may_see_the_answer() {
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
            let options = Options {
                listen,
                kubelet,
                ..Options::default()
            };
            assert_eq!(options.kubelet_check().is_some(), is_asked, "{options:?}");
        }
    }
}
