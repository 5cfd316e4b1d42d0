//! From JSON to the model: any spec version in use, read under its own rules and brought up to 3.5.

mod error;
mod reader;
mod v3;

use serde_json::Value;

use crate::finding::Finding;
use crate::model::Config;
use crate::resource;
use crate::version::SpecVersion;

pub use error::ParseError;
pub(crate) use reader::{Key, Reader};

/// More than any machine takes (a rendered config fits into 1.5 MiB), and little enough to hold in memory.
pub const MAX_CONFIG_BYTES: usize = 32 << 20;

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
    v3::parse(value, version)
}

/// Reads a config without judging it: keys and types are checked, the rules are not.
pub fn parse_unvalidated(value: &Value) -> Result<Config, ParseError> {
    v3::read(value, read_version(value)?).map(|parsed| parsed.config)
}

/// Reads and validates a config from bytes: JSON, or gzip of it, or base64 of that gzip.
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
        Some(compressed) => {
            resource::decompress(&compressed, MAX_CONFIG_BYTES).map_err(|error| match error {
                resource::DecodeError::TooLarge { limit } => ParseError::TooLarge { limit },
                other => ParseError::NotJson(other.to_string()),
            })?
        }
        None => bytes.to_vec(),
    };
    let value: Value =
        serde_json::from_slice(&text).map_err(|error| ParseError::NotJson(format!("not JSON: {error}")))?;
    parse(&value)
}

/// The gzip stream in `bytes`, plain or in base64, if there is one.
fn compressed(bytes: &[u8]) -> Option<Vec<u8>> {
    const MAGIC: [u8; 2] = [0x1f, 0x8b];
    if bytes.starts_with(&MAGIC) {
        return Some(bytes.to_vec());
    }
    resource::decode_base64(bytes.trim_ascii())
        .ok()
        .filter(|decoded| decoded.starts_with(&MAGIC))
}

fn read_version(value: &Value) -> Result<SpecVersion, ParseError> {
    let wrong_type = |path: &str, message: &str| {
        let errors = vec![Finding::new(path, message)];
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
        Some(Value::String(text)) => SpecVersion::recognise(text),
        Some(_) => Err(wrong_type("ignition.version", "expected a string")),
    }
}

/// A member by its name, or failing that by its name in another case.
fn member<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let members = object.as_object()?;
    members.get(name).or_else(|| {
        members
            .iter()
            .rfind(|(key, _)| reader::same_key(key, name))
            .map(|(_, value)| value)
    })
}

impl SpecVersion {
    /// The version that a text means. Leading zeros do not matter; everything else does.
    fn recognise(text: &str) -> Result<Self, ParseError> {
        let invalid = || ParseError::InvalidVersion;
        let is_identifier = |text: &str| {
            text.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
        };
        let (text, build) = text.split_once('+').unwrap_or((text, ""));
        let (numbers, pre_release) = text.split_once('-').unwrap_or((text, ""));
        let mut parts = numbers.splitn(3, '.').map(str::parse::<i64>);
        let mut next = || parts.next().and_then(Result::ok).ok_or_else(invalid);
        let (major, minor, patch) = (next()?, next()?, next()?);
        if !is_identifier(build) || !is_identifier(pre_release) {
            return Err(invalid());
        }
        let plain = format!("{major}.{minor}.{patch}");
        Self::ALL
            .into_iter()
            .find(|known| known.as_str() == plain && build.is_empty() && pre_release.is_empty())
            .ok_or(ParseError::UnknownVersion)
    }
}
