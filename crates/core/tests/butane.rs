//! Our translation of Butane configs is that of the butane tool, whose results `scripts/record-butane` has recorded.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;

use mco_core::config::manifest;
use serde_json::{Value, json};

/// butane compresses contents where that is shorter; what counts is the text.
fn decode_contents(value: &mut Value) {
    let source = value.get("source").and_then(Value::as_str);
    if let Some(source) = source.filter(|source| source.starts_with("data:")) {
        let compression = value.get("compression").and_then(Value::as_str);
        let text = mco_ignition::resource::decode(Some(source), compression, 1 << 20).unwrap();
        value["source"] = json!(String::from_utf8(text).unwrap());
        value.as_object_mut().unwrap().remove("compression");
    }
    match value {
        Value::Object(members) => members.values_mut().for_each(decode_contents),
        Value::Array(items) => items.iter_mut().for_each(decode_contents),
        _ => {}
    }
}

/// Where butane escapes or encodes without compression, our data URL is the same to the byte.
fn uncompressed_sources(value: &Value, found: &mut Vec<String>) {
    if value.get("compression") == Some(&json!("")) {
        found.extend(value["source"].as_str().map(str::to_owned));
    }
    match value {
        Value::Object(members) => members
            .values()
            .for_each(|member| uncompressed_sources(member, found)),
        Value::Array(items) => items.iter().for_each(|item| uncompressed_sources(item, found)),
        _ => {}
    }
}

#[test]
fn butane_and_we_make_the_same_machine_configs() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/butane");
    let mut compared = (0, 0);
    for entry in fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "bu") {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let recorded = fs::read_to_string(path.with_extension("recorded")).unwrap();
        let ours = manifest::read(&name, &fs::read(&path).unwrap());
        if recorded.is_empty() {
            compared.1 += 1;
            assert!(ours.is_err(), "{name}: butane refuses this: {ours:?}");
            continue;
        }
        compared.0 += 1;
        let mut ours = ours.unwrap_or_else(|error| panic!("{error}")).remove(0).value;
        let mut theirs = manifest::value(&recorded).unwrap();
        // The other variants have no MachineConfig, only its Ignition config.
        if theirs.get("kind").is_none() {
            theirs = json!({
                "apiVersion": ours["apiVersion"], "kind": ours["kind"], "metadata": ours["metadata"],
                "spec": {"config": theirs},
            });
        }
        let mut expected = Vec::new();
        uncompressed_sources(&theirs, &mut expected);
        let mut sources = Vec::new();
        uncompressed_sources(&ours, &mut sources);
        for source in &expected {
            assert!(sources.contains(source), "{name}: {source} is not in {sources:?}");
        }
        decode_contents(&mut ours);
        decode_contents(&mut theirs);
        assert_eq!(ours, theirs, "{name}");
    }
    assert!(compared.0 >= 6 && compared.1 >= 6, "{compared:?}");
}
