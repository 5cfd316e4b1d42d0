//! The call of a webhook: one HTTPS request, bounded in time and size, that follows no redirect.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, Error as TlsError};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

use super::Webhook;
use super::endpoint::WebhookEndpoint;
use crate::store::ObjectStore;

/// The maximum number of calls at the same time. Further ones wait, within their timeout.
const MOST_CALLS: usize = 64;

/// The maximum size of a response: that of a request's body.
const MOST_BYTES: usize = 3 * 1024 * 1024;

/// The beginning of an error's body that messages show.
const MOST_SHOWN: usize = 1024;

/// Calls webhooks.
#[derive(Debug)]
pub(crate) struct WebhookClient {
    permits: Semaphore,
}

impl Default for WebhookClient {
    fn default() -> Self {
        Self {
            permits: Semaphore::new(MOST_CALLS),
        }
    }
}

impl WebhookClient {
    /// Sends a review and returns the response's body; the error is the reason of Kubernetes' message.
    pub async fn call(
        &self,
        webhook: &Webhook,
        store: &ObjectStore,
        review: &Value,
    ) -> Result<Value, String> {
        let endpoint = webhook.endpoint.as_ref().map_err(Clone::clone)?;
        let tls = webhook
            .roots
            .config()
            .map_err(|error| format!("could not get REST client: {error}"))?;
        let url = endpoint.url_with(webhook.timeout.as_secs());
        let failed = |why: &str| format!("failed to call webhook: Post \"{url}\": {why}");
        let exchange = async {
            let Ok(_permit) = self.permits.acquire().await else {
                return Err(CallFailure::Transport("the server is stopping".to_owned()));
            };
            let body = Bytes::from(review.to_string());
            send(endpoint, TlsConnector::from(tls), store, body, webhook.timeout).await
        };
        match tokio::time::timeout(webhook.timeout, exchange).await {
            Err(_) => Err(failed("context deadline exceeded")),
            Ok(Err(CallFailure::Transport(why))) => Err(failed(&why)),
            Ok(Err(CallFailure::Response(why))) => Err(format!("failed to call webhook: {why}")),
            Ok(Ok(body)) => serde_json::from_slice(&body)
                .map_err(|error| format!("failed to call webhook: the response is not JSON: {error}")),
        }
    }
}

enum CallFailure {
    /// No response was received.
    Transport(String),
    /// The response cannot be used.
    Response(String),
}

async fn send(
    endpoint: &WebhookEndpoint,
    tls: TlsConnector,
    store: &ObjectStore,
    body: Bytes,
    timeout: Duration,
) -> Result<Bytes, CallFailure> {
    let transport = |error: String| CallFailure::Transport(error);
    let (host, port) = endpoint.address(store).map_err(transport)?;
    let stream = TcpStream::connect((host.as_str(), port)).await;
    let stream = stream.map_err(|error| transport(connect_error(&host, port, &error)))?;
    let name = ServerName::try_from(endpoint.host.clone())
        .map_err(|_| transport(format!("{:?} is not a valid host name", endpoint.host)))?;
    let stream = tls.connect(name, stream).await;
    let stream = stream.map_err(|error| transport(handshake_error(&error)))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| transport(error.to_string()))?;
    let authority = if endpoint.host.contains(':') {
        format!("[{}]:{}", endpoint.host, endpoint.port)
    } else {
        format!("{}:{}", endpoint.host, endpoint.port)
    };
    let request = Request::post(format!("{}?timeout={}s", endpoint.path, timeout.as_secs()))
        .header(HOST, authority)
        .header(USER_AGENT, "kube-apiserver-admission")
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, "application/json, */*")
        .body(Full::new(body))
        .map_err(|error| transport(error.to_string()))?;
    let exchange = async {
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| transport(error.to_string()))?;
        let status = response.status();
        let content_type = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let is_text = content_type.is_some_and(|value| value.starts_with("text/"));
        let body = Limited::new(response.into_body(), MOST_BYTES).collect().await;
        let body = body.map_err(|error| CallFailure::Response(body_error(error.as_ref())))?;
        accept(status, is_text, body.to_bytes())
    };
    // The connection is driven here rather than in a task, so that it ends with the call.
    tokio::pin!(exchange, connection);
    tokio::select! {
        biased;
        outcome = &mut exchange => return outcome,
        _ = &mut connection => {}
    }
    // The webhook has closed the connection; what it sent before may be a whole response.
    exchange.await
}

/// Returns the body of a successful response. A redirect is not followed: it could lead anywhere.
fn accept(status: StatusCode, is_text: bool, body: Bytes) -> Result<Bytes, CallFailure> {
    if status == StatusCode::OK {
        return Ok(body);
    }
    let text = String::from_utf8_lossy(&body);
    let shown: String = text.trim().chars().take(MOST_SHOWN).collect();
    Err(CallFailure::Response(match status.as_u16() {
        404 => "the server could not find the requested resource".to_owned(),
        300..=399 => format!("the webhook responded with {status}; redirects are not followed"),
        500..=599 => {
            let shown = if is_text && !shown.is_empty() {
                shown.as_str()
            } else {
                "unknown"
            };
            format!("an error on the server ({shown:?}) has prevented the request from succeeding")
        }
        _ => "the server rejected our request for an unknown reason".to_owned(),
    }))
}

fn body_error(error: &(dyn std::error::Error + Send + Sync + 'static)) -> String {
    if error.is::<LengthLimitError>() {
        return format!("the response is larger than {MOST_BYTES} bytes");
    }
    format!("reading the response: {error}")
}

fn connect_error(host: &str, port: u16, error: &std::io::Error) -> String {
    let why = match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        std::io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        std::io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        _ => error.to_string(),
    };
    format!("dial tcp {host}:{port}: {why}")
}

/// Returns the message of a failed handshake, in Kubernetes' words where there are such.
fn handshake_error(error: &std::io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
    let why = match tls {
        // A certificate of another authority with the same name has the wrong signature.
        Some(TlsError::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => "x509: certificate signed by unknown authority".to_owned(),
        Some(TlsError::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => "x509: certificate has expired or is not yet valid".to_owned(),
        Some(TlsError::InvalidCertificate(other)) => format!("x509: {other}"),
        Some(other) => return format!("tls: {other}"),
        None => return error.to_string(),
    };
    format!("tls: failed to verify certificate: {why}")
}
