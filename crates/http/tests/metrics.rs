//! The metrics endpoint without access control.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use mco_http::metrics::{ScrapeAccess, serve_metrics};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn metrics_and_health_are_served_until_the_endpoint_stops() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let encode = || Ok("some_metric 1\n# EOF\n".to_owned());
    let serving = tokio::spawn(serve_metrics(
        listener,
        ScrapeAccess::default(),
        encode,
        stop.clone(),
    ));
    for (path, status, text) in [
        ("/metrics", "200 OK", "# EOF\n"),
        ("/healthz", "200 OK", "ok\n"),
        ("/", "404 Not Found", "not found\n"),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(body.ends_with(text), "{answer}");
        // Metrics of the whole process follow those of the component.
        assert_eq!(
            body.starts_with("some_metric 1\n"),
            path == "/metrics",
            "{answer}"
        );
        let is_metrics = answer.contains("content-type: application/openmetrics-text");
        assert_eq!(is_metrics, path == "/metrics", "{answer}");
    }
    // A client that sends nothing does not delay the end.
    let _silent = TcpStream::connect(address).await.unwrap();
    stop.cancel();
    serving.await.unwrap();
}
