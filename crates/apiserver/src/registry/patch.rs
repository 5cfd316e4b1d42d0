//! Patch: the four patch formats.

use parking_lot::Mutex;
use serde_json::Value;

use super::{Record, Registry, Target, Updated, WriteContext, strategy, typed, validate};
use crate::decode::{self, FieldValidation};
use crate::error::ApiError;
use crate::meta::Object;
use crate::patch::PatchError;
use crate::patch::json::JsonPatch;
use crate::patch::merge::MergePatch;
use crate::patch::strategic::StrategicPatch;

/// A patch of an object.
#[derive(Clone, Debug)]
pub enum Patch {
    Json(JsonPatch),
    Merge(MergePatch),
    Strategic(StrategicPatch),
    Apply { object: Value, force: bool },
}

impl Patch {
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

impl Registry {
    /// Patches an object. An apply creates a missing one.
    pub async fn patch(
        &self,
        target: &Target,
        context: &WriteContext,
        patch: &Patch,
    ) -> Result<Updated, ApiError> {
        let create = matches!(patch, Patch::Apply { .. }) && target.subresource.is_empty();
        // The warnings of the last attempt; earlier ones were made on outdated versions.
        let noted = Mutex::new(Vec::new());
        let change = |old: Option<&Object>| {
            let (object, warnings) = self.patched(target, context, patch, old)?;
            *noted.lock() = warnings;
            Ok(object)
        };
        let context = WriteContext {
            record: if matches!(patch, Patch::Apply { .. }) {
                Record::Done
            } else {
                Record::Due
            },
            ..context.clone()
        };
        let mut updated = self.mutate(target, &context, create, &change).await?;
        updated.written.warnings.splice(0..0, noted.into_inner());
        let objections = match patch {
            Patch::Json(patch) => patch.objections.as_slice(),
            Patch::Merge(patch) => patch.objections.as_slice(),
            Patch::Strategic(patch) => patch.objections.as_slice(),
            Patch::Apply { .. } => &[],
        };
        updated.written.warnings.splice(0..0, objections.iter().cloned());
        Ok(updated)
    }

    fn patched(
        &self,
        target: &Target,
        context: &WriteContext,
        patch: &Patch,
        old: Option<&Object>,
    ) -> Result<(Object, Vec<String>), ApiError> {
        let definition = &target.definition;
        let mut changed = match (patch, old) {
            (Patch::Apply { object, force }, _) => self.applied(target, context, old, object, *force)?,
            (_, None) => return Err(target.not_found()),
            (_, Some(old)) => {
                let mut view = old.clone();
                strategy::from_storage(definition, &mut view);
                Value::Object(view)
            }
        };
        let schema = definition.type_schema();
        match (patch, &schema) {
            (Patch::Json(patch), _) => patch.apply(&mut changed)?,
            (Patch::Merge(patch), _) => patch.apply(&mut changed),
            (Patch::Strategic(patch), Some(schema)) => patch.apply(&mut changed, schema)?,
            (Patch::Strategic(_), None) => {
                return Err(ApiError::unsupported_media_type(&[
                    "application/merge-patch+json",
                ]));
            }
            (Patch::Apply { .. }, _) => {}
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
        let given = crate::meta::name(&changed);
        if given != target.name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({})",
                target.name
            )));
        }
        Ok((changed, warnings))
    }
}
