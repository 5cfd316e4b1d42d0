//! Writes of existing objects: read the newest version, change it, validate it, and write it if it is still the newest.
//!
//! | function | does |
//! |---|---|
//! | `update`, `patch`, `edit` | the verbs; each builds an [`ObjectEdit`] |
//! | `write_with_retry` | writes the edited object; delays an error until its cause is visible |
//! | `retry_on_conflict` | creates a missing object if allowed, and repeats `write_once` after a conflict |
//! | `write_once` | one attempt: edit, defaults, managed fields, admission, validation, store |

use std::sync::Arc;

use serde_json::Value;

use super::{ObjectRegistry, ObjectTarget, WriteContext, WriteResult, strategy, typed, validate};
use crate::admission::AdmissionOperation;
use crate::error::ApiError;
use crate::meta::{self, JsonObject};
use crate::store::{Precondition, StoreError, StoreWrite, StoredObject};

/// The maximum number of conflicts. More means that the object is written in a loop; the client may retry.
const ATTEMPTS: usize = 64;

/// The outcome of an update or patch.
#[derive(Debug)]
pub struct UpdateResult {
    pub written: WriteResult,
    pub created: bool,
}

/// Computes the new object from the current one; `None` means that the object does not exist.
pub(super) type ObjectEdit<'a> =
    dyn Fn(Option<&JsonObject>) -> Result<JsonObject, ApiError> + Send + Sync + 'a;

/// What a write does if the object does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfMissing {
    Create,
    NotFound,
}

impl ObjectRegistry {
    /// Replaces an object, as a `PUT` does.
    pub async fn update(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        object: JsonObject,
    ) -> Result<UpdateResult, ApiError> {
        let mut object = object;
        strategy::require_same_type(&target.definition, &mut object)?;
        let name = meta::name(&object);
        if name.is_empty() {
            return Err(ApiError::bad_request("name must be provided"));
        }
        if name != target.name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                target.name
            )));
        }
        strategy::require_namespace(target, &mut object)?;
        let (object, warnings) = validate::normalise(target, context, object)?;
        let if_missing =
            if target.subresource.is_empty() && strategy::allows_create_on_update(&target.definition) {
                IfMissing::Create
            } else {
                IfMissing::NotFound
            };
        if matches!(meta::resource_version(&object), "" | "0")
            && !strategy::allows_unconditional_update(&target.definition)
            && !(if_missing == IfMissing::Create && self.store.latest(&target.key()).is_none())
        {
            let error = crate::field_error::FieldError {
                reason: crate::field_error::FieldReason::Invalid,
                field: "metadata.resourceVersion".to_owned(),
                body: "Invalid value: 0: must be specified for an update".to_owned(),
            };
            let definition = &target.definition;
            // Kubernetes names the resource in this error, not the kind. Existence is checked first, because that
            // error is the more helpful one.
            if self.store.latest(&target.key()).is_none() {
                return Err(ApiError::not_found(definition.subject(&target.name)));
            }
            return Err(ApiError::invalid(
                &definition.group,
                &definition.plural,
                &target.name,
                &[error],
            ));
        }
        let replace = |old: Option<&JsonObject>| {
            if let Some(old) = old {
                require_identity(target, old, &object)?;
            }
            Ok(object.clone())
        };
        let mut updated = self
            .write_with_retry(target, context, if_missing, &replace)
            .await?;
        updated.written.warnings.splice(0..0, warnings);
        Ok(updated)
    }

    /// Edits the newest version of an object; for the server's own controllers.
    pub async fn edit(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        change: &(dyn Fn(&mut JsonObject) + Send + Sync),
    ) -> Result<WriteResult, ApiError> {
        let edited = |old: Option<&JsonObject>| {
            let mut object = old.cloned().ok_or_else(|| target.not_found())?;
            change(&mut object);
            meta::metadata_mut(&mut object).remove("resourceVersion");
            Ok(object)
        };
        Ok(self
            .write_with_retry(target, context, IfMissing::NotFound, &edited)
            .await?
            .written)
    }

    /// Applies an edit to the newest version of an object. Retries on a conflict, unless the edit has a precondition on
    /// the version.
    pub(super) async fn write_with_retry(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        if_missing: IfMissing,
        change: &ObjectEdit<'_>,
    ) -> Result<UpdateResult, ApiError> {
        let outcome = self.retry_on_conflict(target, context, if_missing, change).await;
        self.delay_until_cause_is_visible(outcome).await
    }

    /// Repeats the write until it does not conflict with another one.
    async fn retry_on_conflict(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        if_missing: IfMissing,
        change: &ObjectEdit<'_>,
    ) -> Result<UpdateResult, ApiError> {
        for _ in 0..ATTEMPTS {
            let Some(current) = self.store.latest(&target.key()) else {
                if if_missing == IfMissing::NotFound {
                    return Err(ApiError::not_found(target.definition.subject(&target.name)));
                }
                match self.create(target, context, change(None)?).await {
                    Ok(written) => {
                        return Ok(UpdateResult {
                            written,
                            created: true,
                        });
                    }
                    Err(error) if error.is_already_exists() => continue,
                    Err(error) => return Err(error),
                }
            };
            match self.write_once(target, context, &current, change).await {
                Err(WriteFailure::Conflict) => {}
                Err(WriteFailure::Rejected(error)) => return Err(error),
                Ok(written) => {
                    return Ok(UpdateResult {
                        written,
                        created: false,
                    });
                }
            }
        }
        Err(ApiError::modified(target.definition.subject(&target.name)))
    }

    /// Makes one attempt to write the edited object over the version it is based on.
    async fn write_once(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        current: &Arc<StoredObject>,
        change: &ObjectEdit<'_>,
    ) -> Result<WriteResult, WriteFailure> {
        let mut old = current.value().map_err(ApiError::from)?;
        let mut new = change(Some(&old))?;
        typed::conform_metadata_times(&mut new);
        require_version(target, current, &new)?;
        strategy::default_fields(target, &mut new);
        strategy::as_encoded(&target.definition, &mut new);
        self.record_managers(target, context, Some(&mut old), &mut new);
        let mut new = self
            .mutate(AdmissionOperation::Update, target, context, new, Some(&old))
            .await?;
        strategy::prepare_update(target, &old, &mut new);
        strategy::complete(target, Some(&old), &mut new);
        strategy::as_encoded(&target.definition, &mut new);
        let new = self
            .admit(AdmissionOperation::Update, target, context, Some(new), Some(&old))?
            .ok_or_else(|| ApiError::internal("an admission plugin dropped the object"))?;
        let mut new = new;
        meta::set_meta(&mut new, "resourceVersion", current.revision.to_string());
        let validate::ValidChange { old, new, warnings } = validate::changed_object(target, old, new)?;
        self.review(
            AdmissionOperation::Update,
            target,
            context,
            Some(&new),
            Some(&old),
        )
        .await?;
        let written = |stored| WriteResult { stored, warnings };
        if removes_last_hold(target, &old, &new) {
            let shown = strategy::unstored(target.key(), current.revision, new)?;
            if !context.dry_run {
                self.remove(current).await?;
                self.after_write(target);
            }
            return Ok(written(shown));
        }
        if new == old || only_times_differ(&old, &new) {
            // The version may not be durable yet, and must not be visible to clients before.
            self.store.durable(current).await?;
            return Ok(written(Arc::clone(current)));
        }
        if context.dry_run {
            return Ok(written(strategy::unstored(target.key(), current.revision, new)?));
        }
        let outcome = self
            .store
            .write(
                target.key(),
                Precondition::Revision(current.revision),
                StoreWrite::Put(new),
            )
            .await;
        self.after_write(target);
        if outcome.is_ok() {
            self.establish(target).await?;
        }
        outcome.map(written).map_err(WriteFailure::from)
    }

    async fn remove(&self, current: &Arc<StoredObject>) -> Result<(), WriteFailure> {
        let expect = Precondition::Revision(current.revision);
        match self
            .store
            .write(current.key.clone(), expect, StoreWrite::Remove)
            .await
        {
            Ok(_) | Err(StoreError::Missing) => Ok(()),
            Err(other) => Err(other.into()),
        }
    }
}

/// The reason why a write failed.
enum WriteFailure {
    /// Conflict with another writer; the edit can be retried on the newer version.
    Conflict,
    Rejected(ApiError),
}

impl From<ApiError> for WriteFailure {
    fn from(error: ApiError) -> Self {
        Self::Rejected(error)
    }
}

impl From<StoreError> for WriteFailure {
    fn from(error: StoreError) -> Self {
        match error {
            // An edit with a precondition on the version fails when it is retried on the newer one.
            StoreError::Changed | StoreError::Missing => Self::Conflict,
            other => Self::Rejected(other.into()),
        }
    }
}

/// Checks the UID of a replacement. For a patch, another UID is an attempt to change it.
fn require_identity(target: &ObjectTarget, current: &JsonObject, new: &JsonObject) -> Result<(), ApiError> {
    let (uid, own) = (meta::uid(new), meta::uid(current));
    if uid.is_empty() || uid == own {
        return Ok(());
    }
    Err(ApiError::conflict(
        target.definition.subject(&target.name),
        &format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {own}",
            target.key().registry_path()
        ),
    ))
}

/// Checks the precondition on `resourceVersion`.
fn require_version(target: &ObjectTarget, current: &StoredObject, new: &JsonObject) -> Result<(), ApiError> {
    let subject = target.definition.subject(&target.name);
    let version = meta::resource_version(new);
    if version.is_empty() || version == "0" {
        return Ok(());
    }
    let Ok(version) = version.parse::<u64>() else {
        return Err(ApiError::invalid(
            &target.definition.group,
            &target.definition.kind,
            &target.name,
            &[crate::field_error::FieldError::invalid(
                "metadata.resourceVersion",
                &Value::from(version),
                &format!("strconv.ParseUint: parsing {version:?}: invalid syntax"),
            )],
        ));
    };
    if version != current.revision {
        return Err(ApiError::modified(subject));
    }
    Ok(())
}

/// Returns whether the change removes the last finalizer of an object that is being deleted.
fn removes_last_hold(target: &ObjectTarget, old: &JsonObject, new: &JsonObject) -> bool {
    if !meta::is_deleting(new) || !meta::finalizers(new).is_empty() {
        return false;
    }
    if target.definition.is("", "namespaces") {
        let held = |object: &JsonObject| {
            let finalizers = object.get("spec").and_then(|spec| spec.get("finalizers"));
            finalizers
                .and_then(Value::as_array)
                .is_some_and(|list| !list.is_empty())
        };
        return !held(new);
    }
    let grace = |object: &JsonObject| {
        let seconds = meta::metadata(object).and_then(|metadata| metadata.get("deletionGracePeriodSeconds"));
        seconds.and_then(Value::as_i64).unwrap_or(0)
    };
    grace(old) == 0
}

/// Returns whether only the times of managers differ: such a write changes nothing and is skipped.
fn only_times_differ(old: &JsonObject, new: &JsonObject) -> bool {
    fn but_for<'a>(
        object: &'a JsonObject,
        skipped: &'static str,
    ) -> impl Iterator<Item = (&'a String, &'a Value)> {
        object.iter().filter(move |(field, _)| *field != skipped)
    }
    let (Some(old_metadata), Some(new_metadata)) = (meta::metadata(old), meta::metadata(new)) else {
        return false;
    };
    if !but_for(old, "metadata").eq(but_for(new, "metadata"))
        || !but_for(old_metadata, "managedFields").eq(but_for(new_metadata, "managedFields"))
    {
        return false;
    }
    let managers = [old_metadata, new_metadata].map(|metadata| metadata.get("managedFields"));
    let [Some(Value::Array(before)), Some(Value::Array(after))] = managers else {
        return false;
    };
    let same = |(before, after): (&Value, &Value)| match (before, after) {
        (Value::Object(before), Value::Object(after)) => but_for(before, "time").eq(but_for(after, "time")),
        (before, after) => before == after,
    };
    before.len() == after.len() && before.iter().zip(after).all(same)
}
