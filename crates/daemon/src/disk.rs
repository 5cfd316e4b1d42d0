//! What a node's disk says of its configuration. Read here, written only by transactions.

use std::collections::BTreeMap;

use mco_api::MachineConfig;
use mco_core::config::problem::InvalidObject;
use mco_host::{FsError, Root, RootedPath};
use thiserror::Error;

use crate::config::NodeConfig;
use crate::paths;

/// A rendered config fits into 1.5 MiB; applied Ignition documents may be larger.
const LARGEST_CONFIG: u64 = 64 << 20;

#[derive(Debug, Error)]
pub enum DiskError {
    #[error(transparent)]
    Files(#[from] FsError),
    #[error("{path} is not what it should be: {why}")]
    Unreadable { path: &'static str, why: String },
    #[error("{path} holds a config that cannot be used: {source}")]
    Invalid {
        path: &'static str,
        source: InvalidObject,
    },
}

/// The config on disk; none on a machine nothing was applied to.
pub fn current_config(root: &Root) -> Result<Option<NodeConfig>, DiskError> {
    let Some(object) = machine_config(root, paths::CURRENT_CONFIG)? else {
        return Ok(None);
    };
    let config = NodeConfig::new(object).map_err(|source| DiskError::Invalid {
        path: paths::CURRENT_CONFIG,
        source,
    })?;
    Ok(Some(config.with_built_image(current_image(root)?)))
}

/// A MachineConfig stored as JSON.
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

/// The pool's built image on disk; none in ordinary pools.
pub fn current_image(root: &Root) -> Result<Option<String>, DiskError> {
    let text = root.read_text(
        &RootedPath::new(paths::CURRENT_IMAGE).map_err(FsError::from)?,
        64 << 10,
    )?;
    Ok(text
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty()))
}

/// What a new node should say of itself. Present means: the node has not met its cluster yet.
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
