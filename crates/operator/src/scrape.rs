//! Hands the metrics to whoever scrapes them, on a port that an option asks for.

use std::convert::Infallible;
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
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::metrics::Metrics;

const TEXT: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
/// A scraper that says nothing for this long has gone away.
const PATIENCE: Duration = Duration::from_secs(30);
/// When descriptors run out, accepting again at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers `/metrics` until `stop`.
pub(crate) async fn serve(listener: TcpListener, metrics: Metrics, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(problem) => {
                debug!("cannot accept a scraper: {problem}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let metrics = metrics.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let response = answer(request.uri().path(), &metrics);
            async move { Ok::<_, Infallible>(response) }
        });
        connections.spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(problem) = connection.await {
                debug!("a scraper's connection ended: {problem}");
            }
        });
    }
}

fn answer(path: &str, metrics: &Metrics) -> Response<Full<Bytes>> {
    let (status, text) = match (path, metrics.encode()) {
        ("/metrics", Ok(text)) => (StatusCode::OK, text),
        ("/metrics", Err(problem)) => (StatusCode::INTERNAL_SERVER_ERROR, problem.to_string()),
        ("/healthz", _) => (StatusCode::OK, "ok\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "not found\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    if path == "/metrics" {
        response.headers_mut().insert(CONTENT_TYPE, TEXT);
    }
    response
}
