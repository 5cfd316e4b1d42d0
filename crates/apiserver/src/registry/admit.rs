//! Admission of a write: plugins, policies and webhooks.

use http::StatusCode;
use serde_json::Value;

use super::{ObjectRegistry, ObjectTarget, WriteContext, scale, strategy, typed, validate};
use crate::admission::{AdmissionAttributes, AdmissionOperation, AdmissionRequest, AdmissionStage};
use crate::decode;
use crate::error::ApiError;
use crate::meta::{self, JsonObject};

impl ObjectRegistry {
    /// Runs the admission plugins and returns the object to store.
    pub(super) fn admit(
        &self,
        operation: AdmissionOperation,
        target: &ObjectTarget,
        context: &WriteContext,
        mut object: Option<JsonObject>,
        old: Option<&JsonObject>,
    ) -> Result<Option<JsonObject>, ApiError> {
        for hook in &self.admission {
            let request = AdmissionRequest {
                operation,
                definition: &target.definition,
                namespace: &target.namespace,
                name: &target.name,
                subresource: &target.subresource,
                object: object.as_ref(),
                old,
                user: &context.user,
                groups: &context.groups,
                dry_run: context.dry_run,
                store: &self.store,
            };
            match hook.review(&request) {
                Ok(None) => {}
                Ok(Some(replaced)) => object = Some(replaced),
                Err(rejection) => return Err(refused(target, &rejection.message, rejection.code)),
            }
        }
        Ok(object)
    }

    /// Reads the stored policies and webhooks when the server starts.
    pub(crate) fn load_admission(&self) {
        self.chain.reload(&self.store);
    }

    /// Calls the mutating webhooks on a new or changed object, before the server sets its own fields.
    pub(super) async fn mutate(
        &self,
        operation: AdmissionOperation,
        target: &ObjectTarget,
        context: &WriteContext,
        object: JsonObject,
        old: Option<&JsonObject>,
    ) -> Result<JsonObject, ApiError> {
        if !self.is_reviewed(AdmissionStage::Mutating, operation, target, context) {
            return Ok(object);
        }
        let attributes = attributes(operation, target, context, Some(&object), old)?;
        let mutated = self
            .chain
            .mutate(attributes, context, &self.catalog(), &self.store)
            .await?;
        match mutated {
            None => Ok(object),
            Some(mutated) if target.subresource == "scale" => scale::with_replicas(target, object, &mutated),
            Some(mutated) => accept(target, context, &object, mutated),
        }
    }

    /// Calls the mutating webhooks for a subresource whose body is not stored, and returns the body.
    pub(super) async fn mutate_body(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        body: JsonObject,
    ) -> Result<JsonObject, ApiError> {
        if !self.is_reviewed(
            AdmissionStage::Mutating,
            AdmissionOperation::Create,
            target,
            context,
        ) {
            return Ok(body);
        }
        let attributes =
            AdmissionAttributes::new(AdmissionOperation::Create, target, context, Some(&body), None);
        let mutated = self
            .chain
            .mutate(attributes, context, &self.catalog(), &self.store)
            .await?;
        match mutated {
            None => Ok(body),
            Some(Value::Object(mutated)) => Ok(mutated),
            Some(_) => Err(ApiError::internal(
                "an admission webhook does not leave an object",
            )),
        }
    }

    /// Evaluates the policies and calls the validating webhooks on a write that is valid otherwise.
    pub(super) async fn review(
        &self,
        operation: AdmissionOperation,
        target: &ObjectTarget,
        context: &WriteContext,
        object: Option<&JsonObject>,
        old: Option<&JsonObject>,
    ) -> Result<(), ApiError> {
        if !self.is_reviewed(AdmissionStage::Validating, operation, target, context) {
            return Ok(());
        }
        let attributes = attributes(operation, target, context, object, old)?;
        self.chain
            .validate(attributes, context, &self.catalog(), &self.store)
            .await
    }

    /// Reviews a delete: mutating webhooks are called as well, but have nothing to change.
    pub(super) async fn review_delete(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        old: &JsonObject,
    ) -> Result<(), ApiError> {
        let operation = AdmissionOperation::Delete;
        let is_mutated = self.is_reviewed(AdmissionStage::Mutating, operation, target, context);
        if is_mutated {
            let deleted = attributes(operation, target, context, None, Some(old))?;
            self.chain
                .mutate(deleted, context, &self.catalog(), &self.store)
                .await?;
        }
        self.review(operation, target, context, None, Some(old)).await
    }

    /// Returns whether the rules of a policy or a webhook match a write.
    fn is_reviewed(
        &self,
        stage: AdmissionStage,
        operation: AdmissionOperation,
        target: &ObjectTarget,
        context: &WriteContext,
    ) -> bool {
        self.chain.applies(target, context) && {
            let write = AdmissionAttributes::new(operation, target, context, None, None);
            self.chain.has_rules_for(stage, &write, &self.catalog())
        }
    }
}

/// Returns the attributes of a write. A scale is reviewed as such, not as the object that has it.
fn attributes(
    operation: AdmissionOperation,
    target: &ObjectTarget,
    context: &WriteContext,
    object: Option<&JsonObject>,
    old: Option<&JsonObject>,
) -> Result<AdmissionAttributes, ApiError> {
    if target.subresource != "scale" {
        return Ok(AdmissionAttributes::new(operation, target, context, object, old));
    }
    let shown =
        |object: Option<&JsonObject>| object.map(|object| scale::as_scale(target, object)).transpose();
    let (object, old) = (shown(object)?, shown(old)?);
    Ok(AdmissionAttributes::new(
        operation,
        target,
        context,
        object.as_ref(),
        old.as_ref(),
    ))
}

/// Returns a mutated object in the form that is stored, if it is one of the right type and name.
fn accept(
    target: &ObjectTarget,
    context: &WriteContext,
    before: &JsonObject,
    mutated: Value,
) -> Result<JsonObject, ApiError> {
    let definition = &target.definition;
    let mut mutated = mutated;
    if let Some(schema) = definition.type_schema() {
        if let Some(problem) = decode::type_error(&mutated, &schema) {
            return Err(ApiError::internal(problem));
        }
        typed::conform(&mut mutated, &schema);
    }
    let Value::Object(mut object) = mutated else {
        return Err(ApiError::internal(
            "an admission webhook does not leave an object",
        ));
    };
    strategy::require_same_type(definition, &mut object)?;
    if meta::name(&object) != meta::name(before) || meta::namespace(&object) != meta::namespace(before) {
        return Err(ApiError::internal(
            "an admission webhook may not change metadata.name or metadata.namespace",
        ));
    }
    // What a webhook adds is not checked more strictly than what it is: unknown fields are dropped.
    let context = WriteContext {
        field_validation: decode::FieldValidation::Ignore,
        ..context.clone()
    };
    let (mut object, _) = validate::normalise(target, &context, object)?;
    strategy::default_fields(target, &mut object);
    strategy::as_encoded(definition, &mut object);
    Ok(object)
}

/// When a client retries a write that a limit has rejected. Quotas become free as objects expire, not at once.
const RETRY_AFTER_SECONDS: u32 = 60;

fn refused(target: &ObjectTarget, message: &str, code: StatusCode) -> ApiError {
    let mut error = ApiError::forbidden(target.definition.subject(&target.name), message);
    error.code = code;
    match code {
        StatusCode::UNPROCESSABLE_ENTITY => error.reason = "Invalid".into(),
        StatusCode::NOT_FOUND => {
            error.reason = "NotFound".into();
            message.clone_into(&mut error.message);
        }
        StatusCode::TOO_MANY_REQUESTS => {
            return ApiError::too_many_requests(message, RETRY_AFTER_SECONDS);
        }
        _ => {}
    }
    error
}
