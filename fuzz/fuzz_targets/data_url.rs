//! Fuzzes the source of a file with any text: decoding never panics or exceeds its limit, and decoded contents
//! survive encoding.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mco_ignition::resource::{decode, encode};

/// Small enough that the fuzzer finds compressed contents that exceed it.
const LIMIT: usize = 4096;

fuzz_target!(|source: &str| {
    for compression in [None, Some(""), Some("gzip"), Some("xz")] {
        let Ok(contents) = decode(Some(source), compression, LIMIT) else {
            continue;
        };
        assert!(contents.len() <= LIMIT);
        assert_eq!(
            decode(Some(&encode(&contents)), None, LIMIT).expect("our own URL"),
            contents
        );
    }
});
