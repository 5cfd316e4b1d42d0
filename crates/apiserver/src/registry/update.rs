//! Update and patch: read the newest version, change it, validate it, and write it only if it is still the newest.

use std::sync::Arc;

use serde_json::Value;

use super::{Registry, Target, WriteContext, Written, strategy, validate};
use crate::admission::Operation;
use crate::error::ApiError;
use crate::meta::{self, Object};
use crate::store::{Expect, StoreError, Stored, Write};

/// The maximum number of conflicts. More means that the object is written in a loop; the client may retry.
const ATTEMPTS: usize = 64;

/// The outcome of an update or patch.
#[derive(Debug)]
pub struct Updated {
    pub written: Written,
    pub created: bool,
}

/// Computes the new object from the current one; `None` means that the object does not exist.
pub(super) type Change<'a> = dyn Fn(Option<&Object>) -> Result<Object, ApiError> + Send + Sync + 'a;

impl Registry {
    /// Replaces an object, as a `PUT` does.
    pub async fn update(
        &self,
        target: &Target,
        context: &WriteContext,
        object: Object,
    ) -> Result<Updated, ApiError> {
        let mut object = object;
        strategy::require_same_type(&target.definition, &mut object)?;
        let given = meta::name(&object);
        if given.is_empty() {
            return Err(ApiError::bad_request("name must be provided"));
        }
        if given != target.name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({})",
                target.name
            )));
        }
        strategy::require_namespace(target, &mut object)?;
        let (object, warnings) = validate::normalise(target, context, object)?;
        let create = target.subresource.is_empty() && strategy::allows_create_on_update(&target.definition);
        if meta::resource_version(&object).is_empty()
            && !strategy::allows_unconditional_update(&target.definition)
            && !(create && self.store.latest(&target.key()).is_none())
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
        let replace = |old: Option<&Object>| {
            if let Some(old) = old {
                require_identity(target, old, &object)?;
            }
            Ok(object.clone())
        };
        let mut updated = self.mutate(target, context, create, &replace).await?;
        updated.written.warnings.splice(0..0, warnings);
        Ok(updated)
    }

    /// Edits the newest version of an object; for the server's own controllers.
    pub async fn edit(
        &self,
        target: &Target,
        context: &WriteContext,
        change: &(dyn Fn(&mut Object) + Send + Sync),
    ) -> Result<Written, ApiError> {
        let edited = |old: Option<&Object>| {
            let mut object = old.cloned().ok_or_else(|| target.not_found())?;
            change(&mut object);
            meta::metadata_mut(&mut object).remove("resourceVersion");
            Ok(object)
        };
        Ok(self.mutate(target, context, false, &edited).await?.written)
    }

    /// Applies an edit to the newest version of an object. Retries on a conflict, unless the edit has a precondition on
    /// the version.
    pub(super) async fn mutate(
        &self,
        target: &Target,
        context: &WriteContext,
        create: bool,
        change: &Change<'_>,
    ) -> Result<Updated, ApiError> {
        let outcome = self.change_newest(target, context, create, change).await;
        self.explained(outcome).await
    }

    async fn change_newest(
        &self,
        target: &Target,
        context: &WriteContext,
        create: bool,
        change: &Change<'_>,
    ) -> Result<Updated, ApiError> {
        for _ in 0..ATTEMPTS {
            let Some(current) = self.store.latest(&target.key()) else {
                if !create {
                    return Err(ApiError::not_found(target.definition.subject(&target.name)));
                }
                match self.create(target, context, change(None)?).await {
                    Ok(written) => {
                        return Ok(Updated {
                            written,
                            created: true,
                        });
                    }
                    Err(error) if error.is_already_exists() => continue,
                    Err(error) => return Err(error),
                }
            };
            match self.replace(target, context, &current, change).await {
                Err(Collision::Retry) => {}
                Err(Collision::Refused(error)) => return Err(error),
                Ok(written) => {
                    return Ok(Updated {
                        written,
                        created: false,
                    });
                }
            }
        }
        Err(ApiError::modified(target.definition.subject(&target.name)))
    }

    async fn replace(
        &self,
        target: &Target,
        context: &WriteContext,
        current: &Arc<Stored>,
        change: &Change<'_>,
    ) -> Result<Written, Collision> {
        let mut old = current.value().map_err(ApiError::from)?;
        let mut new = change(Some(&old))?;
        require_version(target, current, &new)?;
        strategy::default_fields(target, &mut new);
        strategy::as_encoded(&target.definition, &mut new);
        self.record_managers(target, context, Some(&mut old), &mut new);
        strategy::prepare_update(target, &old, &mut new);
        strategy::complete(target, Some(&old), &mut new);
        strategy::as_encoded(&target.definition, &mut new);
        let new = self
            .admit(Operation::Update, target, context, Some(new), Some(&old))?
            .ok_or_else(|| ApiError::internal("an admission hook lost the object"))?;
        let mut new = new;
        meta::set_meta(&mut new, "resourceVersion", current.revision.to_string());
        let validate::Changed { old, new, warnings } = validate::changed_object(target, old, new)?;
        let written = |stored| Written { stored, warnings };
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
            self.store.reached(current.revision).await;
            return Ok(written(Arc::clone(current)));
        }
        if context.dry_run {
            return Ok(written(strategy::unstored(target.key(), current.revision, new)?));
        }
        let outcome = self
            .store
            .write(target.key(), Expect::Revision(current.revision), Write::Put(new))
            .await;
        self.after_write(target);
        if outcome.is_ok() {
            self.establish(target).await?;
        }
        outcome.map(written).map_err(Collision::from)
    }

    async fn remove(&self, current: &Arc<Stored>) -> Result<(), Collision> {
        let expect = Expect::Revision(current.revision);
        match self.store.write(current.key.clone(), expect, Write::Remove).await {
            Ok(_) | Err(StoreError::Missing) => Ok(()),
            Err(other) => Err(other.into()),
        }
    }
}

/// The reason why a write failed.
enum Collision {
    /// Conflict with another writer; the edit can be retried on the newer version.
    Retry,
    Refused(ApiError),
}

impl From<ApiError> for Collision {
    fn from(error: ApiError) -> Self {
        Self::Refused(error)
    }
}

impl From<StoreError> for Collision {
    fn from(error: StoreError) -> Self {
        match error {
            // An edit with a precondition on the version fails when it is retried on the newer one.
            StoreError::Changed | StoreError::Missing => Self::Retry,
            other => Self::Refused(other.into()),
        }
    }
}

/// Checks the UID of a replacement. For a patch, another UID is an attempt to change it.
fn require_identity(target: &Target, current: &Object, new: &Object) -> Result<(), ApiError> {
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
fn require_version(target: &Target, current: &Stored, new: &Object) -> Result<(), ApiError> {
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

/// Removes an object that is being deleted as soon as it has no finalizers.
fn removes_last_hold(target: &Target, old: &Object, new: &Object) -> bool {
    if !meta::is_deleting(new) || !meta::finalizers(new).is_empty() {
        return false;
    }
    if target.definition.is("", "namespaces") {
        let held = |object: &Object| {
            let finalizers = object.get("spec").and_then(|spec| spec.get("finalizers"));
            finalizers
                .and_then(Value::as_array)
                .is_some_and(|list| !list.is_empty())
        };
        return !held(new);
    }
    let grace = |object: &Object| {
        let seconds = meta::metadata(object).and_then(|metadata| metadata.get("deletionGracePeriodSeconds"));
        seconds.and_then(Value::as_i64).unwrap_or(0)
    };
    grace(old) == 0
}

/// Returns whether only the times of managers differ: such a write changes nothing and is skipped.
fn only_times_differ(old: &Object, new: &Object) -> bool {
    fn but_for<'a>(
        object: &'a Object,
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
