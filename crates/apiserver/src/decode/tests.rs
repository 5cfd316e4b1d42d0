use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::kinds;

fn schema(kind: &str) -> Schema {
    let entry = kinds::BUILT_IN
        .iter()
        .find(|entry| entry.kind == kind)
        .expect(kind);
    kinds::schema_of(entry.definition).expect(kind)
}

#[test]
fn duplicate_and_unknown_fields_are_reported_once_in_the_order_they_are_written() {
    let body = br#"{
        "kind": "Pod", "apiVersion": "v1", "zzz": 1,
        "metadata": {"name": "a", "name": "b", "name": "c", "labels": {"x": "1", "x": "2"}, "colour": {"deep": 1}},
        "spec": {"containers": [{"name": "c", "imag": "x"}, {"name": "d", "ports": [{"containerPort": 1, "p": 2}]}],
                 "nodeName": "n", "replicas": 3}
    }"#;
    let decoded = decode(body, Some(&schema("Pod"))).expect("decodes");
    assert_eq!(
        decoded.strict_errors,
        [
            "unknown field \"zzz\"",
            "duplicate field \"metadata.name\"",
            "duplicate field \"metadata.labels.x\"",
            "unknown field \"metadata.colour\"",
            "unknown field \"spec.containers[0].imag\"",
            "unknown field \"spec.containers[1].ports[0].p\"",
            "unknown field \"spec.replicas\"",
        ]
    );
    assert_eq!(decoded.value["metadata"]["name"], "c", "the last one wins");
    assert_eq!(
        strict_message(&decoded.strict_errors[..2]),
        "strict decoding error: unknown field \"zzz\", duplicate field \"metadata.name\""
    );
}

#[test]
fn without_a_schema_only_duplicates_are_noticed() {
    let decoded = decode(br#"{"spec": {"a": {"b": 1, "b": 2}, "zzz": 1}}"#, None).expect("decodes");
    assert_eq!(decoded.strict_errors, ["duplicate field \"spec.a.b\""]);
}

#[test]
fn free_form_places_accept_any_field() {
    let body = br#"{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"a","managedFields":[{"fieldsV1":{"f:x":{}}}]},
        "revision":1,"data":{"anything":{"goes":[1]}}}"#;
    let decoded = decode(body, Some(&schema("ControllerRevision"))).expect("decodes");
    assert_eq!(decoded.strict_errors, Vec::<String>::new());
}

#[test]
fn numbers_become_what_kubernetes_keeps_of_them() {
    let decoded = decode(br"[1, 1.0, 1.5, 18446744073709551615, -3, 1e3]", None).expect("decodes");
    assert_eq!(
        decoded.value,
        json!([1, 1, 1.5, 18_446_744_073_709_552_000.0_f64, -3, 1000])
    );
}

#[test]
fn broken_json_is_rejected_with_the_message_of_go() {
    for (body, expected) in [
        ("", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        ("{\"a\": [1, 2", "unexpected end of JSON input"),
        ("{\"a\" 1}", "invalid character '1' after object key"),
        ("[1 2]", "invalid character '2' after array element"),
        (
            "{\"a\": 1 \"b\"}",
            "invalid character '\"' after object key:value pair",
        ),
        (
            "{a: 1}",
            "invalid character 'a' looking for beginning of object key string",
        ),
        ("{} x", "invalid character 'x' after top-level value"),
        ("[x]", "invalid character 'x' looking for beginning of value"),
        (
            "not json",
            "invalid character 'o' in literal null (expecting 'u')",
        ),
    ] {
        let NotJson(message) = decode(body.as_bytes(), None).expect_err(body);
        assert_eq!(message, expected, "{body}");
    }
}

#[test]
fn values_of_the_wrong_type_are_reported_as_go_reports_them() {
    let cases = [
        (
            "Deployment",
            json!({"spec": {"replicas": "three"}}),
            Some(
                "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
        ),
        (
            "Deployment",
            json!({"spec": {"replicas": 1.5}}),
            Some(
                "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
        ),
        (
            "Pod",
            json!({"spec": {"containers": {}}}),
            Some(
                "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
            ),
        ),
        (
            "ConfigMap",
            json!({"data": {"a": 1}}),
            Some("json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
        ),
        (
            "Pod",
            json!({"metadata": {"labels": []}}),
            Some(
                "json: cannot unmarshal array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
            ),
        ),
        (
            "Pod",
            json!({"metadata": {"labels": null}, "spec": {"nodeName": "x"}}),
            None,
        ),
        (
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": "50%"}}),
            None,
        ),
        ("PodDisruptionBudget", json!({"spec": {"minAvailable": 1}}), None),
    ];
    for (kind, value, expected) in cases {
        assert_eq!(type_error(&value, &schema(kind)).as_deref(), expected, "{value}");
    }
}

#[test]
fn only_known_field_validation_directives_are_accepted() {
    assert_eq!(FieldValidation::parse(""), Some(FieldValidation::Warn));
    assert_eq!(FieldValidation::parse("Strict"), Some(FieldValidation::Strict));
    assert_eq!(FieldValidation::parse("Ignore"), Some(FieldValidation::Ignore));
    assert_eq!(FieldValidation::parse("strict"), None);
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused_without_harm(body in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = decode(&body, None);
    }
}
