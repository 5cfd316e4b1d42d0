//! Prometheus metrics, under the names that existing dashboards and alerts use.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use k8s_openapi::jiff::Timestamp;
use mco_api::machine_config_pool::{MachineConfigPoolCondition, MachineConfigPoolStatus};
use mco_api::vocabulary::conditions::status;
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The node label of series that exist from the start; existing dashboards filter it out.
const PLACEHOLDER_NODE: &str = "initialize";

type SecondsGauge = Gauge<f64, AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabels {
    pool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabels {
    node: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyLabels {
    policy: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GateLabels {
    policy: String,
    gate: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolStateLabels {
    node: String,
    pool: String,
    state: String,
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SubControllerLabels {
    subcontroller: &'static str,
    state: &'static str,
    object: String,
}

/// The metrics of one controller process. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<MetricFamilies>);

#[derive(Debug)]
struct MetricFamilies {
    registry: Registry,
    machines: Family<PoolLabels, Gauge>,
    updated: Family<PoolLabels, Gauge>,
    degraded: Family<PoolLabels, Gauge>,
    unavailable: Family<PoolLabels, Gauge>,
    paused: Family<PoolLabels, Gauge>,
    state: Family<PoolStateLabels, SecondsGauge>,
    /// The current series of each pool in `state`, so that it never has two.
    states: Mutex<std::collections::HashMap<String, PoolStateLabels>>,
    drain_error: Family<NodeLabels, Gauge>,
    drain_blockers: Family<NodeLabels, Gauge>,
    pool_alert: Family<NodeLabels, Gauge>,
    sub_controller: Family<SubControllerLabels, SecondsGauge>,
    image_override: Family<PoolLabels, Gauge>,
    boot_images_unwatched: Gauge,
    renders: Family<PoolLabels, Counter>,
    render_seconds: Histogram,
    drain_seconds: Histogram,
    policy_halted: Family<PolicyLabels, Gauge>,
    gate_checks: Family<GateLabels, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let inner = MetricFamilies {
            machines: Family::default(),
            updated: Family::default(),
            degraded: Family::default(),
            unavailable: Family::default(),
            paused: Family::default(),
            state: Family::default(),
            states: Mutex::default(),
            drain_error: Family::default(),
            drain_blockers: Family::default(),
            pool_alert: Family::default(),
            sub_controller: Family::default(),
            image_override: Family::default(),
            boot_images_unwatched: Gauge::default(),
            renders: Family::default(),
            render_seconds: Histogram::new([0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0]),
            drain_seconds: Histogram::new([1.0, 10.0, 60.0, 600.0, 3_600.0]),
            policy_halted: Family::default(),
            gate_checks: Family::default(),
            registry: Registry::default(),
        };
        let mut registry = Registry::default();
        inner.register_pools(&mut registry);
        inner.register_nodes(&mut registry);
        registry.register(
            "mcc_boot_image_skew_enforcement_none",
            "1 if nothing keeps new machines from booting from images that are too old",
            inner.boot_images_unwatched.clone(),
        );
        inner.seed();
        Self(Arc::new(MetricFamilies { registry, ..inner }))
    }
}

impl MetricFamilies {
    /// Creates one series per alert: an alert on a metric without series looks like an alert with a wrong name.
    fn seed(&self) {
        let placeholder = NodeLabels {
            node: PLACEHOLDER_NODE.to_owned(),
        };
        for alarm in [&self.drain_error, &self.pool_alert] {
            alarm.get_or_create(&placeholder).set(0);
        }
    }

    fn register_pools(&self, registry: &mut Registry) {
        let counts = [
            ("mco_machine_count", "Machines in the pool", &self.machines),
            (
                "mco_updated_machine_count",
                "Machines of the pool that run its target",
                &self.updated,
            ),
            (
                "mco_degraded_machine_count",
                "Machines of the pool that report a failure",
                &self.degraded,
            ),
            (
                "mco_unavailable_machine_count",
                "Machines of the pool that are unschedulable, not ready or being updated",
                &self.unavailable,
            ),
            ("mco_pool_paused", "1 while the pool is paused", &self.paused),
            (
                "os_image_url_override",
                "1 if a MachineConfig replaces the pool's default operating system image",
                &self.image_override,
            ),
        ];
        for (name, help, family) in counts {
            registry.register(name, help, family.clone());
        }
        registry.register(
            "mco_state",
            "Time of the last reconcile of the pool, with its newest condition that is true",
            self.state.clone(),
        );
        registry.register("mcc_renders", "Renders of the pool", self.renders.clone());
        registry.register(
            "mcc_render_seconds",
            "Time to render a pool",
            self.render_seconds.clone(),
        );
        registry.register(
            "mcc_sub_controller_state",
            "When a generator last acted",
            self.sub_controller.clone(),
        );
        registry.register(
            "mco_rollout_policy_halted",
            "1 while a rollout under the RolloutPolicy is halted or reverted",
            self.policy_halted.clone(),
        );
        registry.register(
            "mco_rollout_gate_checks",
            "Checks of a gate of the RolloutPolicy",
            self.gate_checks.clone(),
        );
    }

    fn register_nodes(&self, registry: &mut Registry) {
        let nodes = [
            (
                "mcc_drain_err",
                "1 while the node's drain takes longer than an hour",
                &self.drain_error,
            ),
            (
                "mcc_drain_blocking_pods",
                "Pods that keep a node from being drained",
                &self.drain_blockers,
            ),
            (
                "mcc_pool_alert",
                "1 for a control-plane node that a custom pool selects as well",
                &self.pool_alert,
            ),
        ];
        for (name, help, family) in nodes {
            registry.register(name, help, family.clone());
        }
        registry.register(
            "mcc_drain_seconds",
            "Time from the start of a drain to its end",
            self.drain_seconds.clone(),
        );
    }
}

impl Metrics {
    /// Returns the metrics in the Prometheus text format.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.0.registry)?;
        Ok(text)
    }

    /// See [`mco_core::generators::boot_images::is_unwatched`].
    pub(crate) fn boot_images_unwatched(&self, holds: bool) {
        self.0.boot_images_unwatched.set(i64::from(holds));
    }

    pub(crate) fn policy(&self, name: &str, is_halted: bool) {
        let labels = PolicyLabels {
            policy: name.to_owned(),
        };
        self.0
            .policy_halted
            .get_or_create(&labels)
            .set(i64::from(is_halted));
    }

    pub(crate) fn forget_policy(&self, name: &str) {
        let labels = PolicyLabels {
            policy: name.to_owned(),
        };
        self.0.policy_halted.remove(&labels);
    }

    pub(crate) fn gate_checked(&self, policy: &str, gate: &str) {
        let labels = GateLabels {
            policy: policy.to_owned(),
            gate: gate.to_owned(),
        };
        self.0.gate_checks.get_or_create(&labels).inc();
    }

    pub(crate) fn pool(&self, name: &str, status: &MachineConfigPoolStatus, paused: bool, now: Timestamp) {
        let pool = PoolLabels {
            pool: name.to_owned(),
        };
        let set = |family: &Family<PoolLabels, Gauge>, count: i32| {
            family.get_or_create(&pool).set(i64::from(count));
        };
        set(&self.0.machines, status.machine_count);
        set(&self.0.updated, status.updated_machine_count);
        set(&self.0.degraded, status.degraded_machine_count);
        set(&self.0.unavailable, status.unavailable_machine_count);
        set(&self.0.paused, i32::from(paused));
        self.state(name, &status.conditions, now);
    }

    fn state(&self, name: &str, conditions: &[MachineConfigPoolCondition], now: Timestamp) {
        let newest = conditions
            .iter()
            .filter(|condition| condition.status == status::TRUE)
            .max_by_key(|condition| condition.last_transition_time.as_ref().map(|time| time.0));
        let series = PoolStateLabels {
            node: String::new(),
            pool: name.to_owned(),
            state: newest
                .map(|condition| condition.type_.clone())
                .unwrap_or_default(),
            reason: newest
                .map(|condition| condition.reason.clone())
                .unwrap_or_default(),
        };
        let before = self.0.states.lock().insert(name.to_owned(), series.clone());
        if let Some(before) = before.filter(|before| *before != series) {
            self.0.state.remove(&before);
        }
        self.0.state.get_or_create(&series).set(seconds(now));
    }

    pub(crate) fn remove_pool(&self, name: &str) {
        let pool = PoolLabels {
            pool: name.to_owned(),
        };
        for family in [
            &self.0.machines,
            &self.0.updated,
            &self.0.degraded,
            &self.0.unavailable,
            &self.0.paused,
            &self.0.image_override,
        ] {
            family.remove(&pool);
        }
        self.0.renders.remove(&pool);
        if let Some(series) = self.0.states.lock().remove(name) {
            self.0.state.remove(&series);
        }
    }

    pub(crate) fn drain(&self, node: &str, alarming: bool, blocking_pods: usize) {
        let node = NodeLabels {
            node: node.to_owned(),
        };
        self.0.drain_error.get_or_create(&node).set(i64::from(alarming));
        self.0
            .drain_blockers
            .get_or_create(&node)
            .set(i64::try_from(blocking_pods).unwrap_or(i64::MAX));
    }

    pub(crate) fn drained(&self, node: &str, took: std::time::Duration) {
        self.remove_drain(node);
        self.0.drain_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn remove_drain(&self, node: &str) {
        let node = NodeLabels {
            node: node.to_owned(),
        };
        self.0.drain_error.remove(&node);
        self.0.drain_blockers.remove(&node);
    }

    pub(crate) fn pool_alert(&self, node: &str, alert: bool) {
        let node = NodeLabels {
            node: node.to_owned(),
        };
        if alert {
            self.0.pool_alert.get_or_create(&node).set(1);
        } else {
            self.0.pool_alert.remove(&node);
        }
    }

    pub(crate) fn acted(
        &self,
        subcontroller: &'static str,
        state: &'static str,
        object: &str,
        now: Timestamp,
    ) {
        let series = SubControllerLabels {
            subcontroller,
            state,
            object: object.to_owned(),
        };
        self.0.sub_controller.get_or_create(&series).set(seconds(now));
    }

    pub(crate) fn rendered(&self, pool: &str, image_overridden: bool, took: std::time::Duration) {
        let pool = PoolLabels {
            pool: pool.to_owned(),
        };
        self.0.renders.get_or_create(&pool).inc();
        self.0.render_seconds.observe(took.as_secs_f64());
        self.0
            .image_override
            .get_or_create(&pool)
            .set(i64::from(image_overridden));
    }
}

fn seconds(time: Timestamp) -> f64 {
    time.as_duration().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use mco_api::vocabulary::conditions::pool as condition;

    use super::*;

    #[test]
    fn a_pool_has_one_state_and_a_deleted_pool_has_none() {
        let metrics = Metrics::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut pool = MachineConfigPoolStatus {
            machine_count: 3,
            ..MachineConfigPoolStatus::default()
        };
        pool.conditions = vec![condition::is_true(condition::UPDATING, "", "", Time(at(5)))];
        metrics.pool("worker", &pool, false, at(6));
        pool.conditions = vec![condition::is_true(condition::UPDATED, "", "", Time(at(7)))];
        metrics.pool("worker", &pool, true, at(8));
        let text = metrics.encode().unwrap();
        assert!(text.contains("mco_machine_count{pool=\"worker\"} 3\n"), "{text}");
        assert!(text.contains("mco_pool_paused{pool=\"worker\"} 1\n"), "{text}");
        assert!(
            text.contains("mco_state{node=\"\",pool=\"worker\",state=\"Updated\",reason=\"\"} 8.0\n"),
            "{text}"
        );
        assert!(!text.contains("Updating"), "{text}");
        metrics.remove_pool("worker");
        assert!(!metrics.encode().unwrap().contains("worker"));
    }

    #[test]
    fn the_documentation_lists_every_metric() {
        let metrics = Metrics::default();
        let moment = std::time::Duration::from_secs(1);
        metrics.pool(
            "worker",
            &MachineConfigPoolStatus::default(),
            false,
            Timestamp::UNIX_EPOCH,
        );
        metrics.rendered("worker", false, moment);
        metrics.acted("template", "ok", "", Timestamp::UNIX_EPOCH);
        metrics.drain("n1", true, 2);
        metrics.policy("canary", true);
        metrics.gate_checked("canary", "alerts");
        let served = mco_testkit::metrics::exposed_names(&metrics.encode().unwrap());
        assert_eq!(served, mco_testkit::metrics::documented("controller"));
    }

    #[test]
    fn alerts_disappear_with_their_cause() {
        let metrics = Metrics::default();
        metrics.drain("n1", true, 2);
        metrics.pool_alert("n1", true);
        let text = metrics.encode().unwrap();
        for line in [
            "mcc_drain_err{node=\"n1\"} 1\n",
            "mcc_drain_blocking_pods{node=\"n1\"} 2\n",
            "mcc_pool_alert{node=\"n1\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        metrics.drained("n1", std::time::Duration::from_secs(3));
        metrics.pool_alert("n1", false);
        assert!(!metrics.encode().unwrap().contains("n1"));
    }
}
