//! Hands metrics to whoever scrapes them, and says that the process lives. Knows no metric and listens nowhere by itself:
//! the listener and the text come from outside.

use std::convert::Infallible;
use std::fmt;
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

const TEXT: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
/// A scraper that says nothing for this long has gone away.
const PATIENCE: Duration = Duration::from_secs(30);
/// When descriptors run out, accepting again at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers `/metrics` with what `encode` writes, and `/healthz`, until `stop`.
pub async fn serve<Encode>(listener: TcpListener, encode: Encode, stop: CancellationToken)
where
    Encode: Fn() -> Result<String, fmt::Error> + Clone + Send + Sync + 'static,
{
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
        let encode = encode.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let response = answer(request.uri().path(), &encode);
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

fn answer(path: &str, encode: &impl Fn() -> Result<String, fmt::Error>) -> Response<Full<Bytes>> {
    let mut response = Response::default();
    let text = match path {
        "/metrics" => match encode() {
            Ok(text) => {
                response.headers_mut().insert(CONTENT_TYPE, TEXT);
                text
            }
            Err(problem) => {
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                problem.to_string()
            }
        },
        "/healthz" => "ok\n".to_owned(),
        _ => {
            *response.status_mut() = StatusCode::NOT_FOUND;
            "not found\n".to_owned()
        }
    };
    *response.body_mut() = Full::new(Bytes::from(text));
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn scrapers_are_answered_until_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let encode = || Ok("some_metric 1\n# EOF\n".to_owned());
        let serving = tokio::spawn(serve(listener, encode, stop.clone()));
        for (path, status, text) in [
            ("/metrics", "200 OK", "some_metric 1\n# EOF\n"),
            ("/healthz", "200 OK", "ok\n"),
            ("/", "404 Not Found", "not found\n"),
        ] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
            assert!(answer.ends_with(&format!("\r\n\r\n{text}")), "{answer}");
            let is_metrics = answer.contains("content-type: application/openmetrics-text");
            assert_eq!(is_metrics, path == "/metrics", "{answer}");
        }
        // Somebody who never asks anything keeps nobody.
        let _silent = TcpStream::connect(address).await.unwrap();
        stop.cancel();
        serving.await.unwrap();
    }

    #[test]
    fn metrics_that_cannot_be_written_are_an_error() {
        assert_eq!(
            answer("/metrics", &|| Err(fmt::Error)).status(),
            StatusCode::INTERNAL_SERVER_ERROR
        );
    }
}
