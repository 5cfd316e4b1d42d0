//! Errors of parsing a config.

use thiserror::Error;

use crate::finding::Finding;
use crate::version::SpecVersion;

/// The supported spec versions, as listed in messages.
const SUPPORTED: &str = "2.2,3.0,3.1,3.2,3.3,3.4,3.5";

/// Why a config could not be parsed. Its text never contains file contents, keys or password hashes.
#[derive(Debug, Error)]
pub enum ParseError {
    /// The input is empty.
    #[error("parsing Ignition config spec v3 failed with error: not a config (empty)")]
    Empty,
    /// The input is larger than any machine would accept.
    #[error("parsing Ignition config failed: config is larger than {limit} bytes")]
    TooLarge { limit: usize },
    /// The text is neither JSON nor gzip of it.
    #[error("parsing Ignition config failed: {0}")]
    NotJson(String),
    /// `ignition.version` is missing or not a version.
    #[error("parsing Ignition config failed: invalid version. Supported spec versions: {SUPPORTED}")]
    InvalidVersion,
    /// `ignition.version` is not supported.
    #[error("parsing Ignition config failed: unknown version. Supported spec versions: {SUPPORTED}")]
    UnknownVersion,
    /// The config is invalid in its version; all findings are listed. The version is absent if it could not be parsed.
    #[error("{}", describe(*version, errors))]
    Invalid {
        version: Option<SpecVersion>,
        errors: Vec<Finding>,
        warnings: Vec<Finding>,
    },
}

impl ParseError {
    /// Returns all findings with their paths; never empty.
    pub fn findings(&self) -> Vec<Finding> {
        let version =
            |message: &str, hint: &str| vec![Finding::new("ignition.version", message).with_hint(hint)];
        match self {
            Self::Invalid { errors, .. } => errors.clone(),
            Self::InvalidVersion => version(
                &format!("invalid version. Supported spec versions: {SUPPORTED}"),
                "set ignition.version to \"3.5.0\" or to the version the config is written in",
            ),
            Self::UnknownVersion => version(
                &format!("unknown version. Supported spec versions: {SUPPORTED}"),
                "write the config in one of the supported versions, with .0 at the end",
            ),
            Self::Empty => {
                vec![Finding::new("", "not a config (empty)").with_hint(
                    "leave the config out, or begin with {\"ignition\": {\"version\": \"3.5.0\"}}",
                )]
            }
            Self::TooLarge { .. } => {
                vec![Finding::new("", self.to_string()).with_hint("fetch large files from a server instead")]
            }
            Self::NotJson(message) => {
                vec![Finding::new("", message).with_hint("provide JSON, or gzip of JSON, or base64 of that")]
            }
        }
    }
}

fn describe(version: Option<SpecVersion>, errors: &[Finding]) -> String {
    let spec = if version.is_some_and(|version| version < SpecVersion::V3_0) {
        "spec v2"
    } else {
        "config spec v3"
    };
    let mut text = format!("parsing Ignition {spec} failed with error: config is not valid\nReport: ");
    for (index, finding) in errors.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        text.push_str("error at $");
        if !finding.path.is_empty() {
            text.push('.');
        }
        text.push_str(&finding.to_string());
    }
    text
}
