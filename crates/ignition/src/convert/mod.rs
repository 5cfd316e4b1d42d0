//! Converts the model to the JSON of an older spec version, for machines that do not support a newer one.
//!
//! A conversion is lossless: parts that the older version cannot express are rejected, all at once, with their path and
//! a hint. Only values that equal the default are omitted. Older versions are read in
//! [`crate::parse`](mod@crate::parse).

mod refuse;
mod resources;
mod simplify;

use serde_json::{Value, json};
use thiserror::Error;

use crate::finding::Finding;
use crate::model::Config;
use crate::version::SpecVersion;
use crate::{parse, v2, validate};

/// Why a config cannot be expressed in an older version.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConvertError {
    /// Conversion down to this version is not supported.
    #[error("Ignition configs cannot be converted to spec {0}")]
    UnsupportedTarget(SpecVersion),
    /// The config is invalid in its own version.
    #[error("config is not valid: {}", list(.0))]
    Invalid(Vec<Finding>),
    /// The older version cannot express parts of the config.
    #[error("cannot express this config in Ignition spec {to}: {}", list(findings))]
    Inexpressible { to: SpecVersion, findings: Vec<Finding> },
}

impl ConvertError {
    /// Returns all findings that block the conversion.
    pub fn findings(&self) -> &[Finding] {
        match self {
            Self::UnsupportedTarget(_) => &[],
            Self::Invalid(findings) | Self::Inexpressible { findings, .. } => findings,
        }
    }
}

fn list(findings: &[Finding]) -> String {
    findings
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

/// Converts a valid config to spec version `to`.
pub fn down(config: &Config, to: SpecVersion) -> Result<Value, ConvertError> {
    if to < SpecVersion::V2_2 {
        return Err(ConvertError::UnsupportedTarget(to));
    }
    let report = validate(config);
    if !report.is_valid() {
        return Err(ConvertError::Invalid(report.errors));
    }
    let findings = refuse::inexpressible(config, to);
    if !findings.is_empty() {
        return Err(ConvertError::Inexpressible { to, findings });
    }
    let config = simplify::without_defaults(config, to);
    if to == SpecVersion::V2_2 {
        return stamped(serde_json::to_value(v2::down::config(&config)), to);
    }
    let value = stamped(serde_json::to_value(&config), to)?;
    confirm(&config, &value, to)?;
    Ok(value)
}

fn stamped(value: Result<Value, serde_json::Error>, to: SpecVersion) -> Result<Value, ConvertError> {
    let mut value =
        value.map_err(|error| ConvertError::Invalid(vec![Finding::new("", error.to_string())]))?;
    value["ignition"]["version"] = json!(to.as_str());
    Ok(value)
}

/// Verifies the conversion by parsing the result under the older version, which also applies that version's own rules.
fn confirm(config: &Config, value: &Value, to: SpecVersion) -> Result<(), ConvertError> {
    let findings = match parse(value) {
        Ok(parsed) if parsed.config == *config => return Ok(()),
        Ok(_) => vec![Finding::new(
            "",
            format!("it would have a different meaning in spec {to}"),
        )],
        Err(error) => error.findings(),
    };
    Err(ConvertError::Inexpressible { to, findings })
}
