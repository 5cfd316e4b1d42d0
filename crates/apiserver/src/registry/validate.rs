//! Validation of every object before it is stored.

use serde_json::Value;

use super::{ObjectTarget, WriteContext, typed};
use crate::catalog::{DefinitionSource, ResourceDefinition};
use crate::cpu;
use crate::decode::{self, FieldValidation};
use crate::error::ApiError;
use crate::field_error::FieldError;
use crate::kinds::{KindScope, KindStorage};
use crate::meta::JsonObject;
use crate::object_meta::{self, NameRule};
use crate::rules;
use crate::schema::validate_definition;

/// Converts an object from a client into the form of its type. Unknown fields are dropped and, by field validation,
/// rejected, reported or ignored. A custom resource also gets its defaults.
pub(super) fn normalise(
    target: &ObjectTarget,
    context: &WriteContext,
    object: JsonObject,
) -> Result<(JsonObject, Vec<String>), ApiError> {
    let definition = &target.definition;
    let mut value = Value::Object(object);
    let strict_errors = match &definition.source {
        // Unknown fields of the body were reported when it was decoded; what is left comes from elsewhere.
        DefinitionSource::BuiltIn(_) => {
            if let Some(schema) = definition.storage_schema() {
                typed::conform(&mut value, &schema);
            }
            Vec::new()
        }
        DefinitionSource::Custom(version) => version
            .schema
            .normalise(&mut value)
            .map_err(ApiError::bad_request)?,
    };
    let strict_errors = accept(definition, context, strict_errors)?;
    into_object(value).map(|object| (object, strict_errors))
}

/// Rejects, returns as warnings or ignores strict decoding errors, by field validation.
pub(super) fn accept(
    definition: &ResourceDefinition,
    context: &WriteContext,
    strict_errors: Vec<String>,
) -> Result<Vec<String>, ApiError> {
    match context.field_validation {
        FieldValidation::Strict if !strict_errors.is_empty() => Err(ApiError::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: {}",
            definition.kind,
            definition.version,
            definition.kind,
            decode::strict_message(&strict_errors)
        ))),
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict | FieldValidation::Warn => Ok(strict_errors),
    }
}

/// Validates an object to create and returns warnings.
pub(super) fn new_object(
    target: &ObjectTarget,
    object: JsonObject,
) -> Result<(JsonObject, Vec<String>), ApiError> {
    let definition = &target.definition;
    let value = Value::Object(object);
    let scope = if definition.namespaced {
        KindScope::Namespaced
    } else {
        KindScope::Cluster
    };
    let mut errors = object_meta::validate_create(&value, scope, name_rule(definition));
    errors.extend(kind_errors(definition, &value, None));
    if let DefinitionSource::Custom(version) = &definition.source {
        errors.extend(version.schema.validate(&value, None));
    }
    refuse(target, &errors)?;
    let warnings = warnings(definition, &value);
    into_object(value).map(|object| (object, warnings))
}

/// A valid object before and after a change. Both are passed through, because copying them is most of the cost of a
/// small change.
pub(super) struct ValidChange {
    pub old: JsonObject,
    pub new: JsonObject,
    pub warnings: Vec<String>,
}

/// Validates an object that replaces another.
pub(super) fn changed_object(
    target: &ObjectTarget,
    old: JsonObject,
    new: JsonObject,
) -> Result<ValidChange, ApiError> {
    let definition = &target.definition;
    let (old, value) = (Value::Object(old), Value::Object(new));
    let mut errors = object_meta::validate_update(&value, &old);
    errors.extend(kind_errors(definition, &value, Some(&old)));
    if let DefinitionSource::Custom(version) = &definition.source {
        errors.extend(match target.subresource.as_str() {
            "status" => version.schema.validate_status(&value, &old),
            _ => version.schema.validate(&value, Some(&old)),
        });
    }
    refuse(target, &errors)?;
    let warnings = warnings(definition, &value);
    Ok(ValidChange {
        old: into_object(old)?,
        new: into_object(value)?,
        warnings,
    })
}

fn into_object(value: Value) -> Result<JsonObject, ApiError> {
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(ApiError::internal("an object is no longer one")),
    }
}

/// Rules of single kinds; those of custom resources are in their schemas.
fn kind_errors(definition: &ResourceDefinition, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let DefinitionSource::BuiltIn(kind) = definition.source else {
        return Vec::new();
    };
    let mut errors = Vec::new();
    if kind.group.is_empty() {
        errors.extend(object_meta::unqualified_finalizers(new));
    }
    errors.extend(match (kind.group, kind.kind) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") => validate_definition(new, old),
        (group, kind) => rules::check(group, kind, new, old),
    });
    errors
}

fn warnings(definition: &ResourceDefinition, value: &Value) -> Vec<String> {
    if definition.is_custom() {
        object_meta::finalizer_warnings(value)
    } else {
        Vec::new()
    }
}

fn refuse(target: &ObjectTarget, errors: &[FieldError]) -> Result<(), ApiError> {
    // Validation that ran out of time is incomplete.
    cpu::check()?;
    if errors.is_empty() {
        return Ok(());
    }
    let definition = &target.definition;
    // An object that is stored as another group's kind is reported as that kind.
    let group = match &definition.source {
        DefinitionSource::BuiltIn(kind) => match kind.storage {
            KindStorage::SharedWith { group, .. } => group,
            KindStorage::Own | KindStorage::Virtual => kind.group,
        },
        DefinitionSource::Custom(_) => &definition.group,
    };
    Err(ApiError::invalid(group, &definition.kind, &target.name, errors))
}

fn name_rule(definition: &ResourceDefinition) -> NameRule {
    match (definition.group.as_str(), definition.kind.as_str()) {
        _ if definition.is_custom() => NameRule::Subdomain,
        ("rbac.authorization.k8s.io", _) => NameRule::PathSegment,
        ("", "Namespace") => NameRule::Label,
        ("", "Service") => NameRule::Label1035,
        _ => NameRule::Subdomain,
    }
}
