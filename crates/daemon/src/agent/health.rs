//! `/livez`, `/readyz` and `/metrics` over plain HTTP, for the node's own use.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::error::AgentError;
use super::metrics::Metrics;

const SLOWEST_REQUEST: Duration = Duration::from_secs(10);
/// After a failed accept (no file descriptors left), trying at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the endpoints tell.
#[derive(Debug)]
pub(super) struct Health {
    pub metrics: Metrics,
    /// The node was found and what an earlier daemon had left was settled.
    pub ready: AtomicBool,
}

/// Serves until told to stop. That an answer comes at all is the sign of life: it comes from the agent's own loop.
pub(super) async fn listen(
    address: SocketAddr,
    health: Arc<Health>,
    stop: CancellationToken,
) -> Result<JoinHandle<()>, AgentError> {
    let failed = |source| AgentError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    Ok(tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let health = Arc::clone(&health);
            let answers = service_fn(move |request| {
                let answer = answer(&request, &health);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(SLOWEST_REQUEST)
                .serve_connection(TokioIo::new(stream), answers);
            let stop = stop.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    // A client that goes away is nobody's problem.
                    _ = connection => {}
                }
            });
        }
    }))
}

fn answer(request: &Request<Incoming>, health: &Health) -> Response<Full<Bytes>> {
    match request.uri().path() {
        "/livez" | "/healthz" => plain(StatusCode::OK, "ok\n"),
        "/readyz" if health.ready.load(Ordering::Relaxed) => plain(StatusCode::OK, "ok\n"),
        "/readyz" => plain(StatusCode::SERVICE_UNAVAILABLE, "the node was not found yet\n"),
        "/metrics" => match health.metrics.text() {
            Ok(text) => {
                let mut response = plain(StatusCode::OK, text);
                response
                    .headers_mut()
                    .insert(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS));
                response
            }
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        },
        _ => plain(
            StatusCode::NOT_FOUND,
            "there are /livez, /readyz and /metrics here\n",
        ),
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response
}
