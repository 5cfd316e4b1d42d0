//! Fuzzes the YAML parser with any text: parsing never panics and stays within its limits, and serializing the result
//! never panics.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mco_core::config::goyaml;
use mco_core::config::manifest;

fuzz_target!(|bytes: &[u8]| {
    let _ = manifest::read_with_warnings("fuzzed", bytes);
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(value) = manifest::value(text) {
        // The result is not compared, because not every value survives: go-yaml writes the key `<<` without quotes.
        let _ = manifest::value(&goyaml::to_string(&value));
    }
});
