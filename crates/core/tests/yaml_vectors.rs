//! Texts and the values that the reference implementation parses from them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use mco_core::config::manifest;
use serde_json::Value;

/// Whether two values are equal; `-0` is `0`.
fn same(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || (a.as_f64() == Some(0.0) && b.as_f64() == Some(0.0))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Checks that a recorded text is parsed as the recorded value, or rejected.
fn check(case: &Value) -> Result<(), String> {
    let text = case["yaml"].as_str().ok_or("the case has no text")?;
    let ours = manifest::value(text);
    let rejected = case.get("error").is_some();
    match (&ours, case.get("json")) {
        (Err(_), None) if rejected => Ok(()),
        (Ok(ours), Some(theirs)) if !rejected && same(ours, theirs) => Ok(()),
        (Ok(_) | Err(_), theirs) => Err(format!("{text:?}\n  ours   {ours:?}\n  theirs {theirs:?}")),
    }
}

#[test]
fn recorded_texts_are_read_alike() {
    let Some(root) = mco_testkit::reference_data("vectors") else {
        return;
    };
    let lines = fs::read_to_string(root.join("yaml.jsonl")).unwrap();
    let cases: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(!cases.is_empty(), "there are no cases");
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let topic = &case["topic"];
            check(case).err().map(|failure| format!("{topic}: {failure}"))
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {} cases fail:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}
