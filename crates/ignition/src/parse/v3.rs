//! Spec 3.0 to 3.5. The model has every field of every one of them, so that reading an older version is reading fewer
//! keys, and converting up is nothing at all.

use serde_json::Value;

use super::{ParseError, Parsed, Reader};
use crate::finding::Finding;
use crate::model::{Config, Field, Resource};
use crate::validate::validate_as;
use crate::version::SpecVersion;

pub(super) fn parse(value: &Value, version: SpecVersion) -> Result<Parsed, ParseError> {
    let mut reader = Reader::new(version);
    let mut config = Config::read(value, &mut reader);
    let (mut errors, mut warnings) = reader.finish();
    if version == SpecVersion::V3_0 {
        forget_compression_of_references(&mut config, &mut warnings);
    }
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

/// In 3.0 only file contents could be compressed.
fn forget_compression_of_references(config: &mut Config, warnings: &mut Vec<Finding>) {
    let mut forget = |path: String, resource: &mut Resource| {
        if resource.compression.take().is_some() {
            let hint = format!("spec 3.0.0 does not know it; it came with {}", SpecVersion::V3_1);
            warnings.push(Finding::new(path, "unused key compression").with_hint(hint));
        }
    };
    let section = &mut config.ignition;
    for (index, resource) in section.config.merge.iter_mut().enumerate() {
        forget(format!("ignition.config.merge[{index}].compression"), resource);
    }
    forget(
        "ignition.config.replace.compression".to_owned(),
        &mut section.config.replace,
    );
    for (index, resource) in section
        .security
        .tls
        .certificate_authorities
        .iter_mut()
        .enumerate()
    {
        forget(
            format!("ignition.security.tls.certificateAuthorities[{index}].compression"),
            resource,
        );
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
