//! The disruption controller: keeps the status of PodDisruptionBudgets up to date.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::{ReconcileResult, target, wait_for_change};
use crate::clock::rfc3339;
use crate::crd::set_condition;
use crate::error::ApiError;
use crate::meta::{self, JsonObject};
use crate::registry::{ObjectRegistry, WriteContext, pod_is_ready};
use crate::selector::LabelSelector;
use crate::store::StoredObject;

const BUDGETS: &str = "poddisruptionbudgets.policy";
/// Debounce: changes within this time are handled together.
const DEBOUNCE: Duration = Duration::from_millis(20);
/// A pod whose eviction was granted but that still exists after this time counts as not evicted.
const DELETION_GRACE: i64 = 120;

pub(super) async fn run(registry: Arc<ObjectRegistry>, mut stopped: watch::Receiver<bool>) {
    let context = WriteContext::controller("disruption-controller");
    let store = &registry.store;
    let mut changes = [
        store.subscribe(&Arc::from(BUDGETS)),
        store.subscribe(&Arc::from("pods")),
    ];
    let mut result = ReconcileResult::Retry;
    while wait_for_change(&mut changes, result, &mut stopped).await {
        tokio::time::sleep(DEBOUNCE).await;
        for channel in &mut changes {
            channel.mark_unchanged();
        }
        result = ReconcileResult::Done;
        for budget in store.list(BUDGETS, "").objects {
            if let Err(error) = refresh(&registry, &context, &budget).await {
                tracing::debug!(%error, path = budget.key.registry_path(), "will retry disruption budget");
                result = ReconcileResult::Retry;
            }
        }
    }
}

async fn refresh(
    registry: &ObjectRegistry,
    context: &WriteContext,
    budget: &StoredObject,
) -> Result<(), ApiError> {
    let Some(target) = target(registry, &budget.key, "status") else {
        return Ok(());
    };
    let pods = registry.store.list("pods", budget.key.namespace()).objects;
    let now = registry.clock().now();
    let outcome = registry
        .edit(&target, context, &|object| count(object, &pods, now))
        .await;
    match outcome {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Writes the status that follows from the current pods.
fn count(budget: &mut JsonObject, pods: &[Arc<StoredObject>], now: Timestamp) {
    let spec = budget.get("spec").cloned().unwrap_or_default();
    let selector = LabelSelector::from_object(spec.get("selector")).unwrap_or(LabelSelector::Nothing);
    let mut status = budget.get("status").cloned().unwrap_or_else(|| json!({}));
    let disrupted = still_disrupted(&status, pods, now);
    let (mut expected, mut healthy) = (0_i64, 0_i64);
    for pod in pods
        .iter()
        .filter(|pod| selector.matches(Some(&pod.metadata.labels)))
    {
        let Ok(object) = pod.value() else {
            continue;
        };
        let phase = object
            .get("status")
            .and_then(|status| status["phase"].as_str())
            .unwrap_or_default();
        if matches!(phase, "Succeeded" | "Failed") {
            continue;
        }
        expected += 1;
        let leaving = meta::is_deleting(&object) || disrupted.contains_key(pod.key.name());
        healthy += i64::from(!leaving && pod_is_ready(&object));
    }
    let desired = desired(&spec, expected);
    let allowed = if expected > 0 {
        (healthy - desired).max(0)
    } else {
        0
    };
    status["currentHealthy"] = Value::from(healthy);
    status["desiredHealthy"] = Value::from(desired);
    status["expectedPods"] = Value::from(expected);
    status["disruptionsAllowed"] = Value::from(allowed);
    status["observedGeneration"] = Value::from(meta::generation(budget));
    if let Some(status) = status.as_object_mut() {
        status.remove("disruptedPods");
    }
    if !disrupted.is_empty() {
        status["disruptedPods"] = Value::Object(disrupted);
    }
    let (state, reason) = if allowed > 0 {
        ("True", "SufficientPods")
    } else {
        ("False", "InsufficientPods")
    };
    set_condition(&mut status, "DisruptionAllowed", state, reason, "", &rfc3339(now));
    if let Some(conditions) = status["conditions"].as_array_mut() {
        for condition in conditions {
            condition["observedGeneration"] = Value::from(meta::generation(budget));
        }
    }
    budget.insert("status".to_owned(), status);
}

/// Returns the granted evictions that have not completed yet.
fn still_disrupted(status: &Value, pods: &[Arc<StoredObject>], now: Timestamp) -> Map<String, Value> {
    let granted = status["disruptedPods"].as_object().cloned().unwrap_or_default();
    let recent = |since: &Value| {
        let since: Option<Timestamp> = since.as_str().and_then(|text| text.parse().ok());
        since.is_some_and(|since| now.as_second() - since.as_second() < DELETION_GRACE)
    };
    let here = |name: &str| {
        let pod = pods.iter().find(|pod| pod.key.name() == name);
        pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none())
    };
    granted
        .into_iter()
        .filter(|(name, since)| here(name) && recent(since))
        .collect()
}

/// Returns how many pods must stay healthy.
fn desired(spec: &Value, expected: i64) -> i64 {
    if let Some(unavailable) = spec.get("maxUnavailable").filter(|value| !value.is_null()) {
        return (expected - scaled(unavailable, expected)).max(0);
    }
    spec.get("minAvailable")
        .map_or(0, |available| scaled(available, expected))
}

/// Resolves a number, or a percentage of the pods, rounded up.
fn scaled(value: &Value, total: i64) -> i64 {
    match value {
        Value::Number(number) => number.as_i64().unwrap_or(0),
        Value::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            (percent * total + 99) / 100
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_round_in_favour_of_the_pods() {
        let cases = [
            (json!({"minAvailable": 2}), 3, 2),
            (json!({"minAvailable": "50%"}), 3, 2),
            (json!({"maxUnavailable": 1}), 3, 2),
            (json!({"maxUnavailable": "34%"}), 3, 1),
            (json!({"maxUnavailable": 5}), 3, 0),
        ];
        for (spec, expected, wanted) in cases {
            assert_eq!(desired(&spec, expected), wanted, "{spec}");
        }
    }
}
