//! The record of the certificates that the daemon has written.

use std::collections::BTreeMap;

use mco_host::{Attributes, FsError, Root, RootedPath};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::disk::DiskError;
use crate::paths;

const LARGEST: u64 = 16 << 20;
/// Hashes of short secrets can be guessed, so the record is not world-readable.
const ATTRIBUTES: Attributes = Attributes::root(0o600);

/// The files that the daemon has written, by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct LiveRecord {
    pub files: BTreeMap<String, WrittenFile>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WrittenFile {
    pub sha256: String,
    /// The file of another program that it has replaced is kept.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replaced: bool,
    /// The directories that were created for it, outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub created: Vec<String>,
}

impl LiveRecord {
    pub fn read(root: &Root) -> Result<Self, DiskError> {
        let Some(bytes) = root.read(&location()?, LARGEST)? else {
            return Ok(Self::default());
        };
        serde_json::from_slice(&bytes).map_err(|error| DiskError::Unreadable {
            path: paths::LIVE_RECORD,
            why: error.to_string(),
        })
    }

    pub fn write(&self, root: &Root) -> Result<(), FsError> {
        let location = location()?;
        if let Some(parent) = location.parent() {
            root.create_directories(&parent, Attributes::root(0o755))?;
        }
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        root.write_atomically(&location, ATTRIBUTES, &bytes)
    }

    /// Returns whether the record has this file with these contents.
    pub fn has(&self, path: &RootedPath, contents: &[u8]) -> bool {
        let known = self.files.get(path.as_str());
        known.is_some_and(|known| known.sha256 == hash(contents))
    }
}

fn location() -> Result<RootedPath, FsError> {
    Ok(RootedPath::new(paths::LIVE_RECORD)?)
}

pub(super) fn hash(contents: &[u8]) -> String {
    mco_core::config::hex::encode(&Sha256::digest(contents))
}
