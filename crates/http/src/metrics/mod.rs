//! The metrics endpoint: `/metrics` for scrapers and health endpoints for probes.
//!
//! Metrics are served to every client, or over TLS to those whom the cluster authorizes ([`ScrapeAccess`]). Health
//! endpoints are unauthenticated and also served over plain HTTP on the same port. What is served comes from a
//! [`MetricsSource`].

mod access;
mod response;
mod review;
mod review_cache;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use access::ScrapeAccess;

use crate::{
    ConnectionPeer, Http1Limits, HttpProtocol, Listener, ListenerLimits, Overflow, ServeOptions,
    TextResponse, serve, text,
};

/// The path that needs authorization.
const METRICS: &str = "/metrics";
/// Room for any bearer token.
const BUFFER_BYTES: usize = 64 << 10;

const LIMITS: ListenerLimits = ListenerLimits {
    // A few scrapers and a probe; each connection costs memory on every node of a cluster.
    connections: 64,
    overflow: Overflow::EvictOldest,
    handshake: Duration::from_secs(30),
    headers: Duration::from_secs(30),
    stall: Some(Duration::from_secs(30)),
    lifetime: None,
    // Scrapes take milliseconds, and no process should wait for one when it stops.
    drain: Duration::from_secs(1),
};

/// The metrics and the health of a process.
pub trait MetricsSource: Send + Sync + 'static {
    /// Returns the metrics in the OpenMetrics text format.
    fn metrics(&self) -> Result<String, fmt::Error>;

    /// Returns the response to a health probe; `None` if there is no such path.
    fn probe(&self, path: &str) -> Option<TextResponse> {
        (path == "/healthz").then(|| text(StatusCode::OK, "ok\n"))
    }
}

impl<Encode: Fn() -> Result<String, fmt::Error> + Send + Sync + 'static> MetricsSource for Encode {
    fn metrics(&self) -> Result<String, fmt::Error> {
        self()
    }
}

impl<S: MetricsSource> MetricsSource for Arc<S> {
    fn metrics(&self) -> Result<String, fmt::Error> {
        (**self).metrics()
    }

    fn probe(&self, path: &str) -> Option<TextResponse> {
        (**self).probe(path)
    }
}

/// Serves metrics and health endpoints until `stop`.
pub async fn serve_metrics(
    socket: TcpListener,
    access: ScrapeAccess,
    source: impl MetricsSource,
    stop: CancellationToken,
) {
    let listener = Listener {
        socket,
        transport: access.transport(),
    };
    let protocol = HttpProtocol::Http1(Http1Limits {
        buffer_bytes: Some(BUFFER_BYTES),
        ..Http1Limits::default()
    });
    let endpoint = Arc::new(MetricsEndpoint { access, source });
    let connect = move |peer: &ConnectionPeer| {
        let (endpoint, is_encrypted) = (Arc::clone(&endpoint), peer.is_encrypted);
        move |request: http::Request<hyper::body::Incoming>| {
            let endpoint = Arc::clone(&endpoint);
            async move {
                let (head, _) = request.into_parts();
                endpoint
                    .respond(&head.method, head.uri.path(), &head.headers, is_encrypted)
                    .await
            }
        }
    };
    serve(listener, ServeOptions::new(protocol, LIMITS), connect, stop).await;
}

struct MetricsEndpoint<S> {
    access: ScrapeAccess,
    source: S,
}

impl<S: MetricsSource> MetricsEndpoint<S> {
    async fn respond(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        is_encrypted: bool,
    ) -> TextResponse {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
        }
        if path != METRICS {
            let probe = self.source.probe(path);
            return probe.unwrap_or_else(|| text(StatusCode::NOT_FOUND, "not found\n"));
        }
        match self.access.authorize(is_encrypted, headers).await {
            Ok(()) => {
                let own = self.source.metrics();
                response::metrics(own.and_then(|own| mco_telemetry::append_to(&own)))
            }
            Err(denial) => response::denial(denial),
        }
    }
}
