//! Namespaces: a service account to begin with, and an orderly end.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Pass, target, woken};
use crate::error::ApiError;
use crate::registry::{DeleteOptions, Propagation, Registry, WriteContext};
use crate::store::{Key, Stored};

pub(super) async fn run(registry: Arc<Registry>, mut stopped: watch::Receiver<bool>) {
    let context = WriteContext::internal("namespace-controller");
    let mut news = [registry.store.subscribe(&Arc::from("namespaces"))];
    let mut pass = Pass::Again;
    while woken(&mut news, pass, &mut stopped).await {
        pass = Pass::Done;
        for namespace in registry.store.list("namespaces", "").objects {
            let outcome = if namespace.head.deletion_timestamp.is_some() {
                empty(&registry, &context, &namespace).await
            } else {
                ensure_account(&registry, &context, &namespace).await.map(|()| Pass::Done)
            };
            match outcome {
                Ok(Pass::Done) => {}
                Ok(Pass::Again) => pass = Pass::Again,
                Err(error) => {
                    tracing::debug!(%error, namespace = namespace.key.name(), "namespace controller will come back");
                    pass = Pass::Again;
                }
            }
        }
    }
}

async fn ensure_account(registry: &Registry, context: &WriteContext, namespace: &Stored) -> Result<(), ApiError> {
    let key = Key::new(&Arc::from("serviceaccounts"), namespace.key.name(), "default");
    if registry.store.get(&key).is_some() {
        return Ok(());
    }
    let Some(target) = target(registry, &key, "") else {
        return Ok(());
    };
    let Value::Object(account) = json!({"metadata": {"name": "default"}}) else {
        return Ok(());
    };
    match registry.create(&target, context, account).await {
        Err(error) if !error.is_already_exists() && error.reason != "Forbidden" => Err(error),
        _ => Ok(()),
    }
}

/// Deletes what is in a namespace; when nothing is left, lets the namespace itself go.
async fn empty(registry: &Registry, context: &WriteContext, namespace: &Stored) -> Result<Pass, ApiError> {
    let options = DeleteOptions {
        propagation: Some(Propagation::Background),
        ..DeleteOptions::default()
    };
    let mut left = 0_usize;
    for resource in registry.store.resource_names() {
        for stored in registry.store.list(&resource, namespace.key.name()).objects {
            let Some(target) = target(registry, &stored.key, "").filter(|target| target.definition.namespaced) else {
                continue;
            };
            if stored.head.deletion_timestamp.is_none() {
                match registry.delete(&target, context, &options).await {
                    Err(error) if !error.is_not_found() => return Err(error),
                    _ => {}
                }
            }
            left += usize::from(registry.store.get(&stored.key).is_some());
        }
    }
    if left > 0 {
        return Ok(Pass::Again);
    }
    finalize(registry, context, namespace).await?;
    Ok(Pass::Done)
}

async fn finalize(registry: &Registry, context: &WriteContext, namespace: &Stored) -> Result<(), ApiError> {
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

