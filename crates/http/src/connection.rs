//! One connection: transport, protocol, and the requests on it.

use std::convert::Infallible;
use std::fmt::{self, Display};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response};

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::TextResponse;
use crate::accept::ServeOptions;
use crate::activity::ConnectionActivity;
use crate::handler::RequestHandler;
use crate::isolation::{IsolatedBody, PanicCounter, isolate};
use crate::limits::{ConnectionAdmission, Http1Limits, Http2Limits, HttpProtocol};
use crate::stall::StallTimeout;
use crate::tls::SharedAcceptor;

/// The type of the first TLS record of a client. No HTTP method begins with this byte.
const TLS_HANDSHAKE: u8 = 0x16;

/// How bytes travel.
#[derive(Clone)]
pub enum ListenerTransport {
    Plain,
    Tls(TlsAcceptor),
    /// TLS for clients that begin with a handshake, plain HTTP for the others.
    PlainOrTls(SharedAcceptor),
}

impl fmt::Debug for ListenerTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "Plain",
            Self::Tls(_) => "Tls",
            Self::PlainOrTls(_) => "PlainOrTls",
        })
    }
}

/// The client of a connection.
#[derive(Clone, Debug)]
pub struct ConnectionPeer {
    pub address: SocketAddr,
    pub is_encrypted: bool,
    /// The verified client certificate, if the client presented one.
    pub certificate: Option<CertificateDer<'static>>,
}

/// What the connections of a listener share.
pub(crate) struct Edge<Connect> {
    pub transport: ListenerTransport,
    pub options: Arc<ServeOptions>,
    pub connect: Connect,
    pub stop: CancellationToken,
}

/// Answers the requests of a connection: those of a handler, or all of them with a refusal.
enum Answers<H> {
    Handler(Arc<H>),
    Refusal(fn() -> TextResponse),
}

impl<H> Clone for Answers<H> {
    fn clone(&self) -> Self {
        match self {
            Self::Handler(handler) => Self::Handler(Arc::clone(handler)),
            Self::Refusal(response) => Self::Refusal(*response),
        }
    }
}

impl<H: RequestHandler> Answers<H> {
    async fn answer(
        self,
        request: Request<Incoming>,
        options: &ServeOptions,
        activity: &Arc<ConnectionActivity>,
    ) -> Result<Response<IsolatedBody<H::Body>>, Infallible> {
        let in_progress = activity.begin();
        let handler = match self {
            Self::Handler(handler) => handler,
            Self::Refusal(response) => return Ok(response().map(IsolatedBody::<H::Body>::Fixed)),
        };
        let name = format!("{} {:?}", request.method(), request.uri().path());
        // Called inside, so that a handler may panic before it returns its future.
        let response = async { handler.handle(request).await };
        let panics = PanicCounter {
            listener: options.metrics.panics.clone(),
            component: options.component,
        };
        Ok(isolate(&name, response, options.internal_error, &panics, in_progress).await)
    }
}

impl<H: RequestHandler, Connect: Fn(&ConnectionPeer) -> H + Send + Sync + 'static> Edge<Connect> {
    pub async fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        address: SocketAddr,
        mut admission: ConnectionAdmission,
    ) {
        admission.admitted().await;
        let _open = self.options.metrics.open();
        // Small writes, such as events of a stream and the end of a body, must not wait for an acknowledgement.
        if let Err(error) = stream.set_nodelay(true) {
            debug!(client = %address, "TCP_NODELAY: {error}");
        }
        // The states of both protocols, and of the handshake, would be copied several times on the way into the task.
        let served = Box::pin(self.transported(stream, address, &admission));
        match self.options.limits.lifetime {
            None => served.await,
            Some(lifetime) => {
                if tokio::time::timeout(lifetime, served).await.is_err() {
                    debug!(client = %address, "connection closed after {lifetime:?}");
                }
            }
        }
    }

    async fn transported(&self, stream: TcpStream, address: SocketAddr, admission: &ConnectionAdmission) {
        let deadline = self.options.limits.handshake;
        let acceptor = match &self.transport {
            ListenerTransport::Plain => None,
            ListenerTransport::Tls(acceptor) => Some(acceptor.clone()),
            ListenerTransport::PlainOrTls(acceptor) => {
                match tokio::time::timeout(deadline, begins_with_tls(&stream)).await {
                    Ok(Ok(is_tls)) => is_tls.then(|| acceptor.current()),
                    Ok(Err(error)) => return debug!(client = %address, "connection ended: {error}"),
                    Err(_) => return debug!(client = %address, "connection closed: no data"),
                }
            }
        };
        let stream = StallTimeout::new(stream, self.options.limits.stall, Arc::clone(&admission.activity));
        let mut peer = ConnectionPeer {
            address,
            is_encrypted: acceptor.is_some(),
            certificate: None,
        };
        let Some(acceptor) = acceptor else {
            return self.requests(stream, &peer, admission).await;
        };
        match tokio::time::timeout(deadline, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let chain = stream.get_ref().1.peer_certificates();
                peer.certificate = chain
                    .and_then(|chain| chain.first())
                    .cloned()
                    .map(CertificateDer::into_owned);
                self.requests(stream, &peer, admission).await;
            }
            Ok(Err(error)) => self.handshake_failed(address, &error),
            Err(_) => self.handshake_failed(address, &format_args!("no handshake within {deadline:?}")),
        }
    }

    fn handshake_failed(&self, client: SocketAddr, reason: &dyn Display) {
        self.options.metrics.handshake_failures.inc();
        (self.options.handshake_failed)(client, reason);
    }

    async fn requests<S>(&self, stream: S, peer: &ConnectionPeer, admission: &ConnectionAdmission)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let answers = match admission.refusal {
            None => Answers::Handler(Arc::new((self.connect)(peer))),
            Some(response) => Answers::Refusal(response),
        };
        let result = match self.options.protocol {
            HttpProtocol::Http1(limits) => self.http1(stream, limits, answers, &admission.activity).await,
            HttpProtocol::Http1AndHttp2(limits) => {
                self.http1_and_http2(stream, limits, answers, &admission.activity)
                    .await
            }
        };
        if let Err(reason) = result {
            debug!(client = %peer.address, "connection ended: {reason}");
        }
    }

    async fn http1<S>(
        &self,
        stream: S,
        limits: Http1Limits,
        answers: Answers<H>,
        activity: &Arc<ConnectionActivity>,
    ) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(self.options.limits.headers)
            // Bodies are shared buffers, passed to the socket without being copied together first.
            .writev(true)
            .keep_alive(matches!(answers, Answers::Handler(_)));
        if let Some(headers) = limits.headers {
            builder.max_headers(headers);
        }
        if let Some(bytes) = limits.header_bytes {
            builder.max_header_size(bytes);
        }
        if let Some(bytes) = limits.buffer_bytes {
            builder.max_buf_size(bytes);
        }
        let first_request = Notify::new();
        let service = service_fn(|request| {
            first_request.notify_one();
            answers.clone().answer(request, &self.options, activity)
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let served = self.until_stopped(connection, http1::Connection::graceful_shutdown);
        self.unless_silent(served, &first_request).await
    }

    async fn http1_and_http2<S>(
        &self,
        stream: S,
        limits: Http2Limits,
        answers: Answers<H>,
        activity: &Arc<ConnectionActivity>,
    ) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.options.limits.headers)
            .keep_alive(matches!(answers, Answers::Handler(_)));
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(limits.keep_alive)
            .max_concurrent_streams(limits.streams);
        let first_request = Arc::new(Notify::new());
        let (options, begun) = (Arc::clone(&self.options), Arc::clone(&first_request));
        let activity = Arc::clone(activity);
        let service = service_fn(move |request| {
            begun.notify_one();
            let (answers, options) = (answers.clone(), Arc::clone(&options));
            let activity = Arc::clone(&activity);
            async move { answers.answer(request, &options, &activity).await }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let served = self.until_stopped(connection, auto::Connection::graceful_shutdown);
        self.unless_silent(served, &first_request).await
    }

    /// Drives a connection, but ends it if no request begins in time. Neither the detection of the protocol nor HTTP/2
    /// has a deadline of its own for that, and a connection without any request deserves less time than an idle one.
    async fn unless_silent(
        &self,
        served: impl Future<Output = Result<(), String>>,
        first_request: &Notify,
    ) -> Result<(), String> {
        let limits = &self.options.limits;
        let deadline = limits.headers.min(limits.handshake);
        let silence = async {
            if tokio::time::timeout(deadline, first_request.notified())
                .await
                .is_ok()
            {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            result = served => result,
            () = silence => Err(format!("no request within {deadline:?}")),
        }
    }

    /// Drives a connection; when the listener stops, the requests in progress are finished and no others are read.
    async fn until_stopped<C, E>(
        &self,
        connection: C,
        shut_down: impl FnOnce(Pin<&mut C>),
    ) -> Result<(), String>
    where
        C: Future<Output = Result<(), E>>,
        E: Display,
    {
        tokio::pin!(connection);
        let result = tokio::select! {
            result = connection.as_mut() => result,
            () = self.stop.cancelled() => {
                shut_down(connection.as_mut());
                connection.await
            }
        };
        result.map_err(|error| error.to_string())
    }
}

async fn begins_with_tls(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    Ok(first == [TLS_HANDSHAKE])
}
