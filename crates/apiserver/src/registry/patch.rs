//! Patch: the four ways to describe a change.

use serde_json::Value;

use super::{Patch, Registry, Target, Updated, WriteContext, strategy};
use crate::error::ApiError;
use crate::meta::Object;

impl Registry {
    /// Changes an object as a patch describes; an apply creates what is missing.
    pub async fn patch(&self, target: &Target, context: &WriteContext, patch: &Patch) -> Result<Updated, ApiError> {
        let create = matches!(patch, Patch::Apply { .. }) && target.subresource.is_empty();
        self.mutate(target, context, create, &|old| self.patched(target, context, patch, old)).await
    }

    fn patched(&self, target: &Target, _context: &WriteContext, patch: &Patch, old: Option<&Object>) -> Result<Object, ApiError> {
        let Some(old) = old else {
            return Err(target.not_found());
        };
        let mut view = old.clone();
        strategy::from_storage(&target.definition, &mut view);
        let changed = match patch {
            Patch::Merge(patch) => merge(Value::Object(view), patch),
            Patch::Json(_) | Patch::Strategic(_) | Patch::Apply { .. } => {
                return Err(ApiError::unsupported_media_type(&["application/merge-patch+json"]));
            }
        };
        let Value::Object(mut changed) = changed else {
            return Err(ApiError::bad_request("the patch does not leave an object"));
        };
        strategy::require_same_type(&target.definition, &mut changed)?;
        Ok(changed)
    }
}

fn merge(target: Value, patch: &Value) -> Value {
    let Value::Object(changes) = patch else {
        return patch.clone();
    };
    let mut merged = match target {
        Value::Object(fields) => fields,
        _ => Object::new(),
    };
    for (field, change) in changes {
        if change.is_null() {
            merged.remove(field);
        } else {
            let before = merged.remove(field).unwrap_or(Value::Null);
            merged.insert(field.clone(), merge(before, change));
        }
    }
    Value::Object(merged)
}
