//! Keys and password of the user `core`, the only account a config may change on a running machine.

use mco_host::{Accounts, Attributes, FileOwner, RootedPath};

use super::TargetError;
use crate::config::NodeConfig;
use crate::paths;

pub const CORE_USER: &str = "core";
/// The value in place of a hash that disables password login.
const NO_PASSWORD: &str = "*";

/// The authorized-keys file and its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFile {
    pub path: RootedPath,
    pub contents: String,
    pub file: Attributes,
    pub directories: Attributes,
}

/// Returns the key file after changing from one config to another; `None` if neither has users or the machine has no
/// such user.
pub fn key_file(
    old: &NodeConfig,
    new: &NodeConfig,
    accounts: Accounts<'_>,
) -> Result<Option<KeyFile>, TargetError> {
    let has_users = |config: &NodeConfig| !config.ignition.passwd.users.is_empty();
    if !has_users(old) && !has_users(new) {
        return Ok(None);
    }
    let Some(core) = accounts.user(CORE_USER)? else {
        return Ok(None);
    };
    let keys = keys(new);
    let contents = if keys.is_empty() {
        String::new()
    } else {
        keys.join("\n") + "\n"
    };
    let owner = FileOwner {
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

/// Returns the user whose keys or password a change sets, if the machine does not have that user.
///
/// Only what the change itself sets counts: a node that already runs with keys for a missing user still gets every
/// other update.
pub fn missing_user(
    old: &NodeConfig,
    new: &NodeConfig,
    accounts: Accounts<'_>,
) -> Result<Option<&'static str>, TargetError> {
    let sets_keys = !keys(new).is_empty() && keys(new) != keys(old);
    let sets_password =
        password_hash(new).is_some_and(|hash| !hash.is_empty()) && password_hash(new) != password_hash(old);
    if !sets_keys && !sets_password {
        return Ok(None);
    }
    let is_missing = accounts.user(CORE_USER)?.is_none();
    Ok(is_missing.then_some(CORE_USER))
}

/// Returns the password hash to set; `None` if neither config has one.
///
/// Removing a hash from the config disables password login; it never leaves an empty password.
pub fn password(old: &NodeConfig, new: &NodeConfig) -> Option<String> {
    match (password_hash(old), password_hash(new)) {
        (None, None) => None,
        (_, Some(new)) if !new.is_empty() => Some(new.to_owned()),
        _ => Some(NO_PASSWORD.to_owned()),
    }
}

/// Returns whether a config sets the password.
pub fn sets_password(config: &NodeConfig) -> bool {
    password_hash(config).is_some()
}

/// Returns the keys of all users in one list.
fn keys(config: &NodeConfig) -> Vec<&str> {
    let users = config.ignition.passwd.users.iter();
    users
        .flat_map(|user| &user.ssh_authorized_keys)
        .map(String::as_str)
        .collect()
}

fn password_hash(config: &NodeConfig) -> Option<&str> {
    let mut users = config.ignition.passwd.users.iter();
    let core = users.rfind(|user| user.name == CORE_USER);
    core.and_then(|user| user.password_hash.as_deref())
}
