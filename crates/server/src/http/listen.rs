//! Listeners of the Ignition endpoint and their limits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use mco_http::metrics::{MetricsSource, ScrapeAccess};
use mco_http::{
    ConnectionPeer, Http1Limits, HttpProtocol, Listener, ListenerLimits, Overflow, ServeOptions,
    TextResponse, text,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::answer::{IgnitionApp, overloaded};

/// Request headers of booting machines are a few hundred bytes.
const HEADER_BYTES: usize = 16 << 10;
const HEADERS: usize = 64;

/// The component in the metric of panics.
pub(crate) const PANIC_COMPONENT: &str = "server";

/// The limits of the endpoint by default.
pub const DEFAULT_LIMITS: ListenerLimits = ListenerLimits {
    connections: 2048,
    overflow: Overflow::Refuse(overloaded),
    handshake: Duration::from_secs(10),
    headers: Duration::from_secs(15),
    stall: Some(Duration::from_secs(30)),
    lifetime: Some(Duration::from_mins(10)),
    // A truncated body fails the boot of a machine, so open transfers get time to finish.
    drain: Duration::from_mins(1),
};

/// Serves configurations until `stop`, then waits for open transfers.
pub async fn serve(
    listener: Listener,
    app: Arc<IgnitionApp>,
    limits: ListenerLimits,
    stop: CancellationToken,
) {
    let protocol = HttpProtocol::Http1(Http1Limits {
        headers: Some(HEADERS),
        header_bytes: Some(HEADER_BYTES),
        buffer_bytes: Some(2 * HEADER_BYTES),
    });
    let options = ServeOptions {
        component: PANIC_COMPONENT,
        metrics: app.metrics.connections.clone(),
        handshake_failed: |client, reason| info!(%client, "TLS handshake failed: {reason}"),
        ..ServeOptions::new(protocol, limits)
    };
    let connect = move |peer: &ConnectionPeer| {
        let (app, client) = (Arc::clone(&app), peer.address);
        move |request: Request<Incoming>| {
            let app = Arc::clone(&app);
            async move { app.answer(&request, client).await }
        }
    };
    mco_http::serve(listener, options, connect, stop).await;
}

/// Serves `/metrics` and health endpoints until `stop`.
pub async fn serve_metrics(
    socket: TcpListener,
    access: ScrapeAccess,
    app: Arc<IgnitionApp>,
    stop: CancellationToken,
) {
    mco_http::metrics::serve_metrics(socket, access, ServerHealth(app), stop).await;
}

struct ServerHealth(Arc<IgnitionApp>);

impl MetricsSource for ServerHealth {
    fn metrics(&self) -> Result<String, fmt::Error> {
        let ready = if self.0.is_ready() { 1.0 } else { 0.0 };
        self.0.metrics.ready.set(ready);
        self.0.metrics.encode()
    }

    fn probe(&self, path: &str) -> Option<TextResponse> {
        Some(match path {
            "/livez" => text(StatusCode::OK, "ok\n"),
            "/readyz" | "/healthz" if self.0.is_ready() => text(StatusCode::OK, "ok\n"),
            "/readyz" | "/healthz" => text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
            _ => return None,
        })
    }
}
