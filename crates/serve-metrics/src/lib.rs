//! Hands metrics to whoever may see them, and says to everybody that the process lives. Knows no metric and listens nowhere by
//! itself: where to listen, what is told and who may ask come from outside.

mod answer;
mod crowd;
mod door;
mod listen;
mod memory;
mod review;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tracing::debug;

pub use answer::{Answer, plain};
pub use door::Door;
pub use listen::listen;

use crowd::Crowd;
use door::{Transport, Visitor};

/// The one path that not everybody may see.
const METRICS: &str = "/metrics";
/// A scraper that says nothing for this long has gone away.
const PATIENCE: Duration = Duration::from_secs(30);
/// When descriptors run out, accepting again at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Enough for any token; a request has nothing else to say.
const LARGEST_REQUEST: usize = 64 << 10;

/// What a process tells of itself.
pub trait Site: Send + Sync + 'static {
    /// What only those are told whom the door lets in.
    fn metrics(&self) -> Result<String, fmt::Error>;

    /// What everybody is told at other paths; nothing where there is no such path.
    fn sign_of_life(&self, path: &str) -> Option<Answer> {
        (path == "/healthz").then(|| plain(StatusCode::OK, "ok\n"))
    }
}

impl<Encode: Fn() -> Result<String, fmt::Error> + Send + Sync + 'static> Site for Encode {
    fn metrics(&self) -> Result<String, fmt::Error> {
        self()
    }
}

impl<S: Site> Site for Arc<S> {
    fn metrics(&self) -> Result<String, fmt::Error> {
        (**self).metrics()
    }

    fn sign_of_life(&self, path: &str) -> Option<Answer> {
        (**self).sign_of_life(path)
    }
}

/// Answers until `stop`.
pub async fn serve(listener: TcpListener, door: Door, site: impl Site, stop: CancellationToken) {
    let host = Arc::new(Host { door, site });
    let mut crowd = Crowd::default();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
            () = crowd.somebody_leaves() => continue,
        };
        match accepted {
            Ok((stream, _)) => crowd.admit(Arc::clone(&host).welcome(stream)),
            Err(problem) => {
                debug!("cannot accept a scraper: {problem}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

struct Host<S> {
    door: Door,
    site: S,
}

impl<S: Site> Host<S> {
    async fn welcome(self: Arc<Self>, stream: TcpStream) {
        match tokio::time::timeout(PATIENCE, self.door.greet(stream)).await {
            Ok(Ok(Visitor::Plain(stream))) => self.talk(stream, Transport::Plain).await,
            Ok(Ok(Visitor::Tls(stream))) => self.talk(stream, Transport::Tls).await,
            Ok(Err(problem)) => debug!("a scraper and we do not understand each other: {problem}"),
            Err(_) => debug!("a scraper never said anything"),
        }
    }

    async fn talk(self: Arc<Self>, stream: impl AsyncRead + AsyncWrite + Unpin, transport: Transport) {
        let service = service_fn(|request: Request<Incoming>| {
            let host = Arc::clone(&self);
            async move {
                let answer = host.answer(request.uri().path(), request.headers(), transport);
                Ok::<_, Infallible>(answer.await)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .max_buf_size(LARGEST_REQUEST)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(problem) = connection.await {
            debug!("a scraper's connection ended: {problem}");
        }
    }

    async fn answer(&self, path: &str, headers: &HeaderMap, transport: Transport) -> Answer {
        if path != METRICS {
            let told = self.site.sign_of_life(path);
            return told.unwrap_or_else(|| plain(StatusCode::NOT_FOUND, "not found\n"));
        }
        match self.door.admit(transport, headers).await {
            Ok(()) => answer::metrics(self.site.metrics()),
            Err(refusal) => answer::refusal(refusal),
        }
    }
}
