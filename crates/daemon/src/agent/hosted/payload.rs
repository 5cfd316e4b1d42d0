//! The desired config of a node of a hosted cluster: the keys of a mounted ConfigMap.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use mco_api::MachineConfig;
use mco_core::config::problem::InvalidObject;
use mco_host::{FsError, Root, RootedPath};
use mco_ignition::parse::MAX_CONFIG_BYTES;
use mco_ignition::resource::{self, DecodeError};
use mco_ignition::{ParseError, parse_bytes};
use thiserror::Error;

use crate::config::NodeConfig;
use crate::paths;

/// The key with the Ignition config that is served to new machines: JSON, or base64 of its gzip.
const CONFIG: &str = "config";
/// The key with the hash that names the config in annotations.
const HASH: &str = "hash";
/// A ConfigMap has at most one mebibyte.
const LARGEST_KEY: u64 = 4 << 20;

#[derive(Debug, Error)]
pub enum PayloadError {
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Root(#[from] FsError),
    #[error("{} does not exist: mount the ConfigMap with the keys config and hash there", .0.display())]
    Missing(PathBuf),
    #[error("the key hash of the mounted ConfigMap is empty")]
    NoHash,
    #[error("the mounted ConfigMap changed while it was read")]
    Changed,
    #[error("the key config of the mounted ConfigMap: {0}")]
    Ignition(#[from] ParseError),
    #[error(
        "the key config of the mounted ConfigMap has no file {}, which contains the MachineConfig",
        paths::INSTALLED_CONFIG
    )]
    NoConfig,
    #[error("the key config of the mounted ConfigMap: {}: {}", paths::INSTALLED_CONFIG, .0)]
    Contents(#[from] DecodeError),
    #[error("the key config of the mounted ConfigMap: {}: {}", paths::INSTALLED_CONFIG, .0)]
    Json(#[from] serde_json::Error),
    #[error("the key config of the mounted ConfigMap: {0}")]
    Invalid(#[from] Box<InvalidObject>),
}

/// The desired config of a node.
#[derive(Debug)]
pub(super) struct Payload {
    /// Names the config in annotations and requests.
    pub hash: String,
    pub config: NodeConfig,
    /// The MachineConfig as it is in the Ignition config.
    pub bytes: Vec<u8>,
}

impl Payload {
    /// Reads both keys. A mounted ConfigMap is updated between any two reads, so the hash is read again at the end.
    pub fn read(root: &Root, directory: &Path) -> Result<Self, PayloadError> {
        let hash = hash(root, directory)?;
        let bytes = machine_config(&key(root, directory, CONFIG)?)?;
        let object: MachineConfig = serde_json::from_slice(&bytes)?;
        let config = NodeConfig::new(object).map_err(Box::new)?;
        if self::hash(root, directory)? != hash {
            return Err(PayloadError::Changed);
        }
        Ok(Self { hash, config, bytes })
    }
}

/// Reads the hash alone.
pub(super) fn hash(root: &Root, directory: &Path) -> Result<String, PayloadError> {
    let bytes = key(root, directory, HASH)?;
    let hash = String::from_utf8_lossy(&bytes).trim().to_owned();
    if hash.is_empty() {
        return Err(PayloadError::NoHash);
    }
    Ok(hash)
}

/// Reads a key below the machine's root, where the pod mounts it; else in the container.
fn key(root: &Root, directory: &Path, name: &str) -> Result<Vec<u8>, PayloadError> {
    let path = directory.join(name);
    if let Some(text) = path.to_str().filter(|text| text.starts_with('/'))
        && let Some(bytes) = root.read(&RootedPath::new(text).map_err(FsError::from)?, LARGEST_KEY)?
    {
        return Ok(bytes);
    }
    match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(PayloadError::Missing(path)),
        read => read.map_err(|source| PayloadError::Io { path, source }),
    }
}

/// Returns the MachineConfig in an Ignition config.
fn machine_config(ignition: &[u8]) -> Result<Vec<u8>, PayloadError> {
    let parsed = parse_bytes(ignition)?;
    let mut files = parsed.config.storage.files.iter();
    let file = files.find(|file| file.path == paths::INSTALLED_CONFIG);
    let contents = &file.ok_or(PayloadError::NoConfig)?.contents;
    let (source, compression) = (contents.source.as_deref(), contents.compression.as_deref());
    Ok(resource::decode(source, compression, MAX_CONFIG_BYTES)?)
}
