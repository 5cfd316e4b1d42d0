//! Fuzzes the four patch types with an object and changes of its own fields: results are bounded in depth and size,
//! survive serializing, and applying a change twice changes nothing more.

#![no_main]

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use mco_apiserver::apply::{FieldManager, FieldManagerError};
use mco_apiserver::decode::FieldValidation;
use mco_apiserver::kinds;
use mco_apiserver::patch::json::JsonPatch;
use mco_apiserver::patch::merge::MergePatch;
use mco_apiserver::patch::strategic::StrategicPatch;
use mco_fuzz::values;
use serde_json::{Value, json};

/// The limit of JSON patch; the objects here are far below it on their own.
const MAX_DEPTH: usize = 100;
/// The copies of one JSON patch, the object and the patch itself.
const MAX_BYTES: usize = (3 << 20) + (1 << 20);
const NOW: &str = "2026-01-01T00:00:00Z";

fuzz_target!(|bytes: &[u8]| {
    let mut input = Unstructured::new(bytes);
    let _ = run(&mut input);
});

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let selected = input.int_in_range(0..=4)?;
    match selected {
        0 => json_patch(input),
        1 => merge_patch(input),
        2 | 3 => strategic_patch(input),
        _ => server_side_apply(input),
    }
}

fn json_patch(input: &mut Unstructured<'_>) -> Result<()> {
    let original = Value::Object(values::object(input, 4)?);
    let mut document = original.clone();
    let mut operations = Vec::new();
    let mut all_applied = true;
    for _ in 0..input.int_in_range(1..=20)? {
        let operation = operation(input, &document)?;
        let mut next = document.clone();
        if apply_json(&json!([operation]), &mut next) {
            document = next;
        } else {
            all_applied = false;
        }
        operations.push(operation);
        check_bounds(&document);
    }
    let mut at_once = original;
    if apply_json(&Value::from(operations), &mut at_once) {
        check_bounds(&at_once);
        assert!(all_applied, "one request did what single operations were refused");
        assert_eq!(at_once, document, "one request and single operations differ");
    }
    Ok(())
}

/// Returns an operation on paths of the document itself, or just below them.
fn operation(input: &mut Unstructured<'_>, document: &Value) -> Result<Value> {
    let known = values::pointers(document);
    let path = |input: &mut Unstructured<'_>| -> Result<String> {
        let base = input.choose(&known)?;
        Ok(match input.int_in_range(0..=3)? {
            0 => format!("{base}/-"),
            // Deep paths, as a copy into itself makes them.
            1 => format!("{base}{}", "/a".repeat(input.int_in_range(1..=3)?)),
            _ => base.clone(),
        })
    };
    let name = *input.choose(&["add", "remove", "replace", "move", "copy", "copy", "test"])?;
    Ok(json!({"op": name, "path": path(input)?, "from": path(input)?, "value": values::value(input, 2)?}))
}

fn apply_json(patch: &Value, document: &mut Value) -> bool {
    let body = patch.to_string();
    JsonPatch::decode(body.as_bytes(), FieldValidation::Strict)
        .is_ok_and(|patch| patch.apply(document).is_ok())
}

fn merge_patch(input: &mut Unstructured<'_>) -> Result<()> {
    let mut once = Value::Object(values::object(input, 4)?);
    let change = Value::Object(values::object(input, 4)?);
    let Ok(patch) = MergePatch::decode(change.to_string().as_bytes(), FieldValidation::Warn) else {
        return Ok(());
    };
    patch.apply(&mut once);
    check_bounds(&once);
    // A null inside of a value that replaces an object stays, as in Kubernetes, and is removed the second time.
    if !values::has_null(&change) {
        let mut twice = once.clone();
        patch.apply(&mut twice);
        assert_eq!(twice, once);
    }
    Ok(())
}

fn strategic_patch(input: &mut Unstructured<'_>) -> Result<()> {
    let kind = input.choose(kinds::BUILT_IN)?;
    let Some(schema) = kinds::schema_of(kind.definition) else {
        return Ok(());
    };
    let mut object = Value::Object(values::object(input, 5)?);
    let change = values::object(input, 5)?;
    let patch = StrategicPatch::new(change);
    if patch.apply(&mut object, &schema).is_ok() {
        check_bounds(&object);
    }
    Ok(())
}

fn server_side_apply(input: &mut Unstructured<'_>) -> Result<()> {
    let kind = input.choose(kinds::BUILT_IN)?;
    let Some(schema) = kinds::schema_of(kind.definition) else {
        return Ok(());
    };
    let api_version = kind.api_version();
    let fields = FieldManager {
        schema: &schema,
        api_version: &api_version,
        subresource: "",
        reset: &[],
        served: std::slice::from_ref(&api_version),
    };
    let mut live: Option<Value> = None;
    for _ in 0..input.int_in_range(1..=4)? {
        let mut config = Value::Object(values::object(input, 4)?);
        config["apiVersion"] = Value::from(api_version.clone());
        config["kind"] = Value::from(kind.kind);
        let manager = *input.choose(&["alice", "bob", "kubectl"])?;
        let force = input.arbitrary()?;
        match fields.apply(live.as_ref(), &config, manager, force, NOW) {
            Ok(applied) => {
                check_bounds(&applied);
                // An object without managers gets one for what it had before, as in Kubernetes.
                if applied.pointer("/metadata/managedFields").is_some() {
                    let again = fields.apply(Some(&applied), &config, manager, force, NOW);
                    assert_eq!(again.as_ref(), Ok(&applied), "applied twice");
                }
                live = Some(applied);
            }
            Err(FieldManagerError::Conflicts(conflicts)) => {
                assert!(!force && !conflicts.is_empty(), "a forced apply has no conflicts");
            }
            Err(FieldManagerError::Malformed(_) | FieldManagerError::Unmergeable(_)) => {}
        }
    }
    Ok(())
}

fn check_bounds(value: &Value) {
    assert!(values::depth(value) <= MAX_DEPTH, "nested too deeply");
    let text = value.to_string();
    assert!(text.len() <= MAX_BYTES, "{} bytes", text.len());
    assert_eq!(
        serde_json::from_str::<Value>(&text).expect("our own JSON"),
        *value
    );
}
