//! The options of the builder.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mco_core::generators::os_builds::Architecture;

use crate::metrics::Metrics;

/// Succeeded builds that are kept per MachineOSConfig in addition to those in use.
const KEPT_BUILDS: usize = 5;
/// Long enough for an administrator to see that a build was interrupted.
const RETRY_INTERRUPTED: Duration = Duration::from_mins(1);

#[derive(Debug, Clone)]
pub struct Options {
    /// The image in which builds run, with this program and buildah. Without it no build starts.
    pub builder_image: Option<String>,
    /// How many unused succeeded builds are kept per MachineOSConfig, with their images.
    pub kept_builds: usize,
    /// After this time an interrupted build is started again; never if absent.
    pub retry_interrupted: Option<Duration>,
    /// The architecture of images for pools without nodes.
    pub default_architecture: Architecture,
    pub metrics: Metrics,
    /// Returns the current time.
    pub clock: fn() -> Timestamp,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            builder_image: None,
            kept_builds: KEPT_BUILDS,
            retry_interrupted: Some(RETRY_INTERRUPTED),
            default_architecture: Architecture::from_node(std::env::consts::ARCH)
                .unwrap_or(Architecture::Amd64),
            metrics: Metrics::default(),
            clock: Timestamp::now,
        }
    }
}
