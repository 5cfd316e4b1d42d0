//! The socket: TLS, slow-client limits, one service per connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::auth::{Pki, identity_of};
use crate::clock::Clock;
use crate::http::{Api, ApiService};
use crate::server::ServerError;

/// A client that cannot finish its handshake or headers in this time is not talking to us.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// This also closes idle connections, so it is longer than clients keep theirs: they must be the first to let go.
const HEADER_PATIENCE: Duration = Duration::from_mins(2);
/// Idle HTTP/2 connections are probed; a peer that vanished must not hold a slot for ever.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const STREAMS_PER_CONNECTION: u32 = 1000;
const MOST_CONNECTIONS: usize = 10_000;
const RENEWAL_CHECK: Duration = Duration::from_hours(12);
/// How long open connections may finish when the server stops.
const DRAIN: Duration = Duration::from_secs(5);

/// What the socket needs to prove who we are.
#[derive(Debug)]
pub(crate) struct Identities {
    pub pki: Arc<Pki>,
    pub hosts: Vec<String>,
    pub clock: Arc<dyn Clock>,
}

impl Identities {
    fn acceptor(&self) -> Result<TlsAcceptor, ServerError> {
        let config = self.pki.server_config(&self.hosts, self.clock.now())?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

pub(crate) async fn serve(
    listener: TcpListener,
    api: Arc<Api>,
    identities: &Identities,
    renew_clients: impl Fn() -> Result<(), ServerError>,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), ServerError> {
    let mut acceptor = identities.acceptor()?;
    let slots = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut connections = JoinSet::new();
    let mut renewal = tokio::time::interval(RENEWAL_CHECK);
    renewal.tick().await;
    loop {
        let accepted = tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => break,
            _ = renewal.tick() => {
                // Certificates are cheap; making them anew is simpler and safer than asking how old they are.
                acceptor = identities.acceptor()?;
                renew_clients()?;
                continue;
            }
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener) => accepted,
        };
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            break;
        };
        let (api, acceptor, stopped) = (Arc::clone(&api), acceptor.clone(), stopped.clone());
        connections.spawn(async move {
            let _slot = slot;
            connection(accepted, api, acceptor, stopped).await;
        });
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        tracing::info!("closing connections that did not end in time");
    }
    Ok(())
}

/// Accepts the next connection; running out of files passes, so it is waited out.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                if !is_about_one_connection(&error) {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }
}

fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

async fn connection(
    stream: TcpStream,
    api: Arc<Api>,
    acceptor: TlsAcceptor,
    mut stopped: watch::Receiver<bool>,
) {
    // Without this, small watch events wait for the next one.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "nodelay");
    }
    let stream = match tokio::time::timeout(HANDSHAKE_PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return tracing::debug!("TLS handshake timed out"),
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let identity = certificates.and_then(|chain| chain.first()).and_then(identity_of);
    let service = TowerToHyperService::new(ApiService::new(api, identity));
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_PATIENCE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .max_concurrent_streams(STREAMS_PER_CONNECTION);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let early = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        _ = stopped.wait_for(|stop| *stop) => None,
    };
    let ended = if let Some(ended) = early {
        ended
    } else {
        connection.as_mut().graceful_shutdown();
        connection.await
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}
