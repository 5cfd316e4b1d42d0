//! Delete: at once, or by a deletion timestamp while finalizers or a grace period hold the object.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{ObjectRegistry, ObjectTarget, WriteContext, strategy};
use crate::admission::{AdmissionOperation, AdmissionScope};
use crate::clock::rfc3339;
use crate::crd;
use crate::error::{ApiError, ErrorSubject};
use crate::meta::{self, JsonObject};
use crate::selection::ObjectSelection;
use crate::store::{Precondition, StoreError, StoreWrite, StoredObject};

pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";

/// Namespaces that cannot be deleted.
const IMMORTAL: &[&str] = &["default", "kube-system", "kube-public"];

/// The propagation policy: what happens to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropagationPolicy {
    Background,
    Foreground,
    Orphan,
}

#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    pub grace_seconds: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub propagation: Option<PropagationPolicy>,
}

/// The result of a delete.
#[derive(Debug)]
pub enum DeleteResult {
    /// The object is removed; this is its last state.
    Gone(Arc<StoredObject>),
    /// The object waits for its finalizers or its grace period.
    Pending(Arc<StoredObject>),
}

impl DeleteResult {
    pub fn stored(&self) -> &Arc<StoredObject> {
        match self {
            Self::Gone(stored) | Self::Pending(stored) => stored,
        }
    }
}

impl ObjectRegistry {
    pub async fn delete(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        options: &DeleteOptions,
    ) -> Result<DeleteResult, ApiError> {
        let outcome = self.delete_newest(target, context, options).await;
        self.delay_until_cause_is_visible(outcome).await
    }

    async fn delete_newest(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        options: &DeleteOptions,
    ) -> Result<DeleteResult, ApiError> {
        if target.definition.is("", "namespaces") && IMMORTAL.contains(&target.name.as_str()) {
            return Err(ApiError::forbidden(
                target.definition.subject(&target.name),
                "this namespace may not be deleted",
            ));
        }
        let mut options = options.clone();
        let mut is_reviewed = false;
        loop {
            let Some(current) = self.store.latest(&target.key()) else {
                return Err(ApiError::not_found(target.definition.subject(&target.name)));
            };
            check_preconditions(target, &current, &options)?;
            let old = current.value()?;
            self.admit(AdmissionOperation::Delete, target, context, None, Some(&old))?;
            if !is_reviewed {
                self.review_delete(target, context, &old).await?;
            }
            let Some(step) = self.next_step(target, &old, &options) else {
                if self.store.durable(&current).await.is_err() {
                    continue;
                }
                return Ok(DeleteResult::Pending(current));
            };
            if context.dry_run {
                return Ok(DeleteResult::Gone(current));
            }
            let expect = Precondition::Revision(current.revision);
            let write = match &step {
                DeleteStep::Remove => StoreWrite::Remove,
                DeleteStep::Mark(marked) | DeleteStep::MarkThenRemove(marked) => {
                    StoreWrite::Put(marked.clone())
                }
            };
            let outcome = self.store.write(target.key(), expect, write).await;
            self.after_write(target);
            match (outcome, step) {
                (Ok(last), DeleteStep::Remove) => return Ok(DeleteResult::Gone(last)),
                // A pod without a grace period is marked like any other, and removed right after.
                (Ok(_), DeleteStep::MarkThenRemove(_)) => {
                    options.resource_version = None;
                    is_reviewed = true;
                }
                (Ok(marked), DeleteStep::Mark(_)) => return Ok(DeleteResult::Pending(marked)),
                (Err(StoreError::Changed | StoreError::Missing), _) => {}
                (Err(other), _) => return Err(other.into()),
            }
        }
    }

    /// Deletes everything selected. Objects that other clients delete meanwhile are ignored.
    pub async fn delete_collection(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        selection: &ObjectSelection,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<StoredObject>>, ApiError> {
        let page = self.store.list(&target.definition.storage, &selection.namespace);
        let context = &WriteContext {
            admission: match context.admission {
                AdmissionScope::Reviewed => AdmissionScope::Reviewed,
                AdmissionScope::Object | AdmissionScope::CollectionItem => AdmissionScope::CollectionItem,
            },
            ..context.clone()
        };
        let mut deleted = Vec::new();
        for stored in page
            .objects
            .into_iter()
            .filter(|stored| selection.selects(stored))
        {
            let one = ObjectTarget {
                namespace: stored.key.namespace().to_owned(),
                name: stored.key.name().to_owned(),
                ..target.clone()
            };
            match self.delete(&one, context, options).await {
                Ok(_) => deleted.push(stored),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
    }

    /// Returns whether the response to a completed delete is the object itself.
    pub fn returns_deleted_object(&self, target: &ObjectTarget) -> bool {
        strategy::returns_deleted_object(&target.definition)
    }

    fn next_step(
        &self,
        target: &ObjectTarget,
        old: &JsonObject,
        options: &DeleteOptions,
    ) -> Option<DeleteStep> {
        let namespace = target.definition.is("", "namespaces");
        let definition = target
            .definition
            .is("apiextensions.k8s.io", "customresourcedefinitions");
        let mut finalizers = finalizers_after(old, options.propagation);
        if definition
            && !meta::is_deleting(old)
            && !finalizers.iter().any(|held| held == crd::CLEANUP_FINALIZER)
        {
            finalizers.push(crd::CLEANUP_FINALIZER.to_owned());
        }
        // A namespace is always marked before it is removed, so that nothing new is created in it meanwhile.
        let held_by_spec = namespace && (has_namespace_finalizers(old) || !meta::is_deleting(old));
        let grace = if target.definition.is("", "pods") {
            pod_grace(old, options)
        } else {
            0
        };
        if meta::is_deleting(old) {
            let shorter = grace < grace_of(old);
            let finalizers_change = finalizers != meta::finalizers(old);
            if !shorter && !finalizers_change && (grace_of(old) > 0 || !finalizers.is_empty() || held_by_spec)
            {
                return None;
            }
        }
        let free = finalizers.is_empty() && !held_by_spec && grace == 0;
        let pod = target.definition.is("", "pods");
        if free && !(pod && (!meta::is_deleting(old) || grace_of(old) > 0)) {
            return Some(DeleteStep::Remove);
        }
        let mut marked = old.clone();
        meta::set_finalizers(&mut marked, &finalizers);
        let first = !meta::is_deleting(old);
        if first || grace < grace_of(old) {
            let now = self.clock.now();
            let until = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
            meta::set_meta(&mut marked, "deletionTimestamp", rfc3339(until));
            if !namespace {
                meta::set_meta(&mut marked, "deletionGracePeriodSeconds", grace);
            }
        }
        if first && meta::generation(old) > 0 {
            meta::set_meta(&mut marked, "generation", meta::generation(old) + 1);
        }
        if definition {
            crd::terminate(&mut marked, &rfc3339(self.clock.now()));
        }
        if namespace {
            let status = marked.entry("status").or_insert_with(|| json!({}));
            status["phase"] = Value::from("Terminating");
        }
        Some(if free {
            DeleteStep::MarkThenRemove(marked)
        } else {
            DeleteStep::Mark(marked)
        })
    }
}

enum DeleteStep {
    Remove,
    Mark(JsonObject),
    MarkThenRemove(JsonObject),
}

fn check_preconditions(
    target: &ObjectTarget,
    current: &StoredObject,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    let subject = ErrorSubject {
        group: &target.definition.group,
        // Kubernetes uses the kind here, and the plural everywhere else.
        resource: &target.definition.kind,
        name: &target.name,
    };
    if let Some(uid) = &options.uid
        && *uid != current.metadata.uid
    {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            current.metadata.uid
        );
        return Err(ApiError::conflict(subject, &why));
    }
    if let Some(version) = &options.resource_version
        && *version != current.revision.to_string()
    {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
            current.revision
        );
        return Err(ApiError::conflict(subject, &why));
    }
    Ok(())
}

/// Returns the finalizers of an object for a propagation policy.
fn finalizers_after(old: &JsonObject, propagation: Option<PropagationPolicy>) -> Vec<String> {
    let mut finalizers = meta::finalizers(old);
    let Some(propagation) = propagation else {
        return finalizers;
    };
    finalizers.retain(|finalizer| finalizer != FOREGROUND && finalizer != ORPHAN);
    match propagation {
        PropagationPolicy::Background => {}
        PropagationPolicy::Foreground => finalizers.push(FOREGROUND.to_owned()),
        PropagationPolicy::Orphan => finalizers.push(ORPHAN.to_owned()),
    }
    finalizers
}

fn has_namespace_finalizers(namespace: &JsonObject) -> bool {
    let finalizers = namespace.get("spec").and_then(|spec| spec.get("finalizers"));
    finalizers
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty())
}

fn grace_of(object: &JsonObject) -> i64 {
    let seconds = meta::metadata(object).and_then(|metadata| metadata.get("deletionGracePeriodSeconds"));
    seconds.and_then(Value::as_i64).unwrap_or(0)
}

/// Returns the grace period of a pod. One that never started or has ended has none.
fn pod_grace(pod: &JsonObject, options: &DeleteOptions) -> i64 {
    let text = |section: &str, field: &str| {
        let value = pod.get(section).and_then(|section| section.get(field));
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let ended = matches!(text("status", "phase").as_str(), "Succeeded" | "Failed");
    if ended || text("spec", "nodeName").is_empty() {
        return 0;
    }
    let own = pod
        .get("spec")
        .and_then(|spec| spec.get("terminationGracePeriodSeconds"))
        .and_then(Value::as_i64);
    options.grace_seconds.or(own).unwrap_or(30).max(0)
}
