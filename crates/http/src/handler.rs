//! What a component plugs into the edge: a handler per connection, and counters.

use std::error::Error;
use std::future::Future;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

/// Answers the requests of one connection. Implemented by closures from a request to a future response.
pub trait RequestHandler: Send + Sync + 'static {
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static;

    /// Returns the response to one request. A panic is caught and answered with the listener's internal error.
    fn handle(&self, request: Request<Incoming>) -> impl Future<Output = Response<Self::Body>> + Send;
}

impl<F, R, B> RequestHandler for F
where
    F: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
    R: Future<Output = Response<B>> + Send,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    type Body = B;

    fn handle(&self, request: Request<Incoming>) -> impl Future<Output = Response<B>> + Send {
        self(request)
    }
}

/// Counters of one listener, to be registered by components that expose them. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct ConnectionMetrics {
    /// Open connections.
    pub open: Gauge,
    /// Connections over the limit that were refused.
    pub shed: Counter,
    /// TLS handshakes that failed or timed out.
    pub handshake_failures: Counter,
    /// Requests that panicked.
    pub panics: Counter,
}

impl ConnectionMetrics {
    /// Counts a connection as open until the guard is dropped, also by a panic.
    pub(crate) fn open(&self) -> OpenConnection<'_> {
        self.open.inc();
        OpenConnection(self)
    }
}

pub(crate) struct OpenConnection<'m>(&'m ConnectionMetrics);

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.open.dec();
    }
}
