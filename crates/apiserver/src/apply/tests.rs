use serde_json::json;

use super::*;
use crate::kinds;

const NOW: &str = "2026-01-01T00:00:00Z";

fn schema(kind: &str) -> Schema {
    let entry = kinds::BUILT_IN
        .iter()
        .find(|entry| entry.kind == kind)
        .expect(kind);
    kinds::schema_of(entry.definition).expect(kind)
}

fn manager<'a>(schema: &'a Schema, api_version: &'a str) -> FieldManager<'a> {
    FieldManager {
        schema,
        api_version,
        subresource: "",
        reset: &[],
        served: &[],
    }
}

fn config_map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

#[test]
fn an_apply_that_changes_nothing_returns_the_live_object() {
    let schema = schema("ConfigMap");
    let fields = manager(&schema, "v1");
    let first = fields
        .apply(None, &config_map(&json!({"x": "1"})), "alice", false, NOW)
        .expect("applies");
    let again = fields
        .apply(
            Some(&first),
            &config_map(&json!({"x": "1"})),
            "alice",
            false,
            "2027-01-01T00:00:00Z",
        )
        .expect("applies");
    assert_eq!(again, first);
}

#[test]
fn applying_an_empty_object_keeps_it_and_releases_its_fields() {
    let schema = schema("ConfigMap");
    let fields = manager(&schema, "v1");
    let first = fields
        .apply(None, &config_map(&json!({"x": "1"})), "alice", false, NOW)
        .expect("applies");
    let second = fields
        .apply(Some(&first), &config_map(&json!({})), "alice", false, NOW)
        .expect("applies");
    assert_eq!(second["data"], json!({}));
    assert_eq!(
        second["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:data": {}})
    );
}

#[test]
fn keyed_lists_of_built_in_kinds_merge_by_their_keys_and_defaults() {
    let schema = schema("Service");
    let fields = manager(&schema, "v1");
    let service = |ports: Value| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "b"},
            "spec": {"ports": ports}})
    };
    let live = fields
        .apply(
            None,
            &service(json!([{"port": 80, "name": "web"}])),
            "alice",
            false,
            NOW,
        )
        .expect("applies");
    let conflict = fields
        .apply(
            Some(&live),
            &service(json!([{"port": 80, "protocol": "TCP", "name": "www"}])),
            "bob",
            false,
            NOW,
        )
        .expect_err("conflicts");
    assert_eq!(
        conflict.to_string(),
        "Apply failed with 1 conflict: conflict with \"alice\": .spec.ports[port=80,protocol=\"TCP\"].name"
    );
    let both = fields
        .apply(
            Some(&live),
            &service(json!([{"port": 80, "protocol": "UDP"}])),
            "bob",
            false,
            NOW,
        )
        .expect("another protocol is another port");
    assert_eq!(
        both["spec"]["ports"],
        json!([{"port": 80, "name": "web"}, {"port": 80, "protocol": "UDP"}])
    );
}

#[test]
fn records_of_versions_that_are_not_served_any_more_are_forgotten() {
    let schema = schema("ConfigMap");
    let served = vec!["v1".to_owned()];
    let fields = FieldManager {
        served: &served,
        ..manager(&schema, "v1")
    };
    let mut live = config_map(&json!({"x": "1"}));
    live["metadata"]["uid"] = json!("u");
    live["metadata"]["managedFields"] = json!([
        {"manager": "old", "operation": "Update", "apiVersion": "v0", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:x": {}}}},
        {"manager": "new", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:x": {}}}}]);
    let mut new = live.clone();
    new["data"]["y"] = json!("2");
    fields.update(Some(&mut live), &mut new, "carl", NOW);
    let names: Vec<_> = new["metadata"]["managedFields"]
        .as_array()
        .expect("a record")
        .iter()
        .map(|entry| entry["manager"].as_str().expect("a name").to_owned())
        .collect();
    assert_eq!(names, ["new", "carl"]);
}

#[test]
fn the_record_of_updates_cannot_grow_without_end() {
    let schema = schema("ConfigMap");
    let fields = manager(&schema, "v1");
    let mut live = config_map(&json!({}));
    fields.update(None, &mut live, "m0", NOW);
    live["metadata"]["uid"] = json!("u");
    for index in 0..15 {
        let mut new = live.clone();
        new["data"][format!("k{index}")] = json!("v");
        fields.update(
            Some(&mut live),
            &mut new,
            &format!("m{index:02}"),
            &format!("2026-01-01T00:00:{index:02}Z"),
        );
        live = new;
    }
    let record = live["metadata"]["managedFields"].as_array().expect("a record");
    assert_eq!(record.len(), 10);
    let ancient = record
        .iter()
        .find(|entry| entry["manager"] == "ancient-changes")
        .expect("merged records");
    assert!(ancient["fieldsV1"]["f:data"]["f:k5"].is_object(), "{ancient}");
}
