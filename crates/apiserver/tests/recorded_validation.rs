//! Validation of custom resources equals that of a real kube-apiserver.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use mco_apiserver::field_error::FieldError;
use mco_apiserver::schema::{CustomSchema, validate_definition};
use serde_json::{Value, json};

/// `(reason, field, message)`, in the order of the recordings.
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

#[test]
fn rules_hold_or_fail_as_recorded() {
    let (schema, cases) = golden(include_str!("golden/rules.json"));
    assert!(cases.len() > 80);
    for case in cases {
        let object = |part: &str, value: Value| {
            let name = case["name"].as_str().unwrap_or("c");
            let mut object = json!({"apiVersion": "schema.example.com/v1", "kind": "Rule",
                "metadata": {"name": name}, "spec": {}});
            object[part] = value;
            object
        };
        if !case["status"].is_null() {
            let new = object("status", case["status"].clone());
            let errors = schema.validate_status(&new, &object("status", Value::Null));
            assert_eq!(causes(&errors), recorded(&case), "{case}");
            continue;
        }
        let field = case["field"].as_str().expect("field");
        let body = object("spec", json!({field: case["value"]})).to_string();
        let mut new = mco_apiserver::decode::decode(body.as_bytes(), None)
            .expect("JSON")
            .value;
        schema.normalise(&mut new).expect("well-formed");
        let old = case.get("old").map(|old| object("spec", json!({field: old})));
        assert_eq!(
            causes(&schema.validate(&new, old.as_ref())),
            recorded(&case),
            "{case}"
        );
    }
}

#[test]
fn definitions_are_accepted_or_refused_as_recorded() {
    let golden: Value = serde_json::from_str(include_str!("golden/definitions.json")).expect("golden file");
    for case in golden.as_array().expect("cases") {
        let mut crd = case["crd"].clone();
        // The server sets this before validation.
        let versions = crd["spec"]["versions"].as_array().expect("versions");
        if let Some(storage) = versions.iter().find(|version| version["storage"] == true) {
            crd["status"]["storedVersions"] = json!([storage["name"]]);
        }
        let mut found = causes(&validate_definition(&crd, None));
        let mut expected = recorded(case);
        if case["name"] == "bad pattern" {
            // The two engines have different messages for an invalid expression.
            for (_, _, message) in found.iter_mut().chain(&mut expected) {
                message.truncate(message.find("error parsing regexp: ").expect("a reason"));
            }
        }
        assert_eq!(found, expected, "{}", case["name"]);
    }
}

#[test]
fn every_definition_of_the_reference_data_is_accepted() {
    let Some(directory) = mco_testkit::reference_data("crds") else {
        return;
    };
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a file");
        let mut crd: Value = serde_saphyr::from_str(&text).expect("YAML");
        let versions = crd["spec"]["versions"].as_array().expect("versions");
        let storage = versions
            .iter()
            .find(|version| version["storage"] == true)
            .expect("a storage version");
        crd["status"]["storedVersions"] = json!([storage["name"]]);
        assert_eq!(validate_definition(&crd, None), [], "{}", path.display());
        seen += 1;
    }
    assert!(seen > 10);
}
