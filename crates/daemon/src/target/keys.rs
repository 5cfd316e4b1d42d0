//! Keys and password of the one account that a config may change on a running machine: `core`, or the one that the pool
//! names.

use mco_api::vocabulary::annotations::SSH_USER;
use mco_host::{Accounts, Attributes, FileOwner, Root, RootedPath};

use super::TargetError;
use crate::config::NodeConfig;
use crate::paths;

pub const CORE_USER: &str = "core";
/// The value in place of a hash that disables password login.
const NO_PASSWORD: &str = "*";
/// The lines around our keys in a file that other keys share.
const BLOCK_BEGIN: &str = "# BEGIN machine-config-daemon";
const BLOCK_END: &str = "# END machine-config-daemon";
const LARGEST: u64 = 16 << 20;

/// The authorized-keys file and its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFile {
    pub path: RootedPath,
    /// The whole file.
    pub contents: String,
    /// Our part of it.
    pub keys: String,
    pub file: Attributes,
    pub directories: Attributes,
    pub home: String,
    /// Whether the account's own keys are in the same file.
    pub is_shared: bool,
}

impl KeyFile {
    pub fn ssh_directory(&self) -> Result<RootedPath, TargetError> {
        Ok(RootedPath::new(&self.home)?.join(".ssh")?)
    }
}

/// Returns the account whose keys and password a config sets.
pub fn ssh_user(config: &NodeConfig) -> &str {
    let annotations = config.object.metadata.annotations.as_ref();
    let named = annotations.and_then(|all| all.get(SSH_USER)).map(String::as_str);
    named.filter(|user| !user.is_empty()).unwrap_or(CORE_USER)
}

/// Returns the key files after changing from one config to another: none if neither has users or the machine has no such
/// account, and two if the account changes.
pub fn key_files(
    old: &NodeConfig,
    new: &NodeConfig,
    root: &Root,
    accounts: Accounts<'_>,
) -> Result<Vec<KeyFile>, TargetError> {
    let has_users = |config: &NodeConfig| !config.ignition.passwd.users.is_empty();
    let mut files = Vec::new();
    if has_users(old) && ssh_user(old) != ssh_user(new) {
        files.extend(key_file(ssh_user(old), &[], root, accounts)?);
    }
    if has_users(new) || (has_users(old) && ssh_user(old) == ssh_user(new)) {
        files.extend(key_file(ssh_user(new), &keys(new), root, accounts)?);
    }
    Ok(files)
}

fn key_file(
    user: &str,
    keys: &[&str],
    root: &Root,
    accounts: Accounts<'_>,
) -> Result<Option<KeyFile>, TargetError> {
    let Some(account) = accounts.user(user)? else {
        return Ok(None);
    };
    let keys = if keys.is_empty() {
        String::new()
    } else {
        keys.join("\n") + "\n"
    };
    let owner = FileOwner {
        uid: account.uid,
        gid: account.gid,
    };
    let directories = Attributes { mode: 0o700, owner };
    let file = Attributes { mode: 0o600, owner };
    if user == CORE_USER {
        return Ok(Some(KeyFile {
            path: RootedPath::new(paths::AUTHORIZED_KEYS)?,
            contents: keys.clone(),
            keys,
            file,
            directories,
            home: paths::CORE_HOME.to_owned(),
            is_shared: false,
        }));
    }
    // Only CoreOS reads a directory of key files; elsewhere the account's own keys are in the only file that sshd reads.
    let path = RootedPath::new(&account.home)?
        .join(".ssh")?
        .join("authorized_keys")?;
    let entry = root.entry(&path)?;
    let present = root.read_text(&path, LARGEST)?.unwrap_or_default();
    Ok(Some(KeyFile {
        path,
        contents: with_block(&present, &keys),
        keys,
        file: entry.map_or(file, |entry| Attributes {
            mode: entry.mode,
            owner: entry.owner,
        }),
        directories,
        home: account.home,
        is_shared: true,
    }))
}

/// Returns our part of a shared file.
pub fn block(text: &str) -> String {
    let lines = text.lines().skip_while(|line| *line != BLOCK_BEGIN).skip(1);
    let ours = lines.take_while(|line| *line != BLOCK_END);
    ours.fold(String::new(), |text, line| text + line + "\n")
}

/// Replaces our part of a shared file; everything else stays as it is.
fn with_block(present: &str, keys: &str) -> String {
    let mut others = String::new();
    let mut is_ours = false;
    for line in present.split_inclusive('\n') {
        match line.trim_end_matches('\n') {
            BLOCK_BEGIN => is_ours = true,
            BLOCK_END if is_ours => is_ours = false,
            _ if is_ours => {}
            _ => others.push_str(line),
        }
    }
    if keys.is_empty() {
        return others;
    }
    // In front of the others, so that a last line without a line break stays as it is.
    format!("{BLOCK_BEGIN}\n{keys}{BLOCK_END}\n{others}")
}

/// Returns the user whose keys or password a change sets, if the machine does not have that user.
///
/// Only what the change itself sets counts: a node that already runs with keys for a missing user still gets every
/// other update.
pub fn missing_user(
    old: &NodeConfig,
    new: &NodeConfig,
    accounts: Accounts<'_>,
) -> Result<Option<String>, TargetError> {
    let user = ssh_user(new);
    let moves = user != ssh_user(old);
    let sets_keys = !keys(new).is_empty() && (moves || keys(new) != keys(old));
    let sets_password = password_hash(new).is_some_and(|hash| !hash.is_empty())
        && (moves || password_hash(new) != password_hash(old));
    if !sets_keys && !sets_password {
        return Ok(None);
    }
    let is_missing = accounts.user(user)?.is_none();
    Ok(is_missing.then(|| user.to_owned()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_others_in_the_same_file_stay_as_they_are() {
        let theirs = "ssh-rsa THEIRS me\n# a comment\nssh-rsa LAST without a line break";
        let both = with_block(theirs, "ssh-ed25519 A\n");
        assert!(both.ends_with(theirs));
        assert_eq!(block(&both), "ssh-ed25519 A\n");
        let changed = with_block(&both, "ssh-ed25519 B\n");
        assert_eq!(block(&changed), "ssh-ed25519 B\n");
        assert!(!changed.contains("ssh-ed25519 A"));
        assert_eq!(with_block(&changed, ""), theirs);
        assert_eq!(with_block("", ""), "");
    }
}
