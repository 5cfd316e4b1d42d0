//! Server-side apply and field ownership.
//!
//! [`FieldManager`] computes the object that results from an apply, and the owners of its fields after every write. It
//! does not validate, default or store.

mod check;
mod combine;
mod compare;
mod extract;
mod field_set;
mod fields_v1;
mod last_applied;
mod managers;
mod reset;
mod typed;

pub use compare::FieldComparison;
pub use field_set::{FieldPath, FieldSet, PathElement, show};
pub use managers::{ManagedEntry, ManagerId, ManagerOperation, Managers, manager_name};
pub use reset::{custom_reset_fields, reset_fields};

use serde_json::{Map, Value};

use crate::schema::Schema;
use typed::TypedPosition;

/// The manager of existing fields when the first apply finds an object without managed fields.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Fields without an owner, because the server sets them.
const UNOWNED: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

/// Field ownership for the objects of one kind, version and subresource.
#[derive(Clone, Copy, Debug)]
pub struct FieldManager<'a> {
    pub schema: &'a Schema,
    /// The version of requests at this endpoint.
    pub api_version: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Fields that a write at this endpoint cannot change; see [`reset_fields`].
    pub reset: &'a [&'a [&'a str]],
    /// Every served version of the kind; entries of other versions are dropped.
    pub served: &'a [String],
}

/// A field that another manager owns with another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyConflict {
    pub manager: ManagerId,
    pub path: FieldPath,
}

/// The reason why an apply failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldManagerError {
    /// 409 Conflict; one cause of reason `FieldManagerConflict` for each conflict.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<ApplyConflict>),
    /// 400 BadRequest.
    #[error("{0}")]
    Malformed(String),
    /// 500: the configuration cannot be merged, as in Kubernetes.
    #[error("{0}")]
    Unmergeable(String),
}

impl ApplyConflict {
    /// Returns the message of the status cause.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager.shown())
    }

    /// Returns the field of the status cause.
    pub fn field(&self) -> String {
        show(&self.path)
    }
}

impl FieldManager<'_> {
    /// Updates the managed fields after a create, update or patch; `live` is the object before.
    ///
    /// `now` is the time of the write in RFC 3339.
    pub fn update(&self, live: Option<&mut Value>, new: &mut Value, manager: &str, now: &str) {
        let mut managers = self.record_for_update(live.as_deref(), new);
        take_record(new);
        let existed = live
            .as_ref()
            .is_some_and(|live| live.pointer("/metadata/uid").is_some());
        // An object without managed fields gets them with the first apply.
        if managers.is_empty() && existed {
            return;
        }
        let mut nothing = Value::Object(Map::new());
        let live = live.unwrap_or(&mut nothing);
        let record = take_record(live);
        let id = ManagerId::new(
            manager,
            ManagerOperation::Update,
            self.api_version,
            self.subresource,
        );
        self.record_update(live, new, &mut managers, &id, now);
        managers.encode_into(new);
        if let (Some(record), Some(metadata)) = (record, managers::metadata_mut(live)) {
            metadata.insert("managedFields".to_owned(), record);
        }
    }

    /// Merges a configuration into an object and updates the owners of its fields.
    ///
    /// Returns the object with its managed fields. It equals the live object if the apply changes nothing.
    pub fn apply(
        &self,
        live: Option<&Value>,
        config: &Value,
        manager: &str,
        force: bool,
        now: &str,
    ) -> Result<Value, FieldManagerError> {
        let outcome = self.apply_once(live, config, manager, force, now);
        let live = live.unwrap_or(&Value::Null);
        let mut applied = match outcome {
            Err(FieldManagerError::Conflicts(conflicts)) if manager == last_applied::KUBECTL => {
                match last_applied::unresolved(self, live, conflicts) {
                    None => self.apply_once(Some(live), config, manager, true, now)?,
                    Some(rest) => return Err(FieldManagerError::Conflicts(rest)),
                }
            }
            outcome => outcome?,
        };
        if manager == last_applied::KUBECTL {
            last_applied::refresh(&mut applied, config);
        }
        Ok(applied)
    }

    fn apply_once(
        &self,
        live: Option<&Value>,
        config: &Value,
        manager: &str,
        force: bool,
        now: &str,
    ) -> Result<Value, FieldManagerError> {
        if config
            .pointer("/metadata/managedFields")
            .is_some_and(|record| !record.is_null())
        {
            return Err(FieldManagerError::Malformed(
                "metadata.managedFields must be nil".to_owned(),
            ));
        }
        let typed = self.typed();
        if let Some(problem) = check::misfit(config, typed) {
            let shown = describe(config);
            return Err(FieldManagerError::Unmergeable(format!(
                "failed to create typed patch object ({shown}): {problem}"
            )));
        }
        let mut managers = live.map_or_else(Managers::default, |live| {
            Managers::decode(live).unwrap_or_default()
        });
        let live = without_record(live);
        if managers.is_empty() {
            let id = ManagerId::new(
                BEFORE_FIRST_APPLY,
                ManagerOperation::Update,
                self.api_version,
                self.subresource,
            );
            self.record_update(&type_of(config), &live, &mut managers, &id, now);
        }
        managers.retain_versions(|version| self.is_served(version));

        let id = ManagerId::new(
            manager,
            ManagerOperation::Apply,
            self.api_version,
            self.subresource,
        );
        let last = managers.get(&id).cloned();
        let owned = extract::field_set(config, typed).without_subtrees(&self.reset_set());
        let merged = combine::merge(&live, config, typed);
        let time = last.as_ref().and_then(|managed| managed.time.clone());
        managers.insert(
            id.clone(),
            ManagedEntry {
                set: owned,
                api_version: self.api_version.to_owned(),
                time,
            },
        );
        let mut object = self.prune(merged, &managers, last.as_ref());

        let comparison = self.compare(&live, &object);
        settle(&mut managers, &comparison, &id, force)?;
        if let Some(mut managed) = managers.remove(&id) {
            managed.set = managed.set.difference(&unowned());
            if object != live {
                managed.time = Some(now.to_owned());
            }
            if !managed.set.is_empty() {
                managers.insert(id, managed);
            }
        }
        managers.encode_into(&mut object);
        Ok(object)
    }

    fn record_update(&self, live: &Value, new: &Value, managers: &mut Managers, id: &ManagerId, now: &str) {
        managers.retain_versions(|version| self.is_served(version));
        let comparison = self.compare(live, new);
        let changed = comparison.changed();
        managers.update_sets(|_, set| set.difference(&changed).difference(&comparison.removed));
        let set = changed.without_subtrees(&self.reset_set()).difference(&unowned());
        if !set.is_empty() {
            let earlier = managers.remove(id).map(|managed| managed.set).unwrap_or_default();
            managers.insert(
                id.clone(),
                ManagedEntry {
                    set: set.union(&earlier),
                    api_version: self.api_version.to_owned(),
                    time: Some(now.to_owned()),
                },
            );
        }
        managers.cap_updaters();
    }

    /// Removes fields that the manager applied before, does not apply any more, and that have no other owner.
    fn prune(&self, merged: Value, managers: &Managers, last: Option<&ManagedEntry>) -> Value {
        let Some(last) = last.filter(|managed| !managed.set.is_empty()) else {
            return merged;
        };
        let typed = self.typed();
        let named = |set: &FieldSet| combine::with_named_fields(set, typed);
        let last = named(&last.set);
        let pruned = combine::remove(&merged, &last, typed);
        let owned = managers
            .iter()
            .fold(FieldSet::default(), |all, (_, managed)| all.union(&managed.set));
        let everything = named(&extract::field_set(&merged, typed));
        let kept = named(&extract::field_set(&pruned, typed)).union(&named(&owned));
        let pruned = combine::remove(&merged, &everything.difference(&kept), typed);
        let kept = named(&extract::field_set(&pruned, typed));
        combine::remove(&merged, &everything.difference(&kept).intersection(&last), typed)
    }

    fn compare(&self, live: &Value, new: &Value) -> FieldComparison {
        compare::compare(live, new, self.typed()).without(&self.reset_set())
    }

    /// Returns the managed fields that a request contains, unless they are absent, not allowed, or reset by the
    /// request.
    fn record_for_update(&self, live: Option<&Value>, new: &Value) -> Managers {
        let of_live = || {
            live.map_or_else(Managers::default, |live| {
                Managers::decode(live).unwrap_or_default()
            })
        };
        if !self.subresource.is_empty() {
            return of_live();
        }
        let given = new.pointer("/metadata/managedFields").and_then(Value::as_array);
        let forgets = given.is_some_and(|entries| match entries.as_slice() {
            [] => true,
            [only] => only.as_object().is_some_and(Map::is_empty),
            _ => false,
        });
        if forgets {
            return Managers::default();
        }
        match Managers::decode(new) {
            Ok(managers) if !managers.is_empty() => managers,
            _ => of_live(),
        }
    }

    fn typed(&self) -> TypedPosition<'_> {
        TypedPosition::resource(self.schema)
    }

    fn reset_set(&self) -> FieldSet {
        set_of(self.reset)
    }

    fn is_served(&self, version: &str) -> bool {
        version == self.api_version || self.served.iter().any(|served| served == version)
    }
}

/// Returns the message of a 409 response.
pub fn conflict_message(conflicts: &[ApplyConflict]) -> String {
    if let [only] = conflicts {
        return format!(
            "Apply failed with 1 conflict: {}: {}",
            only.message(),
            only.field()
        );
    }
    let mut lines = Vec::new();
    let mut current = None;
    for conflict in conflicts {
        if current != Some(&conflict.manager) {
            lines.push(format!("conflicts with {}:", conflict.manager.shown()));
            current = Some(&conflict.manager);
        }
        lines.push(format!("- {}", conflict.field()));
    }
    format!(
        "Apply failed with {} conflicts: {}",
        conflicts.len(),
        lines.join("\n")
    )
}

/// Removes fields from other owners if their value changed or they are gone.
fn settle(
    managers: &mut Managers,
    comparison: &FieldComparison,
    writer: &ManagerId,
    force: bool,
) -> Result<(), FieldManagerError> {
    let changed = comparison.changed();
    if !force {
        let conflicts: Vec<ApplyConflict> = managers
            .iter()
            .filter(|(id, _)| *id != writer)
            .flat_map(|(id, managed)| {
                let paths = managed.set.intersection(&changed).paths();
                paths.into_iter().map(|path| ApplyConflict {
                    manager: id.clone(),
                    path,
                })
            })
            .collect();
        if !conflicts.is_empty() {
            return Err(FieldManagerError::Conflicts(conflicts));
        }
    }
    managers.update_sets(|id, set| {
        if id == writer {
            set.clone()
        } else {
            set.difference(&changed).difference(&comparison.removed)
        }
    });
    Ok(())
}

fn unowned() -> FieldSet {
    set_of(UNOWNED)
}

fn set_of(paths: &[&[&str]]) -> FieldSet {
    let mut set = FieldSet::default();
    for path in paths {
        set.insert(
            &path
                .iter()
                .map(|name| PathElement::field(name))
                .collect::<Vec<_>>(),
        );
    }
    set
}

fn without_record(object: Option<&Value>) -> Value {
    let mut object = object.cloned().unwrap_or_else(|| Value::Object(Map::new()));
    take_record(&mut object);
    object
}

fn take_record(object: &mut Value) -> Option<Value> {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut)?;
    metadata.remove("managedFields")
}

/// Returns an empty object of the same type.
fn type_of(object: &Value) -> Value {
    let fields = object.as_object().into_iter().flatten();
    Value::Object(
        fields
            .filter(|(name, _)| matches!(name.as_str(), "apiVersion" | "kind"))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    )
}

fn describe(object: &Value) -> String {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (group, version) = crate::kinds::split_api_version(text("/apiVersion"));
    format!(
        "{}/{}; {group}/{version}, Kind={}",
        text("/metadata/namespace"),
        text("/metadata/name"),
        text("/kind")
    )
}

#[cfg(test)]
mod tests;
