//! Create: defaults, validation and storage under a free name.

use serde_json::Value;

use super::{ObjectRegistry, ObjectTarget, WriteContext, WriteResult, generate, strategy, validate};
use crate::admission::AdmissionOperation;
use crate::clock::rfc3339;
use crate::crd;
use crate::error::ApiError;
use crate::meta::{self, JsonObject};
use crate::store::{ObjectKey, Precondition, StoreError, StoreWrite, StoredObject};

/// The number of generated names that are tried.
const NAME_ATTEMPTS: usize = 8;

impl ObjectRegistry {
    /// Stores a new object. If the target's name is empty, the object's own or a generated name is used.
    pub async fn create(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        object: JsonObject,
    ) -> Result<WriteResult, ApiError> {
        let outcome = self.create_named(target, context, object).await;
        self.delay_until_cause_is_visible(outcome).await
    }

    async fn create_named(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        object: JsonObject,
    ) -> Result<WriteResult, ApiError> {
        let generated =
            meta::name(&object).is_empty() && !meta::meta_text(&object, "generateName").is_empty();
        let attempts = if generated { NAME_ATTEMPTS } else { 1 };
        let mut last = None;
        for _ in 0..attempts {
            match self.create_once(target, context, object.clone()).await {
                Err(error) if generated && error.is_already_exists() => last = error.details,
                other => return other,
            }
        }
        let name = last
            .as_ref()
            .and_then(|details| details["name"].as_str())
            .unwrap_or_default();
        Err(ApiError::generate_name_conflict(target.definition.subject(name)))
    }

    async fn create_once(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        mut object: JsonObject,
    ) -> Result<WriteResult, ApiError> {
        let definition = &target.definition;
        strategy::require_same_type(definition, &mut object)?;
        strategy::require_namespace(target, &mut object)?;
        // A generated name is not one that the client requested.
        let requested_name = meta::name(&object).to_owned();
        if requested_name.is_empty() {
            let base = meta::meta_text(&object, "generateName").to_owned();
            if !base.is_empty() {
                meta::set_meta(&mut object, "name", generate::name(&base)?);
            }
        }
        let mut target = target.clone();
        target.name = meta::name(&object).to_owned();
        let (mut object, mut warnings) = validate::normalise(&target, context, object)?;
        for server_owned in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            meta::metadata_mut(&mut object).remove(server_owned);
        }
        strategy::default_fields(&target, &mut object);
        strategy::as_encoded(definition, &mut object);
        // Managed fields cover what the client sent, before the server adds fields.
        self.record_managers(&target, context, None, &mut object);
        let requested = ObjectTarget {
            name: requested_name,
            ..target.clone()
        };
        let mut object = self
            .mutate(AdmissionOperation::Create, &requested, context, object, None)
            .await?;
        self.stamp(&target, context, &mut object)?;
        strategy::prepare_create(definition, &mut object);
        strategy::complete(&target, None, &mut object);
        strategy::as_encoded(definition, &mut object);
        let object = self
            .admit(AdmissionOperation::Create, &target, context, Some(object), None)?
            .ok_or_else(|| ApiError::internal("an admission hook lost the object"))?;
        let (mut object, more) = validate::new_object(&target, object)?;
        warnings.extend(more);
        // Of a valid object only, and not of a dry run. Zero and texts that are no number count as unset.
        let version = meta::resource_version(&object).parse::<u64>().unwrap_or(0);
        if version != 0 && !context.dry_run {
            return Err(ApiError::unclassified(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        meta::metadata_mut(&mut object).remove("resourceVersion");
        self.require_live_namespace(&target)?;
        self.review(
            AdmissionOperation::Create,
            &requested,
            context,
            Some(&object),
            None,
        )
        .await?;
        let stored = self.insert(&target, context, object).await?;
        Ok(WriteResult { stored, warnings })
    }

    async fn insert(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        object: JsonObject,
    ) -> Result<std::sync::Arc<StoredObject>, ApiError> {
        let key = target.key();
        let taken = || {
            let subject = target.definition.subject(&target.name);
            let holder = self.store.latest(&target.key());
            if holder.is_some_and(|holder| holder.metadata.deletion_timestamp.is_some()) {
                return ApiError::still_being_deleted(subject);
            }
            ApiError::already_exists(subject)
        };
        if context.dry_run {
            if self.store.latest(&key).is_some() {
                return Err(taken());
            }
            return strategy::unstored(key, 0, object);
        }
        match self
            .store
            .write(key, Precondition::Absent, StoreWrite::Put(object))
            .await
        {
            Ok(stored) => {
                self.after_write(target);
                self.establish(target).await?;
                Ok(stored)
            }
            Err(StoreError::Exists) => Err(taken()),
            Err(other) => Err(other.into()),
        }
    }

    /// Accepts the names of a definition right after the write, so that it is served before the client gets the
    /// response.
    pub(super) async fn establish(&self, target: &ObjectTarget) -> Result<(), ApiError> {
        if !target
            .definition
            .is("apiextensions.k8s.io", "customresourcedefinitions")
            || !target.subresource.is_empty()
        {
            return Ok(());
        }
        let status = ObjectTarget {
            subresource: "status".to_owned(),
            ..target.clone()
        };
        let context = WriteContext::internal("kube-apiserver");
        let now = rfc3339(self.clock.now());
        let decide = |crd: &mut JsonObject| crd::establish(&self.store, crd, &now);
        // The edit is itself a write; boxing breaks the recursion of the future's type.
        match Box::pin(self.edit(&status, &context, &decide)).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Sets the fields that only the server sets: uid and creation time.
    fn stamp(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        object: &mut JsonObject,
    ) -> Result<(), ApiError> {
        let uid = match &context.object_uid {
            Some(uid) => uid.clone(),
            None => generate::uid()?,
        };
        let now = rfc3339(self.clock.now());
        let metadata = meta::metadata_mut(object);
        metadata.insert("uid".to_owned(), Value::from(uid));
        metadata.insert("creationTimestamp".to_owned(), Value::from(now));
        if strategy::counts_generations(&target.definition) {
            metadata.insert("generation".to_owned(), Value::from(1));
        }
        Ok(())
    }

    fn require_live_namespace(&self, target: &ObjectTarget) -> Result<(), ApiError> {
        if !target.definition.namespaced {
            return Ok(());
        }
        let namespaces = std::sync::Arc::from("namespaces");
        let key = ObjectKey::new(&namespaces, "", &target.namespace);
        let catalog = self.catalog();
        let Some(namespace) = self.store.latest(&key) else {
            return Err(match catalog.resource("", "v1", "namespaces") {
                Some(definition) => ApiError::not_found(definition.subject(&target.namespace)),
                None => ApiError::internal("namespaces are not served"),
            });
        };
        if namespace.metadata.deletion_timestamp.is_some() {
            return Err(ApiError::namespace_terminating(
                target.definition.subject(&target.name),
                &target.namespace,
            ));
        }
        Ok(())
    }
}
