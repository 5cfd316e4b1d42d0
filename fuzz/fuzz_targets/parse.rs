//! Fuzzes parsing with any bytes: it never panics, and a parsed config survives serializing and parsing, in every
//! version that can express it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mco_ignition::convert::down;
use mco_ignition::{SpecVersion, parse, parse_bytes, parse_unvalidated};

fuzz_target!(|bytes: &[u8]| {
    let parsed = match parse_bytes(bytes) {
        Ok(parsed) => parsed,
        Err(error) => {
            assert!(!error.findings().is_empty());
            return;
        }
    };
    let value = serde_json::to_value(&parsed.config).expect("a config is JSON");
    assert_eq!(
        parse_unvalidated(&value).expect("our own JSON").config,
        parsed.config
    );
    for version in SpecVersion::ALL {
        if let Ok(value) = down(&parsed.config, version)
            && version >= SpecVersion::V3_0
        {
            assert_eq!(parse(&value).expect("converted").version, version);
        }
    }
});
