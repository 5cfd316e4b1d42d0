//! The checks every object passes before it is stored.

use serde_json::Value;

use super::{Registry, Target, WriteContext, strategy};
use crate::error::ApiError;
use crate::field_error::FieldError;
use crate::meta::{self, Object};
use crate::names;

/// Fields that the type does not have: refused, reported or ignored, as the client asked.
pub(super) fn unknown_fields(_target: &Target, _context: &WriteContext, _object: &Object) -> Result<Vec<String>, ApiError> {
    Ok(Vec::new())
}

/// Completes and checks an object that is about to be created.
pub(super) fn new_object(_registry: &Registry, target: &Target, object: Object) -> Result<(Object, Vec<String>), ApiError> {
    let errors = metadata(target, &object);
    refuse(target, &errors)?;
    Ok((object, Vec::new()))
}

/// Completes and checks an object that is about to replace another.
pub(super) fn changed_object(
    _registry: &Registry,
    target: &Target,
    old: &Object,
    object: Object,
) -> Result<(Object, Vec<String>), ApiError> {
    let mut errors = strategy::immutable_metadata(old, &object);
    errors.extend(metadata(target, &object));
    refuse(target, &errors)?;
    Ok((object, Vec::new()))
}

fn refuse(target: &Target, errors: &[FieldError]) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    let definition = &target.definition;
    Err(ApiError::invalid(&definition.group, &definition.kind, &target.name, errors))
}

/// `metadata`: the name by the rule of its kind, and labels, annotations and finalizers by theirs.
fn metadata(target: &Target, object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = meta::name(object);
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        for problem in name_problems(target, name) {
            errors.push(FieldError::invalid("metadata.name", &Value::from(name), &problem));
        }
    }
    for (key, value) in meta::labels(object).into_iter().flatten() {
        for problem in names::label_key(key) {
            errors.push(FieldError::invalid("metadata.labels", &Value::from(key.as_str()), &problem));
        }
        let text = value.as_str().unwrap_or_default();
        for problem in names::label_value(text) {
            errors.push(FieldError::invalid("metadata.labels", &Value::from(text), &problem));
        }
    }
    let annotations = meta::metadata(object).and_then(|metadata| metadata.get("annotations"));
    for key in annotations.and_then(Value::as_object).into_iter().flat_map(serde_json::Map::keys) {
        for problem in names::label_key(&key.to_ascii_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", &Value::from(key.as_str()), &problem));
        }
    }
    errors
}

fn name_problems(target: &Target, name: &str) -> Vec<String> {
    let definition = &target.definition;
    match definition.group.as_str() {
        "rbac.authorization.k8s.io" => names::path_segment(name),
        "" if definition.kind == "Namespace" => names::dns1123_label(name),
        "" if definition.kind == "Service" => names::dns1035_label(name),
        _ => names::dns1123_subdomain(name),
    }
}
