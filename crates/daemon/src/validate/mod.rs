//! Validates a machine against its config. Reports all differences, not just the first.
//!
//! Contents are never shown, only their sizes and hashes. Nothing is repaired here.

mod files;
mod go_mode;
mod system;
mod units;

use mco_core::rollout::messages::UnexpectedState;
use mco_host::os::OsError;
use mco_host::{AccountError, FsError, Machine};
use serde::Serialize;
use thiserror::Error;

use crate::config::NodeConfig;
use crate::target::TargetError;

/// One difference between a machine and its config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mismatch {
    /// The path, the unit, or the part of the OS.
    pub subject: String,
    /// The reference's message, which administrators and their tools search for.
    pub cause: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<FileShape>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<FileShape>,
}

/// The size and hash of a file, which may be shown in place of its contents.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileShape {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

#[derive(Debug, Error)]
pub enum ValidateError {
    #[error(transparent)]
    Files(#[from] FsError),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Accounts(#[from] AccountError),
    #[error(transparent)]
    Os(#[from] OsError),
}

impl Mismatch {
    pub(crate) fn plain(subject: impl Into<String>, cause: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            cause: cause.into(),
            expected: None,
            found: None,
        }
    }

    /// Returns the cause with the sizes of what differs, for the log. Hashes are omitted, because those of short
    /// secrets can be guessed.
    pub fn with_sizes(&self) -> String {
        let size = |shape: &Option<FileShape>| shape.as_ref().and_then(|shape| shape.size);
        match (size(&self.expected), size(&self.found)) {
            (Some(expected), Some(found)) => {
                format!("{} (expected {expected} bytes, found {found} bytes)", self.cause)
            }
            _ => self.cause.clone(),
        }
    }
}

/// Validates the OS, files, units and keys.
pub fn validate(machine: &Machine, config: &NodeConfig) -> Result<Vec<Mismatch>, ValidateError> {
    let mut mismatches = validate_system(machine, config)?;
    mismatches.extend(validate_files(machine, config)?);
    Ok(mismatches)
}

/// Validates what changes only with a boot: the image, the kernel arguments and the extensions.
pub fn validate_system(machine: &Machine, config: &NodeConfig) -> Result<Vec<Mismatch>, ValidateError> {
    system::validate(machine, config)
}

/// Validates what can change on a running machine: files, units and keys.
pub fn validate_files(machine: &Machine, config: &NodeConfig) -> Result<Vec<Mismatch>, ValidateError> {
    let mut mismatches = files::validate(machine, config)?;
    mismatches.extend(units::validate(machine, config)?);
    mismatches.extend(files::validate_keys(machine, config)?);
    Ok(mismatches)
}

/// Returns the messages of all differences.
pub fn causes(mismatches: &[Mismatch]) -> Vec<String> {
    mismatches.iter().map(|mismatch| mismatch.cause.clone()).collect()
}

/// Returns the message for a machine that does not match its config.
pub fn unexpected_state(
    config: &NodeConfig,
    mismatches: &[Mismatch],
    root_cause: Option<&str>,
) -> Option<String> {
    let first = mismatches.first()?;
    let state = UnexpectedState {
        config: config.title().to_string(),
        cause: first.cause.clone(),
        more: mismatches.len() - 1,
        root_cause: root_cause.map(str::to_owned),
    };
    Some(state.to_string())
}
