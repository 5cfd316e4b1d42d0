//! Deletion of CustomResourceDefinitions: their objects first, then the definition.

use std::sync::Arc;

use tokio::sync::watch;

use super::{ReconcileResult, target, wait_for_change};
use crate::catalog::storage_name;
use crate::crd::{CLEANUP_FINALIZER, RESOURCE};
use crate::error::ApiError;
use crate::meta;
use crate::registry::{DeleteOptions, ObjectRegistry, WriteContext};
use crate::store::StoredObject;

pub(super) async fn run(registry: Arc<ObjectRegistry>, mut stopped: watch::Receiver<bool>) {
    let context = WriteContext::internal("crd-finalizer");
    let mut changes = [registry.store.subscribe(&Arc::from(RESOURCE))];
    let mut result = ReconcileResult::Retry;
    while wait_for_change(&mut changes, result, &mut stopped).await {
        result = ReconcileResult::Done;
        for crd in registry.store.list(RESOURCE, "").objects {
            let held = crd
                .metadata
                .finalizers
                .iter()
                .any(|finalizer| finalizer == CLEANUP_FINALIZER);
            if crd.metadata.deletion_timestamp.is_none() || !held {
                continue;
            }
            match remove_objects(&registry, &context, &crd).await {
                Ok(ReconcileResult::Done) => {}
                Ok(ReconcileResult::Retry) => result = ReconcileResult::Retry,
                Err(error) => {
                    tracing::debug!(%error, crd = crd.key.name(), "will retry deletion of custom resources");
                    result = ReconcileResult::Retry;
                }
            }
        }
    }
}

async fn remove_objects(
    registry: &ObjectRegistry,
    context: &WriteContext,
    crd: &StoredObject,
) -> Result<ReconcileResult, ApiError> {
    let object = crd.value()?;
    let text = |pointer: &str| {
        let value = serde_json::Value::Object(object.clone());
        value
            .pointer(pointer)
            .and_then(serde_json::Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let resource = storage_name(&text("/spec/group"), &text("/spec/names/plural"));
    let mut left = 0_usize;
    for stored in registry.store.list(&resource, "").objects {
        if stored.metadata.deletion_timestamp.is_none()
            && let Some(target) = target(registry, &stored.key, "")
        {
            match registry.delete(&target, context, &DeleteOptions::default()).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        left += usize::from(registry.store.get(&stored.key).is_some());
    }
    if left > 0 {
        return Ok(ReconcileResult::Retry);
    }
    let Some(target) = target(registry, &crd.key, "") else {
        return Ok(ReconcileResult::Done);
    };
    let outcome = registry
        .edit(&target, context, &|crd| {
            let mut finalizers = meta::finalizers(crd);
            finalizers.retain(|finalizer| finalizer != CLEANUP_FINALIZER);
            meta::set_finalizers(crd, &finalizers);
        })
        .await;
    match outcome {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(ReconcileResult::Done),
    }
}
