//! The listener of the console and its limits.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use mco_http::{
    ConnectionPeer, Http1Limits, HttpProtocol, Listener, ListenerLimits, ListenerTransport, Overflow,
    ServeOptions,
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::ConsoleApp;

const BUFFER_BYTES: usize = 64 << 10;

const LIMITS: ListenerLimits = ListenerLimits {
    // A browser opens up to six.
    connections: 512,
    overflow: Overflow::Wait,
    handshake: Duration::from_secs(10),
    headers: Duration::from_secs(10),
    stall: None,
    lifetime: None,
    // Pages take milliseconds, and a page that is cut off can be loaded again.
    drain: Duration::from_secs(2),
};

/// Serves the console until `stop`.
pub async fn serve(
    socket: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    app: Arc<ConsoleApp>,
    stop: CancellationToken,
) {
    let transport = tls.map_or(ListenerTransport::Plain, |config| {
        ListenerTransport::Tls(TlsAcceptor::from(config))
    });
    let protocol = HttpProtocol::Http1(Http1Limits {
        buffer_bytes: Some(BUFFER_BYTES),
        ..Http1Limits::default()
    });
    let stopping = stop.clone();
    let connect = move |_: &ConnectionPeer| {
        let (app, stop) = (Arc::clone(&app), stopping.clone());
        move |request: Request<Incoming>| {
            let (app, stop) = (Arc::clone(&app), stop.clone());
            async move { app.respond(request, &stop).await }
        }
    };
    let listener = Listener { socket, transport };
    let options = ServeOptions {
        component: "console",
        ..ServeOptions::new(protocol, LIMITS)
    };
    mco_http::serve(listener, options, connect, stop).await;
}
