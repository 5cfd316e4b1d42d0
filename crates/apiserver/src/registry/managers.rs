//! Managed fields of writes, and server-side apply.

use serde_json::Value;

use super::{ObjectRegistry, ObjectTarget, WriteContext, strategy};
use crate::apply::{self, FieldManager, FieldManagerError};
use crate::catalog::{DefinitionSource, ResourceDefinition};
use crate::clock::rfc3339;
use crate::error::ApiError;
use crate::meta::JsonObject;
use crate::schema::Schema;

/// Whether managed fields must still be updated for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagedFieldsUpdate {
    Pending,
    /// An apply has already updated them.
    Done,
}

impl ObjectRegistry {
    /// Updates managed fields after a write that was not an apply.
    pub(super) fn record_managers(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        old: Option<&mut JsonObject>,
        new: &mut JsonObject,
    ) {
        if context.managed_fields == ManagedFieldsUpdate::Done {
            return;
        }
        let definition = &target.definition;
        let now = rfc3339(self.clock.now());
        self.with_manager(target, |manager| {
            let update = |live: Option<&mut Value>, new: &mut JsonObject| {
                as_requested(definition, new, |new| {
                    manager.update(live, new, &context.field_manager, &now);
                    if target.subresource == "scale" {
                        remove_times(new);
                    }
                });
            };
            match old {
                // Its other form is lossy, and the old object is compared with the new one later.
                Some(old) if definition.is_event_alias() => update(Some(&mut shown(target, old)), new),
                Some(old) => as_requested(definition, old, |old| update(Some(old), new)),
                None => {
                    // A typed object that is created counts as an update of the zero object: required fields are not
                    // new.
                    let mut unset = strategy::unset(definition).map(|unset| shown(target, &unset));
                    update(unset.as_mut(), new);
                }
            }
        });
    }

    /// Returns the object that results from applying a configuration.
    pub(super) fn applied_object(
        &self,
        target: &ObjectTarget,
        context: &WriteContext,
        old: Option<&JsonObject>,
        config: &Value,
        force: bool,
    ) -> Result<Value, ApiError> {
        let live = old.map(|old| shown(target, old));
        let now = rfc3339(self.clock.now());
        let applied = self.with_manager(target, |manager| {
            manager.apply(live.as_ref(), config, &context.field_manager, force, &now)
        });
        applied.map_err(|error| match &error {
            FieldManagerError::Conflicts(conflicts) => {
                let causes: Vec<_> = conflicts
                    .iter()
                    .map(|conflict| (conflict.field(), conflict.message()))
                    .collect();
                ApiError::apply_conflict(error.to_string(), &causes)
            }
            FieldManagerError::Malformed(why) => ApiError::bad_request(why.clone()),
            FieldManagerError::Unmergeable(why) => ApiError::unclassified(why.clone()),
        })
    }

    fn with_manager<T>(&self, target: &ObjectTarget, work: impl FnOnce(&FieldManager<'_>) -> T) -> T {
        let definition = &target.definition;
        let schema = schema(definition);
        let api_version = definition.api_version();
        let reset = match &definition.source {
            DefinitionSource::BuiltIn(kind) => apply::reset_fields(kind, &target.subresource),
            DefinitionSource::Custom(_) => {
                apply::custom_reset_fields(definition.has_status(), &target.subresource)
            }
        };
        work(&FieldManager {
            schema: &schema,
            api_version: &api_version,
            subresource: &target.subresource,
            reset,
            served: &self.served_versions(definition),
        })
    }

    fn served_versions(&self, definition: &ResourceDefinition) -> Vec<String> {
        let catalog = self.catalog();
        let same = catalog
            .definitions()
            .iter()
            .filter(|other| other.group == definition.group && other.plural == definition.plural);
        same.map(|other| other.api_version()).collect()
    }
}

/// Kubernetes records no time for writes of the scale subresource.
fn remove_times(object: &mut Value) {
    let entries = object
        .pointer_mut("/metadata/managedFields")
        .and_then(Value::as_array_mut);
    for entry in entries
        .into_iter()
        .flatten()
        .filter(|entry| entry["subresource"] == "scale")
    {
        if let Some(entry) = entry.as_object_mut() {
            entry.remove("time");
        }
    }
}

/// Transforms an object in the version of the request, in place.
fn as_requested(definition: &ResourceDefinition, object: &mut JsonObject, work: impl FnOnce(&mut Value)) {
    strategy::from_storage(definition, object);
    let mut value = Value::Object(std::mem::take(object));
    work(&mut value);
    if let Value::Object(worked_on) = value {
        *object = worked_on;
        strategy::to_storage(definition, object);
    }
}

/// Returns the object in the version of the request, which is that of its managed fields.
fn shown(target: &ObjectTarget, object: &JsonObject) -> Value {
    let mut object = object.clone();
    strategy::from_storage(&target.definition, &mut object);
    Value::Object(object)
}

fn schema(definition: &ResourceDefinition) -> Schema {
    match &definition.source {
        DefinitionSource::Custom(version) => version.schema.schema().clone(),
        DefinitionSource::BuiltIn(_) => definition
            .type_schema()
            .unwrap_or_else(|| crate::schema::compile(&Value::Null)),
    }
}
