//! Deletion of namespaces: their content first, then the namespace.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::watch;

use super::{ReconcileResult, target, wait_for_change};
use crate::clock::rfc3339;
use crate::crd::set_condition;
use crate::error::ApiError;
use crate::registry::{DeleteOptions, ObjectRegistry, PropagationPolicy, WriteContext};
use crate::store::StoredObject;

/// Clients that delete a namespace may complete its deletion themselves. Kubernetes' own controller waits 5 s for them.
const GRACE: Duration = Duration::from_secs(1);
/// As long as Kubernetes' own controller waits, for a namespace without finalizers.
const UNHELD_GRACE: Duration = Duration::from_secs(5);

pub(super) async fn run(registry: Arc<ObjectRegistry>, mut stopped: watch::Receiver<bool>) {
    let context = WriteContext::controller("namespace-controller");
    let mut changes = [registry.store.subscribe(&Arc::from("namespaces"))];
    let mut result = ReconcileResult::Retry;
    let mut seen: BTreeMap<String, Instant> = BTreeMap::new();
    while wait_for_change(&mut changes, result, &mut stopped).await {
        result = ReconcileResult::Done;
        let mut deleted = registry.store.list("namespaces", "").objects;
        deleted.retain(|namespace| namespace.metadata.deletion_timestamp.is_some());
        seen.retain(|uid, _| deleted.iter().any(|namespace| namespace.metadata.uid == *uid));
        for namespace in deleted {
            let since = seen
                .entry(namespace.metadata.uid.clone())
                .or_insert_with(Instant::now);
            // A client that removes the finalizers usually removes the namespace too. This only completes it otherwise.
            let grace = if is_held(&namespace) { GRACE } else { UNHELD_GRACE };
            if since.elapsed() < grace {
                result = ReconcileResult::Retry;
                continue;
            }
            match empty(&registry, &context, &namespace).await {
                Ok(ReconcileResult::Done) => {}
                Ok(ReconcileResult::Retry) => result = ReconcileResult::Retry,
                Err(error) => {
                    tracing::debug!(%error, namespace = namespace.key.name(), "will retry namespace deletion");
                    result = ReconcileResult::Retry;
                }
            }
        }
    }
}

fn is_held(namespace: &StoredObject) -> bool {
    let object = namespace.value().unwrap_or_default();
    let finalizers = object.get("spec").and_then(|spec| spec.get("finalizers"));
    finalizers
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty())
}

/// Deletes the content of a namespace, and removes the namespace's finalizer when nothing is left.
async fn empty(
    registry: &ObjectRegistry,
    context: &WriteContext,
    namespace: &StoredObject,
) -> Result<ReconcileResult, ApiError> {
    let options = DeleteOptions {
        propagation: Some(PropagationPolicy::Background),
        ..DeleteOptions::default()
    };
    let mut left = 0_usize;
    let mut remaining = RemainingContent::default();
    for resource in registry.store.resource_names() {
        for stored in registry.store.list(&resource, namespace.key.name()).objects {
            let Some(target) =
                target(registry, &stored.key, "").filter(|target| target.definition.namespaced)
            else {
                continue;
            };
            if stored.metadata.deletion_timestamp.is_none() {
                match registry.delete(&target, context, &options).await {
                    Err(error) if !error.is_not_found() => return Err(error),
                    _ => {}
                }
            }
            if let Some(held) = registry.store.get(&stored.key) {
                left += 1;
                *remaining.content.entry(format!("{resource}.")).or_default() += 1;
                for finalizer in &held.metadata.finalizers {
                    *remaining.finalizers.entry(finalizer.clone()).or_default() += 1;
                }
            }
        }
    }
    if left > 0 {
        report(registry, context, namespace, &remaining).await?;
        return Ok(ReconcileResult::Retry);
    }
    finalize(registry, context, namespace).await?;
    Ok(ReconcileResult::Done)
}

/// The remaining content of a namespace: objects by resource, and their finalizers.
#[derive(Debug, Default)]
struct RemainingContent {
    content: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
}

/// Reports the remaining content in the namespace's conditions.
async fn report(
    registry: &ObjectRegistry,
    context: &WriteContext,
    namespace: &StoredObject,
    remaining: &RemainingContent,
) -> Result<(), ApiError> {
    let Some(target) = target(registry, &namespace.key, "status") else {
        return Ok(());
    };
    let now = rfc3339(registry.clock().now());
    let counted = |counts: &BTreeMap<String, usize>, what: &str| {
        let parts: Vec<String> = counts
            .iter()
            .map(|(name, count)| format!("{name} {what} {count} resource instances"))
            .collect();
        parts.join(", ")
    };
    let left = format!(
        "Some resources are remaining: {}",
        counted(&remaining.content, "has")
    );
    let finalizers = format!(
        "Some content in the namespace has finalizers remaining: {}",
        counted(&remaining.finalizers, "in")
    );
    let waiting = !remaining.finalizers.is_empty();
    registry
        .edit(&target, context, &|object| {
            let mut status = object.get("status").cloned().unwrap_or_else(|| json!({}));
            let mut set = |kind, state, reason, message: &str| {
                set_condition(&mut status, kind, state, reason, message, &now);
            };
            set(
                "NamespaceDeletionDiscoveryFailure",
                "False",
                "ResourcesDiscovered",
                "All resources successfully discovered",
            );
            set(
                "NamespaceDeletionGroupVersionParsingFailure",
                "False",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            );
            let message = "All content successfully deleted, may be waiting on finalization";
            set(
                "NamespaceDeletionContentFailure",
                "False",
                "ContentDeleted",
                message,
            );
            set("NamespaceContentRemaining", "True", "SomeResourcesRemain", &left);
            if waiting {
                set(
                    "NamespaceFinalizersRemaining",
                    "True",
                    "SomeFinalizersRemain",
                    &finalizers,
                );
            } else {
                set(
                    "NamespaceFinalizersRemaining",
                    "False",
                    "ContentHasNoFinalizers",
                    "All content-preserving finalizers finished",
                );
            }
            object.insert("status".to_owned(), status);
        })
        .await?;
    Ok(())
}

async fn finalize(
    registry: &ObjectRegistry,
    context: &WriteContext,
    namespace: &StoredObject,
) -> Result<(), ApiError> {
    let Some(target) = target(registry, &namespace.key, "finalize") else {
        return Ok(());
    };
    let outcome = registry
        .edit(&target, context, &|object| {
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                spec.remove("finalizers");
            }
        })
        .await;
    match outcome {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
