//! What operators can see of the server from outside. Labels take few values: unknown pools share one.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The label for pools nobody has heard of; their names come from strangers.
pub const UNKNOWN: &str = "unknown";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Request {
    pub pool: String,
    pub version: &'static str,
    pub code: u16,
}

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    pub requests: Family<Request, Counter>,
    pub bytes: Counter,
    pub connections: Gauge,
    pub shed: Counter,
    pub handshake_failures: Counter,
    pub token_failures: Counter,
    pub seconds: Histogram,
    pub ready: Gauge<f64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("mco_server");
        let metrics = Self {
            requests: Family::default(),
            bytes: Counter::default(),
            connections: Gauge::default(),
            shed: Counter::default(),
            handshake_failures: Counter::default(),
            token_failures: Counter::default(),
            seconds: Histogram::new([0.0001, 0.001, 0.01, 0.1, 1.0]),
            ready: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register(
            "requests",
            "Requests for a configuration, by pool, Ignition version and status code",
            metrics.requests.clone(),
        );
        registry.register(
            "body_bytes",
            "Bytes of configuration handed out",
            metrics.bytes.clone(),
        );
        registry.register(
            "connections",
            "Connections that are open",
            metrics.connections.clone(),
        );
        registry.register(
            "connections_shed",
            "Connections turned away because there were too many",
            metrics.shed.clone(),
        );
        registry.register(
            "tls_handshake_failures",
            "TLS handshakes that failed or took too long",
            metrics.handshake_failures.clone(),
        );
        registry.register(
            "token_failures",
            "Requests with a missing, wrong or expired token",
            metrics.token_failures.clone(),
        );
        registry.register(
            "request_seconds",
            "Time from a request's headers to its answer's headers",
            metrics.seconds.clone(),
        );
        registry.register(
            "ready",
            "1 when configurations can be served",
            metrics.ready.clone(),
        );
        Self { registry, ..metrics }
    }
}

impl Metrics {
    pub fn answered(&self, request: &Request, body_bytes: usize, took: Duration) {
        self.requests.get_or_create(request).inc();
        self.bytes.inc_by(u64::try_from(body_bytes).unwrap_or(u64::MAX));
        self.seconds.observe(took.as_secs_f64());
    }

    /// The text that Prometheus scrapes.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_lists_what_is_told() {
        let metrics = Metrics::default();
        let request = Request {
            pool: "worker".to_owned(),
            version: "3.5.0",
            code: 200,
        };
        metrics.answered(&request, 1, Duration::from_secs(1));
        let told = mco_testkit::metrics::told(&metrics.encode().unwrap());
        assert_eq!(told, mco_testkit::metrics::documented("server"));
    }
}
