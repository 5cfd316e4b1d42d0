//! The garbage collector: deletes dependents of deleted owners, by propagation policy.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use super::{Pass, target, woken};
use crate::error::ApiError;
use crate::meta::{self, Object};
use crate::registry::{DeleteOptions, FOREGROUND, ORPHAN, Propagation, Registry, WriteContext};
use crate::store::{Key, OwnerReference, Stored};

pub(super) async fn run(registry: Arc<Registry>, mut stopped: watch::Receiver<bool>) {
    let context = WriteContext::internal("garbage-collector");
    let mut news = [registry.store.tip()];
    let mut pass = Pass::Again;
    while woken(&mut news, pass, &mut stopped).await {
        pass = Pass::Done;
        for key in registry.store.take_suspects() {
            if let Err(error) = look_at(&registry, &context, &key).await {
                tracing::debug!(%error, path = key.registry_path(), "garbage collection will come back");
                registry.store.suspect_again(key);
                pass = Pass::Again;
            }
        }
    }
}

async fn look_at(registry: &Registry, context: &WriteContext, key: &Key) -> Result<(), ApiError> {
    let Some(stored) = registry.store.get(key) else {
        return Ok(());
    };
    if stored.head.deletion_timestamp.is_some() {
        let holds = |finalizer: &str| stored.head.finalizers.iter().any(|held| held == finalizer);
        if holds(ORPHAN) {
            orphan_dependents(registry, context, &stored).await?;
        } else if holds(FOREGROUND) {
            delete_dependents(registry, context, &stored).await?;
        }
        return Ok(());
    }
    if stored.head.owner_references.is_empty() {
        return Ok(());
    }
    follow_owners(registry, context, &stored).await
}

enum Owner {
    Solid,
    /// Exists, but waits for its dependents to be deleted first.
    Leaving,
    Absent,
}

fn owner_of(registry: &Registry, dependent: &Stored, reference: &OwnerReference) -> Owner {
    let Some(owner) = registry.store.by_uid(&reference.uid) else {
        return Owner::Absent;
    };
    let reachable = owner.key.namespace().is_empty() || owner.key.namespace() == dependent.key.namespace();
    if !reachable || owner.key.name() != reference.name {
        return Owner::Absent;
    }
    let foreground = owner
        .head
        .finalizers
        .iter()
        .any(|finalizer| finalizer == FOREGROUND);
    if owner.head.deletion_timestamp.is_some() && foreground {
        return Owner::Leaving;
    }
    Owner::Solid
}

/// Deletes a dependent without owners, and removes references to deleted owners from others.
async fn follow_owners(
    registry: &Registry,
    context: &WriteContext,
    stored: &Arc<Stored>,
) -> Result<(), ApiError> {
    let (mut solid, mut leaving, mut gone) = (0, 0, Vec::new());
    for reference in &stored.head.owner_references {
        match owner_of(registry, stored, reference) {
            Owner::Solid => solid += 1,
            Owner::Leaving => {
                leaving += 1;
                gone.push(reference.uid.clone());
            }
            Owner::Absent => gone.push(reference.uid.clone()),
        }
    }
    if gone.is_empty() {
        return Ok(());
    }
    if solid > 0 {
        return drop_references(registry, context, &stored.key, &gone).await;
    }
    let has_dependents = !registry.store.dependents(&stored.head.uid).is_empty();
    let propagation = if leaving > 0 && has_dependents {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    delete(registry, context, stored, propagation).await
}

async fn delete(
    registry: &Registry,
    context: &WriteContext,
    stored: &Stored,
    propagation: Propagation,
) -> Result<(), ApiError> {
    let Some(target) = target(registry, &stored.key, "") else {
        return Ok(());
    };
    let options = DeleteOptions {
        uid: Some(stored.head.uid.clone()),
        propagation: Some(propagation),
        ..DeleteOptions::default()
    };
    match registry.delete(&target, context, &options).await {
        Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
        _ => Ok(()),
    }
}

async fn drop_references(
    registry: &Registry,
    context: &WriteContext,
    key: &Key,
    uids: &[String],
) -> Result<(), ApiError> {
    let without = |object: &mut Object| {
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
    registry: &Registry,
    context: &WriteContext,
    key: &Key,
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
    registry: &Registry,
    context: &WriteContext,
    key: &Key,
    edit: impl Fn(&mut Object) + Send + Sync,
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
    registry: &Registry,
    context: &WriteContext,
    owner: &Stored,
) -> Result<(), ApiError> {
    for dependent in registry.store.dependents(&owner.head.uid) {
        drop_references(
            registry,
            context,
            &dependent.key,
            std::slice::from_ref(&owner.head.uid),
        )
        .await?;
    }
    drop_finalizer(registry, context, &owner.key, ORPHAN).await
}

/// Foreground deletion: deletes dependents first. The owner waits for those with `blockOwnerDeletion`.
async fn delete_dependents(
    registry: &Registry,
    context: &WriteContext,
    owner: &Stored,
) -> Result<(), ApiError> {
    let dependents = registry.store.dependents(&owner.head.uid);
    let blocks = |dependent: &Stored| {
        let mut references = dependent.head.owner_references.iter();
        references
            .any(|reference| reference.uid == owner.head.uid && reference.block_owner_deletion == Some(true))
    };
    for dependent in dependents
        .iter()
        .filter(|dependent| dependent.head.deletion_timestamp.is_none())
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
