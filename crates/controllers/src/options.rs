//! The options of the controllers.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use mco_core::config::skew::ControllerVersions;
use mco_core::generators::templates::TemplateTree;
use mco_core::rollout::drain::timing;
use mco_http::fetch::Network;
use mco_http::metrics::ScrapeAccess;

use crate::metrics::Metrics;

/// The options of the controllers.
#[derive(Clone)]
pub struct Options {
    /// The build version that the operator writes into the ControllerConfig; nothing is rendered while it has another
    /// one.
    pub build_version: String,
    /// The source revision that is recorded in generated MachineConfigs.
    pub source_version: String,
    /// The release whose feature gates apply; by default the ControllerConfig's, or the only one in the FeatureGate.
    pub release_version: Option<String>,
    /// The base templates.
    pub templates: TemplateTree,
    /// A client for evictions that does not retry responses with status 429, which mean that a disruption budget
    /// refuses the eviction (`kube::Config::default_retry = false`). By default the main client, which is right for a
    /// client made from a service.
    pub drain_client: Option<Client>,
    pub drain: DrainTiming,
    pub metrics: Metrics,
    /// The address of the metrics endpoint; none is opened by default.
    pub metrics_address: Option<SocketAddr>,
    /// Who may read metrics there.
    pub metrics_access: ScrapeAccess,
    /// How many unused rendered configs of each pool are kept.
    pub kept_configs: usize,
    /// The minimum time between two renders of a pool.
    pub render_interval: Duration,
    /// Private networks that remote contents may be fetched from.
    pub contents_networks: Vec<Network>,
    pub clock: Clock,
}

impl Options {
    /// Returns the options of production for one version of the controllers.
    pub fn new(build_version: impl Into<String>, source_version: impl Into<String>) -> Self {
        Self {
            build_version: build_version.into(),
            source_version: source_version.into(),
            release_version: None,
            templates: TemplateTree::embedded(),
            drain_client: None,
            drain: DrainTiming::default(),
            metrics: Metrics::default(),
            metrics_address: None,
            metrics_access: ScrapeAccess::default(),
            kept_configs: 10,
            render_interval: crate::reconcilers::RENDER_INTERVAL,
            contents_networks: Vec::new(),
            clock: Clock::default(),
        }
    }

    pub(crate) fn versions(&self) -> ControllerVersions<'_> {
        ControllerVersions {
            raw: &self.build_version,
            hash: &self.source_version,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("build_version", &self.build_version)
            .field("source_version", &self.source_version)
            .field("drain", &self.drain)
            .field("metrics_address", &self.metrics_address)
            .field("metrics_access", &self.metrics_access)
            .field("kept_configs", &self.kept_configs)
            .finish_non_exhaustive()
    }
}

/// Timing and concurrency of drains.
#[derive(Debug, Clone, Copy)]
pub struct DrainTiming {
    /// The duration of one attempt.
    pub attempt: Duration,
    /// The time between two eviction requests for one pod.
    pub eviction_retry: Duration,
    /// Nodes that are drained at the same time.
    pub at_once: usize,
}

impl Default for DrainTiming {
    fn default() -> Self {
        Self {
            attempt: timing::ATTEMPT,
            eviction_retry: timing::EVICTION_RETRY,
            at_once: 1000,
        }
    }
}

/// A source of the current time, which tests replace.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new(Timestamp::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
