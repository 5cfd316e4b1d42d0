//! The requests of a client command on standard error, with `-v=6` and up.
//!
//! Method, URL, status and time, as kubectl prints them; never headers or bodies, which hold credentials and secrets.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{Request, Response};
use tower::{Layer, Service};

use crate::output;

/// Adds [`RequestLog`] to a client.
#[derive(Debug, Clone, Copy)]
pub struct RequestLogLayer;

impl<S> Layer<S> for RequestLogLayer {
    type Service = RequestLog<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RequestLog { inner }
    }
}

/// Prints each request when its response begins.
#[derive(Debug, Clone)]
pub struct RequestLog<S> {
    inner: S,
}

impl<S, A, B> Service<Request<A>> for RequestLog<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let what = format!("{} {}", request.method(), request.uri());
        let start = Instant::now();
        let response = self.inner.call(request);
        Box::pin(async move {
            let response = response.await;
            let result = match &response {
                Ok(response) => response.status().to_string(),
                Err(_) => "failed".to_owned(),
            };
            output::aside(format!("{what} {result} in {} ms", start.elapsed().as_millis()));
            response
        })
    }
}
