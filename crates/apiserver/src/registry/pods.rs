//! Subresources of pods: eviction within disruption budgets, and binding.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::update::IfMissing;
use super::{DeleteOptions, DeleteResult, ObjectRegistry, ObjectTarget, WriteContext};
use crate::admission::AdmissionOperation;
use crate::clock::rfc3339;
use crate::error::ApiError;
use crate::meta::JsonObject;
use crate::selector::LabelSelector;
use crate::store::StoredObject;

/// The retry interval for clients while a budget's status is not current.
const BUDGET_NOT_CURRENT: u32 = 10;

impl ObjectRegistry {
    /// Deletes a pod if its disruption budget allows it now.
    pub async fn evict(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        eviction: JsonObject,
        options: &DeleteOptions,
    ) -> Result<DeleteResult, ApiError> {
        let reviewed = self.mutate_body(target, context, eviction.clone()).await?;
        if reviewed != eviction {
            return Err(ApiError::internal(
                "an admission webhook may not change an eviction",
            ));
        }
        let operation = AdmissionOperation::Create;
        self.review(operation, target, context, Some(&eviction), None)
            .await?;
        let context = &context.reviewed();
        let pod_target = ObjectTarget {
            subresource: String::new(),
            ..target.clone()
        };
        let pod = self.get(&pod_target)?;
        let object = pod.value()?;
        if !ignores_budgets(&object) {
            self.spend_budget(&pod_target, context, &pod, &object).await?;
        }
        self.delete(&pod_target, context, options).await
    }

    async fn spend_budget(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        pod: &StoredObject,
        object: &JsonObject,
    ) -> Result<(), ApiError> {
        let budgets = self.budgets_of(target, pod)?;
        let budget = match budgets.as_slice() {
            [] => return Ok(()),
            [budget] => budget,
            _ => {
                return Err(ApiError::unclassified(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let read = budget.value()?;
        if !is_ready(object) && allows_unready_pod_eviction(&read) {
            return Ok(());
        }
        let catalog = self.catalog();
        let definition = catalog
            .resource("policy", "v1", "poddisruptionbudgets")
            .ok_or_else(|| ApiError::internal("disruption budgets are not served"))?;
        let budget_target = ObjectTarget {
            definition: Arc::clone(definition),
            namespace: target.namespace.clone(),
            name: budget.key.name().to_owned(),
            subresource: "status".to_owned(),
        };
        let now = rfc3339(self.clock.now());
        let pod_name = target.name.clone();
        let spend = move |budget: Option<&JsonObject>| match budget {
            Some(budget) => spent(budget, &pod_name, &now),
            // A budget that was deleted meanwhile forbids nothing; the empty object is never stored.
            None => Ok(Map::new()),
        };
        match self
            .write_with_retry(&budget_target, context, IfMissing::NotFound, &spend)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn budgets_of(
        &self,
        target: &ObjectTarget,
        pod: &StoredObject,
    ) -> Result<Vec<Arc<StoredObject>>, ApiError> {
        let mut matching = Vec::new();
        for budget in self
            .store
            .list("poddisruptionbudgets.policy", &target.namespace)
            .objects
        {
            let object = budget.value()?;
            let selector = object.get("spec").and_then(|spec| spec.get("selector"));
            let selector = LabelSelector::from_object(selector).map_err(ApiError::internal)?;
            if selector.matches(Some(&pod.metadata.labels)) {
                matching.push(budget);
            }
        }
        Ok(matching)
    }

    /// Binds a pod to a node, once.
    pub async fn bind(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        binding: JsonObject,
    ) -> Result<(), ApiError> {
        let binding = self.mutate_body(target, context, binding).await?;
        let node = binding
            .get("target")
            .and_then(|target| target.get("name"))
            .and_then(Value::as_str);
        let Some(node) = node.filter(|node| !node.is_empty()) else {
            let error = crate::field_error::FieldError::required("target.name", "");
            return Err(ApiError::invalid("", "Binding", &target.name, &[error]));
        };
        let operation = AdmissionOperation::Create;
        self.review(operation, target, context, Some(&binding), None)
            .await?;
        let context = &context.reviewed();
        // Binding writes both spec and status, which neither of their own endpoints may.
        let pod_target = target.clone();
        let now = rfc3339(self.clock.now());
        self.write_with_retry(&pod_target, context, IfMissing::NotFound, &|pod| {
            let mut pod = pod.cloned().ok_or_else(|| pod_target.not_found())?;
            let spec = pod.entry("spec").or_insert_with(|| json!({}));
            if let Some(assigned) = spec["nodeName"].as_str().filter(|assigned| !assigned.is_empty()) {
                let why = format!("pod {} is already assigned to node {assigned:?}", target.name);
                let mut subject = target.definition.subject(&target.name);
                subject.resource = "pods/binding";
                return Err(ApiError::conflict(subject, &why));
            }
            spec["nodeName"] = Value::from(node);
            let status = pod.entry("status").or_insert_with(|| json!({}));
            let scheduled = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
            match status["conditions"].as_array_mut() {
                Some(conditions) => conditions.push(scheduled),
                None => status["conditions"] = json!([scheduled]),
            }
            Ok(pod)
        })
        .await?;
        Ok(())
    }
}

/// Returns whether an eviction of the pod bypasses budgets, because it does not run.
fn ignores_budgets(pod: &JsonObject) -> bool {
    let phase = pod
        .get("status")
        .and_then(|status| status.get("phase"))
        .and_then(Value::as_str);
    matches!(phase, Some("Succeeded" | "Failed" | "Pending")) || crate::meta::is_deleting(pod)
}

pub(crate) fn is_ready(pod: &JsonObject) -> bool {
    let conditions = pod
        .get("status")
        .and_then(|status| status.get("conditions"))
        .and_then(Value::as_array);
    let mut ready = conditions
        .into_iter()
        .flatten()
        .filter(|condition| condition["type"] == "Ready");
    ready.any(|condition| condition["status"] == "True")
}

fn number(budget: &JsonObject, field: &str) -> i64 {
    let value = budget.get("status").and_then(|status| status.get(field));
    value.and_then(Value::as_i64).unwrap_or(0)
}

fn allows_unready_pod_eviction(budget: &JsonObject) -> bool {
    let policy = budget
        .get("spec")
        .and_then(|spec| spec.get("unhealthyPodEvictionPolicy"))
        .and_then(Value::as_str);
    if policy == Some("AlwaysAllow") {
        return true;
    }
    let (healthy, desired) = (number(budget, "currentHealthy"), number(budget, "desiredHealthy"));
    healthy >= desired && desired > 0
}

/// Returns the budget with one disruption fewer, or the error.
fn spent(budget: &JsonObject, pod: &str, now: &str) -> Result<JsonObject, ApiError> {
    let name = crate::meta::name(budget);
    if number(budget, "observedGeneration") < crate::meta::generation(budget) {
        let cause = format!("The disruption budget {name} is still being processed by the server.");
        return Err(ApiError::disruption_budget(&cause, BUDGET_NOT_CURRENT));
    }
    let allowed = number(budget, "disruptionsAllowed");
    if allowed <= 0 {
        let cause = format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            number(budget, "desiredHealthy"),
            number(budget, "currentHealthy")
        );
        return Err(ApiError::disruption_budget(&cause, 0));
    }
    let mut budget = budget.clone();
    let status = budget.entry("status").or_insert_with(|| json!({}));
    status["disruptionsAllowed"] = Value::from(allowed - 1);
    status["disruptedPods"][pod] = Value::from(now);
    Ok(budget)
}
