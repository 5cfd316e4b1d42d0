//! Parses spec 3.0 to 3.5. The model has every field of each of them, so that an older version has fewer keys and needs
//! no conversion.

use std::collections::HashSet;

use serde_json::Value;

use super::{ConfigReader, ParseError, Parsed, verdict};
use crate::finding::Finding;
use crate::model::{Config, RecordField};
use crate::validate::validate_as;
use crate::version::SpecVersion;

/// Parses keys and types only.
pub(super) fn read(value: &Value, version: SpecVersion) -> Result<Parsed, ParseError> {
    let mut reader = ConfigReader::new(version);
    let config = Config::read(value, &mut reader);
    let (errors, warnings) = reader.finish();
    verdict(config, version, errors, warnings)
}

pub(super) fn parse(value: &Value, version: SpecVersion) -> Result<Parsed, ParseError> {
    let mut reader = ConfigReader::new(version);
    let config = Config::read(value, &mut reader);
    let (mut errors, mut warnings) = reader.finish();
    let report = validate_as(&config, version);
    let misread: HashSet<&str> = errors.iter().map(|finding| entry(&finding.path)).collect();
    // Findings in the same entry may be caused by a value of the wrong type that was treated as absent.
    let independent: Vec<Finding> = report
        .errors
        .into_iter()
        .filter(|finding| !misread.contains(entry(&finding.path)))
        .collect();
    errors.extend(independent);
    warnings.extend(report.warnings);
    verdict(config, version, errors, warnings)
}

/// Returns the path of the outermost list entry around a path, or of its section.
fn entry(path: &str) -> &str {
    match path.find(']') {
        Some(end) => &path[..=end],
        None => path.split('.').next().unwrap_or_default(),
    }
}
