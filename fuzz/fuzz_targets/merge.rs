//! Fuzzes merging with configs of the right shape, valid or not: it never panics, an empty config changes nothing, and
//! the result survives serializing and parsing.

#![no_main]

use arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use mco_fuzz::document;
use mco_ignition::{Config, merge, parse_unvalidated, validate};

fuzz_target!(|bytes: &[u8]| {
    let mut input = Unstructured::new(bytes);
    let mut merged = Config::default();
    for _ in 0..4 {
        let Ok(document) = document::config(&mut input) else {
            break;
        };
        let Ok(parsed) = parse_unvalidated(&document) else {
            continue;
        };
        let child = parsed.config;
        assert_eq!(merge(Config::default(), child.clone(), &mut ()), child);
        assert_eq!(merge(child.clone(), Config::default(), &mut ()), child);
        merged = merge(merged, child, &mut ());
    }
    let value = serde_json::to_value(&merged).expect("a config is JSON");
    assert_eq!(parse_unvalidated(&value).expect("our own JSON").config, merged);
    let _ = validate(&merged);
});
