//! The desired state of each path of a config. Pure apart from looking up user and group names.

mod files;
mod keys;
mod units;

use mco_core::config::applicability::LARGEST_CONTENTS;
use mco_host::{AccountError, Accounts, Attributes, FsError, PathError, RootedPath};
use mco_ignition::model::Resource;
use mco_ignition::resource::{self, DecodeError};
use thiserror::Error;

use crate::config::NodeConfig;
use crate::node_files::SecretContents;
pub use keys::{KeyFile, block, key_files, missing_user, password, sets_password, ssh_user};
pub use units::{dropin_path, is_masked, unit_path};

/// A path that a config manages.
#[derive(Debug, Clone)]
pub struct Managed<'a> {
    pub path: RootedPath,
    pub wanted: Wanted<'a>,
    /// The part of the config that defines it, for messages.
    pub source: Source,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    File,
    Directory,
    Link,
    Unit,
    Dropin,
}

#[derive(Debug, Clone)]
pub enum Wanted<'a> {
    File {
        contents: Contents<'a>,
        attributes: Attributes,
    },
    Link {
        target: String,
    },
    Directory {
        attributes: Attributes,
    },
    /// The path must not exist.
    Absent,
}

/// Contents as in the config; large ones are decoded lazily.
#[derive(Debug, Clone, Copy)]
pub enum Contents<'a> {
    Encoded(&'a Resource),
    Text(&'a str),
    /// The value of a Secret, which is known only while it has to be written.
    Secret(&'a SecretContents),
}

impl Contents<'_> {
    pub fn bytes(&self) -> Result<Vec<u8>, DecodeError> {
        match self {
            Self::Text(text) => Ok(text.as_bytes().to_vec()),
            Self::Secret(secret) => secret
                .bytes()
                .map(<[u8]>::to_vec)
                .ok_or_else(|| DecodeError::Source("the value of the Secret was not fetched".to_owned())),
            Self::Encoded(resource) => resource::decode(
                resource.source.as_deref(),
                resource.compression.as_deref(),
                LARGEST_CONTENTS,
            ),
        }
    }
}

#[derive(Debug, Error)]
pub enum TargetError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(transparent)]
    Files(#[from] FsError),
    #[error(transparent)]
    Accounts(#[from] AccountError),
    #[error("failed to retrieve UserID for username: {name} (owner of {path})")]
    NoSuchUser { name: String, path: String },
    #[error("failed to retrieve GroupID for group: {name} (group of {path})")]
    NoSuchGroup { name: String, path: String },
    #[error("invalid mode {mode:#o} for {path}, cannot exceed 0777")]
    Mode { mode: i64, path: String },
    #[error("{what} {id} of {path} is not a valid user or group ID")]
    Id {
        what: &'static str,
        id: i64,
        path: String,
    },
    #[error("could not decode file {path:?}: {source}")]
    Contents { path: String, source: DecodeError },
    #[error("found an append section when writing files. Append is not supported ({path})")]
    Append { path: String },
    #[error("{path} cannot be managed: {why}")]
    Forbidden { path: String, why: &'static str },
}

/// Returns the desired state of all paths of a config, except enablement links, keys and passwords.
pub fn managed<'a>(config: &'a NodeConfig, accounts: Accounts<'_>) -> Result<Vec<Managed<'a>>, TargetError> {
    let mut managed = files::managed(config, accounts)?;
    units::check_names(&config.ignition)?;
    managed.extend(units::managed(&config.ignition)?);
    Ok(managed)
}

/// Returns only the paths, for a config that is being replaced: its users may no longer exist.
pub fn managed_paths(config: &NodeConfig) -> Result<Vec<(RootedPath, Source)>, TargetError> {
    let mut paths = files::paths(&config.ignition)?;
    paths.extend(
        units::managed(&config.ignition)?
            .into_iter()
            .map(|managed| (managed.path, managed.source)),
    );
    Ok(paths)
}
