//! Custom resources are refused exactly when and how a real kube-apiserver refuses them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use mco_apiserver::field_error::FieldError;
use mco_apiserver::schema::CustomSchema;
use serde_json::{Value, json};

/// `(reason, field, message)`, in the order the recordings have.
fn causes(errors: &[FieldError]) -> Vec<(String, String, String)> {
    let mut causes: Vec<_> = errors
        .iter()
        .map(|error| {
            (
                error.reason.code().to_owned(),
                error.field.clone(),
                error.body.clone(),
            )
        })
        .collect();
    causes.sort_unstable();
    causes
}

fn recorded(case: &Value) -> Vec<(String, String, String)> {
    serde_json::from_value(case["causes"].clone()).expect("causes")
}

fn golden(text: &str) -> (CustomSchema, Vec<Value>) {
    let golden: Value = serde_json::from_str(text).expect("golden file");
    let cases = golden["cases"].as_array().expect("cases").clone();
    (CustomSchema::new(&golden["schema"], false), cases)
}

#[test]
fn every_value_is_accepted_or_refused_as_recorded() {
    let (schema, cases) = golden(include_str!("golden/values.json"));
    assert!(cases.len() > 80);
    for case in cases {
        let field = case["field"].as_str().expect("field");
        let body = json!({"apiVersion": "schema.example.com/v1", "kind": "Sink", "metadata": {"name": "x"},
            "spec": {field: case["value"]}});
        let mut object = mco_apiserver::decode::decode(body.to_string().as_bytes(), None)
            .expect("JSON")
            .value;
        if let Some(message) = case["message"].as_str() {
            let error = schema.normalise(&mut object).expect_err("malformed");
            assert_eq!(
                format!("Sink in version \"v1\" cannot be handled as a Sink: {error}"),
                message
            );
            continue;
        }
        schema.normalise(&mut object).expect("well-formed");
        assert_eq!(causes(&schema.validate(&object, None)), recorded(&case), "{case}");
    }
}

#[test]
fn updates_forgive_what_was_already_wrong_as_recorded() {
    let (schema, cases) = golden(include_str!("golden/ratchet.json"));
    for case in cases {
        let part = case["part"].as_str().expect("part");
        let object = |value: &Value| {
            let mut object = json!({"apiVersion": "schema.example.com/v1", "kind": "Ratchet",
                "metadata": {"name": "x"}, "spec": {"must": "x"}});
            object[part] = value.clone();
            object
        };
        let (old, mut new) = (object(&case["old"]), object(&case["new"]));
        schema.normalise(&mut new).expect("well-formed");
        let errors = if part == "status" {
            schema.validate_status(&new, &old)
        } else {
            schema.validate(&new, Some(&old))
        };
        assert_eq!(causes(&errors), recorded(&case), "{}", case["name"]);
    }
}
