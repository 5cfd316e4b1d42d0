//! Keys and password of the user `core`, the only account a config may change on a running machine.

use mco_host::{Accounts, Attributes, Owner, RootedPath};

use super::TargetError;
use crate::config::NodeConfig;
use crate::paths;

pub const CORE_USER: &str = "core";
/// What stands in the place of a hash when nobody shall log in with a password.
const NO_PASSWORD: &str = "*";

/// The file with all keys, and to whom it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFile {
    pub path: RootedPath,
    pub contents: String,
    pub file: Attributes,
    pub directories: Attributes,
}

/// The key file after going from one config to another; none if neither has users or the machine has no such user.
pub fn key_file(
    old: &NodeConfig,
    new: &NodeConfig,
    accounts: Accounts<'_>,
) -> Result<Option<KeyFile>, TargetError> {
    let users = |config: &NodeConfig| config.ignition.passwd.users.clone();
    if users(old).is_empty() && users(new).is_empty() {
        return Ok(None);
    }
    let Some(core) = accounts.user(CORE_USER)? else {
        return Ok(None);
    };
    let keys: Vec<String> = users(new)
        .into_iter()
        .flat_map(|user| user.ssh_authorized_keys)
        .collect();
    let contents = if keys.is_empty() {
        String::new()
    } else {
        keys.join("\n") + "\n"
    };
    let owner = Owner {
        uid: core.uid,
        gid: core.gid,
    };
    Ok(Some(KeyFile {
        path: RootedPath::new(paths::AUTHORIZED_KEYS)?,
        contents,
        file: Attributes { mode: 0o600, owner },
        directories: Attributes { mode: 0o700, owner },
    }))
}

/// The password hash to set; none if neither config says anything about it.
///
/// A hash that a config takes back leaves the account without any password, never with an empty one.
pub fn password(old: &NodeConfig, new: &NodeConfig) -> Option<String> {
    let hash = |config: &NodeConfig| {
        let core = config
            .ignition
            .passwd
            .users
            .iter()
            .rfind(|user| user.name == CORE_USER);
        core.and_then(|user| user.password_hash.clone())
    };
    match (hash(old), hash(new)) {
        (None, None) => None,
        (_, Some(new)) if !new.is_empty() => Some(new),
        _ => Some(NO_PASSWORD.to_owned()),
    }
}
