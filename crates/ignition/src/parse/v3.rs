//! Spec 3.0 to 3.5. The model has every field of every one of them, so that reading an older version is reading fewer
//! keys, and converting up is nothing at all.

use serde_json::Value;

use super::{ParseError, Parsed, Reader};
use crate::finding::Finding;
use crate::model::{Config, Field};
use crate::validate::validate_as;
use crate::version::SpecVersion;

/// Reads keys and types only.
pub(super) fn read(value: &Value, version: SpecVersion) -> Result<Parsed, ParseError> {
    let mut reader = Reader::new(version);
    let config = Config::read(value, &mut reader);
    let (errors, warnings) = reader.finish();
    if errors.is_empty() {
        Ok(Parsed {
            config,
            version,
            warnings,
        })
    } else {
        Err(ParseError::Invalid {
            version: Some(version),
            errors,
            warnings,
        })
    }
}

pub(super) fn parse(value: &Value, version: SpecVersion) -> Result<Parsed, ParseError> {
    let mut reader = Reader::new(version);
    let config = Config::read(value, &mut reader);
    let (mut errors, mut warnings) = reader.finish();
    let report = validate_as(&config, version);
    let misread = errors.clone();
    errors.extend(
        report
            .errors
            .into_iter()
            .filter(|finding| !follows_from(finding, &misread)),
    );
    warnings.extend(report.warnings);
    if errors.is_empty() {
        Ok(Parsed {
            config,
            version,
            warnings,
        })
    } else {
        Err(ParseError::Invalid {
            version: Some(version),
            errors,
            warnings,
        })
    }
}

/// Whether a finding may only be there because a value in the same entry had the wrong type and was read as absent.
fn follows_from(finding: &Finding, misread: &[Finding]) -> bool {
    misread
        .iter()
        .any(|cause| entry(&cause.path) == entry(&finding.path))
}

/// The outermost list entry around a place, or the section it is in.
fn entry(path: &str) -> &str {
    match path.find(']') {
        Some(end) => &path[..=end],
        None => path.split('.').next().unwrap_or_default(),
    }
}
