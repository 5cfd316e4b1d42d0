//! Prometheus metrics of the daemon. Names and labels match those of existing dashboards and alerts.

use std::fmt;
use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeStateLabels {
    state: String,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UpdateLabels {
    config: String,
    err: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HostLabels {
    os: String,
    version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabels {
    node: String,
}

type MetricSeconds = Gauge<f64, AtomicU64>;

#[derive(Debug)]
pub(super) struct DaemonMetrics {
    registry: Registry,
    state: Family<NodeStateLabels, MetricSeconds>,
    update: Family<UpdateLabels, MetricSeconds>,
    drift: MetricSeconds,
    kubelet: Gauge,
    system_errors: Gauge,
    failed_reboots: Counter,
    unsupported_packages: Family<NodeLabels, Gauge>,
}

impl DaemonMetrics {
    pub fn new(os: &str, version: &str) -> Self {
        let mut registry = Registry::default();
        let host: Family<HostLabels, Gauge> = Family::default();
        host.get_or_create(&HostLabels {
            os: os.to_uppercase(),
            version: version.to_owned(),
        })
        .set(1);
        let metrics = Self {
            registry: Registry::default(),
            state: Family::default(),
            update: Family::default(),
            drift: MetricSeconds::default(),
            kubelet: Gauge::default(),
            system_errors: Gauge::default(),
            failed_reboots: Counter::default(),
            unsupported_packages: Family::default(),
        };
        registry.register(
            "mcd_host_os_and_version",
            "Operating system and version of the node",
            host,
        );
        registry.register(
            "mcd_state",
            "Timestamp of the node's transition into this state",
            metrics.state.clone(),
        );
        registry.register(
            "mcd_update_state",
            "Timestamp and result of the latest update",
            metrics.update.clone(),
        );
        registry.register(
            "mcd_config_drift",
            "Timestamp of the detected config drift; 0 without drift",
            metrics.drift.clone(),
        );
        registry.register(
            "mcd_kubelet_state",
            "Consecutive failures of the kubelet health check",
            metrics.kubelet.clone(),
        );
        registry.register(
            "mcd_pivot_errors_total",
            "Failures to stage the operating system since the latest success",
            metrics.system_errors.clone(),
        );
        registry.register(
            "mcd_reboots_failed",
            "Reboot requests that failed",
            metrics.failed_reboots.clone(),
        );
        registry.register(
            "mcd_local_unsupported_packages",
            "Local changes of the node's OS image that no config has made",
            metrics.unsupported_packages.clone(),
        );
        Self { registry, ..metrics }
    }

    pub fn state(&self, state: &str, reason: &str) {
        let labels = NodeStateLabels {
            state: state.to_owned(),
            reason: reason.to_owned(),
        };
        self.state.clear();
        self.state.get_or_create(&labels).set(now());
    }

    pub fn update(&self, config: &str, error: &str) {
        let labels = UpdateLabels {
            config: config.to_owned(),
            err: error.to_owned(),
        };
        self.update.clear();
        self.update.get_or_create(&labels).set(now());
    }

    pub fn drifted(&self) {
        self.drift.set(now());
    }

    pub fn no_drift(&self) {
        self.drift.set(0.0);
    }

    pub fn kubelet_failures(&self, in_a_row: i64) {
        self.kubelet.set(in_a_row);
    }

    pub fn system_failed(&self) {
        self.system_errors.inc();
    }

    pub fn system_staged(&self) {
        self.system_errors.set(0);
    }

    pub fn reboot_failed(&self) {
        self.failed_reboots.inc();
    }

    pub fn unsupported_packages(&self, node: &str, count: usize) {
        let labels = NodeLabels {
            node: node.to_owned(),
        };
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.unsupported_packages.get_or_create(&labels).set(count);
    }

    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "an f64 holds seconds exactly for millions of years"
)]
fn now() -> f64 {
    Timestamp::now().as_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_the_known_ones_and_old_states_are_dropped() {
        let metrics = DaemonMetrics::new("debian", "13");
        metrics.state("Done", "");
        metrics.state("Degraded", "disk full");
        metrics.update("rendered-worker-1", "");
        metrics.reboot_failed();
        metrics.unsupported_packages("worker-1", 2);
        let text = metrics.text().unwrap();
        for line in [
            "mcd_host_os_and_version{os=\"DEBIAN\",version=\"13\"} 1",
            "mcd_state{state=\"Degraded\",reason=\"disk full\"} ",
            "mcd_update_state{config=\"rendered-worker-1\",err=\"\"} ",
            "mcd_config_drift 0",
            "mcd_kubelet_state 0",
            "mcd_pivot_errors_total 0",
            "mcd_reboots_failed_total 1",
            "mcd_local_unsupported_packages{node=\"worker-1\"} 2",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(!text.contains("state=\"Done\""), "{text}");
        let reported = mco_testkit::metrics::exposed_names(&text);
        assert_eq!(reported, mco_testkit::metrics::documented("daemon"));
    }
}
