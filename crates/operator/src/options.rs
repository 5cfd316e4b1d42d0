//! Options that the embedding program sets.

use std::net::SocketAddr;
use std::time::Duration;

use mco_api::ClusterBase;
use tokio::sync::watch;

use crate::log_levels::LogLevels;
use crate::metrics::OperatorMetrics;
use crate::profile::ProfileOptions;

/// Resync interval.
const RESYNC: Duration = Duration::from_mins(5);

/// The options of the operator.
#[derive(Clone, Debug)]
pub struct OperatorOptions {
    /// The version of our build. Controllers use only a ControllerConfig that an operator of the same build wrote.
    pub version: String,
    /// The release that the cluster runs; by default the ClusterVersion's, else our build.
    pub release_version: Option<String>,
    /// The image of the workloads; may be empty where there are none.
    pub image: String,
    /// The image with the controller's templates; empty for the built-in ones.
    pub templates_image: String,
    /// The image in which OS images are built; empty if none are.
    pub builder_image: String,
    /// How many unused OS images are kept per MachineOSConfig; by default as many as the builder keeps.
    pub keep_builds: Option<usize>,
    /// API server address for machines, if the cluster does not publish one.
    pub api_server_url: Option<String>,
    /// The address from which machines fetch their first configuration: host or address, with a port if it is not the
    /// default. By default the API server's host.
    pub config_server: Option<String>,
    pub workloads: OperandMode,
    /// The base and the optional components. By default everything that OpenShift has.
    pub profile: ProfileOptions,
    pub ignition_tokens: IgnitionTokens,
    /// The validating webhook; `None` where the API server calls admission itself.
    pub webhook: Option<Webhook>,
    pub resync: Duration,
    /// Publishes the log levels, which the owner of the log follows.
    pub log_levels: watch::Sender<LogLevels>,
    pub metrics: OperatorMetrics,
    /// The address of the operator's own metrics; off by default.
    pub metrics_address: Option<SocketAddr>,
    pub metrics_access: MetricsAccess,
}

/// Where the controller, the daemons and the servers run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OperandMode {
    /// Outside the cluster, for example in this process.
    #[default]
    Elsewhere,
    /// In the cluster, as Deployments and DaemonSets that the operator reconciles.
    Deployed,
}

/// Whether a machine needs a token of its pool to fetch its first configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IgnitionTokens {
    /// No token is issued: the servers serve every client that reaches them, or have tokens of another origin.
    #[default]
    Optional,
    /// The operator issues a token per pool, writes it into the pointer configs and has the servers require it.
    Required,
}

/// Access control of the operator's own metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsAccess {
    /// Unauthenticated, over plain HTTP.
    #[default]
    Open,
    /// For clients that the cluster authorizes to get `/metrics`, over TLS with a certificate that the operator issues.
    Guarded,
}

/// The validating webhook.
#[derive(Clone, Debug)]
pub struct Webhook {
    pub listen: SocketAddr,
    /// How the API server reaches it; by default through the operator's Service.
    pub url: Option<String>,
}

impl OperatorOptions {
    /// Returns the default options for this build.
    pub fn new(version: impl Into<String>) -> Self {
        Self {
            version: version.into(),
            release_version: None,
            image: String::new(),
            templates_image: String::new(),
            builder_image: String::new(),
            keep_builds: None,
            api_server_url: None,
            config_server: None,
            workloads: OperandMode::default(),
            profile: ProfileOptions {
                base: Some(ClusterBase::OpenShift),
                ..ProfileOptions::default()
            },
            ignition_tokens: IgnitionTokens::default(),
            webhook: None,
            resync: RESYNC,
            log_levels: watch::Sender::default(),
            metrics: OperatorMetrics::default(),
            metrics_address: None,
            metrics_access: MetricsAccess::default(),
        }
    }
}
