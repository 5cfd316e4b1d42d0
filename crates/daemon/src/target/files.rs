//! Files, directories and links of a config.

use mco_core::config::applicability;
use mco_core::config::node_files::secret_version;
use mco_host::{Accounts, Attributes, FileOwner, RootedPath};
use mco_ignition::Config;
use mco_ignition::model::{NodeGroup, NodeUser};

use super::{Contents, Managed, Source, TargetError, Wanted};
use crate::config::NodeConfig;

const HIGHEST_MODE: i64 = 0o777;
const DEFAULT_FILE_MODE: i64 = 0o644;
const DEFAULT_DIRECTORY_MODE: i64 = 0o755;

pub(super) fn managed<'a>(
    config: &'a NodeConfig,
    accounts: Accounts<'_>,
) -> Result<Vec<Managed<'a>>, TargetError> {
    let secrets = config.node_files.as_ref().map(|files| &files.secrets);
    let storage = &config.ignition.storage;
    let mut managed =
        Vec::with_capacity(storage.files.len() + storage.directories.len() + storage.links.len());
    for directory in &storage.directories {
        let mode = directory.mode.unwrap_or(DEFAULT_DIRECTORY_MODE);
        let attributes = attributes(&directory.path, mode, &directory.user, &directory.group, accounts)?;
        managed.push(Managed {
            path: checked_path(&directory.path)?,
            wanted: Wanted::Directory { attributes },
            source: Source::Directory,
        });
    }
    for file in &storage.files {
        if !file.append.is_empty() {
            return Err(TargetError::Append {
                path: file.path.clone(),
            });
        }
        let mode = file.mode.unwrap_or(DEFAULT_FILE_MODE);
        let attributes = attributes(&file.path, mode, &file.user, &file.group, accounts)?;
        managed.push(Managed {
            path: checked_path(&file.path)?,
            wanted: Wanted::File {
                contents: match secrets.and_then(|secrets| secrets.get(&file.path)) {
                    Some(secret) if secret_version(file).is_some() => Contents::Secret(secret),
                    _ => Contents::Encoded(&file.contents),
                },
                attributes,
            },
            source: Source::File,
        });
    }
    for link in &storage.links {
        if link.hard == Some(true) {
            let why = "hard links are made at first boot only; use a symbolic link";
            return Err(TargetError::Forbidden {
                path: link.path.clone(),
                why,
            });
        }
        let target = link.target.clone().unwrap_or_default();
        managed.push(Managed {
            path: checked_path(&link.path)?,
            wanted: Wanted::Link { target },
            source: Source::Link,
        });
    }
    Ok(managed)
}

pub(super) fn paths(config: &Config) -> Result<Vec<(RootedPath, Source)>, TargetError> {
    let storage = &config.storage;
    let files = storage.files.iter().map(|file| (&file.path, Source::File));
    let directories = storage
        .directories
        .iter()
        .map(|directory| (&directory.path, Source::Directory));
    let links = storage.links.iter().map(|link| (&link.path, Source::Link));
    files
        .chain(directories)
        .chain(links)
        .map(|(path, source)| Ok((RootedPath::new(path)?, source)))
        .collect()
}

fn checked_path(path: &str) -> Result<RootedPath, TargetError> {
    let checked = RootedPath::new(path)?;
    applicability::check_path(checked.as_str()).map_err(|refusal| TargetError::Forbidden {
        path: path.to_owned(),
        why: refusal.why,
    })?;
    Ok(checked)
}

fn attributes(
    path: &str,
    mode: i64,
    user: &NodeUser,
    group: &NodeGroup,
    accounts: Accounts<'_>,
) -> Result<Attributes, TargetError> {
    let mode = u32::try_from(mode)
        .ok()
        .filter(|_| mode <= HIGHEST_MODE)
        .ok_or_else(|| TargetError::Mode {
            mode,
            path: path.to_owned(),
        })?;
    let number = |what: &'static str, id: i64| {
        u32::try_from(id).map_err(|_| TargetError::Id {
            what,
            id,
            path: path.to_owned(),
        })
    };
    let uid = match (user.id, &user.name) {
        (Some(id), _) => number("user", id)?,
        (None, Some(name)) if !name.is_empty() => {
            let missing = || TargetError::NoSuchUser {
                name: name.clone(),
                path: path.to_owned(),
            };
            accounts.user(name)?.ok_or_else(missing)?.uid
        }
        _ => 0,
    };
    let gid = match (group.id, &group.name) {
        (Some(id), _) => number("group", id)?,
        (None, Some(name)) if !name.is_empty() => {
            let missing = || TargetError::NoSuchGroup {
                name: name.clone(),
                path: path.to_owned(),
            };
            accounts.group(name)?.ok_or_else(missing)?
        }
        _ => 0,
    };
    Ok(Attributes {
        mode,
        owner: FileOwner { uid, gid },
    })
}
