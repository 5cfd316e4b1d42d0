//! Tables and properties of the crate's public interface.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    reason = "tables of cases are long, and read best when each case is written in place"
)]

mod convert;
mod generate;
mod merge;
mod parse;
mod properties;
mod resource;
mod spec_2;
mod validate;
mod validate_devices;
mod vectors;

use mco_ignition::{Config, Finding};
use serde_json::Value;

/// Parses a config that must be valid.
fn valid(value: &Value) -> Config {
    match mco_ignition::parse(value) {
        Ok(parsed) => parsed.config,
        Err(error) => panic!("{value}\n{error}"),
    }
}

/// Findings as `path: message`, sorted.
fn sorted(findings: &[Finding]) -> Vec<String> {
    let mut lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    lines.sort();
    lines
}
