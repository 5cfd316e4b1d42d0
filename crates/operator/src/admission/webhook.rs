//! The HTTPS endpoint that a real API server asks before it writes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use mco_tls::Certificate;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{InUse, answer};

/// Where the API server asks.
pub(crate) const PATH: &str = "/validate";
/// The largest object an API server takes is smaller.
const LARGEST_BODY: usize = 8 << 20;
/// The API server gives up sooner.
const PATIENCE: Duration = Duration::from_secs(30);

/// Answers until `stop`.
pub(crate) async fn serve(
    listener: TcpListener,
    certificate: Arc<Certificate>,
    in_use: Arc<InUse>,
    stop: CancellationToken,
) -> Result<(), rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((socket, _)) => {
                connections.spawn(connection(socket, acceptor.clone(), Arc::clone(&in_use)));
            }
            Err(error) => {
                debug!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(socket: TcpStream, acceptor: TlsAcceptor, in_use: Arc<InUse>) {
    let accepted = tokio::time::timeout(PATIENCE, acceptor.accept(socket)).await;
    let socket = match accepted {
        Ok(Ok(socket)) => socket,
        Ok(Err(error)) => return debug!("a TLS handshake failed: {error}"),
        Err(_) => return debug!("a TLS handshake took too long"),
    };
    let service = hyper::service::service_fn(move |request| {
        let in_use = Arc::clone(&in_use);
        async move { Ok::<_, Infallible>(respond(request, &in_use).await) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let served = builder.serve_connection(TokioIo::new(socket), service).await;
    if let Err(error) = served {
        debug!("a connection ended early: {error}");
    }
}

async fn respond(request: Request<Incoming>, in_use: &InUse) -> Response<Full<Bytes>> {
    if request.uri().path() != PATH {
        return plain(StatusCode::NOT_FOUND);
    }
    if request.method() != Method::POST {
        return plain(StatusCode::METHOD_NOT_ALLOWED);
    }
    let body = Limited::new(request.into_body(), LARGEST_BODY).collect();
    let Ok(Ok(body)) = tokio::time::timeout(PATIENCE, body).await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE);
    };
    match answer(&body.to_bytes(), |config| in_use.of(config)) {
        Some(answer) => {
            let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
            let json = header::HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }
        None => plain(StatusCode::BAD_REQUEST),
    }
}

fn plain(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}
