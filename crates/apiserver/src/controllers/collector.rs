//! The garbage collector: deletes dependents of deleted owners, by propagation policy.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use super::{ReconcileResult, target, wait_for_change};
use crate::error::ApiError;
use crate::meta::{self, JsonObject};
use crate::registry::{DeleteOptions, FOREGROUND, ORPHAN, ObjectRegistry, PropagationPolicy, WriteContext};
use crate::store::{ObjectKey, OwnerReference, StoredObject};

pub(super) async fn run(registry: Arc<ObjectRegistry>, mut stopped: watch::Receiver<bool>) {
    let context = WriteContext {
        field_manager: "garbage-collector".to_owned(),
        ..WriteContext::controller("generic-garbage-collector")
    };
    let mut changes = [registry.store.tip()];
    let mut result = ReconcileResult::Retry;
    while wait_for_change(&mut changes, result, &mut stopped).await {
        result = ReconcileResult::Done;
        for key in registry.store.take_gc_candidates() {
            if let Err(error) = look_at(&registry, &context, &key).await {
                tracing::debug!(%error, path = key.registry_path(), "will retry garbage collection");
                registry.store.add_gc_candidate_again(key);
                result = ReconcileResult::Retry;
            }
        }
    }
}

async fn look_at(registry: &ObjectRegistry, context: &WriteContext, key: &ObjectKey) -> Result<(), ApiError> {
    let Some(stored) = registry.store.get(key) else {
        return Ok(());
    };
    if stored.metadata.deletion_timestamp.is_some() {
        let holds = |finalizer: &str| stored.metadata.finalizers.iter().any(|held| held == finalizer);
        if holds(ORPHAN) {
            orphan_dependents(registry, context, &stored).await?;
        } else if holds(FOREGROUND) {
            delete_dependents(registry, context, &stored).await?;
        }
        return Ok(());
    }
    if stored.metadata.owner_references.is_empty() {
        return Ok(());
    }
    follow_owners(registry, context, &stored).await
}

enum OwnerState {
    Solid,
    /// Exists, but waits for its dependents to be deleted first.
    Leaving,
    Absent,
}

fn owner_of(registry: &ObjectRegistry, dependent: &StoredObject, reference: &OwnerReference) -> OwnerState {
    let Some(owner) = registry.store.by_uid(&reference.uid) else {
        return OwnerState::Absent;
    };
    let reachable = owner.key.namespace().is_empty() || owner.key.namespace() == dependent.key.namespace();
    if !reachable || owner.key.name() != reference.name {
        return OwnerState::Absent;
    }
    let foreground = owner
        .metadata
        .finalizers
        .iter()
        .any(|finalizer| finalizer == FOREGROUND);
    if owner.metadata.deletion_timestamp.is_some() && foreground {
        return OwnerState::Leaving;
    }
    OwnerState::Solid
}

/// Deletes a dependent without owners, and removes references to deleted owners from others.
async fn follow_owners(
    registry: &ObjectRegistry,
    context: &WriteContext,
    stored: &Arc<StoredObject>,
) -> Result<(), ApiError> {
    let (mut solid, mut leaving, mut gone) = (0, 0, Vec::new());
    for reference in &stored.metadata.owner_references {
        match owner_of(registry, stored, reference) {
            OwnerState::Solid => solid += 1,
            OwnerState::Leaving => {
                leaving += 1;
                gone.push(reference.uid.clone());
            }
            OwnerState::Absent => gone.push(reference.uid.clone()),
        }
    }
    if gone.is_empty() {
        return Ok(());
    }
    if solid > 0 {
        return drop_references(registry, context, &stored.key, &gone).await;
    }
    let has_dependents = !registry.store.dependents(&stored.metadata.uid).is_empty();
    let propagation = if leaving > 0 && has_dependents {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    };
    delete(registry, context, stored, propagation).await
}

async fn delete(
    registry: &ObjectRegistry,
    context: &WriteContext,
    stored: &StoredObject,
    propagation: PropagationPolicy,
) -> Result<(), ApiError> {
    let Some(target) = target(registry, &stored.key, "") else {
        return Ok(());
    };
    let options = DeleteOptions {
        uid: Some(stored.metadata.uid.clone()),
        propagation: Some(propagation),
        ..DeleteOptions::default()
    };
    match registry.delete(&target, context, &options).await {
        Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
        _ => Ok(()),
    }
}

async fn drop_references(
    registry: &ObjectRegistry,
    context: &WriteContext,
    key: &ObjectKey,
    uids: &[String],
) -> Result<(), ApiError> {
    let without = |object: &mut JsonObject| {
        let metadata = meta::metadata_mut(object);
        if let Some(Value::Array(references)) = metadata.get_mut("ownerReferences") {
            references.retain(|reference| !uids.iter().any(|uid| reference["uid"] == uid.as_str()));
            if references.is_empty() {
                metadata.remove("ownerReferences");
            }
        }
    };
    change(registry, context, key, without).await
}

async fn drop_finalizer(
    registry: &ObjectRegistry,
    context: &WriteContext,
    key: &ObjectKey,
    finalizer: &str,
) -> Result<(), ApiError> {
    change(registry, context, key, |object| {
        let mut finalizers = meta::finalizers(object);
        finalizers.retain(|held| held != finalizer);
        meta::set_finalizers(object, &finalizers);
    })
    .await
}

async fn change(
    registry: &ObjectRegistry,
    context: &WriteContext,
    key: &ObjectKey,
    edit: impl Fn(&mut JsonObject) + Send + Sync,
) -> Result<(), ApiError> {
    let Some(target) = target(registry, key, "") else {
        return Ok(());
    };
    match registry.edit(&target, context, &edit).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

async fn orphan_dependents(
    registry: &ObjectRegistry,
    context: &WriteContext,
    owner: &StoredObject,
) -> Result<(), ApiError> {
    for dependent in registry.store.dependents(&owner.metadata.uid) {
        drop_references(
            registry,
            context,
            &dependent.key,
            std::slice::from_ref(&owner.metadata.uid),
        )
        .await?;
    }
    drop_finalizer(registry, context, &owner.key, ORPHAN).await
}

/// Foreground deletion: deletes dependents first. The owner waits for those with `blockOwnerDeletion`.
async fn delete_dependents(
    registry: &ObjectRegistry,
    context: &WriteContext,
    owner: &StoredObject,
) -> Result<(), ApiError> {
    let dependents = registry.store.dependents(&owner.metadata.uid);
    let blocks = |dependent: &StoredObject| {
        let mut references = dependent.metadata.owner_references.iter();
        references.any(|reference| {
            reference.uid == owner.metadata.uid && reference.block_owner_deletion == Some(true)
        })
    };
    for dependent in dependents
        .iter()
        .filter(|dependent| dependent.metadata.deletion_timestamp.is_none())
    {
        follow_owners(registry, context, dependent).await?;
    }
    if dependents
        .iter()
        .any(|dependent| blocks(dependent) && registry.store.get(&dependent.key).is_some())
    {
        // The removal of a dependent enqueues the owner again.
        return Ok(());
    }
    drop_finalizer(registry, context, &owner.key, FOREGROUND).await
}
