//! Parses JSON into the model: any spec version in use, under its own rules, translated to 3.5.

mod error;
mod reader;
mod v3;

use std::borrow::Cow;

use serde_json::Value;

use crate::finding::Finding;
use crate::model::Config;
use crate::resource;
use crate::v2;
use crate::version::{SpecVersion, Unrecognised};

pub use error::ParseError;
pub(crate) use reader::{ConfigReader, ReaderKey};

/// The size limit: a rendered config has at most 1.5 MiB, and the document served to a machine contains it three times,
/// twice percent-encoded.
pub const MAX_CONFIG_BYTES: usize = 16 << 20;

/// A parsed and valid config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The config, as spec 3.5.
    pub config: Config,
    /// The version it was written in.
    pub version: SpecVersion,
    /// Ignition's warnings: unknown keys, risky modes, units that can never start.
    pub warnings: Vec<Finding>,
}

/// Parses and validates a config that is already JSON.
pub fn parse(value: &Value) -> Result<Parsed, ParseError> {
    let version = read_version(value)?;
    if version < SpecVersion::V3_0 {
        v2::parse(value, version)
    } else {
        v3::parse(value, version)
    }
}

/// Parses a config without validation: keys and types are checked, the rules of spec 3 are not. For configs that are
/// already in use and must be shown or compared even if they should never have been accepted.
///
/// Spec 2 cannot be translated without applying its rules, and is fully validated.
pub fn parse_unvalidated(value: &Value) -> Result<Parsed, ParseError> {
    let version = read_version(value)?;
    if version < SpecVersion::V3_0 {
        v2::parse(value, version)
    } else {
        v3::read(value, version)
    }
}

/// Parses and validates a config from bytes: JSON, or gzip of it, or base64 of that gzip.
pub fn parse_bytes(bytes: &[u8]) -> Result<Parsed, ParseError> {
    if bytes.is_empty() {
        return Err(ParseError::Empty);
    }
    if bytes.len() > MAX_CONFIG_BYTES {
        return Err(ParseError::TooLarge {
            limit: MAX_CONFIG_BYTES,
        });
    }
    let text = match compressed(bytes) {
        Some(compressed) => Cow::Owned(resource::decompress(&compressed, MAX_CONFIG_BYTES).map_err(
            |error| match error {
                resource::DecodeError::TooLarge { limit } => ParseError::TooLarge { limit },
                other => ParseError::NotJson(other.to_string()),
            },
        )?),
        None => Cow::Borrowed(bytes),
    };
    let value: Value =
        serde_json::from_slice(&text).map_err(|error| ParseError::NotJson(format!("not JSON: {error}")))?;
    parse(&value)
}

/// Returns the gzip stream in `bytes`, plain or in base64, if there is one.
fn compressed(bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
    const MAGIC: [u8; 2] = [0x1f, 0x8b];
    if bytes.starts_with(&MAGIC) {
        return Some(Cow::Borrowed(bytes));
    }
    resource::decode_base64(bytes.trim_ascii())
        .ok()
        .filter(|decoded| decoded.starts_with(&MAGIC))
        .map(Cow::Owned)
}

/// Returns the config, or its errors if there are any.
pub(crate) fn verdict(
    config: Config,
    version: SpecVersion,
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
) -> Result<Parsed, ParseError> {
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

fn read_version(value: &Value) -> Result<SpecVersion, ParseError> {
    let wrong_type = |path: &str, message: &str| {
        let hint = "begin with {\"ignition\": {\"version\": \"3.5.0\"}}";
        let errors = vec![Finding::new(path, message).with_hint(hint)];
        ParseError::Invalid {
            version: None,
            errors,
            warnings: Vec::new(),
        }
    };
    let section = match value {
        Value::Object(_) => member(value, "ignition"),
        Value::Null => None,
        _ => return Err(wrong_type("", "expected an object")),
    };
    let version = match section {
        None | Some(Value::Null) => None,
        Some(section @ Value::Object(_)) => member(section, "version"),
        Some(_) => return Err(wrong_type("ignition", "expected an object")),
    };
    match version {
        None | Some(Value::Null) => Err(ParseError::InvalidVersion),
        Some(Value::String(text)) => SpecVersion::recognise(text).map_err(|error| match error {
            Unrecognised::Malformed => ParseError::InvalidVersion,
            Unrecognised::Unsupported => ParseError::UnknownVersion,
        }),
        Some(_) => Err(wrong_type("ignition.version", "expected a string")),
    }
}

/// Returns a member by its name, with a case-insensitive fallback.
fn member<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let members = object.as_object()?;
    members.get(name).or_else(|| {
        members
            .iter()
            .rfind(|(key, _)| reader::same_key(key, name))
            .map(|(_, value)| value)
    })
}
