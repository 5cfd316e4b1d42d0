//! JSON merge patches.

use kube::api::PatchParams;
use serde::Serialize;
use serde_json::{Map, Value};

/// The merge patch that turns `before` into `after`.
pub(crate) fn between(before: &impl Serialize, after: &impl Serialize) -> Value {
    let before = serde_json::to_value(before).unwrap_or_default();
    let after = serde_json::to_value(after).unwrap_or_default();
    difference(&before, &after).unwrap_or_else(|| Value::Object(Map::new()))
}

/// One patch that does what both do. Where they disagree the second counts.
pub(crate) fn both(mut first: Value, second: Value) -> Value {
    match (&mut first, second) {
        (Value::Object(members), Value::Object(more)) => {
            for (key, value) in more {
                let merged = match members.remove(&key) {
                    Some(known) => both(known, value),
                    None => value,
                };
                members.insert(key, merged);
            }
            first
        }
        (_, second) => second,
    }
}

/// For the writes of one controller.
pub(crate) fn by(manager: &str) -> PatchParams {
    PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    }
}

fn difference(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let mut patch = Map::new();
    for (key, value) in new {
        let change = match old.get(key) {
            Some(known) => difference(known, value),
            None => Some(value.clone()),
        };
        patch.extend(change.map(|change| (key.clone(), change)));
    }
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    patch.extend(gone.map(|key| (key.clone(), Value::Null)));
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
            between(&before, &after),
            json!({"b": {"c": [1], "d": null, "f": 6}, "e": null})
        );
        assert_eq!(between(&after, &after), json!({}));
    }

    #[test]
    fn two_patches_become_one() {
        let cordon = json!({"metadata": {"annotations": {"a": "1"}}, "spec": {"unschedulable": null}});
        let taints = json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": null}});
        assert_eq!(
            both(cordon, taints),
            json!({
                "metadata": {"annotations": {"a": "1"}, "resourceVersion": "7"},
                "spec": {"unschedulable": null, "taints": null},
            })
        );
    }
}
