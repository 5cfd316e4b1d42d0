//! From the model to the JSON of an older spec version.

use serde_json::Value;
use thiserror::Error;

use crate::finding::Finding;
use crate::model::Config;
use crate::version::SpecVersion;

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

fn list(findings: &[Finding]) -> String {
    findings
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

/// Expresses a config in spec version `to`, refusing rather than losing anything.
pub fn down(config: &Config, to: SpecVersion) -> Result<Value, ConvertError> {
    match to {
        SpecVersion::V3_5 => serde_json::to_value(config)
            .map_err(|error| ConvertError::Invalid(vec![Finding::new("", error.to_string())])),
        other => Err(ConvertError::UnsupportedTarget(other)),
    }
}
