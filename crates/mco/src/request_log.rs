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
#[derive(Debug, Clone)]
pub struct RequestLogLayer {
    /// The URL of the cluster; requests have only a path here.
    pub cluster_url: String,
}

impl<S> Layer<S> for RequestLogLayer {
    type Service = RequestLog<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RequestLog {
            inner,
            cluster_url: self.cluster_url.trim_end_matches('/').to_owned(),
        }
    }
}

/// Prints each request when its response begins.
#[derive(Debug, Clone)]
pub struct RequestLog<S> {
    inner: S,
    cluster_url: String,
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
        let path = request.uri().to_string();
        let what = format!(
            "{} {}{}",
            request.method(),
            self.cluster_url,
            path.trim_end_matches('?')
        );
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
