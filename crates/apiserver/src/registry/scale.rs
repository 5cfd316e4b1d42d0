//! The scale subresource.

use serde_json::{Value, json};

use super::update::IfMissing;
use super::{ObjectRegistry, ObjectTarget, WriteContext};
use crate::catalog::{DefinitionSource, ScalePaths};
use crate::error::ApiError;
use crate::field_error::FieldError;
use crate::meta::{self, JsonObject};
use crate::selector::LabelSelector;
use crate::store::StoredObject;

impl ObjectRegistry {
    /// Returns the scale of an object.
    pub fn scale(&self, target: &ObjectTarget) -> Result<Value, ApiError> {
        let stored = self.get(target)?;
        scale_of(target, &stored)
    }

    /// Sets the replicas of a changed scale.
    pub async fn set_scale(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        change: &(dyn Fn(Value) -> Result<Value, ApiError> + Send + Sync),
    ) -> Result<Value, ApiError> {
        let paths = paths(target)?;
        let updated = self
            .write_with_retry(target, context, IfMissing::NotFound, &|old| {
                let Some(old) = old else {
                    return Err(target.not_found());
                };
                let scale = change(shown(target, &paths, old))?;
                let wanted = scale
                    .pointer("/spec/replicas")
                    .and_then(Value::as_i64)
                    .unwrap_or(0);
                if wanted < 0 {
                    return Err(negative(target, &paths, wanted));
                }
                let mut new = old.clone();
                set_number(&mut new, &paths.spec_replicas, wanted);
                if let Some(version) = scale.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
                    meta::set_meta(&mut new, "resourceVersion", version);
                }
                Ok(new)
            })
            .await?;
        scale_of(target, &updated.written.stored)
    }
}

/// Returns the scale of an object, as admission reviews it.
pub(super) fn as_scale(target: &ObjectTarget, object: &JsonObject) -> Result<JsonObject, ApiError> {
    match shown(target, &paths(target)?, object) {
        Value::Object(scale) => Ok(scale),
        _ => Err(ApiError::internal("a scale is not an object")),
    }
}

/// Returns the object with the replicas of a changed scale.
pub(super) fn with_replicas(
    target: &ObjectTarget,
    mut object: JsonObject,
    scale: &Value,
) -> Result<JsonObject, ApiError> {
    let replicas = scale
        .pointer("/spec/replicas")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    set_number(&mut object, &paths(target)?.spec_replicas, replicas);
    Ok(object)
}

/// Returns the field in errors: that of the custom resource, or that of the scale for built-in kinds.
fn negative(target: &ObjectTarget, paths: &ScalePaths, wanted: i64) -> ApiError {
    let definition = &target.definition;
    let (group, kind, field, why) = if definition.is_custom() {
        let (group, kind) = (definition.group.as_str(), definition.kind.as_str());
        (
            group,
            kind,
            paths.spec_replicas.as_str(),
            "should be a non-negative integer",
        )
    } else {
        (
            "autoscaling",
            "Scale",
            "spec.replicas",
            "must be greater than or equal to 0",
        )
    };
    let error = FieldError::invalid(field, &Value::from(wanted), why);
    ApiError::invalid(group, kind, &target.name, &[error])
}

fn scale_of(target: &ObjectTarget, stored: &StoredObject) -> Result<Value, ApiError> {
    Ok(shown(target, &paths(target)?, &stored.value()?))
}

fn paths(target: &ObjectTarget) -> Result<ScalePaths, ApiError> {
    match &target.definition.source {
        DefinitionSource::BuiltIn(_) => Ok(ScalePaths {
            spec_replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            label_selector: Some(".spec.selector".to_owned()),
        }),
        DefinitionSource::Custom(version) => version.scale.clone().ok_or_else(ApiError::unknown_resource),
    }
}

fn shown(target: &ObjectTarget, paths: &ScalePaths, object: &JsonObject) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = meta::metadata(object).and_then(|metadata| metadata.get(field)) {
            metadata[field] = value.clone();
        }
    }
    let at = |path: &str| Value::Object(object.clone()).pointer(&pointer(path)).cloned();
    let replicas = |path: &str| at(path).and_then(|value| value.as_i64()).unwrap_or(0);
    let mut status = json!({"replicas": replicas(&paths.status_replicas)});
    let selector = paths
        .label_selector
        .as_deref()
        .and_then(at)
        .and_then(|selector| match selector {
            Value::String(text) => Some(text),
            object @ Value::Object(_) if !target.definition.is_custom() => {
                LabelSelector::from_object(Some(&object))
                    .ok()
                    .map(|selector| selector.to_string())
            }
            _ => None,
        });
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        status["selector"] = Value::from(selector);
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {"replicas": replicas(&paths.spec_replicas)}, "status": status})
}

/// Returns `.spec.replicas` as a JSON pointer.
fn pointer(dotted: &str) -> String {
    dotted.replace('.', "/")
}

fn set_number(object: &mut JsonObject, dotted: &str, number: i64) {
    let steps: Vec<&str> = dotted.split('.').filter(|step| !step.is_empty()).collect();
    let Some((last, parents)) = steps.split_last() else {
        return;
    };
    let mut at = object;
    for step in parents {
        let slot = at.entry(*step).or_insert_with(|| json!({}));
        let Value::Object(next) = slot else {
            return;
        };
        at = next;
    }
    at.insert((*last).to_owned(), Value::from(number));
}
