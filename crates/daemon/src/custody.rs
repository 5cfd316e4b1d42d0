//! To whom the files of a machine belonged before its first config: whether it was installed from a config, or existed
//! before and was adopted. What an adopted machine had is recorded and comes back when the config releases it.

use std::collections::BTreeMap;

use mco_host::{Attributes, FsError, Root, RootedPath};
use serde::{Deserialize, Serialize};

use crate::disk::{self, DiskError};
use crate::paths;

/// The size limit: a few lines for each unit and directory.
const LARGEST: u64 = 16 << 20;
/// Not world-readable, because it may hold a password hash.
pub const RECORD_ATTRIBUTES: Attributes = Attributes::root(0o600);

/// To whom the files belonged that the starting point of a change names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Custody {
    /// The machine was installed from a config: its files are the config's.
    Installed,
    /// The machine was adopted: what a config has written is recorded.
    Adopted,
    /// The starting point was only declared, by an annotation: nothing proves that any file is the config's.
    Declared,
}

impl Custody {
    /// Returns the custody of a machine for a change from the config on its disk, or from a declared one without that.
    pub fn of(root: &Root) -> Result<Self, DiskError> {
        if AdoptionRecord::read(root)?.is_some() {
            return Ok(Self::Adopted);
        }
        // A machine that was installed keeps the config it was installed with.
        let is_ours = disk::has_config(root)?
            || disk::has_node_annotations(root)?
            || root.exists(&path(paths::INSTALLED_CONFIG)?)?;
        Ok(if is_ours { Self::Installed } else { Self::Declared })
    }

    pub fn is_installed(self) -> bool {
        self == Self::Installed
    }
}

/// What an adopted machine had before, as far as it is not kept as a file: see [`crate::plan`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdoptionRecord {
    /// The enablement links of each unit that a config has enabled or disabled: the target, or `None` if there was no
    /// link.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, BTreeMap<String, Option<String>>>,
    /// The attributes of each directory that a config has changed; `None` if it has created the directory.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub directories: BTreeMap<String, Option<Attributes>>,
    /// The password hash of each user whose password a config has set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub passwords: BTreeMap<String, String>,
}

impl AdoptionRecord {
    /// Reads the record; `None` on a machine that was not adopted.
    pub fn read(root: &Root) -> Result<Option<Self>, DiskError> {
        let Some(bytes) = root.read(&path(paths::ADOPTION)?, LARGEST)? else {
            return Ok(None);
        };
        let record = serde_json::from_slice(&bytes);
        record.map(Some).map_err(|error| DiskError::Unreadable {
            path: paths::ADOPTION,
            why: error.to_string(),
        })
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

fn path(path: &str) -> Result<RootedPath, FsError> {
    Ok(RootedPath::new(path)?)
}
