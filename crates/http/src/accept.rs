//! The accept loop.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::connection::{ConnectionPeer, Edge, ListenerTransport};
use crate::descriptors::allowed_connections;
use crate::handler::{ConnectionMetrics, RequestHandler};
use crate::limits::{ConnectionLimit, HttpProtocol, ListenerLimits};
use crate::{TextResponse, text};

/// When descriptors run out, accepting again at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket and its transport.
#[derive(Debug)]
pub struct Listener {
    pub socket: TcpListener,
    pub transport: ListenerTransport,
}

/// How connections of a listener are served.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The component in the metric of panics.
    pub component: &'static str,
    pub protocol: HttpProtocol,
    pub limits: ListenerLimits,
    pub metrics: ConnectionMetrics,
    /// The response to a request that panicked.
    pub internal_error: fn() -> TextResponse,
    /// Reports a failed TLS handshake.
    pub handshake_failed: fn(SocketAddr, &dyn Display),
}

impl ServeOptions {
    pub fn new(protocol: HttpProtocol, limits: ListenerLimits) -> Self {
        Self {
            component: "http",
            protocol,
            limits,
            metrics: ConnectionMetrics::default(),
            internal_error: || text(StatusCode::INTERNAL_SERVER_ERROR, "internal error\n"),
            handshake_failed: |client, reason| debug!(%client, "TLS handshake failed: {reason}"),
        }
    }
}

/// Serves connections until `stop`, then closes the socket and waits for open requests within the drain limit.
/// `connect` returns the handler of a new connection.
pub async fn serve<H: RequestHandler>(
    listener: Listener,
    options: ServeOptions,
    connect: impl Fn(&ConnectionPeer) -> H + Send + Sync + 'static,
    stop: CancellationToken,
) {
    mco_telemetry::export_panics_of(options.component);
    let Listener { socket, transport } = listener;
    let limits = options.limits;
    let metrics = options.metrics.clone();
    let mut connections = ConnectionLimit::new(allowed_connections(limits.connections), limits.overflow);
    let mut is_exhausted = false;
    let edge = Arc::new(Edge {
        transport,
        options: Arc::new(options),
        connect,
        stop: stop.clone(),
    });
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            () = connections.closed() => continue,
            accepted = accept(&socket), if connections.may_accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Once, because it repeats until descriptors are free.
                if !std::mem::replace(&mut is_exhausted, true) {
                    warn!("cannot accept connections: {error}");
                }
                connections.evict_idle();
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = tokio::time::sleep(ACCEPT_PAUSE) => continue,
                }
            }
        };
        if std::mem::take(&mut is_exhausted) {
            info!("connections are accepted again");
        }
        let admission = connections.admit(address.ip());
        if admission
            .as_ref()
            .is_none_or(|admission| admission.refusal.is_some())
        {
            metrics.shed.inc();
        }
        if let Some(admission) = admission {
            let activity = Arc::clone(&admission.activity);
            let connection = Arc::clone(&edge).connection(stream, address, admission);
            connections.spawn(address.ip(), activity, connection);
        }
    }
    drop(socket);
    if tokio::time::timeout(limits.drain, connections.drained())
        .await
        .is_err()
    {
        info!("closing connections that are still open after {:?}", limits.drain);
    }
}

/// Accepts the next connection. A connection whose peer is gone already is skipped; other errors are transient as well:
/// descriptors or memory have run out.
async fn accept(socket: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    loop {
        match socket.accept().await {
            Err(error) if is_about_one_connection(&error) => debug!("accepting a connection: {error}"),
            accepted => return accepted,
        }
    }
}

fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}
