//! Patch: the four patch formats.

use parking_lot::Mutex;
use serde_json::Value;

use super::update::IfMissing;
use super::{
    ManagedFieldsUpdate, ObjectRegistry, ObjectTarget, UpdateResult, WriteContext, strategy, typed, validate,
};
use crate::decode::{self, FieldValidation};
use crate::error::ApiError;
use crate::meta::JsonObject;
use crate::patch::PatchError;
use crate::patch::json::JsonPatch;
use crate::patch::merge::MergePatch;
use crate::patch::strategic::StrategicPatch;

/// A patch of an object.
#[derive(Clone, Debug)]
pub enum ObjectPatch {
    Json(JsonPatch),
    Merge(MergePatch),
    Strategic(StrategicPatch),
    Apply { object: Value, force: bool },
}

impl ObjectPatch {
    /// Returns the name of the patch in messages.
    fn text(&self) -> String {
        match self {
            Self::Json(patch) => format!("{patch:?}"),
            Self::Merge(patch) => Value::Object(patch.fields().clone()).to_string(),
            Self::Strategic(patch) => format!("{patch:?}"),
            Self::Apply { object, .. } => object.to_string(),
        }
    }
}

impl From<PatchError> for ApiError {
    fn from(error: PatchError) -> Self {
        Self::patch(&error)
    }
}

impl ObjectRegistry {
    /// Patches an object. An apply creates a missing one.
    pub async fn patch(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        patch: &ObjectPatch,
    ) -> Result<UpdateResult, ApiError> {
        let if_missing = match patch {
            ObjectPatch::Apply { .. } if target.subresource.is_empty() => IfMissing::Create,
            _ => IfMissing::NotFound,
        };
        // The warnings of the last attempt; earlier ones were made on outdated versions.
        let attempt_warnings = Mutex::new(Vec::new());
        let change = |old: Option<&JsonObject>| {
            let (object, warnings) = self.patched_object(target, context, patch, old)?;
            *attempt_warnings.lock() = warnings;
            Ok(object)
        };
        let context = WriteContext {
            managed_fields: if matches!(patch, ObjectPatch::Apply { .. }) {
                ManagedFieldsUpdate::Done
            } else {
                ManagedFieldsUpdate::Pending
            },
            ..context.clone()
        };
        let mut updated = self
            .write_with_retry(target, &context, if_missing, &change)
            .await?;
        updated
            .written
            .warnings
            .splice(0..0, attempt_warnings.into_inner());
        let strict_errors = match patch {
            ObjectPatch::Json(patch) => patch.strict_errors.as_slice(),
            ObjectPatch::Merge(patch) => patch.strict_errors.as_slice(),
            ObjectPatch::Strategic(patch) => patch.strict_errors.as_slice(),
            ObjectPatch::Apply { .. } => &[],
        };
        updated
            .written
            .warnings
            .splice(0..0, strict_errors.iter().cloned());
        Ok(updated)
    }

    /// Returns the object that results from a patch, and warnings.
    fn patched_object(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        patch: &ObjectPatch,
        old: Option<&JsonObject>,
    ) -> Result<(JsonObject, Vec<String>), ApiError> {
        let definition = &target.definition;
        let mut changed = match (patch, old) {
            (ObjectPatch::Apply { object, force }, _) => {
                self.applied_object(target, context, old, object, *force)?
            }
            (_, None) => return Err(target.not_found()),
            (_, Some(old)) => {
                let mut view = old.clone();
                strategy::from_storage(definition, &mut view);
                Value::Object(view)
            }
        };
        let schema = definition.type_schema();
        match (patch, &schema) {
            (ObjectPatch::Json(patch), _) => patch.apply(&mut changed)?,
            (ObjectPatch::Merge(patch), _) => patch.apply(&mut changed),
            (ObjectPatch::Strategic(patch), Some(schema)) => patch.apply(&mut changed, schema)?,
            (ObjectPatch::Strategic(_), None) => {
                return Err(ApiError::unsupported_media_type(&[
                    "application/merge-patch+json",
                ]));
            }
            (ObjectPatch::Apply { .. }, _) => {}
        }
        let mut warnings = Vec::new();
        if let Some(schema) = &schema {
            if let Some(problem) = decode::type_error(&changed, schema) {
                return Err(ApiError::strict_patch(&patch.text(), &problem));
            }
            warnings = typed::conform(&mut changed, schema);
            if context.field_validation == FieldValidation::Strict && !warnings.is_empty() {
                return Err(ApiError::strict_patch(
                    &patch.text(),
                    &decode::strict_message(&warnings),
                ));
            }
            if context.field_validation == FieldValidation::Ignore {
                warnings.clear();
            }
        }
        let Value::Object(mut changed) = changed else {
            return Err(ApiError::bad_request("the patch does not leave an object"));
        };
        if definition.is_custom() {
            (changed, warnings) = validate::normalise(target, context, changed)?;
        }
        strategy::require_same_type(definition, &mut changed)?;
        let name = crate::meta::name(&changed);
        if name != target.name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                target.name
            )));
        }
        Ok((changed, warnings))
    }
}
