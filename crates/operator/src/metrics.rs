//! The operator's metrics: duration and outcome of syncs and steps, and the reported conditions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mco_api::foreign::cluster_operator::ClusterOperatorStatus;
use mco_api::vocabulary::conditions::status as truth;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::progress::{SyncOutcome, SyncProgress};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepOutcome {
    step: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Condition {
    condition: String,
}

/// The metrics of one operator process. Clones share them.
#[derive(Debug, Clone)]
pub struct OperatorMetrics(Arc<OperatorMetricsInner>);

#[derive(Debug)]
struct OperatorMetricsInner {
    registry: Registry,
    rounds: Histogram,
    steps: Family<StepOutcome, Gauge>,
    conditions: Family<Condition, Gauge>,
}

impl Default for OperatorMetrics {
    fn default() -> Self {
        let rounds = Histogram::new([0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0]);
        let (steps, conditions) = (Family::default(), Family::default());
        let mut registry = Registry::default();
        registry.register(
            "mco_operator_round_seconds",
            "Duration of a full sync",
            rounds.clone(),
        );
        registry.register(
            "mco_operator_step",
            "1 for the outcome of each step of the last sync",
            Family::clone(&steps),
        );
        registry.register(
            "mco_operator_condition",
            "1 while the condition of the ClusterOperator holds",
            Family::clone(&conditions),
        );
        Self(Arc::new(OperatorMetricsInner {
            registry,
            rounds,
            steps,
            conditions,
        }))
    }
}

impl OperatorMetrics {
    pub(crate) fn round(&self, took: Duration, progress: &SyncProgress) {
        self.0.rounds.observe(took.as_secs_f64());
        // Removes the earlier outcome of each step.
        self.0.steps.clear();
        for (step, outcome) in progress.all() {
            let series = StepOutcome {
                step: step.name(),
                outcome: name(outcome),
            };
            self.0.steps.get_or_create(&series).set(1);
        }
    }

    pub(crate) fn reported(&self, status: &ClusterOperatorStatus) {
        for one in &status.conditions {
            let series = Condition {
                condition: one.type_.clone(),
            };
            let holds = i64::from(one.status == truth::TRUE);
            self.0.conditions.get_or_create(&series).set(holds);
        }
    }

    /// Returns all metrics in the Prometheus text format.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.0.registry)?;
        Ok(text)
    }
}

fn name(outcome: &SyncOutcome) -> &'static str {
    match outcome {
        SyncOutcome::Done => "done",
        SyncOutcome::Waiting(_) => "waiting",
        SyncOutcome::NotRunning(_) => "not-running",
        SyncOutcome::Skipped(_) => "skipped",
        SyncOutcome::Failed(_) => "failed",
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::cluster_operator;
    use crate::progress::SyncStep;

    #[test]
    fn the_documentation_lists_every_metric() {
        let metrics = OperatorMetrics::default();
        let mut progress = SyncProgress::default();
        progress.set(SyncStep::Namespace, SyncOutcome::Done);
        metrics.round(Duration::from_secs(1), &progress);
        metrics.reported(&cluster_operator::initial(&Time(Timestamp::UNIX_EPOCH)));
        let observed = mco_testkit::metrics::exposed_names(&metrics.encode().unwrap());
        assert_eq!(observed, mco_testkit::metrics::documented("operator"));
    }
}
