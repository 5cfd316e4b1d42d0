//! What the embedding program may choose.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::watch;

use crate::log_levels::LogLevels;
use crate::metrics::Metrics;

/// How often everything is looked at again, whether or not something changed.
const RESYNC: Duration = Duration::from_mins(5);

/// What the operator is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Our build. Controllers use only a ControllerConfig that an operator of their own build wrote.
    pub version: String,
    /// The release that the cluster runs; by default the ClusterVersion's, and without one our build.
    pub release_version: Option<String>,
    /// The image that the workloads run; may be empty where there are none.
    pub image: String,
    /// The image whose templates the controller shall use; empty for those of this program.
    pub templates_image: String,
    /// How machines reach the API server, for clusters that do not say so themselves.
    pub api_server_url: Option<String>,
    /// Where machines fetch their first configuration: host or address, with a port where it is not the usual one. By
    /// default the API server's host.
    pub config_server: Option<String>,
    pub workloads: Workloads,
    /// Refuses bad objects when they are written; none where the API server does so itself.
    pub webhook: Option<Webhook>,
    pub resync: Duration,
    /// Where the operator says how much is to be logged; whoever has the log follows.
    pub log_levels: watch::Sender<LogLevels>,
    pub metrics: Metrics,
    /// Where the operator's own metrics are told; nowhere by default.
    pub metrics_address: Option<SocketAddr>,
    pub metrics_access: MetricsAccess,
}

/// Who runs the controller, the daemons and the servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workloads {
    /// Somebody else, for example this very process.
    #[default]
    Elsewhere,
    /// The cluster, with Deployments and DaemonSets that the operator looks after.
    Deployed,
}

/// Who sees the operator's own metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsAccess {
    /// Everybody who can connect, over plain HTTP.
    #[default]
    Open,
    /// Those whom the cluster lets get `/metrics`, over TLS with a certificate that the operator makes.
    Guarded,
}

/// Where the API server asks whether an object may be written.
#[derive(Clone, Debug)]
pub struct Webhook {
    pub listen: SocketAddr,
    /// How the API server reaches it; by default through the operator's Service.
    pub url: Option<String>,
}

impl Options {
    /// Everything as it is by default, for this build.
    pub fn new(version: impl Into<String>) -> Self {
        Self {
            version: version.into(),
            release_version: None,
            image: String::new(),
            templates_image: String::new(),
            api_server_url: None,
            config_server: None,
            workloads: Workloads::default(),
            webhook: None,
            resync: RESYNC,
            log_levels: watch::Sender::default(),
            metrics: Metrics::default(),
            metrics_address: None,
            metrics_access: MetricsAccess::default(),
        }
    }
}
