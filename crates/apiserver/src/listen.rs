//! The listening socket: TLS with a renewed certificate, limits, and one service per connection.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, StatusCode, header};
use hyper::body::Incoming;
use jiff::Timestamp;
use mco_http::tls::CertificateStore;
use mco_http::{
    ConnectionPeer, Http2Limits, HttpProtocol, Listener, ListenerLimits, ListenerTransport, Overflow,
    ServeOptions, TextResponse, text,
};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Service as _;
use tracing::warn;

use crate::auth::{Pki, caller_of};
use crate::clock::Clock;
use crate::http::{Api, ApiService};
use crate::server::ServerError;

/// Maximum age of certificates; those with a short lifetime are renewed earlier.
const RENEWAL_INTERVAL: Duration = Duration::from_hours(12);
/// The clock of the machine may be set at any time, for example after a boot without a battery.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(30);

const LIMITS: ListenerLimits = ListenerLimits {
    connections: 10_000,
    overflow: Overflow::Wait,
    handshake: Duration::from_secs(10),
    // Longer than clients keep idle connections, so that they are the first to close them.
    headers: Duration::from_mins(2),
    // Watches are idle for long, and a slow reader of one is bounded by its own cursor.
    stall: None,
    lifetime: None,
    drain: Duration::from_secs(5),
};

/// What the serving certificate is made from.
#[derive(Debug)]
pub(crate) struct Identities {
    pub pki: Arc<Pki>,
    pub hosts: Vec<String>,
    pub clock: Arc<dyn Clock>,
}

impl Identities {
    fn renew(&self, certificate: &CertificateStore) -> Result<(), ServerError> {
        self.pki
            .renew_server(&self.hosts, self.clock.now(), certificate)?;
        Ok(())
    }
}

/// Serves the API over TLS until `stopped` turns true. The serving certificate and, by `renew_clients`, those of
/// clients are renewed meanwhile.
pub(crate) async fn serve(
    socket: TcpListener,
    api: Arc<Api>,
    identities: &Identities,
    renew_clients: impl Fn() -> Result<(), ServerError>,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), ServerError> {
    let certificate = Arc::new(CertificateStore::default());
    identities.renew(&certificate)?;
    let config = identities.pki.server_config(Arc::clone(&certificate))?;
    let listener = Listener {
        socket,
        transport: ListenerTransport::Tls(TlsAcceptor::from(Arc::new(config))),
    };
    let options = ServeOptions {
        component: "apiserver",
        internal_error,
        ..ServeOptions::new(HttpProtocol::Http1AndHttp2(Http2Limits::default()), LIMITS)
    };
    let connect = move |peer: &ConnectionPeer| {
        let caller = peer.certificate.as_ref().and_then(caller_of);
        let service = ApiService::new(Arc::clone(&api), caller);
        move |request: Request<Incoming>| {
            let mut service = service.clone();
            async move {
                let Ok(response) = service.call(request).await;
                response
            }
        }
    };
    let stop = CancellationToken::new();
    let serving = mco_http::serve(listener, options, connect, stop.clone());
    tokio::pin!(serving);
    let renewing = renew(identities, &certificate, renew_clients, identities.clock.now());
    tokio::select! {
        _ = stopped.wait_for(|stop| *stop) => stop.cancel(),
        () = renewing => {}
        () = serving.as_mut() => return Ok(()),
    }
    serving.await;
    Ok(())
}

/// Renews certificates without end. A failure is logged and retried: the old ones are still valid for a while.
async fn renew(
    identities: &Identities,
    certificate: &CertificateStore,
    clients: impl Fn() -> Result<(), ServerError>,
    mut renewed: Timestamp,
) {
    let interval = renewal_interval(identities.pki.lifetime());
    let check = CLOCK_CHECK_INTERVAL.min(interval);
    loop {
        tokio::time::sleep(check).await;
        let now = identities.clock.now();
        if !is_due(renewed, now, interval) {
            continue;
        }
        match identities.renew(certificate).and_then(|()| clients()) {
            Ok(()) => renewed = now,
            Err(error) => warn!("cannot renew certificates; trying again in {check:?}: {error}"),
        }
    }
}

/// Returns the age at which certificates are renewed.
fn renewal_interval(lifetime: Duration) -> Duration {
    RENEWAL_INTERVAL.min(lifetime / 4)
}

/// Whether certificates are to be renewed. Those from the future, which a clock that was set back leaves, are not valid.
fn is_due(renewed: Timestamp, now: Timestamp, interval: Duration) -> bool {
    now < renewed || now.duration_since(renewed).unsigned_abs() >= interval
}

/// Returns the response to a request that panicked, in the form that Kubernetes clients expect.
fn internal_error() -> TextResponse {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "an internal error occurred; see the log of the API server",
        "reason": "InternalError", "code": 500,
    });
    let mut response = text(StatusCode::INTERNAL_SERVER_ERROR, status.to_string());
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_left_certificates_that_are_not_valid_for_half_a_day() {
        let year = Duration::from_hours(365 * 24);
        let interval = renewal_interval(year);
        let renewed: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (now, due) in [
            ("2026-01-01T00:00:00Z", false),
            ("2026-01-01T11:59:59Z", false),
            ("2026-01-01T12:00:00Z", true),
            // The clock was that of a machine without a battery, and is set by NTP now.
            ("2028-01-01T00:00:00Z", true),
            // It was wrong in the other direction.
            ("2025-12-31T23:59:59Z", true),
        ] {
            assert_eq!(is_due(renewed, now.parse().unwrap(), interval), due, "{now}");
        }
    }

    #[test]
    fn certificates_with_a_short_lifetime_are_renewed_earlier() {
        assert_eq!(renewal_interval(Duration::from_mins(4)), Duration::from_mins(1));
    }
}
