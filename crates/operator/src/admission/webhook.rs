//! The HTTPS endpoint of the validating admission webhook, and of daemons that fetch values of Secrets.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use hyper::body::{Body, Incoming};
use mco_http::tls::{ALPN_HTTP1_AND_HTTP2, CertificateStore, TlsError, TlsPolicy};
use mco_http::{
    BodyError, ConnectionPeer, Http2Limits, HttpProtocol, Listener, ListenerLimits, ListenerTransport,
    Overflow, ServeOptions, TextResponse, read_body, text,
};
use mco_runtime::run_blocking;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{InUseIndex, review_response};
use crate::secret_files::SecretEndpoint;

/// The path of the webhook.
pub(crate) const PATH: &str = "/validate";
/// API servers accept no larger object.
const MAX_BODY_BYTES: usize = 8 << 20;
/// API servers send a review at once.
const BODY_DEADLINE: Duration = Duration::from_secs(5);
/// Reviews that are read at once. Every pod can connect, so their memory is bounded.
const BODIES: usize = 16;

const LIMITS: ListenerLimits = ListenerLimits {
    // API servers keep a few connections each.
    connections: 256,
    overflow: Overflow::Wait,
    handshake: Duration::from_secs(30),
    // Longer than API servers keep idle connections, which must be the first to close them.
    headers: Duration::from_mins(2),
    stall: Some(Duration::from_secs(30)),
    lifetime: None,
    // Reviews take milliseconds, and a review that is cut off can block a write.
    drain: Duration::from_secs(5),
};

/// Serves admission reviews until `stop`.
pub(crate) async fn serve(
    socket: TcpListener,
    certificate: Arc<CertificateStore>,
    in_use: Arc<InUseIndex>,
    secrets: SecretEndpoint,
    stop: CancellationToken,
) -> Result<(), TlsError> {
    let tls = TlsPolicy::new("", &[])?.server_config(certificate, ALPN_HTTP1_AND_HTTP2)?;
    let listener = Listener {
        socket,
        transport: ListenerTransport::Tls(TlsAcceptor::from(Arc::new(tls))),
    };
    let protocol = HttpProtocol::Http1AndHttp2(Http2Limits::default());
    let bodies = Arc::new(Semaphore::new(BODIES));
    let connect = move |_: &ConnectionPeer| {
        let (in_use, bodies) = (Arc::clone(&in_use), Arc::clone(&bodies));
        let secrets = secrets.clone();
        move |request: Request<Incoming>| {
            let (in_use, bodies, secrets) = (Arc::clone(&in_use), Arc::clone(&bodies), secrets.clone());
            async move {
                match SecretEndpoint::config_of(request.uri().path()) {
                    Some(config) => secrets.respond(&request, config).await,
                    None => respond(request, in_use, bodies).await,
                }
            }
        }
    };
    let options = ServeOptions {
        component: "admission-webhook",
        ..ServeOptions::new(protocol, LIMITS)
    };
    mco_http::serve(listener, options, connect, stop).await;
    Ok(())
}

async fn respond<B>(request: Request<B>, in_use: Arc<InUseIndex>, bodies: Arc<Semaphore>) -> TextResponse
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    if request.uri().path() != PATH {
        return empty(StatusCode::NOT_FOUND);
    }
    if request.method() != Method::POST {
        return empty(StatusCode::METHOD_NOT_ALLOWED);
    }
    let Ok(_slot) = bodies.acquire().await else {
        return empty(StatusCode::SERVICE_UNAVAILABLE);
    };
    let body = match read_body(request.into_body(), MAX_BODY_BYTES, BODY_DEADLINE).await {
        Ok(body) => body,
        Err(BodyError::TooLarge(_)) => return empty(StatusCode::PAYLOAD_TOO_LARGE),
        Err(BodyError::TimedOut(_)) => return empty(StatusCode::REQUEST_TIMEOUT),
        Err(BodyError::Failed(_)) => return empty(StatusCode::BAD_REQUEST),
    };
    // Validation parses, decompresses and hashes what a client has sent.
    let review = move || review_response(&body, |request| in_use.review(request));
    match run_blocking("admission-webhook", "an admission review", review).await {
        Err(_) => empty(StatusCode::INTERNAL_SERVER_ERROR),
        Ok(Some(answer)) => {
            let mut response = text(StatusCode::OK, answer.to_string());
            let json = header::HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }
        Ok(None) => empty(StatusCode::BAD_REQUEST),
    }
}

fn empty(status: StatusCode) -> TextResponse {
    text(status, Bytes::new())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll};

    use hyper::body::Frame;

    use super::*;

    /// An empty body that records whether it is read.
    struct RecordedBody(Arc<AtomicBool>);

    impl Body for RecordedBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.0.store(true, Ordering::Relaxed);
            Poll::Ready(None)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reviews_of_all_connections_were_stored_at_once() {
        let (bodies, is_read) = (Arc::new(Semaphore::new(1)), Arc::new(AtomicBool::new(false)));
        let slot = Arc::clone(&bodies).acquire_owned().await.unwrap();
        let request = Request::post(PATH)
            .body(RecordedBody(Arc::clone(&is_read)))
            .unwrap();
        let mut response = std::pin::pin!(respond(request, Arc::default(), bodies));
        let waiting = tokio::time::timeout(Duration::from_mins(1), &mut response).await;
        assert!(
            waiting.is_err() && !is_read.load(Ordering::Relaxed),
            "it waits for a slot"
        );
        drop(slot);
        assert_eq!(response.await.status(), StatusCode::BAD_REQUEST);
        assert!(is_read.load(Ordering::Relaxed));
    }
}
