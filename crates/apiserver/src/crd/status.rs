//! The status of a definition: accepted names, stored versions, conditions.

use serde_json::{Value, json};

use super::{CLEANUP_FINALIZER, RESOURCE};
use crate::meta::{self, JsonObject};
use crate::store::ObjectStore;

/// Adds the storage version to the status of a definition before it is stored.
pub(crate) fn prepare(old: Option<&JsonObject>, crd: &mut JsonObject) {
    let mut status = old
        .and_then(|old| old.get("status"))
        .cloned()
        .unwrap_or_else(|| json!({}));
    add_stored_version(crd, &mut status);
    crd.insert("status".to_owned(), status);
}

/// Accepts or rejects the names of a stored definition and sets its conditions.
pub(crate) fn establish(store: &ObjectStore, crd: &mut JsonObject, now: &str) {
    let mut status = crd.get("status").cloned().unwrap_or_else(|| json!({}));
    let names = crd
        .get("spec")
        .map(|spec| spec["names"].clone())
        .unwrap_or_default();
    let established = is_established(&Value::Object(crd.clone()));
    let (accepted, conflict) = accept_names(store, crd, &names);
    status["acceptedNames"] = accepted;
    match conflict {
        None => {
            set_condition(
                &mut status,
                "NamesAccepted",
                "True",
                "NoConflicts",
                "no conflicts found",
                now,
            );
            let message = "the initial names have been accepted";
            set_condition(
                &mut status,
                "Established",
                "True",
                "InitialNamesAccepted",
                message,
                now,
            );
        }
        Some((reason, message)) => {
            set_condition(&mut status, "NamesAccepted", "False", reason, &message, now);
            if !established {
                let message = "not all names are accepted";
                set_condition(&mut status, "Established", "False", "NotAccepted", message, now);
            }
        }
    }
    crd.insert("status".to_owned(), status);
}

/// Sets the Terminating condition of a definition: its objects are deleted first.
pub(crate) fn terminate(crd: &mut JsonObject, now: &str) {
    let mut finalizers = meta::finalizers(crd);
    if !finalizers.iter().any(|finalizer| finalizer == CLEANUP_FINALIZER) {
        finalizers.push(CLEANUP_FINALIZER.to_owned());
        meta::set_finalizers(crd, &finalizers);
    }
    let status = crd.entry("status").or_insert_with(|| json!({}));
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(
        status,
        "Terminating",
        "True",
        "InstanceDeletionPending",
        message,
        now,
    );
}

/// Returns whether a stored definition is established.
pub(super) fn is_established(crd: &Value) -> bool {
    let conditions = crd.pointer("/status/conditions").and_then(Value::as_array);
    let mut established = conditions
        .into_iter()
        .flatten()
        .filter(|condition| condition["type"] == "Established");
    established.any(|condition| condition["status"] == "True")
}

/// Fills in the names that derive from the kind.
pub(crate) fn default_names(crd: &mut JsonObject) {
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    spec.entry("conversion")
        .or_insert_with(|| json!({"strategy": "None"}));
    let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) else {
        return;
    };
    let kind = meta::text(names, "kind").to_owned();
    if meta::text(names, "singular").is_empty() {
        names.insert("singular".to_owned(), Value::from(kind.to_ascii_lowercase()));
    }
    if meta::text(names, "listKind").is_empty() {
        names.insert("listKind".to_owned(), Value::from(format!("{kind}List")));
    }
}

/// Returns the names that no other definition of the group has, and the last conflict.
fn accept_names(
    store: &ObjectStore,
    crd: &JsonObject,
    names: &Value,
) -> (Value, Option<(&'static str, String)>) {
    let group = crd
        .get("spec")
        .map(|spec| spec["group"].clone())
        .unwrap_or_default();
    let own = meta::name(crd);
    let others: Vec<Value> = store
        .list(RESOURCE, "")
        .objects
        .iter()
        .filter(|stored| stored.key.name() != own)
        .filter_map(|stored| stored.value().ok().map(Value::Object))
        .filter(|other| other["spec"]["group"] == group)
        .collect();
    let taken = |name: &Value, fields: &[&str]| {
        others.iter().any(|other| {
            let accepted = &other["status"]["acceptedNames"];
            fields.iter().any(|field| match &accepted[*field] {
                Value::Array(list) => list.contains(name),
                text => text == name && !text.is_null(),
            })
        })
    };
    let (resources, kinds) = (["plural", "singular", "shortNames"], ["kind", "listKind"]);
    let mut accepted = json!({"plural": "", "kind": ""});
    let mut conflict = None;
    for (field, reason) in [
        ("plural", "PluralConflict"),
        ("singular", "SingularConflict"),
        ("shortNames", "ShortNamesConflict"),
        ("kind", "KindConflict"),
        ("listKind", "ListKindConflict"),
    ] {
        let name = &names[field];
        if name.is_null() {
            continue;
        }
        let rivals: &[&str] = if field == "kind" || field == "listKind" {
            &kinds
        } else {
            &resources
        };
        let used = match name {
            Value::Array(list) => list.iter().find(|name| taken(name, rivals)),
            name => Some(name).filter(|name| taken(name, rivals)),
        };
        match used {
            Some(used) => conflict = Some((reason, format!("{used} is already in use"))),
            None => accepted[field] = name.clone(),
        }
    }
    if let Some(categories) = names.get("categories") {
        accepted["categories"] = categories.clone();
    }
    (accepted, conflict)
}

fn add_stored_version(crd: &JsonObject, status: &mut Value) {
    let versions = crd.get("spec").and_then(|spec| spec["versions"].as_array());
    let storage = versions
        .into_iter()
        .flatten()
        .find(|version| version["storage"] == true);
    let Some(name) = storage.map(|version| version["name"].clone()) else {
        return;
    };
    let mut stored = status["storedVersions"].as_array().cloned().unwrap_or_default();
    if !stored.contains(&name) {
        stored.push(name);
    }
    status["storedVersions"] = Value::Array(stored);
}

pub(crate) fn set_condition(
    status: &mut Value,
    kind: &str,
    state: &str,
    reason: &str,
    message: &str,
    now: &str,
) {
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let mut fresh = json!({"type": kind, "status": state, "reason": reason, "message": message, "lastTransitionTime": now});
    match conditions.iter_mut().find(|condition| condition["type"] == kind) {
        None => conditions.push(fresh),
        Some(existing) => {
            if existing["status"] == state {
                fresh["lastTransitionTime"] = existing["lastTransitionTime"].clone();
            }
            *existing = fresh;
        }
    }
    status["conditions"] = Value::Array(conditions);
}
