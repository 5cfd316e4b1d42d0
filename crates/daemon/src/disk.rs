//! Reads the node's configuration records from disk. Only transactions write them.

use std::collections::BTreeMap;

use mco_api::MachineConfig;
use mco_core::config::problem::InvalidObject;
use mco_host::{FsError, Root, RootedPath};
use thiserror::Error;

use crate::config::NodeConfig;
use crate::{node_files, paths};

/// The size limit. A rendered config fits into 1.5 MiB; applied Ignition documents may be larger.
const LARGEST_CONFIG: u64 = 64 << 20;

#[derive(Debug, Error)]
pub enum DiskError {
    #[error(transparent)]
    Files(#[from] FsError),
    #[error("{path} is malformed: {why}")]
    Unreadable { path: &'static str, why: String },
    #[error("{path} contains an invalid config: {source}")]
    Invalid {
        path: &'static str,
        source: InvalidObject,
    },
}

/// Returns the config on disk; `None` on a machine that no config was applied to.
pub fn current_config(root: &Root) -> Result<Option<NodeConfig>, DiskError> {
    let Some(object) = machine_config(root, paths::CURRENT_CONFIG)? else {
        return Ok(None);
    };
    let config = NodeConfig::new(object).map_err(|source| DiskError::Invalid {
        path: paths::CURRENT_CONFIG,
        source,
    })?;
    let config = config.with_recorded_files(node_files::recorded(root)?);
    Ok(Some(config.with_built_image(current_image(root)?)))
}

/// Returns whether a config is recorded on disk, readable or not.
pub fn has_config(root: &Root) -> Result<bool, DiskError> {
    Ok(root.exists(&RootedPath::new(paths::CURRENT_CONFIG).map_err(FsError::from)?)?)
}

/// Reads a MachineConfig stored as JSON.
pub fn machine_config(root: &Root, path: &'static str) -> Result<Option<MachineConfig>, DiskError> {
    let Some(bytes) = root.read(&RootedPath::new(path).map_err(FsError::from)?, LARGEST_CONFIG)? else {
        return Ok(None);
    };
    let object = serde_json::from_slice(&bytes);
    object.map(Some).map_err(|error| DiskError::Unreadable {
        path,
        why: error.to_string(),
    })
}

/// Returns the pool's built image on disk; `None` in ordinary pools.
pub fn current_image(root: &Root) -> Result<Option<String>, DiskError> {
    let text = root.read_text(
        &RootedPath::new(paths::CURRENT_IMAGE).map_err(FsError::from)?,
        64 << 10,
    )?;
    Ok(text
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty()))
}

/// Returns whether a new node has not registered yet, its annotations readable or not.
pub fn has_node_annotations(root: &Root) -> Result<bool, DiskError> {
    Ok(root.exists(&RootedPath::new(paths::NODE_ANNOTATIONS).map_err(FsError::from)?)?)
}

/// Returns the annotations a new node registers with. Their presence means that the node has not registered yet.
pub fn node_annotations(root: &Root) -> Result<Option<BTreeMap<String, String>>, DiskError> {
    let path = paths::NODE_ANNOTATIONS;
    let Some(bytes) = root.read(&RootedPath::new(path).map_err(FsError::from)?, 1 << 20)? else {
        return Ok(None);
    };
    let annotations = serde_json::from_slice(&bytes);
    annotations.map(Some).map_err(|error| DiskError::Unreadable {
        path,
        why: error.to_string(),
    })
}

pub fn is_forced(root: &Root) -> Result<bool, DiskError> {
    Ok(root.exists(&RootedPath::new(paths::FORCE_FILE).map_err(FsError::from)?)?)
}
