//! What the embedding program chooses.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use mco_core::config::skew::Versions;
use mco_core::generators::templates::TemplateTree;
use mco_core::rollout::drain::timing;
use mco_http::metrics::ScrapeAccess;

use crate::metrics::Metrics;

/// What the embedding program chooses.
#[derive(Clone)]
pub struct Options {
    /// The build version that the operator writes into the ControllerConfig; other versions' are waited out.
    pub build_version: String,
    /// The source revision that goes into the MachineConfigs we make.
    pub source_version: String,
    /// The release whose feature gates count; none takes the ControllerConfig's, or the only one there is.
    pub release_version: Option<String>,
    /// The base templates.
    pub templates: TemplateTree,
    /// For evictions: a client that does not repeat what was answered with 429, because that is how a disruption budget
    /// says no (`kube::Config::default_retry = false`). None takes the ordinary one, which is right for a client made
    /// from a service.
    pub drain_client: Option<Client>,
    pub drain: DrainTiming,
    pub metrics: Metrics,
    /// Where to answer scrapes; none listens nowhere.
    pub metrics_address: Option<SocketAddr>,
    /// Who sees metrics there.
    pub metrics_access: ScrapeAccess,
    /// How many rendered configs of each pool stay although nobody uses them.
    pub kept_configs: usize,
    /// The shortest time between two renders of a pool, however much is written.
    pub render_interval: Duration,
    pub clock: Clock,
}

impl Options {
    /// Everything as it is in production, for one version of us.
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
            render_interval: crate::cluster::RENDER_SPACING,
            clock: Clock::default(),
        }
    }

    pub(crate) fn versions(&self) -> Versions<'_> {
        Versions {
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

/// How long a drain is tried at a stretch, and how often a budget is asked.
#[derive(Debug, Clone, Copy)]
pub struct DrainTiming {
    pub attempt: Duration,
    pub eviction_retry: Duration,
    /// Nodes that are drained at once; more wait for their turn.
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

/// What time it is.
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
