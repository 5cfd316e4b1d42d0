//! Spec 3.0 to 3.5. The model has every field of every one of them, so that reading an older version is reading fewer
//! keys, and converting up is nothing at all.

use std::collections::HashSet;

use serde_json::Value;

use super::{ParseError, Parsed, Reader, verdict};
use crate::finding::Finding;
use crate::model::{Config, Field};
use crate::validate::validate_as;
use crate::version::SpecVersion;

/// Reads keys and types only.
pub(super) fn read(value: &Value, version: SpecVersion) -> Result<Parsed, ParseError> {
    let mut reader = Reader::new(version);
    let config = Config::read(value, &mut reader);
    let (errors, warnings) = reader.finish();
    verdict(config, version, errors, warnings)
}

pub(super) fn parse(value: &Value, version: SpecVersion) -> Result<Parsed, ParseError> {
    let mut reader = Reader::new(version);
    let config = Config::read(value, &mut reader);
    let (mut errors, mut warnings) = reader.finish();
    let report = validate_as(&config, version);
    let misread: HashSet<&str> = errors.iter().map(|finding| entry(&finding.path)).collect();
    // What lies in the same entry may be wrong only because a value of the wrong type was read as absent.
    let independent: Vec<Finding> = report
        .errors
        .into_iter()
        .filter(|finding| !misread.contains(entry(&finding.path)))
        .collect();
    errors.extend(independent);
    warnings.extend(report.warnings);
    verdict(config, version, errors, warnings)
}

/// The outermost list entry around a place, or the section it is in.
fn entry(path: &str) -> &str {
    match path.find(']') {
        Some(end) => &path[..=end],
        None => path.split('.').next().unwrap_or_default(),
    }
}
