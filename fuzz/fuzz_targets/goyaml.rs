//! Fuzzes the YAML emitter with any value: it never panics, and what it writes is read back as the same value.

#![no_main]

use arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use mco_core::config::{goyaml, manifest};
use mco_fuzz::values;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let mut input = Unstructured::new(bytes);
    // Many keys, because a sort by an order that is not total panics on long lists only.
    let mut keys = serde_json::Map::new();
    let count = input.int_in_range(0..=60).unwrap_or(0);
    for _ in 0..count {
        let Ok(text) = hostile_key(&mut input) else {
            break;
        };
        keys.insert(text, Value::from(1));
    }
    let Ok(mut value) = values::object(&mut input, 5) else {
        return;
    };
    value.insert("keys".to_owned(), Value::Object(keys));
    let value = Value::Object(value);
    let text = goyaml::to_string(&value);
    let read = manifest::value(&text);
    if survives(&value) {
        assert_eq!(read.as_ref(), Ok(&value), "{text}");
    }
});

/// Returns a key of digits, letters and punctuation, whose order in go-yaml is cyclic.
fn hostile_key(input: &mut Unstructured<'_>) -> arbitrary::Result<String> {
    let length = input.int_in_range(1..=4)?;
    (0..length)
        .map(|_| input.choose(b"a019.-_A").map(|byte| char::from(*byte)))
        .collect()
}

/// Returns whether go-yaml itself reads back what it writes: it writes the key `<<` without quotes, and floats without
/// a fraction as integers.
fn survives(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields
            .iter()
            .all(|(key, value)| key != "<<" && is_plain(key) && survives(value)),
        Value::Array(items) => items.iter().all(survives),
        Value::Number(number) => !number.is_f64(),
        Value::String(text) => is_plain(text),
        Value::Null | Value::Bool(_) => true,
    }
}

/// Returns whether YAML can hold the text unchanged.
fn is_plain(text: &str) -> bool {
    text.chars().all(|c| {
        c == '\n' || c == '\t' || !(c.is_control() || matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}'))
    })
}
