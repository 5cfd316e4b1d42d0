//! Why a config could not be read.

use thiserror::Error;

use crate::finding::Finding;
use crate::version::SpecVersion;

/// The versions Ignition configs may be written in, as the messages list them.
const SUPPORTED: &str = "2.2,3.0,3.1,3.2,3.3,3.4,3.5";

/// Why a config could not be read. Its text never contains file contents, keys or password hashes.
#[derive(Debug, Error)]
pub enum ParseError {
    /// Nothing at all was given.
    #[error("parsing Ignition config failed: not a config (empty)")]
    Empty,
    /// `ignition.version` is missing or is no version.
    #[error("parsing Ignition config failed: invalid version. Supported spec versions: {SUPPORTED}")]
    InvalidVersion,
    /// `ignition.version` is a version that is not supported.
    #[error("parsing Ignition config failed: unknown version. Supported spec versions: {SUPPORTED}")]
    UnknownVersion,
    /// The text is not JSON.
    #[error("parsing Ignition config failed: not JSON: {0}")]
    NotJson(#[source] serde_json::Error),
    /// The config breaks rules of its version; all of them are listed.
    #[error("{}", describe(*version, errors))]
    Invalid {
        version: SpecVersion,
        errors: Vec<Finding>,
        warnings: Vec<Finding>,
    },
}

impl ParseError {
    /// Everything that is wrong, with its place in the config.
    pub fn findings(&self) -> &[Finding] {
        match self {
            Self::Invalid { errors, .. } => errors,
            _ => &[],
        }
    }
}

fn describe(version: SpecVersion, errors: &[Finding]) -> String {
    let mut text = if version < SpecVersion::V3_0 {
        "parsing Ignition spec v2 failed with error: config is not valid\nReport:".to_owned()
    } else {
        "parsing Ignition config spec v3 failed with error: config is not valid\nReport:".to_owned()
    };
    for finding in errors {
        text.push_str(" error at ");
        text.push_str(&finding.to_string());
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
}
