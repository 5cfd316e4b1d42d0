use serde_json::json;

use super::*;

fn apply(document: &Value, patch: &Value) -> Result<Value, PatchError> {
    let mut document = document.clone();
    let patch = JsonPatch::decode(patch.to_string().as_bytes(), FieldValidation::Ignore)?;
    patch.apply(&mut document)?;
    Ok(document)
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn operations_that_apply_have_the_documented_result() {
    let cases = [
        (
            json!({"a": 1}),
            json!([{"op": "add", "path": "/b", "value": 2}]),
            json!({"a": 1, "b": 2}),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "add", "path": "/a", "value": 2}]),
            json!({"a": 2}),
        ),
        (
            json!({"a": [1, 3]}),
            json!([{"op": "add", "path": "/a/1", "value": 2}]),
            json!({"a": [1, 2, 3]}),
        ),
        (
            json!({"a": [1]}),
            json!([{"op": "add", "path": "/a/-", "value": 2}]),
            json!({"a": [1, 2]}),
        ),
        (
            json!({"a": [1]}),
            json!([{"op": "add", "path": "/a/1", "value": 2}]),
            json!({"a": [1, 2]}),
        ),
        (
            json!({"a": [1, 2]}),
            json!([{"op": "add", "path": "/a/-1", "value": 3}]),
            json!({"a": [1, 2, 3]}),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "add", "path": "/b"}]),
            json!({"a": 1, "b": null}),
        ),
        (
            json!({"a": 1, "b": 2}),
            json!([{"op": "remove", "path": "/a"}]),
            json!({"b": 2}),
        ),
        (
            json!({"a": [1, 2]}),
            json!([{"op": "remove", "path": "/a/0"}]),
            json!({"a": [2]}),
        ),
        (
            json!({"a": [1, 2]}),
            json!([{"op": "remove", "path": "/a/-1"}]),
            json!({"a": [1]}),
        ),
        (
            json!({"a": {"b": 1}}),
            json!([{"op": "replace", "path": "/a/b", "value": 2}]),
            json!({"a": {"b": 2}}),
        ),
        (
            json!({"a": {}}),
            json!([{"op": "replace", "path": "/a/new", "value": 2}]),
            json!({"a": {"new": 2}}),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "replace", "path": "", "value": {"b": 1}}]),
            json!({"b": 1}),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "move", "from": "/a", "path": "/b"}]),
            json!({"b": 1}),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "copy", "from": "/a", "path": "/b"}]),
            json!({"a": 1, "b": 1}),
        ),
        (
            json!({"a/b": 1, "m~n": 2}),
            json!([{"op": "remove", "path": "/a~1b"}]),
            json!({"m~n": 2}),
        ),
        (
            json!({"a/b": 1, "m~n": 2}),
            json!([{"op": "remove", "path": "/m~0n"}]),
            json!({"a/b": 1}),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "test", "path": "/a", "value": 1}]),
            json!({"a": 1}),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "test", "path": "/b", "value": null}]),
            json!({"a": 1}),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "test", "path": "/b"}]),
            json!({"a": 1}),
        ),
        (
            json!({"a": {"x": [1, {"y": null}]}}),
            json!([{"op": "test", "path": "/a", "value": {"x": [1, {"y": null}]}}]),
            json!({"a": {"x": [1, {"y": null}]}}),
        ),
        (json!({"a": 1}), json!([]), json!({"a": 1})),
    ];
    for (document, patch, expected) in cases {
        assert_eq!(apply(&document, &patch), Ok(expected), "{document} + {patch}");
    }
}

#[test]
fn operations_that_do_not_apply_are_rejected_with_kubernetes_messages() {
    let cases = [
        (
            json!({"a": 1}),
            json!([{"op": "test", "path": "/a", "value": 2}]),
            "testing value /a failed: test failed",
        ),
        (
            json!({"a": 1}),
            json!([{"op": "test", "path": "/a", "value": "1"}]),
            "testing value /a failed: test failed",
        ),
        (
            json!({"a": [1, 2]}),
            json!([{"op": "test", "path": "/a", "value": [2, 1]}]),
            "testing value /a failed: test failed",
        ),
        (
            json!({"a": 1}),
            json!([{"op": "test", "path": "/b/c", "value": 2}]),
            "test operation does not apply: is missing path: /b/c: missing value",
        ),
        (
            json!({"a": [1]}),
            json!([{"op": "test", "path": "/a/3", "value": 2}]),
            "error in test for path: '/a/3': Unable to access invalid index: 3: invalid index referenced",
        ),
        (
            json!({"a": 1}),
            json!([{"op": "remove", "path": "/b"}]),
            "error in remove for path: '/b': Unable to remove nonexistent key: b: missing value",
        ),
        (
            json!({"a": 1}),
            json!([{"op": "remove", "path": "/a/b"}]),
            "remove operation does not apply: doc is missing path: \"/a/b\": missing value",
        ),
        (
            json!({"a": [1]}),
            json!([{"op": "replace", "path": "/a/1", "value": 2}]),
            "replace operation does not apply: doc is missing key: /a/1: missing value",
        ),
        (
            json!({"a": 1}),
            json!([{"op": "replace", "path": "/b/c", "value": 2}]),
            "replace operation does not apply: doc is missing path: /b/c: missing value",
        ),
        (
            json!({"a": [1]}),
            json!([{"op": "add", "path": "/a/3", "value": 2}]),
            "error in add for path: '/a/3': Unable to access invalid index: 3: invalid index referenced",
        ),
        (
            json!({"a": [1]}),
            json!([{"op": "add", "path": "/a/x", "value": 2}]),
            "error in add for path: '/a/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        (
            json!({"a": 1}),
            json!([{"op": "frob", "path": "/a"}]),
            "Unexpected kind: frob",
        ),
        (
            json!({"a": 1}),
            json!([{"path": "/a"}]),
            "Unexpected kind: unknown",
        ),
        (
            json!({"a": 1}),
            json!([{"op": "add"}]),
            "add operation failed to decode path: missing value",
        ),
    ];
    for (document, patch, expected) in cases {
        let error = apply(&document, &patch).expect_err(expected);
        assert_eq!(
            error,
            PatchError::DoesNotApply(expected.to_owned()),
            "{document} + {patch}"
        );
    }
}

#[test]
fn a_failed_test_hides_its_cause_from_the_status_message() {
    let error = PatchError::DoesNotApply("testing value /a failed: test failed".to_owned());
    assert_eq!(
        error.status_message(),
        "the server rejected our request due to an error in our request"
    );
}

#[test]
fn bodies_that_are_no_patch_are_rejected_with_kubernetes_messages() {
    let cases = [
        (
            "{}",
            FieldValidation::Warn,
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            "{}",
            FieldValidation::Ignore,
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch",
        ),
        (
            "[1]",
            FieldValidation::Ignore,
            "json: cannot unmarshal number into Go value of type jsonpatch.Operation",
        ),
        ("[", FieldValidation::Ignore, "unexpected end of JSON input"),
    ];
    for (body, validation, expected) in cases {
        let error = JsonPatch::decode(body.as_bytes(), validation).expect_err(body);
        assert_eq!(error, PatchError::Malformed(expected.to_owned()));
    }
}

#[test]
fn unknown_and_duplicate_members_of_an_operation_are_objected_to() {
    let body = br#"[{"op": "add", "op": "add", "path": "/a", "value": 1, "colour": "red"}]"#;
    let patch = JsonPatch::decode(body, FieldValidation::Strict).expect("decodes");
    assert_eq!(
        patch.strict_errors,
        [
            "json patch duplicate field \"[0].op\"",
            "json patch unknown field \"[0].colour\""
        ]
    );
    assert_eq!(
        JsonPatch::decode(body, FieldValidation::Ignore)
            .expect("decodes")
            .strict_errors,
        [""; 0]
    );
}

#[test]
fn a_patch_with_too_many_operations_is_refused() {
    let body = format!("[{}]", vec![r#"{"op":"remove","path":"/a"}"#; 10_001].join(","));
    assert_eq!(
        JsonPatch::decode(body.as_bytes(), FieldValidation::Ignore)
            .expect_err("too many")
            .status_message(),
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
}

#[test]
fn a_few_copies_filled_the_memory() {
    let copies: Vec<Value> = (0..30)
        .map(|index| json!({"op": "copy", "from": "/a", "path": format!("/a/{index}")}))
        .collect();
    let error = apply(&json!({"a": {"text": "x".repeat(100)}}), &json!(copies)).unwrap_err();
    assert!(
        error.to_string().contains("exceeding the limit 3145728"),
        "{error}"
    );
}

#[test]
fn copies_into_themselves_overflowed_the_stack() {
    let copies: Vec<Value> = (0..13)
        .map(|doubling| json!({"op": "copy", "from": "/a", "path": format!("/a{}", "/a".repeat(1 << doubling))}))
        .collect();
    let error = apply(&json!({"a": {}}), &json!(copies)).unwrap_err();
    assert!(error.to_string().contains("exceeding the limit 100"), "{error}");
}

#[test]
fn moves_and_additions_are_not_nested_without_limit_either() {
    let deep = (0..90).fold(json!({}), |inner, _| json!({"a": inner}));
    let path = "/a".repeat(20);
    for operation in [
        json!({"op": "add", "path": path, "value": deep}),
        json!({"op": "replace", "path": path, "value": deep}),
    ] {
        let document = (0..20).fold(json!({}), |inner, _| json!({"a": inner}));
        let error = apply(&document, &json!([operation])).unwrap_err();
        assert!(error.to_string().contains("levels deep"), "{error}");
    }
}
