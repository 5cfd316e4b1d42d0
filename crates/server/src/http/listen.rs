//! Sockets, limits and time: accepting connections, turning away what is too much, going away in an orderly manner.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, error, info};

use super::answer::{App, overloaded};
use super::stall::Stalling;

/// How much a peer may ask of us.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections served at once.
    pub connections: usize,
    /// From the first byte to the end of the TLS handshake.
    pub handshake: Duration,
    /// For a request's headers, and for the pause between two requests.
    pub headers: Duration,
    /// A write that makes no progress for this long ends the connection.
    pub stall: Duration,
    /// No connection lives longer, whatever it does.
    pub lifetime: Duration,
    /// How long open transfers may go on after the server was told to stop: a cut body fails a machine's boot.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 2048,
            handshake: Duration::from_secs(10),
            headers: Duration::from_secs(15),
            stall: Duration::from_secs(30),
            lifetime: Duration::from_mins(10),
            drain: Duration::from_mins(1),
        }
    }
}

/// Request headers of booting machines are a few hundred bytes.
const HEADER_BYTES: usize = 16 << 10;
const HEADERS: usize = 64;
/// When descriptors run out, accepting again at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How bytes travel.
#[derive(Clone)]
pub enum Transport {
    Plain,
    Tls(TlsAcceptor),
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain => "Plain",
            Self::Tls(_) => "Tls",
        })
    }
}

/// A socket and how to speak on it.
#[derive(Debug)]
pub struct Listener {
    pub socket: TcpListener,
    pub transport: Transport,
}

/// Listens there, or on every address.
pub async fn bind(address: Option<IpAddr>, port: u16) -> io::Result<TcpListener> {
    let address = address.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
    mco_serve_metrics::listen((address, port).into()).await
}

/// Serves until `stop` turns true, then waits for open transfers, within limits.
pub async fn serve(listener: Listener, app: Arc<App>, limits: Limits, stop: watch::Receiver<bool>) {
    // A few connections beyond the limit are told why they are turned away; the rest only sees them close.
    let told = (limits.connections / 8).max(16);
    let server = Arc::new(Server {
        app,
        limits,
        transport: listener.transport,
        stop: stop.clone(),
    });
    let served = Arc::new(Semaphore::new(limits.connections));
    let turned_away = Arc::new(Semaphore::new(told));
    let mut stopped = stop;
    loop {
        let accepted = tokio::select! {
            accepted = listener.socket.accept() => accepted,
            _ = stopped.wait_for(|stop| *stop) => break,
        };
        let (stream, client) = match accepted {
            Ok(accepted) => accepted,
            Err(problem) => {
                error!("cannot accept connections: {problem}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if let Ok(permit) = Arc::clone(&served).try_acquire_owned() {
            tokio::spawn(Arc::clone(&server).connection(stream, client, Service::Full, permit));
        } else {
            server.app.metrics.shed.inc();
            if let Ok(permit) = Arc::clone(&turned_away).try_acquire_owned() {
                tokio::spawn(Arc::clone(&server).connection(stream, client, Service::Overloaded, permit));
            }
        }
    }
    drop(listener.socket);
    let everyone = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    if tokio::time::timeout(limits.drain, served.acquire_many(everyone))
        .await
        .is_err()
    {
        info!("leaving with connections still open");
    }
}

#[derive(Clone, Copy)]
enum Service {
    Full,
    Overloaded,
}

struct Server {
    app: Arc<App>,
    limits: Limits,
    transport: Transport,
    stop: watch::Receiver<bool>,
}

impl Server {
    async fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        client: SocketAddr,
        service: Service,
        permit: OwnedSemaphorePermit,
    ) {
        self.app.metrics.connections.inc();
        // Answers are written in large pieces; the last one must not wait for an acknowledgement.
        let _ = stream.set_nodelay(true);
        let stream = Stalling::new(stream, self.limits.stall);
        let served = tokio::time::timeout(self.limits.lifetime, async {
            match &self.transport {
                Transport::Plain => self.requests(stream, client, service).await,
                Transport::Tls(acceptor) => {
                    match tokio::time::timeout(self.limits.handshake, acceptor.accept(stream)).await {
                        Ok(Ok(stream)) => self.requests(stream, client, service).await,
                        Ok(Err(problem)) => self.handshake_failed(client, &problem),
                        Err(_) => self.handshake_failed(client, &"too slow"),
                    }
                }
            }
        });
        if served.await.is_err() {
            debug!(%client, "connection ended: it lasted too long");
        }
        self.app.metrics.connections.dec();
        drop(permit);
    }

    fn handshake_failed(&self, client: SocketAddr, problem: &dyn std::fmt::Display) {
        self.app.metrics.handshake_failures.inc();
        info!(%client, "TLS handshake failed: {problem}");
    }

    async fn requests<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        client: SocketAddr,
        service: Service,
    ) {
        let app = &self.app;
        let handler = service_fn(move |request: Request<Incoming>| async move {
            Ok::<_, std::convert::Infallible>(match service {
                Service::Full => app.answer(&request, client).await,
                Service::Overloaded => overloaded(),
            })
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.headers)
            .max_headers(HEADERS)
            .max_header_size(HEADER_BYTES)
            .max_buf_size(2 * HEADER_BYTES)
            // Bodies are shared buffers: they are handed to the socket as they are, not copied together first.
            .writev(true)
            .keep_alive(matches!(service, Service::Full))
            .serve_connection(TokioIo::new(stream), handler);
        tokio::pin!(connection);
        let mut stop = self.stop.clone();
        let finished = tokio::select! {
            result = connection.as_mut() => Some(result),
            _ = stop.wait_for(|stop| *stop) => None,
        };
        let result = if let Some(result) = finished {
            result
        } else {
            connection.as_mut().graceful_shutdown();
            connection.await
        };
        if let Err(problem) = result {
            debug!(%client, "connection ended: {problem}");
        }
    }
}

/// Serves `/metrics`, and health for probes, on a socket of their own, until `stop` turns true.
pub async fn serve_metrics(socket: TcpListener, app: Arc<App>, mut stop: watch::Receiver<bool>) {
    // Few scrapers exist; whoever opens more gets nothing.
    let places = Arc::new(Semaphore::new(16));
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let (Ok((stream, _)), Ok(permit)) = (accepted, Arc::clone(&places).try_acquire_owned()) else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let app = Arc::clone(&app);
        tokio::spawn(async move {
            let handler = service_fn(|request: Request<Incoming>| {
                let answer = metrics_answer(&app, &request);
                async move { Ok::<_, std::convert::Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Limits::default().headers)
                .keep_alive(false)
                .serve_connection(
                    TokioIo::new(Stalling::new(stream, Limits::default().stall)),
                    handler,
                );
            if let Err(problem) = connection.await {
                debug!("metrics connection ended: {problem}");
            }
            drop(permit);
        });
    }
}

fn metrics_answer(app: &App, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::default());
    let found = matches!(*request.method(), Method::GET | Method::HEAD);
    *answer.status_mut() = match request.uri().path() {
        _ if !found => StatusCode::METHOD_NOT_ALLOWED,
        "/livez" => StatusCode::OK,
        "/readyz" | "/healthz" if app.is_ready() => StatusCode::OK,
        "/readyz" | "/healthz" => StatusCode::SERVICE_UNAVAILABLE,
        "/metrics" => {
            app.metrics.ready.set(if app.is_ready() { 1.0 } else { 0.0 });
            match app.metrics.encode() {
                Ok(text) => {
                    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                    answer
                        .headers_mut()
                        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
                    *answer.body_mut() = Full::from(text);
                    StatusCode::OK
                }
                Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
            }
        }
        _ => StatusCode::NOT_FOUND,
    };
    answer
}
