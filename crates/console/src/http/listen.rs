//! Sockets and their limits.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::App;

/// A browser opens up to six.
const CONNECTIONS: usize = 512;
const HEADER_BYTES: usize = 64 << 10;
/// For a request's headers and a TLS handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// When descriptors run out, accepting again at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Pages take milliseconds; what takes longer can be loaded again.
const DRAIN: Duration = Duration::from_secs(2);

/// Serves until `stop`.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    app: Arc<App>,
    stop: CancellationToken,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        while connections.try_join_next().is_some() {}
        let Some((stream, slot)) = accepted else { continue };
        let (app, stop, acceptor) = (Arc::clone(&app), stop.clone(), acceptor.clone());
        connections.spawn(async move {
            let _slot = slot;
            match acceptor {
                None => connection(stream, app, stop).await,
                Some(acceptor) => {
                    let shaken = tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await;
                    if let Ok(Ok(stream)) = shaken {
                        connection(stream, app, stop).await;
                    }
                }
            }
        });
    }
    let ending = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(DRAIN, ending).await;
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    // Waiting for a slot before accepting leaves the rest in the kernel's bounded queue.
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => {
            // Small events must not wait for more of them.
            let _ = stream.set_nodelay(true);
            Some((stream, slot))
        }
        Err(error) => {
            debug!("accepting: {error}");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, app: Arc<App>, stop: CancellationToken) {
    let answering = stop.clone();
    let service = service_fn(move |request| {
        let (app, stop) = (Arc::clone(&app), answering.clone());
        async move { Ok::<_, Infallible>(app.answer(request, &stop).await) }
    });
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .max_buf_size(HEADER_BYTES)
            .serve_connection(TokioIo::new(stream), service)
    );
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!("a connection ended: {error}");
    }
}
