//! Metrics of the Ignition endpoint. Labels take few values: unknown pools share one.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use mco_http::ConnectionMetrics;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The label of pools that do not exist; clients choose their names.
pub const UNKNOWN: &str = "unknown";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    pub pool: String,
    pub version: &'static str,
    pub code: u16,
}

#[derive(Debug)]
pub struct ServerMetrics {
    registry: Registry,
    pub requests: Family<RequestLabels, Counter>,
    pub bytes: Counter,
    pub connections: ConnectionMetrics,
    pub token_failures: Counter,
    pub seconds: Histogram,
    pub ready: Gauge<f64, AtomicU64>,
}

impl Default for ServerMetrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("mco_server");
        let metrics = Self {
            requests: Family::default(),
            bytes: Counter::default(),
            connections: ConnectionMetrics::default(),
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
            "Bytes of configuration served",
            metrics.bytes.clone(),
        );
        registry.register(
            "connections",
            "Open connections",
            metrics.connections.open.clone(),
        );
        registry.register(
            "connections_shed",
            "Connections refused because of the connection limit",
            metrics.connections.shed.clone(),
        );
        registry.register(
            "tls_handshake_failures",
            "TLS handshakes that failed or timed out",
            metrics.connections.handshake_failures.clone(),
        );
        registry.register(
            "token_failures",
            "Requests with a missing, unknown or expired token",
            metrics.token_failures.clone(),
        );
        registry.register(
            "request_panics",
            "Requests that panicked and were answered with an internal error",
            metrics.connections.panics.clone(),
        );
        registry.register(
            "request_seconds",
            "Time from the headers of a request to the headers of its response",
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

impl ServerMetrics {
    /// Counts a response.
    pub fn answered(&self, labels: &RequestLabels, body_bytes: usize, took: Duration) {
        self.requests.get_or_create(labels).inc();
        self.bytes.inc_by(u64::try_from(body_bytes).unwrap_or(u64::MAX));
        self.seconds.observe(took.as_secs_f64());
    }

    /// Returns the metrics in the OpenMetrics text format.
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
    fn the_documentation_lists_all_metrics() {
        let metrics = ServerMetrics::default();
        let labels = RequestLabels {
            pool: "worker".to_owned(),
            version: "3.5.0",
            code: 200,
        };
        metrics.answered(&labels, 1, Duration::from_secs(1));
        let exposed = mco_testkit::metrics::exposed_names(&metrics.encode().unwrap());
        assert_eq!(exposed, mco_testkit::metrics::documented("server"));
    }
}
