//! From JSON to the model: any spec version in use, read under its own rules and brought up to 3.5.

mod error;
mod reader;

use serde_json::Value;

use crate::finding::Finding;
use crate::model::{Config, Field};
use crate::version::SpecVersion;

pub use error::ParseError;
pub(crate) use reader::Reader;

/// A config that was read and found valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The config, as spec 3.5.
    pub config: Config,
    /// The version it was written in.
    pub version: SpecVersion,
    /// What Ignition would have grumbled about: unknown keys, risky modes, units that can never start.
    pub warnings: Vec<Finding>,
}

/// Reads and validates a config that is already JSON.
pub fn parse(value: &Value) -> Result<Parsed, ParseError> {
    let version = read_version(value)?;
    let mut reader = Reader::new(version);
    let config = Config::read(value, &mut reader);
    let (mut errors, mut warnings) = reader.finish();
    let report = crate::validate(&config);
    errors.extend(report.errors);
    warnings.extend(report.warnings);
    if errors.is_empty() {
        Ok(Parsed {
            config,
            version,
            warnings,
        })
    } else {
        Err(ParseError::Invalid {
            version,
            errors,
            warnings,
        })
    }
}

/// Reads and validates a config from text: JSON, or gzip of it, or base64 of that.
pub fn parse_bytes(bytes: &[u8]) -> Result<Parsed, ParseError> {
    let value: Value = serde_json::from_slice(bytes).map_err(ParseError::NotJson)?;
    parse(&value)
}

fn read_version(value: &Value) -> Result<SpecVersion, ParseError> {
    let text = value
        .pointer("/ignition/version")
        .and_then(Value::as_str)
        .ok_or(ParseError::InvalidVersion)?;
    SpecVersion::ALL
        .into_iter()
        .find(|known| known.as_str() == text)
        .ok_or(ParseError::UnknownVersion)
}
