//! Any text: reading YAML never panics and stays within its limits, and what was read is read again from its JSON and from
//! the YAML we write for it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mco_core::{goyaml, manifest};

fuzz_target!(|bytes: &[u8]| {
    let _ = manifest::read("fuzzed", bytes);
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(value) = manifest::value(text) else {
        return;
    };
    assert_eq!(
        manifest::value(&goyaml::to_string(&value)).expect("our own YAML"),
        value
    );
});
