//! Prometheus metrics, under the names that existing dashboards and alerts use.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use k8s_openapi::jiff::Timestamp;
use mco_core::generators::os_builds::BuildState;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

const STATES: [&str; 6] = [
    "pending",
    "prepared",
    "building",
    "succeeded",
    "failed",
    "interrupted",
];
const PUSH_STATES: [&str; 3] = ["pushing", "succeeded", "failed"];
const JOB_STATES: [&str; 3] = ["active", "succeeded", "failed"];

type SecondsGauge = Gauge<f64, AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabels {
    pool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    pool: String,
    state: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The metrics of one builder process. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<MetricFamilies>);

#[derive(Debug)]
struct MetricFamilies {
    registry: Registry,
    state: Family<StateLabels, Gauge>,
    duration: Histograms<StateLabels>,
    start: Family<PoolLabels, SecondsGauge>,
    end: Family<StateLabels, SecondsGauge>,
    total: Family<StateLabels, Counter>,
    job_state: Family<StateLabels, Gauge>,
    config_changes: Family<PoolLabels, Counter>,
    retries: Family<PoolLabels, Counter>,
    push_state: Family<StateLabels, Gauge>,
    push_total: Family<StateLabels, Counter>,
    push_duration: Histograms<StateLabels>,
    updated_nodes: Family<PoolLabels, Gauge>,
    total_nodes: Family<PoolLabels, Gauge>,
    layered_nodes: Family<PoolLabels, Gauge>,
    queue_duration: Histograms<PoolLabels>,
    active: Family<PoolLabels, Gauge>,
    configs: Gauge,
}

fn build_buckets() -> Histogram {
    Histogram::new([
        60.0, 180.0, 300.0, 600.0, 900.0, 1200.0, 1800.0, 2400.0, 3000.0, 3600.0,
    ])
}

fn push_buckets() -> Histogram {
    Histogram::new([10.0, 30.0, 60.0, 120.0, 180.0, 300.0, 600.0])
}

fn queue_buckets() -> Histogram {
    Histogram::new([5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0])
}

impl Default for Metrics {
    fn default() -> Self {
        let families = MetricFamilies {
            registry: Registry::default(),
            state: Family::default(),
            duration: Family::new_with_constructor(build_buckets),
            start: Family::default(),
            end: Family::default(),
            total: Family::default(),
            job_state: Family::default(),
            config_changes: Family::default(),
            retries: Family::default(),
            push_state: Family::default(),
            push_total: Family::default(),
            push_duration: Family::new_with_constructor(push_buckets),
            updated_nodes: Family::default(),
            total_nodes: Family::default(),
            layered_nodes: Family::default(),
            queue_duration: Family::new_with_constructor(queue_buckets),
            active: Family::default(),
            configs: Gauge::default(),
        };
        let registry = families.registered();
        Self(Arc::new(MetricFamilies { registry, ..families }))
    }
}

impl MetricFamilies {
    fn registered(&self) -> Registry {
        let mut all = Registry::default();
        all.register(
            "ocl_build_state",
            "1 for the state of the latest build",
            self.state.clone(),
        );
        all.register(
            "ocl_build_duration_seconds",
            "Time from the creation of a build to its end",
            self.duration.clone(),
        );
        all.register(
            "ocl_build_start_timestamp_seconds",
            "Start of the latest build",
            self.start.clone(),
        );
        all.register(
            "ocl_build_end_timestamp_seconds",
            "End of the latest build",
            self.end.clone(),
        );
        // The encoder adds _total to counters.
        all.register("ocl_build", "Finished builds", self.total.clone());
        all.register(
            "ocl_build_job_state",
            "1 for the state of the latest Job",
            self.job_state.clone(),
        );
        all.register(
            "ocl_config_change",
            "Changes of a pool's target",
            self.config_changes.clone(),
        );
        all.register(
            "ocl_build_retries",
            "Failed attempts that were retried",
            self.retries.clone(),
        );
        all.register(
            "ocl_image_push_state",
            "1 for the state of the latest push",
            self.push_state.clone(),
        );
        all.register("ocl_image_push", "Finished pushes", self.push_total.clone());
        all.register(
            "ocl_image_push_duration_seconds",
            "Time from the creation of a Job to its first finished pod",
            self.push_duration.clone(),
        );
        all.register(
            "ocl_rollout_updated_nodes",
            "Updated nodes",
            self.updated_nodes.clone(),
        );
        all.register(
            "ocl_rollout_total_nodes",
            "Nodes of the pool",
            self.total_nodes.clone(),
        );
        all.register(
            "ocl_layered_nodes_count",
            "Nodes that run a built image",
            self.layered_nodes.clone(),
        );
        all.register(
            "ocl_build_queue_duration_seconds",
            "Time from the creation of a build to its Job",
            self.queue_duration.clone(),
        );
        all.register("ocl_active_builds", "Builds that run", self.active.clone());
        all.register("mco_mosc_count", "MachineOSConfigs", self.configs.clone());
        all
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

impl Metrics {
    /// Returns the metrics in the text format of Prometheus.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut output = String::new();
        text::encode(&mut output, &self.0.registry)?;
        Ok(output)
    }

    pub(crate) fn set_configs(&self, number: usize) {
        self.0.configs.set(i64::try_from(number).unwrap_or(i64::MAX));
    }

    pub(crate) fn count_config_change(&self, pool: &str) {
        self.0
            .config_changes
            .get_or_create(&PoolLabels {
                pool: pool.to_owned(),
            })
            .inc();
    }

    pub(crate) fn set_rollout(&self, pool: &str, updated: i32, total: i32, layered: usize) {
        let labels = PoolLabels {
            pool: pool.to_owned(),
        };
        self.0.updated_nodes.get_or_create(&labels).set(updated.into());
        self.0.total_nodes.get_or_create(&labels).set(total.into());
        let layered = i64::try_from(layered).unwrap_or(i64::MAX);
        self.0.layered_nodes.get_or_create(&labels).set(layered);
    }

    /// Sets the state of a pool's build, and how many of its builds run.
    pub(crate) fn set_state(&self, pool: &str, state: BuildState) {
        set_one(&self.0.state, pool, &STATES, state.as_str());
        let labels = PoolLabels {
            pool: pool.to_owned(),
        };
        self.0
            .active
            .get_or_create(&labels)
            .set(i64::from(state.is_running()));
    }

    pub(crate) fn started(&self, pool: &str, created: Option<Timestamp>, now: Timestamp) {
        let labels = PoolLabels {
            pool: pool.to_owned(),
        };
        set_one(&self.0.job_state, pool, &JOB_STATES, "active");
        set_one(&self.0.push_state, pool, &PUSH_STATES, "pushing");
        #[expect(clippy::cast_precision_loss, reason = "seconds fit")]
        self.0.start.get_or_create(&labels).set(now.as_second() as f64);
        if let Some(created) = created {
            self.0
                .queue_duration
                .get_or_create(&labels)
                .observe(seconds(created, now));
        }
    }

    /// Records the end of a build, once.
    pub(crate) fn ended(
        &self,
        pool: &str,
        state: BuildState,
        (build_created, job_created): (Option<Timestamp>, Option<Timestamp>),
        now: Timestamp,
    ) {
        let labels = StateLabels {
            pool: pool.to_owned(),
            state: state.as_str(),
        };
        self.0.total.get_or_create(&labels).inc();
        #[expect(clippy::cast_precision_loss, reason = "seconds fit")]
        self.0.end.get_or_create(&labels).set(now.as_second() as f64);
        if let Some(created) = build_created {
            self.0
                .duration
                .get_or_create(&labels)
                .observe(seconds(created, now));
        }
        // A build that never had a Job has pushed nothing.
        let Some(job_created) = job_created else {
            return;
        };
        if matches!(state, BuildState::Succeeded | BuildState::Failed) {
            set_one(&self.0.job_state, pool, &JOB_STATES, state.as_str());
            set_one(&self.0.push_state, pool, &PUSH_STATES, state.as_str());
            self.0.push_total.get_or_create(&labels).inc();
            self.0
                .push_duration
                .get_or_create(&labels)
                .observe(seconds(job_created, now));
        }
    }

    pub(crate) fn count_retries(&self, pool: &str, number: i32) {
        let labels = PoolLabels {
            pool: pool.to_owned(),
        };
        let number = u64::try_from(number).unwrap_or_default();
        self.0.retries.get_or_create(&labels).inc_by(number);
    }

    /// Removes the series of a pool that has no MachineOSConfig any more.
    pub(crate) fn forget(&self, pool: &str) {
        for state in STATES {
            let labels = StateLabels {
                pool: pool.to_owned(),
                state,
            };
            self.0.state.remove(&labels);
        }
        self.0.active.remove(&PoolLabels {
            pool: pool.to_owned(),
        });
    }
}

/// Sets one series of a pool, and removes those of its other states.
fn set_one(family: &Family<StateLabels, Gauge>, pool: &str, states: &[&'static str], current: &'static str) {
    for state in states {
        let labels = StateLabels {
            pool: pool.to_owned(),
            state,
        };
        if *state == current {
            family.get_or_create(&labels).set(1);
        } else {
            family.remove(&labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_metrics_are_served() {
        let metrics = Metrics::default();
        let moment = Timestamp::UNIX_EPOCH;
        metrics.count_config_change("infra");
        metrics.set_rollout("infra", 1, 2, 1);
        metrics.set_state("infra", BuildState::Building);
        metrics.started("infra", Some(moment), moment);
        metrics.count_retries("infra", 1);
        metrics.ended(
            "infra",
            BuildState::Succeeded,
            (Some(moment), Some(moment)),
            moment,
        );
        let served = mco_testkit::metrics::exposed_names(&metrics.encode().unwrap());
        assert_eq!(served, mco_testkit::metrics::documented("builder"));
    }

    #[test]
    fn a_pool_has_one_state() {
        let metrics = Metrics::default();
        metrics.set_state("infra", BuildState::Building);
        assert!(
            metrics
                .encode()
                .unwrap()
                .contains("ocl_active_builds{pool=\"infra\"} 1")
        );
        metrics.set_state("infra", BuildState::Failed);
        let text = metrics.encode().unwrap();
        let states: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("ocl_build_state{"))
            .collect();
        assert_eq!(states, ["ocl_build_state{pool=\"infra\",state=\"failed\"} 1"]);
        assert!(text.contains("ocl_active_builds{pool=\"infra\"} 0"));
        metrics.ended("infra", BuildState::Failed, (None, None), Timestamp::UNIX_EPOCH);
        let text = metrics.encode().unwrap();
        assert!(
            text.contains("ocl_build_total{pool=\"infra\",state=\"failed\"} 1"),
            "{text}"
        );
        assert!(
            !text.contains("ocl_image_push_total{"),
            "nothing was pushed: {text}"
        );
    }
}
