//! `/livez`, `/readyz` and `/metrics` of a node's daemon.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use mco_http::metrics::{MetricsSource, ScrapeAccess, serve_metrics};
use mco_http::{TextResponse, text};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::error::AgentError;
use super::metrics::DaemonMetrics;

/// The state behind the health and metrics endpoints.
#[derive(Debug)]
pub(super) struct Health {
    pub metrics: DaemonMetrics,
    /// Set once the Node was found and an interrupted change was recovered.
    pub ready: AtomicBool,
}

/// Serves the endpoints until cancelled. The response itself is the liveness probe: it comes from the agent's own loop.
pub(super) async fn listen(
    address: SocketAddr,
    access: ScrapeAccess,
    health: Arc<Health>,
    stop: CancellationToken,
) -> Result<JoinHandle<()>, AgentError> {
    let failed = |source| AgentError::Listen { address, source };
    let listener = mco_http::bind(address).await.map_err(failed)?;
    Ok(tokio::spawn(serve_metrics(listener, access, health, stop)))
}

impl MetricsSource for Health {
    fn metrics(&self) -> Result<String, fmt::Error> {
        self.metrics.text()
    }

    fn probe(&self, path: &str) -> Option<TextResponse> {
        Some(match path {
            "/livez" | "/healthz" => text(StatusCode::OK, "ok\n"),
            "/readyz" if self.ready.load(Ordering::Relaxed) => text(StatusCode::OK, "ok\n"),
            "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "the Node was not found yet\n"),
            _ => return None,
        })
    }
}
