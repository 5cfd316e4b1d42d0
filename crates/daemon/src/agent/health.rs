//! `/livez`, `/readyz` and `/metrics` of a node's daemon.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use mco_serve_metrics::{Answer, Door, Site, plain};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::error::AgentError;
use super::metrics::Metrics;

/// The state behind the health and metrics endpoints.
#[derive(Debug)]
pub(super) struct Health {
    pub metrics: Metrics,
    /// Set once the Node was found and an interrupted change was recovered.
    pub ready: AtomicBool,
}

/// Serves the endpoints until cancelled. The response itself is the liveness probe: it comes from the agent's own loop.
pub(super) async fn listen(
    address: SocketAddr,
    door: Door,
    health: Arc<Health>,
    stop: CancellationToken,
) -> Result<JoinHandle<()>, AgentError> {
    let failed = |source| AgentError::Listen { address, source };
    let listener = mco_serve_metrics::listen(address).await.map_err(failed)?;
    Ok(tokio::spawn(mco_serve_metrics::serve(
        listener, door, health, stop,
    )))
}

impl Site for Health {
    fn metrics(&self) -> Result<String, fmt::Error> {
        self.metrics.text()
    }

    fn sign_of_life(&self, path: &str) -> Option<Answer> {
        Some(match path {
            "/livez" | "/healthz" => plain(StatusCode::OK, "ok\n"),
            "/readyz" if self.ready.load(Ordering::Relaxed) => plain(StatusCode::OK, "ok\n"),
            "/readyz" => plain(StatusCode::SERVICE_UNAVAILABLE, "the Node was not found yet\n"),
            _ => return None,
        })
    }
}
