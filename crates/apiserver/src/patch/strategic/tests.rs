use serde_json::json;

use super::*;
use crate::kinds;

fn patched(kind: &str, object: &Value, patch: &Value) -> Result<Value, PatchError> {
    let entry = kinds::BUILT_IN
        .iter()
        .find(|entry| entry.kind == kind)
        .expect(kind);
    let schema = kinds::schema_of(entry.definition).expect(kind);
    let mut object = object.clone();
    StrategicPatch::decode(patch.to_string().as_bytes(), FieldValidation::Strict)?
        .apply(&mut object, &schema)?;
    Ok(object)
}

#[track_caller]
fn check(kind: &str, object: &Value, patch: &Value, expected: &Value) {
    assert_eq!(
        patched(kind, object, patch).as_ref(),
        Ok(expected),
        "{object} + {patch}"
    );
}

fn containers(items: &Value) -> Value {
    json!({"spec": {"containers": items}})
}

#[test]
fn objects_merge_and_null_removes() {
    check(
        "ConfigMap",
        &json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "data": {"x": "y"}}),
        &json!({"metadata": {"labels": {"a": null, "c": "3"}}, "data": null}),
        &json!({"metadata": {"labels": {"b": "2", "c": "3"}}}),
    );
    check(
        "Node",
        &json!({}),
        &json!({"spec": {"unschedulable": true, "taints": null}}),
        &json!({"spec": {"unschedulable": true}}),
    );
}

#[test]
fn a_list_with_a_key_merges_item_by_item_and_new_items_come_first() {
    check(
        "Pod",
        &containers(&json!([{"name": "a", "image": "1"}, {"name": "b", "image": "1"}])),
        &containers(&json!([{"name": "b", "image": "2"}, {"name": "c", "image": "1"}])),
        &containers(
            &json!([{"name": "a", "image": "1"}, {"name": "b", "image": "2"}, {"name": "c", "image": "1"}]),
        ),
    );
    check(
        "Pod",
        &containers(&json!([{"name": "a", "image": "1"}])),
        &containers(&json!([{"name": "z", "image": "1"}])),
        &containers(&json!([{"name": "z", "image": "1"}, {"name": "a", "image": "1"}])),
    );
}

#[test]
fn nested_keyed_lists_merge_too() {
    check(
        "Deployment",
        &json!({"spec": {"template": {"spec": {"containers": [
            {"name": "a", "env": [{"name": "X", "value": "1"}], "ports": [{"containerPort": 80}]}]}}}}),
        &json!({"spec": {"template": {"spec": {"containers": [
            {"name": "a", "env": [{"name": "Y", "value": "2"}], "ports": [{"containerPort": 80, "name": "web"}]}]}}}}),
        &json!({"spec": {"template": {"spec": {"containers": [
            {"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}],
             "ports": [{"containerPort": 80, "name": "web"}]}]}}}}),
    );
}

#[test]
fn a_list_without_a_key_is_replaced() {
    check(
        "Node",
        &json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
        &json!({"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}),
        &json!({"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}),
    );
}

#[test]
fn a_list_of_scalars_with_the_merge_strategy_becomes_a_union() {
    check(
        "Pod",
        &json!({"metadata": {"finalizers": ["a", "b"]}}),
        &json!({"metadata": {"finalizers": ["c", "b"]}}),
        &json!({"metadata": {"finalizers": ["c", "a", "b"]}}),
    );
    check(
        "Pod",
        &json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
        &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b", "x"]}}),
        &json!({"metadata": {"finalizers": ["a", "c"]}}),
    );
}

#[test]
fn directives_delete_and_replace_objects() {
    check(
        "Deployment",
        &json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}),
        &json!({"spec": {"strategy": {"$patch": "replace", "type": "Recreate"}}}),
        &json!({"spec": {"strategy": {"type": "Recreate"}}}),
    );
    check(
        "ConfigMap",
        &json!({"data": {"a": "1"}}),
        &json!({"data": {"$patch": "delete"}}),
        &json!({"data": {}}),
    );
    check(
        "ConfigMap",
        &json!({}),
        &json!({"data": {"$patch": "delete"}}),
        &json!({}),
    );
}

#[test]
fn directives_delete_and_replace_list_items() {
    check(
        "Pod",
        &containers(&json!([{"name": "a"}, {"name": "b"}])),
        &containers(&json!([{"name": "a", "$patch": "delete"}])),
        &containers(&json!([{"name": "b"}])),
    );
    check(
        "Pod",
        &containers(&json!([{"name": "a"}, {"name": "b"}])),
        &containers(&json!([{"$patch": "replace"}, {"name": "c"}])),
        &containers(&json!([{"name": "c"}])),
    );
}

#[test]
fn retain_keys_drops_the_members_it_does_not_name() {
    check(
        "Deployment",
        &json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}),
        &json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
        &json!({"spec": {"strategy": {"type": "Recreate"}}}),
    );
}

#[test]
fn set_element_order_decides_the_order_and_keeps_server_items_in_place() {
    check(
        "Pod",
        &containers(&json!([{"name": "a"}, {"name": "b"}, {"name": "c"}])),
        &json!({"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}], "containers": [{"name": "c", "image": "2"}]}}),
        &containers(&json!([{"name": "b"}, {"name": "c", "image": "2"}, {"name": "a"}])),
    );
    check(
        "Pod",
        &json!({"metadata": {"finalizers": ["a", "b"]}}),
        &json!({"metadata": {"$setElementOrder/finalizers": ["b", "a"]}}),
        &json!({"metadata": {"finalizers": ["b", "a"]}}),
    );
    check(
        "Pod",
        &json!({"spec": {}}),
        &json!({"spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "a"}]}}),
        &containers(&json!([{"name": "a"}])),
    );
}

#[test]
fn the_selector_of_a_budget_is_replaced_as_a_whole() {
    check(
        "PodDisruptionBudget",
        &json!({"spec": {"selector": {"matchLabels": {"a": "1"}}}}),
        &json!({"spec": {"selector": {"matchLabels": {"b": "2"}}}}),
        &json!({"spec": {"selector": {"matchLabels": {"b": "2"}}}}),
    );
}

#[test]
fn conditions_of_a_node_merge_by_type() {
    check(
        "Node",
        &json!({"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Disk", "status": "False"}]}}),
        &json!({"status": {"$setElementOrder/conditions": [{"type": "Ready"}],
               "conditions": [{"type": "Ready", "status": "True"}]}}),
        &json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Disk", "status": "False"}]}}),
    );
}

#[test]
fn contradictory_patches_are_rejected_with_kubernetes_messages() {
    let pod = containers(&json!([{"name": "a"}]));
    let cases = [
        (
            containers(&json!([{"image": "x"}])),
            PatchError::Contradictory("map: map[image:x] does not contain declared merge key: name".to_owned()),
        ),
        (
            containers(&json!([{"name": "a", "$patch": "frob"}])),
            PatchError::Contradictory("unknown patch type: frob in map: map[$patch:frob name:a]".to_owned()),
        ),
        (
            json!({"spec": {"$patch": "frob"}}),
            PatchError::Contradictory("unknown patch type: frob in map: map[$patch:frob]".to_owned()),
        ),
        (
            json!({"spec": {"$retainKeys": ["a"], "nodeName": "b"}}),
            PatchError::Malformed("invalid patch format of retainKeys".to_owned()),
        ),
        (
            json!({"spec": {"$deleteFromPrimitiveList/": ["a"]}}),
            PatchError::Malformed("invalid patch format of primitive list".to_owned()),
        ),
        (
            containers(&json!([[1]])),
            PatchError::Contradictory(
                "list element types are not identical: [[map[name:a]] [[1]]]".to_owned(),
            ),
        ),
        (
            json!({"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}}),
            PatchError::Contradictory(
                "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n".to_owned(),
            ),
        ),
    ];
    for (patch, expected) in cases {
        assert_eq!(patched("Pod", &pod, &patch), Err(expected), "{patch}");
    }
}

/// The merge was quadratic: four such patches, each below the limit of a body, stopped the server for 47 s.
#[test]
fn a_reversed_order_of_a_long_list_cost_the_square_of_its_length() {
    let length = 20_000;
    let condition = |at: usize| json!({"type": format!("c{at}")});
    let conditions: Vec<Value> = (0..length).map(condition).collect();
    let reversed: Vec<Value> = (0..length).rev().map(condition).collect();
    let start = std::time::Instant::now();
    check(
        "Node",
        &json!({"status": {"conditions": conditions}}),
        &json!({"status": {"$setElementOrder/conditions": reversed, "conditions": reversed}}),
        &json!({"status": {"conditions": reversed}}),
    );
    // Minutes before; a second with an index, in a debug build on a busy machine.
    assert!(start.elapsed() < std::time::Duration::from_secs(20));
}

#[test]
fn a_list_that_is_too_long_to_merge_is_refused() {
    let conditions: Vec<Value> = (0..60_000).map(|at| json!({"type": format!("c{at}")})).collect();
    let error = patched(
        "Node",
        &json!({"status": {"conditions": []}}),
        &json!({"status": {"conditions": conditions}}),
    );
    let Err(PatchError::TooLarge(message)) = error else {
        panic!("{error:?}");
    };
    assert_eq!(
        message,
        "the merged list has up to 60000 items, and at most 50000 are merged"
    );
}
