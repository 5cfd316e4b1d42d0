//! Counts the writes of a client, by resource.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request};
use parking_lot::Mutex;
use tower::Service;

/// The number of writes by kind of object: `PATCH nodes`, `POST machineconfigs`, `PATCH machineconfigpools/status`.
#[derive(Debug, Clone, Default)]
pub struct RequestCounts(Arc<Mutex<BTreeMap<String, u64>>>);

impl RequestCounts {
    pub fn snapshot(&self) -> BTreeMap<String, u64> {
        self.0.lock().clone()
    }

    pub fn reset(&self) {
        self.0.lock().clear();
    }

    /// Returns the number of all writes to matching resources.
    pub fn of(&self, resource: &str) -> u64 {
        let counts = self.0.lock();
        let matching = counts
            .iter()
            .filter(|(key, _)| key.split(' ').nth(1) == Some(resource));
        matching.map(|(_, count)| count).sum()
    }

    pub fn total(&self) -> u64 {
        self.0.lock().values().sum()
    }

    fn note<B>(&self, request: &Request<B>) {
        let method = request.method();
        if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
            return;
        }
        let key = format!("{method} {}", resource(request.uri().path()));
        *self.0.lock().entry(key).or_default() += 1;
    }
}

/// Returns the resource of a path, with its subresource.
fn resource(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let skip = if parts.first() == Some(&"api") { 2 } else { 3 };
    let mut rest = parts.get(skip..).unwrap_or_default();
    if rest.first() == Some(&"namespaces") && rest.len() > 2 {
        rest = rest.get(2..).unwrap_or_default();
    }
    match rest {
        [resource, _, subresource] => format!("{resource}/{subresource}"),
        [resource, ..] => (*resource).to_owned(),
        [] => path.to_owned(),
    }
}

/// A service that counts the requests that pass through it.
#[derive(Debug, Clone)]
pub struct Counting<S> {
    inner: S,
    counts: RequestCounts,
}

impl<S> Counting<S> {
    pub fn new(inner: S, counts: RequestCounts) -> Self {
        Self { inner, counts }
    }
}

impl<S, B> Service<Request<B>> for Counting<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.counts.note(&request);
        self.inner.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_resources() {
        for (path, expected) in [
            ("/api/v1/nodes/n1", "nodes"),
            ("/api/v1/nodes/n1/status", "nodes/status"),
            ("/api/v1/namespaces/shop/pods/db-0/eviction", "pods/eviction"),
            ("/apis/events.k8s.io/v1/namespaces/default/events", "events"),
            (
                "/apis/machineconfiguration.openshift.io/v1/machineconfigs",
                "machineconfigs",
            ),
            ("/api/v1/namespaces", "namespaces"),
        ] {
            assert_eq!(resource(path), expected);
        }
    }
}
