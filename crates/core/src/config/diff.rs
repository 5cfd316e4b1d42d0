//! Differences between two configs in their effect on a node. The same bytes in another encoding are no difference.

use std::collections::BTreeMap;

use mco_api::machine_config::MachineConfigSpec;
use mco_ignition::Config;
use mco_ignition::model::{Dropin, File, PasswdUser, Unit};
use mco_ignition::resource;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::config::extensions::KernelType;
use crate::config::hex;
use crate::config::node_files;
use crate::config::parsed_config::ParsedConfig;

/// Contents above this size are compared by their source URL instead of their decoded bytes.
const LARGEST_CONTENTS: usize = 64 << 20;
const DEFAULT_FILE_MODE: i64 = 0o644;

/// All differences between two configs. Empty when applying the new config would change nothing on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigDiff {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileChange>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<UnitChange>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<UserChange>,
    /// Sections that only take effect at first boot, by their path in the Ignition config.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub first_boot_sections: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_arguments: Option<Replaced<Vec<String>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_type: Option<Replaced<&'static str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Replaced<Vec<String>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fips: Option<Replaced<bool>>,
    #[serde(rename = "osImageURL", skip_serializing_if = "Option::is_none")]
    pub os_image: Option<Replaced<String>>,
    #[serde(
        rename = "baseOSExtensionsContainerImage",
        skip_serializing_if = "Option::is_none"
    )]
    pub extensions_image: Option<Replaced<String>>,
}

impl ConfigDiff {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the names of all files, units and users that change.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let files = self.files.iter().map(|file| file.path.as_str());
        let units = self.units.iter().map(|unit| unit.name.as_str());
        let users = self.users.iter().map(|user| user.name.as_str());
        files.chain(units).chain(users)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replaced<T> {
    pub old: T,
    pub new: T,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    Added,
    Removed,
    Changed,
}

impl ChangeKind {
    /// Returns the marker at the start of a line in a diff: `+`, `-` or `~`.
    pub fn sign(self) -> char {
        match self {
            Self::Added => '+',
            Self::Removed => '-',
            Self::Changed => '~',
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileChange {
    pub path: String,
    pub kind: ChangeKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<Replaced<Option<ContentsSummary>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Replaced<Option<String>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Replaced<Option<String>>>,
    /// Whether the contents are the value of a Secret. The summaries are then those of its version.
    #[serde(skip_serializing_if = "is_false")]
    pub secret: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Size and hash of a file's contents, which can be shown without revealing them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContentsSummary {
    pub size: usize,
    pub sha256: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnitChange {
    pub name: String,
    pub kind: ChangeKind,
    pub contents_changed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<Replaced<Option<bool>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask: Option<Replaced<Option<bool>>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropins: Vec<DropinChange>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DropinChange {
    pub name: String,
    pub kind: ChangeKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UserChange {
    pub name: String,
    pub kind: ChangeKind,
    pub keys_added: usize,
    pub keys_removed: usize,
    pub password_changed: bool,
    pub other_fields_changed: bool,
}

/// Returns the differences between two configs.
pub fn diff(old: &ParsedConfig, new: &ParsedConfig) -> ConfigDiff {
    let (before, after) = (old.spec(), new.spec());
    let kernel = |spec: &MachineConfigSpec| KernelType::canonical(&spec.kernel_type).as_str();
    ConfigDiff {
        files: by_key(
            &node_files::files_on_nodes(&old.ignition),
            &node_files::files_on_nodes(&new.ignition),
            |file| &file.path,
            file_change,
        ),
        units: by_key(
            &old.ignition.systemd.units,
            &new.ignition.systemd.units,
            |unit| &unit.name,
            unit_change,
        ),
        users: by_key(
            &old.ignition.passwd.users,
            &new.ignition.passwd.users,
            |user| &user.name,
            user_change,
        ),
        first_boot_sections: first_boot_sections(&old.ignition, &new.ignition),
        kernel_arguments: replaced(before.kernel_arguments.clone(), after.kernel_arguments.clone()),
        kernel_type: replaced(kernel(before), kernel(after)),
        extensions: replaced(before.extensions.clone(), after.extensions.clone()),
        fips: replaced(before.fips, after.fips),
        os_image: replaced(before.os_image_url.clone(), after.os_image_url.clone()),
        extensions_image: replaced(
            before.base_os_extensions_container_image.clone(),
            after.base_os_extensions_container_image.clone(),
        ),
    }
}

/// Returns the decoded bytes of a file; `None` if the config only refers to a remote source.
pub fn file_bytes(file: &File) -> Option<Vec<u8>> {
    let contents = &file.contents;
    resource::decode(
        contents.source.as_deref(),
        contents.compression.as_deref(),
        LARGEST_CONTENTS,
    )
    .ok()
}

fn replaced<T: PartialEq>(old: T, new: T) -> Option<Replaced<T>> {
    (old != new).then_some(Replaced { old, new })
}

/// Pairs the entries of two lists by key and returns the pairs that differ, sorted by key.
fn by_key<'a, T, C>(
    old: &'a [T],
    new: &'a [T],
    key: impl Fn(&T) -> &str,
    change: impl Fn(&'a str, Option<&'a T>, Option<&'a T>) -> Option<C>,
) -> Vec<C>
where
    T: PartialEq,
{
    let key = &key;
    let mut pairs: BTreeMap<&str, (Option<&T>, Option<&T>)> = BTreeMap::new();
    for entry in old {
        pairs.entry(borrowed(entry, key)).or_default().0 = Some(entry);
    }
    for entry in new {
        pairs.entry(borrowed(entry, key)).or_default().1 = Some(entry);
    }
    pairs
        .into_iter()
        .filter(|(_, (old, new))| old != new)
        .filter_map(|(key, (old, new))| change(key, old, new))
        .collect()
}

fn borrowed<'a, T>(entry: &'a T, key: &impl Fn(&T) -> &str) -> &'a str {
    key(entry)
}

fn kind<T>(old: Option<&T>, new: Option<&T>) -> ChangeKind {
    match (old, new) {
        (None, _) => ChangeKind::Added,
        (_, None) => ChangeKind::Removed,
        _ => ChangeKind::Changed,
    }
}

fn file_change(path: &str, old: Option<&File>, new: Option<&File>) -> Option<FileChange> {
    let change = FileChange {
        path: path.to_owned(),
        kind: kind(old, new),
        contents: replaced(old.map(contents), new.map(contents)),
        mode: replaced(old.map(mode), new.map(mode)),
        owner: replaced(old.map(owner), new.map(owner)),
        secret: [old, new]
            .into_iter()
            .flatten()
            .any(|file| node_files::secret_version(file).is_some()),
    };
    let noticed = change.contents.is_some() || change.mode.is_some() || change.owner.is_some();
    noticed.then_some(change)
}

/// Returns size and hash of a file's contents, which can be shown without revealing them.
pub fn contents(file: &File) -> ContentsSummary {
    let bytes =
        file_bytes(file).unwrap_or_else(|| file.contents.source.clone().unwrap_or_default().into_bytes());
    let sha256 = hex::encode(&Sha256::digest(&bytes));
    ContentsSummary {
        size: bytes.len(),
        sha256,
    }
}

pub fn mode(file: &File) -> String {
    format!("0{:o}", mode_bits(file))
}

pub(crate) fn mode_bits(file: &File) -> i64 {
    file.mode.unwrap_or(DEFAULT_FILE_MODE)
}

fn owner(file: &File) -> String {
    let part = |id: Option<i64>, name: &Option<String>| match (id, name) {
        (_, Some(name)) => name.clone(),
        (Some(id), None) => id.to_string(),
        (None, None) => "0".to_owned(),
    };
    format!(
        "{}:{}",
        part(file.user.id, &file.user.name),
        part(file.group.id, &file.group.name)
    )
}

fn unit_change(name: &str, old: Option<&Unit>, new: Option<&Unit>) -> Option<UnitChange> {
    let dropins = |unit: Option<&'_ Unit>| unit.map(|unit| unit.dropins.clone()).unwrap_or_default();
    let change = UnitChange {
        name: name.to_owned(),
        kind: kind(old, new),
        contents_changed: old.and_then(|unit| unit.contents.as_ref())
            != new.and_then(|unit| unit.contents.as_ref()),
        enabled: replaced(
            old.and_then(|unit| unit.enabled),
            new.and_then(|unit| unit.enabled),
        ),
        mask: replaced(old.and_then(|unit| unit.mask), new.and_then(|unit| unit.mask)),
        dropins: by_key(&dropins(old), &dropins(new), |dropin| &dropin.name, dropin_change),
    };
    let noticed = change.kind != ChangeKind::Changed
        || change.contents_changed
        || change.enabled.is_some()
        || change.mask.is_some()
        || !change.dropins.is_empty();
    noticed.then_some(change)
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the shape by_key asks for; here every difference is noticed"
)]
fn dropin_change(name: &str, old: Option<&Dropin>, new: Option<&Dropin>) -> Option<DropinChange> {
    Some(DropinChange {
        name: name.to_owned(),
        kind: kind(old, new),
    })
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the shape by_key asks for; here every difference is noticed"
)]
fn user_change(name: &str, old: Option<&PasswdUser>, new: Option<&PasswdUser>) -> Option<UserChange> {
    let keys = |user: Option<&PasswdUser>| {
        user.map(|user| user.ssh_authorized_keys.clone())
            .unwrap_or_default()
    };
    let (old_keys, new_keys) = (keys(old), keys(new));
    let missing_in =
        |these: &[String], those: &[String]| these.iter().filter(|key| !those.contains(key)).count();
    let password = |user: Option<&PasswdUser>| user.and_then(|user| user.password_hash.clone());
    let rest = |user: Option<&PasswdUser>| {
        user.map(|user| PasswdUser {
            ssh_authorized_keys: Vec::new(),
            password_hash: None,
            ..user.clone()
        })
    };
    Some(UserChange {
        name: name.to_owned(),
        kind: kind(old, new),
        keys_added: missing_in(&new_keys, &old_keys),
        keys_removed: missing_in(&old_keys, &new_keys),
        password_changed: password(old) != password(new),
        other_fields_changed: old.is_some() && new.is_some() && rest(old) != rest(new),
    })
}

fn first_boot_sections(old: &Config, new: &Config) -> Vec<&'static str> {
    let (before, after) = (&old.storage, &new.storage);
    let sections = [
        ("kernelArguments", old.kernel_arguments != new.kernel_arguments),
        ("passwd.groups", old.passwd.groups != new.passwd.groups),
        ("storage.directories", before.directories != after.directories),
        ("storage.disks", before.disks != after.disks),
        ("storage.filesystems", before.filesystems != after.filesystems),
        ("storage.links", before.links != after.links),
        ("storage.luks", before.luks != after.luks),
        ("storage.raid", before.raid != after.raid),
    ];
    sections
        .into_iter()
        .filter(|(_, changed)| *changed)
        .map(|(path, _)| path)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn difference(old: &Value, new: &Value) -> ConfigDiff {
        let parse = |body: &Value| {
            let mut value = json!({"ignition": {"version": "3.5.0"}});
            value
                .as_object_mut()
                .unwrap()
                .extend(body.as_object().unwrap().clone());
            ParsedConfig::of_spec(json!({ "config": value }))
        };
        diff(&parse(old), &parse(new))
    }

    fn files(entries: &Value) -> Value {
        json!({"storage": {"files": entries}})
    }

    #[test]
    fn the_same_bytes_in_another_encoding_are_no_change() {
        let plain = files(&json!([{"path": "/a", "contents": {"source": "data:,x%0A"}}]));
        let base64 = files(
            &json!([{"path": "/a", "mode": 420, "contents": {"source": "data:text/plain;base64,eAo="}}]),
        );
        assert!(difference(&plain, &base64).is_empty());
    }

    #[test]
    fn the_order_of_entries_is_no_change() {
        let a = json!({"path": "/a", "contents": {"source": "data:,a"}});
        let b = json!({"path": "/b", "contents": {"source": "data:,b"}});
        assert!(difference(&files(&json!([a, b])), &files(&json!([b, a]))).is_empty());
    }

    #[test]
    fn each_kind_of_change_is_distinguished() {
        let old = json!({
            "storage": {"files": [
                {"path": "/gone", "contents": {"source": "data:,1"}},
                {"path": "/edited", "contents": {"source": "data:,1"}},
                {"path": "/chmod", "mode": 420, "contents": {"source": "data:,1"}},
            ]},
            "systemd": {"units": [{"name": "a.service", "enabled": true, "dropins": [{"name": "1.conf", "contents": "[Unit]\n"}]}]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["a", "b"]}]},
        });
        let new = json!({
            "storage": {"files": [
                {"path": "/edited", "contents": {"source": "data:,22"}},
                {"path": "/chmod", "mode": 384, "contents": {"source": "data:,1"}},
                {"path": "/new", "contents": {"source": "data:,1"}},
            ]},
            "systemd": {"units": [{"name": "a.service", "enabled": false}]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["b", "c"], "passwordHash": "h"}]},
        });
        insta::assert_json_snapshot!(difference(&old, &new));
    }
}
