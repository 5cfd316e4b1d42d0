//! JSON merge patches, and the field manager that every write names.

use std::fmt::Debug;

use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::is_not_found;

/// The name under which a component's writes are recorded in `metadata.managedFields`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldManager(&'static str);

impl FieldManager {
    /// Creates a field manager; one constant per reconciler or component.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// Returns the parameters of a merge patch.
    pub fn patch_params(self) -> PatchParams {
        PatchParams {
            field_manager: Some(self.0.to_owned()),
            ..PatchParams::default()
        }
    }

    /// Returns the parameters of a create or replace.
    pub fn post_params(self) -> PostParams {
        PostParams {
            field_manager: Some(self.0.to_owned()),
            ..PostParams::default()
        }
    }
}

/// Sends a JSON merge patch. Returns the object as written; `None` if it does not exist.
pub async fn merge<K>(
    api: &Api<K>,
    name: &str,
    manager: FieldManager,
    patch: &impl Serialize,
) -> kube::Result<Option<K>>
where
    K: Clone + Debug + DeserializeOwned,
{
    unless_gone(
        api.patch(name, &manager.patch_params(), &merge_patch(patch)?)
            .await,
    )
}

/// Sends a JSON merge patch to the status subresource. Returns the object as written; `None` if it does not exist.
pub async fn merge_status<K>(
    api: &Api<K>,
    name: &str,
    manager: FieldManager,
    patch: &impl Serialize,
) -> kube::Result<Option<K>>
where
    K: Clone + Debug + DeserializeOwned,
{
    let parameters = manager.patch_params();
    unless_gone(api.patch_status(name, &parameters, &merge_patch(patch)?).await)
}

fn merge_patch(patch: &impl Serialize) -> kube::Result<Patch<Value>> {
    let patch = serde_json::to_value(patch).map_err(kube::Error::SerdeError)?;
    Ok(Patch::Merge(patch))
}

/// Turns the response "not found" into `None`: the watch reports the deletion to those who need it.
pub fn unless_gone<T>(response: kube::Result<T>) -> kube::Result<Option<T>> {
    match response {
        Ok(object) => Ok(Some(object)),
        Err(problem) if is_not_found(&problem) => Ok(None),
        Err(problem) => Err(problem),
    }
}

/// Returns the merge patch that turns `before` into `after`.
pub fn diff(before: &impl Serialize, after: &impl Serialize) -> Value {
    let before = serde_json::to_value(before).unwrap_or_default();
    let after = serde_json::to_value(after).unwrap_or_default();
    difference(&before, &after).unwrap_or_else(|| Value::Object(Map::new()))
}

/// Returns one patch with the effect of both. Where they disagree the second wins.
pub fn combine(mut first: Value, second: Value) -> Value {
    match (&mut first, second) {
        (Value::Object(members), Value::Object(more)) => {
            for (key, value) in more {
                let merged = match members.remove(&key) {
                    Some(present) => combine(present, value),
                    None => value,
                };
                members.insert(key, merged);
            }
            first
        }
        (_, second) => second,
    }
}

fn difference(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let mut patch = Map::new();
    for (key, value) in new {
        let change = match old.get(key) {
            Some(present) => difference(present, value),
            None => Some(value.clone()),
        };
        patch.extend(change.map(|change| (key.clone(), change)));
    }
    let removed = old.keys().filter(|key| !new.contains_key(*key));
    patch.extend(removed.map(|key| (key.clone(), Value::Null)));
    (!patch.is_empty()).then(|| patch.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_has_only_what_changes_and_removes_what_is_gone() {
        let before = json!({"a": 1, "b": {"c": [1, 2], "d": 4}, "e": 5});
        let after = json!({"a": 1, "b": {"c": [1], "f": 6}});
        assert_eq!(
            diff(&before, &after),
            json!({"b": {"c": [1], "d": null, "f": 6}, "e": null})
        );
        assert_eq!(diff(&after, &after), json!({}));
    }

    #[test]
    fn two_patches_become_one() {
        let cordon = json!({"metadata": {"annotations": {"a": "1"}}, "spec": {"unschedulable": null}});
        let taints = json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": null}});
        assert_eq!(
            combine(cordon, taints),
            json!({
                "metadata": {"annotations": {"a": "1"}, "resourceVersion": "7"},
                "spec": {"unschedulable": null, "taints": null},
            })
        );
    }
}
