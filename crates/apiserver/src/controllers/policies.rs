//! The status of ValidatingAdmissionPolicies: the generation that is enforced.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::{ReconcileResult, target, wait_for_change};
use crate::admission::POLICIES;
use crate::error::ApiError;
use crate::meta;
use crate::registry::{ObjectRegistry, WriteContext};
use crate::store::StoredObject;

pub(super) async fn run(registry: Arc<ObjectRegistry>, mut stopped: watch::Receiver<bool>) {
    let context = WriteContext::controller("validatingadmissionpolicy-status-controller");
    let mut changes = [registry.store.subscribe(&Arc::from(POLICIES))];
    let mut result = ReconcileResult::Retry;
    while wait_for_change(&mut changes, result, &mut stopped).await {
        result = ReconcileResult::Done;
        for policy in registry.store.list(POLICIES, "").objects {
            if let Err(error) = observe(&registry, &context, &policy).await {
                tracing::debug!(%error, policy = policy.key.name(), "will retry the status of a policy");
                result = ReconcileResult::Retry;
            }
        }
    }
}

/// A policy is enforced before the client gets the response to its write, so every stored generation is an observed one.
/// Expressions are compiled on write; there is no further type checking to report.
async fn observe(
    registry: &ObjectRegistry,
    context: &WriteContext,
    policy: &StoredObject,
) -> Result<(), ApiError> {
    let object = policy.value()?;
    let observed = object
        .get("status")
        .and_then(|status| status["observedGeneration"].as_i64());
    if observed == Some(meta::generation(&object)) {
        return Ok(());
    }
    let Some(target) = target(registry, &policy.key, "status") else {
        return Ok(());
    };
    let outcome = registry
        .edit(&target, context, &|policy| {
            let generation = meta::generation(policy);
            let status = policy.entry("status").or_insert_with(|| json!({}));
            status["observedGeneration"] = Value::from(generation);
            status["typeChecking"] = json!({});
        })
        .await;
    match outcome {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
