//! What every namespace contains: its default ServiceAccount, and the certificates by which clients in it recognize this
//! API server.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::{ReconcileResult, wait_for_change};
use crate::error::ApiError;
use crate::registry::{ObjectRegistry, ObjectTarget, WriteContext};
use crate::store::StoredObject;

const SERVICE_ACCOUNT: &str = "default";
const ROOT_CA: &str = "kube-root-ca.crt";
const BUNDLE_KEY: &str = "ca.crt";
const DESCRIPTION_KEY: &str = "kubernetes.io/description";
/// Kubernetes' own text, which tools show.
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                           endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                           guaranteed across distributions of Kubernetes clusters.";

pub(super) async fn run(registry: Arc<ObjectRegistry>, bundle: Arc<str>, mut stopped: watch::Receiver<bool>) {
    let mut changes = ["namespaces", "serviceaccounts", "configmaps"]
        .map(|resource| registry.store.subscribe(&Arc::from(resource)));
    let mut result = ReconcileResult::Retry;
    while wait_for_change(&mut changes, result, &mut stopped).await {
        result = complete_all(&registry, &bundle).await;
    }
}

/// Creates what is missing in any namespace, and restores the certificates where they differ.
pub(crate) async fn complete_all(registry: &ObjectRegistry, bundle: &str) -> ReconcileResult {
    let mut result = ReconcileResult::Done;
    for namespace in registry.store.list("namespaces", "").objects {
        if namespace.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let name = namespace.key.name();
        if let Err(error) = complete(registry, bundle, name).await {
            tracing::debug!(%error, namespace = name, "will retry to complete a namespace");
            result = ReconcileResult::Retry;
        }
    }
    result
}

async fn complete(registry: &ObjectRegistry, bundle: &str, namespace: &str) -> Result<(), ApiError> {
    let account = target(registry, "serviceaccounts", namespace, SERVICE_ACCOUNT)?;
    if registry.get(&account).is_err() {
        let context = WriteContext::controller("service-account-controller");
        create(
            registry,
            &account,
            &context,
            json!({"metadata": {"name": SERVICE_ACCOUNT}}),
        )
        .await?;
    }
    let map = target(registry, "configmaps", namespace, ROOT_CA)?;
    let context = WriteContext::controller("root-ca-cert-publisher");
    match registry.get(&map) {
        Err(_) => {
            let object = json!({
                "metadata": {"name": ROOT_CA, "annotations": {DESCRIPTION_KEY: DESCRIPTION}},
                "data": {BUNDLE_KEY: bundle},
            });
            create(registry, &map, &context, object).await
        }
        Ok(stored) if !is_published(&stored, bundle)? => {
            let publish = |object: &mut crate::meta::JsonObject| {
                object.insert("data".to_owned(), json!({BUNDLE_KEY: bundle}));
                object.remove("binaryData");
                let metadata = crate::meta::metadata_mut(object);
                let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
                annotations[DESCRIPTION_KEY] = Value::from(DESCRIPTION);
            };
            match registry.edit(&map, &context, &publish).await {
                Err(error) if !error.is_not_found() => Err(error),
                _ => Ok(()),
            }
        }
        Ok(_) => Ok(()),
    }
}

fn is_published(stored: &StoredObject, bundle: &str) -> Result<bool, ApiError> {
    let object = stored.value()?;
    Ok(object.get("data") == Some(&json!({BUNDLE_KEY: bundle})) && !object.contains_key("binaryData"))
}

async fn create(
    registry: &ObjectRegistry,
    target: &ObjectTarget,
    context: &WriteContext,
    object: Value,
) -> Result<(), ApiError> {
    let Value::Object(object) = object else {
        return Ok(());
    };
    match registry.create(target, context, object).await {
        Err(error) if !error.is_already_exists() => Err(error),
        _ => Ok(()),
    }
}

fn target(
    registry: &ObjectRegistry,
    plural: &str,
    namespace: &str,
    name: &str,
) -> Result<ObjectTarget, ApiError> {
    let target = registry.cluster_target("", "v1", plural, name)?;
    Ok(ObjectTarget {
        namespace: namespace.to_owned(),
        ..target
    })
}
