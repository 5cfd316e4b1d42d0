//! Migration from client-side to server-side apply.
//!
//! `kubectl apply` without `--server-side` stores the applied configuration in an annotation. When the same kubectl
//! later applies on the server, the fields in that annotation are its own and not a conflict.

use serde_json::Value;

use super::{ApplyConflict, FieldManager, compare, extract};
use crate::go_text;

/// The manager name of kubectl's server-side apply.
pub(super) const KUBECTL: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns the conflicts on fields that are not in the annotation; `None` if there are none.
pub(super) fn unresolved(
    manager: &FieldManager<'_>,
    live: &Value,
    conflicts: Vec<ApplyConflict>,
) -> Option<Vec<ApplyConflict>> {
    let own = own_fields(manager, live);
    let rest: Vec<ApplyConflict> = match own {
        Some(own) => conflicts
            .into_iter()
            .filter(|conflict| !own.has(&conflict.path))
            .collect(),
        None => conflicts,
    };
    (!rest.is_empty()).then_some(rest)
}

/// Updates an existing annotation to the configuration that is applied now.
pub(super) fn refresh(object: &mut Value, config: &Value) {
    let annotation = object
        .pointer_mut("/metadata/annotations")
        .and_then(|all| all.get_mut(ANNOTATION));
    let Some(annotation) = annotation.filter(|text| text.as_str().is_some_and(|text| !text.is_empty()))
    else {
        return;
    };
    let mut config = config.clone();
    if let Some(annotations) = config
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove(ANNOTATION);
    }
    *annotation = Value::from(format!("{}\n", go_text::json(&config)));
}

fn own_fields(manager: &FieldManager<'_>, live: &Value) -> Option<super::FieldSet> {
    let annotation = live.pointer("/metadata/annotations")?.get(ANNOTATION)?.as_str()?;
    let applied: Value = serde_json::from_str(annotation).ok()?;
    if applied.get("apiVersion").and_then(Value::as_str) != Some(manager.api_version) {
        return None;
    }
    let typed = manager.typed();
    let since = compare::compare(&applied, live, typed);
    let set = extract::field_set(&applied, typed);
    Some(set.difference(&since.changed()).difference(&since.removed))
}
