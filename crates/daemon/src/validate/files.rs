//! Validates files, directories, links, drop-ins, unit files and keys.

use std::collections::BTreeSet;
use std::io::Read as _;

use mco_core::rollout::messages::{DriftAttribute, DriftCause};
use mco_host::{Attributes, FileEntry, FsError, Machine, Root, RootedPath};
use sha2::{Digest, Sha256};

use super::{FileShape, Mismatch, ValidateError, go_mode};
use crate::config::NodeConfig;
use crate::paths;
use crate::target::{self, Contents, KeyFile, Managed, Source, TargetError, Wanted};

pub(super) fn validate(machine: &Machine, config: &NodeConfig) -> Result<Vec<Mismatch>, ValidateError> {
    let mut mismatches = Vec::new();
    for managed in target::managed(config, machine.accounts())? {
        if !paths::LIVE_CONTENT.contains(&managed.path.as_str()) {
            mismatches.extend(one(&machine.root, &managed)?);
        }
    }
    Ok(mismatches)
}

fn one(root: &Root, managed: &Managed<'_>) -> Result<Option<Mismatch>, ValidateError> {
    let path = &managed.path;
    let entry = root.entry(path)?;
    let Some(entry) = entry else {
        return Ok((!matches!(managed.wanted, Wanted::Absent)).then(|| missing(path)));
    };
    match &managed.wanted {
        Wanted::Absent => Ok(None),
        Wanted::Directory { attributes } => Ok(directory(path, &entry, *attributes)),
        Wanted::Link { target } => link(root, path, target, managed.source),
        Wanted::File { contents, attributes } => file(root, path, &entry, *contents, *attributes),
    }
}

fn missing(path: &RootedPath) -> Mismatch {
    Mismatch::plain(
        path.as_str(),
        DriftCause::Missing {
            path: path.to_string(),
        }
        .to_string(),
    )
}

fn directory(path: &RootedPath, entry: &FileEntry, wanted: Attributes) -> Option<Mismatch> {
    let expected = 1 << 31 | wanted.mode;
    (go_mode::of_entry(entry) != expected).then(|| mode_mismatch(path, expected, entry))
}

fn link(
    root: &Root,
    path: &RootedPath,
    target: &str,
    source: Source,
) -> Result<Option<Mismatch>, ValidateError> {
    let found = root.read_link(path)?;
    if found.as_deref() == Some(target) {
        return Ok(None);
    }
    let found = found.unwrap_or_else(|| path.to_string());
    let attribute = match source {
        Source::Unit => DriftAttribute::MaskedUnit,
        _ => DriftAttribute::Target,
    };
    let cause = attribute_mismatch(attribute, path, target, &found);
    Ok(Some(Mismatch::plain(path.as_str(), cause)))
}

fn file(
    root: &Root,
    path: &RootedPath,
    entry: &FileEntry,
    contents: Contents<'_>,
    wanted: Attributes,
) -> Result<Option<Mismatch>, ValidateError> {
    if go_mode::of_entry(entry) != wanted.mode {
        return Ok(Some(mode_mismatch(path, wanted.mode, entry)));
    }
    if let Contents::Secret(secret) = contents {
        return if secret.is_in(root, path)? {
            Ok(owner_mismatch(root, path, entry, wanted))
        } else {
            // Neither sizes nor hashes.
            let cause = DriftCause::Content {
                path: path.to_string(),
            };
            Ok(Some(Mismatch::plain(path.as_str(), cause.to_string())))
        };
    }
    let bytes = contents.bytes().map_err(|source| TargetError::Contents {
        path: path.to_string(),
        source,
    })?;
    let expected = hash(&bytes);
    let found = if entry.size == bytes.len() as u64 {
        Some(hash_file(root, path)?)
    } else {
        None
    };
    if found.as_deref() != Some(expected.as_str()) {
        let found = match found {
            Some(found) => found,
            None => hash_file(root, path)?,
        };
        let shape = |size: u64, sha256: String| FileShape {
            size: Some(size),
            sha256: Some(sha256),
            ..FileShape::default()
        };
        return Ok(Some(Mismatch {
            subject: path.to_string(),
            cause: DriftCause::Content {
                path: path.to_string(),
            }
            .to_string(),
            expected: Some(shape(bytes.len() as u64, expected)),
            found: Some(shape(entry.size, found)),
        }));
    }
    Ok(owner_mismatch(root, path, entry, wanted))
}

fn owner_mismatch(root: &Root, path: &RootedPath, entry: &FileEntry, wanted: Attributes) -> Option<Mismatch> {
    let shape = |owner: String| FileShape {
        owner: Some(owner),
        ..FileShape::default()
    };
    let differs = entry.owner != wanted.owner && root.records_owners();
    differs.then(|| Mismatch {
        subject: path.to_string(),
        cause: attribute_mismatch(DriftAttribute::Owner, path, &wanted.owner, &entry.owner),
        expected: Some(shape(wanted.owner.to_string())),
        found: Some(shape(entry.owner.to_string())),
    })
}

fn mode_mismatch(path: &RootedPath, expected: u32, entry: &FileEntry) -> Mismatch {
    let received = go_mode::of_entry(entry);
    let shape = |mode: u32| FileShape {
        mode: Some(go_mode::describe(mode)),
        ..FileShape::default()
    };
    Mismatch {
        subject: path.to_string(),
        cause: attribute_mismatch(
            DriftAttribute::Mode,
            path,
            &go_mode::describe(expected),
            &go_mode::describe(received),
        ),
        expected: Some(shape(expected)),
        found: Some(shape(received)),
    }
}

fn attribute_mismatch(
    attribute: DriftAttribute,
    path: &RootedPath,
    expected: &(impl ToString + ?Sized),
    received: &(impl ToString + ?Sized),
) -> String {
    let cause = DriftCause::Attribute {
        attribute,
        path: path.to_string(),
        expected: expected.to_string(),
        received: received.to_string(),
    };
    cause.to_string()
}

/// Validates SSH keys: each must be in our file or in the one that provisioning tools write, and ours must contain no
/// other.
pub(super) fn validate_keys(machine: &Machine, config: &NodeConfig) -> Result<Vec<Mismatch>, ValidateError> {
    let mut mismatches = Vec::new();
    let accounts = machine.accounts();
    for keys in target::key_files(config, config, &machine.root, accounts)? {
        let is_right = if keys.is_shared {
            let text = machine.root.read_text(&keys.path, 16 << 20)?.unwrap_or_default();
            target::block(&text) == keys.keys
        } else {
            has_keys(&machine.root, &keys)?
        };
        if !is_right {
            let path = keys.path.to_string();
            let cause = DriftCause::Content { path: path.clone() }.to_string();
            mismatches.push(Mismatch::plain(path, cause));
        }
    }
    let user = target::ssh_user(config);
    if let Some(wanted) = target::password(config, config)
        && accounts.password_hash(user)?.is_some_and(|found| found != wanted)
    {
        let cause = format!("password of user {user:?} is not the configured one");
        mismatches.push(Mismatch::plain(user, cause));
    }
    Ok(mismatches)
}

fn has_keys(root: &Root, keys: &KeyFile) -> Result<bool, ValidateError> {
    let ours = key_lines(root, &keys.path)?;
    let provisioned = keys
        .ssh_directory()?
        .join("authorized_keys")
        .map_err(FsError::from)?;
    let others = match key_lines(root, &provisioned) {
        // The user may keep their own keys behind a link. It is not followed, so its target does not count.
        Err(FsError::UntrustedLink { .. }) => BTreeSet::new(),
        others => others?,
    };
    let wanted: BTreeSet<String> = lines(&keys.contents);
    let complete = wanted
        .iter()
        .all(|key| ours.contains(key) || others.contains(key));
    Ok(complete && ours.is_subset(&wanted))
}

fn key_lines(root: &Root, path: &RootedPath) -> Result<BTreeSet<String>, FsError> {
    Ok(lines(&root.read_text(path, 16 << 20)?.unwrap_or_default()))
}

fn lines(text: &str) -> BTreeSet<String> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Hashes in chunks, so that a large file needs no memory.
fn hash_file(root: &Root, path: &RootedPath) -> Result<String, FsError> {
    let Some(mut file) = root.open_file(path)? else {
        return Ok(String::new());
    };
    let mut hasher = Sha256::new();
    let mut buffer = vec![0_u8; 64 << 10];
    loop {
        let read = file.read(&mut buffer).map_err(|source| FsError::Failed {
            attempted: "read file",
            path: path.to_string(),
            source,
        })?;
        if read == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(buffer.get(..read).unwrap_or_default());
    }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().fold(String::with_capacity(64), |text, byte| {
        text + &format!("{byte:02x}")
    })
}

#[cfg(test)]
mod tests {
    use mco_host::FileKind;

    use super::*;

    #[test]
    fn a_hash_in_pieces_is_the_hash_of_the_whole() {
        let directory = tempfile::tempdir().unwrap();
        let bytes = vec![7; 200_000];
        std::fs::write(directory.path().join("a"), &bytes).unwrap();
        let root = Root::open(directory.path(), mco_host::Ownership::Recorded).unwrap();
        let path = RootedPath::new("/a").unwrap();
        assert_eq!(root.entry(&path).unwrap().unwrap().kind, FileKind::File);
        assert_eq!(hash_file(&root, &path).unwrap(), hash(&bytes));
    }
}
