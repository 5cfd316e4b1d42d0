//! From the model to the JSON of an older spec version, for machines that know nothing newer.
//!
//! A conversion never loses anything silently: what the older version cannot express is refused, all of it at once, with
//! its place and the way out. Only what equals the default anyway is left out. Reading older versions is the business of
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
    /// There is no way down to this version.
    #[error("Ignition configs cannot be converted to spec {0}")]
    UnsupportedTarget(SpecVersion),
    /// The config breaks the rules of its own version.
    #[error("config is not valid: {}", list(.0))]
    Invalid(Vec<Finding>),
    /// The older version has no words for parts of the config.
    #[error("cannot express this config in Ignition spec {to}: {}", list(findings))]
    Inexpressible { to: SpecVersion, findings: Vec<Finding> },
}

impl ConvertError {
    /// Everything that is in the way, with its place in the config.
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

/// Expresses a valid config in spec version `to`.
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

/// The result must mean under the older version what the config means; a rule that only the older version has is found
/// here.
fn confirm(config: &Config, value: &Value, to: SpecVersion) -> Result<(), ConvertError> {
    let findings = match parse(value) {
        Ok(parsed) if parsed.config == *config => return Ok(()),
        Ok(_) => vec![Finding::new(
            "",
            format!("it would not mean the same in spec {to}"),
        )],
        Err(error) => error.findings(),
    };
    Err(ConvertError::Inexpressible { to, findings })
}
