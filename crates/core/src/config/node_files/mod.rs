//! Files that differ between the nodes of a pool, or whose contents are no part of the config: per-node values and
//! Secrets by reference.
//!
//! A rendered config stays one per pool. Such a file is not among its files, so that a node without support for it never
//! writes a placeholder. In its place the config has a list, an ordinary file below [`SECRETS`] or [`VALUES`] for each
//! MachineConfig. The daemon reads the lists and writes the files that they name in the same transaction.

mod access;
mod embed;
mod secrets;
mod values;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use mco_ignition::Config;
use mco_ignition::model::{File, NodeGroup, NodeUser, Resource};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::config::diff;
pub use access::check_access;
pub(crate) use embed::{embed, reserved_paths};
pub use secrets::{
    ANSWER_PATH, SecretAnswer, SecretReference, SecretValue, SecretVersions, is_opted_in, keyed_hash,
    value_of, version,
};
pub use values::{NodeValues, TemplateError, ValueName, ValueTemplate, escape, is_template, remedy};

/// The directory of the lists of files with values of Secrets.
pub const SECRETS: &str = "/etc/mco/secrets.d/";
/// The directory of the lists of files with per-node values.
pub const VALUES: &str = "/etc/mco/values.d/";
const LIST_SUFFIX: &str = ".json";
/// The scheme of the source of a file whose contents are the value of a Secret. It stands for the version of the value,
/// so that two configs can be compared without it.
const SECRET_SCHEME: &str = "mco-secret:";
const DEFAULT_SECRET_MODE: u32 = 0o600;

/// The permissions of a file, in octal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode(pub u32);

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl FromStr for FileMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
        mode.map(Self)
            .ok_or_else(|| format!("{text:?} is no file mode in octal digits up to 0777, such as \"0600\""))
    }
}

/// The owner of a file, `USER:GROUP`, each as a name or a number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnerName {
    pub user: NodeUser,
    pub group: NodeGroup,
}

impl OwnerName {
    fn of(file: &File) -> Self {
        Self {
            user: file.user.clone(),
            group: file.group.clone(),
        }
    }
}

impl fmt::Display for OwnerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |id: Option<i64>, name: &Option<String>| match (id, name) {
            (Some(id), _) => id.to_string(),
            (None, Some(name)) if !name.is_empty() => name.clone(),
            (None, _) => "0".to_owned(),
        };
        write!(
            f,
            "{}:{}",
            part(self.user.id, &self.user.name),
            part(self.group.id, &self.group.name)
        )
    }
}

impl FromStr for OwnerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (user, group) = text.split_once(':').unwrap_or((text, "0"));
        let is_name = |name: &str| {
            !name.is_empty()
                && !name.contains([':', '/'])
                && !name.chars().any(|c| c.is_whitespace() || c.is_control())
        };
        if !is_name(user) || !is_name(group) {
            return Err(format!("{text:?} is not of the form USER:GROUP"));
        }
        let number = |text: &str| text.parse::<i64>().ok().filter(|id| *id >= 0);
        let name = |text: &str| number(text).is_none().then(|| text.to_owned());
        Ok(Self {
            user: NodeUser {
                id: number(user),
                name: name(user),
            },
            group: NodeGroup {
                id: number(group),
                name: name(group),
            },
        })
    }
}

macro_rules! as_text {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

as_text!(FileMode);
as_text!(OwnerName);

/// A file whose contents are the value of a Secret, as the list of a rendered config has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretFile {
    pub path: String,
    pub mode: FileMode,
    pub owner: OwnerName,
    pub secret: SecretReference,
    /// Changes with the value and does not reveal it.
    pub version: String,
}

/// A file with per-node values, as the list of a rendered config has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueFile {
    pub path: String,
    pub mode: FileMode,
    pub owner: OwnerName,
    /// With placeholders.
    pub contents: String,
}

/// The lists of a config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFiles {
    pub secrets: Vec<SecretFile>,
    pub values: Vec<ValueFile>,
}

impl NodeFiles {
    /// Reads the lists of a config. What is not a list of ours is an ordinary file and nothing else.
    pub fn of(config: &Config) -> Self {
        let mut all = Self::default();
        for file in &config.storage.files {
            match ListKind::of(&file.path) {
                Some(ListKind::Secrets) => all.secrets.extend(read::<SecretFile>(file)),
                Some(ListKind::Values) => all.values.extend(read::<ValueFile>(file)),
                None => {}
            }
        }
        all
    }

    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty() && self.values.is_empty()
    }

    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let secrets = self.secrets.iter().map(|file| file.path.as_str());
        secrets.chain(self.values.iter().map(|file| file.path.as_str()))
    }

    /// Returns the names of all values that the node must have. A malformed template needs none.
    pub fn value_names(&self) -> BTreeSet<ValueName> {
        let templates = self.values.iter();
        let templates = templates.filter_map(|file| ValueTemplate::parse(&file.contents).ok());
        templates
            .flat_map(|template| template.names().into_iter().cloned().collect::<Vec<_>>())
            .collect()
    }

    /// Returns the files with per-node values as one node has them, or everything that keeps it from having them.
    pub fn expand(&self, node: &str, values: &NodeValues) -> Result<Vec<File>, Vec<String>> {
        let mut files = Vec::new();
        let mut problems = BTreeSet::new();
        for file in &self.values {
            match ValueTemplate::parse(&file.contents) {
                Err(error) => {
                    problems.insert(format!("{}: {error}", file.path));
                }
                Ok(template) => match template.expand(values) {
                    Ok(text) => files.push(file.with_contents(&text)),
                    Err(missing) => problems.extend(
                        missing
                            .into_iter()
                            .map(|name| format!("{} needs {name}: {}", file.path, remedy(name, node))),
                    ),
                },
            }
        }
        if problems.is_empty() {
            Ok(files)
        } else {
            Err(problems.into_iter().collect())
        }
    }
}

fn read<T: for<'any> Deserialize<'any>>(file: &File) -> Vec<T> {
    let bytes = diff::file_bytes(file).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

impl ValueFile {
    /// Returns the file with its placeholders, or with what they stand for.
    fn with_contents(&self, text: &str) -> File {
        ordinary(
            &self.path,
            self.mode,
            &self.owner,
            mco_ignition::resource::encode(text.as_bytes()),
        )
    }
}

impl SecretFile {
    /// Returns a file that stands for this one in comparisons.
    pub fn placeholder(&self) -> File {
        let source = format!("{SECRET_SCHEME}{}", self.version);
        ordinary(&self.path, self.mode, &self.owner, source)
    }
}

fn ordinary(path: &str, mode: FileMode, owner: &OwnerName, source: String) -> File {
    File {
        path: path.to_owned(),
        mode: Some(i64::from(mode.0)),
        user: owner.user.clone(),
        group: owner.group.clone(),
        overwrite: Some(true),
        contents: Resource {
            source: Some(source),
            ..Resource::default()
        },
        ..File::default()
    }
}

/// Returns the version of the value that a file stands for; `None` if its contents are part of the config.
pub fn secret_version(file: &File) -> Option<&str> {
    file.contents.source.as_deref()?.strip_prefix(SECRET_SCHEME)
}

/// The two kinds of lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListKind {
    Secrets,
    Values,
}

impl ListKind {
    fn of(path: &str) -> Option<Self> {
        let is_list = |directory: &str| {
            let name = path
                .strip_prefix(directory)
                .and_then(|name| name.strip_suffix(LIST_SUFFIX));
            name.is_some_and(|name| !name.is_empty() && !name.contains('/'))
        };
        if is_list(SECRETS) {
            Some(Self::Secrets)
        } else {
            is_list(VALUES).then_some(Self::Values)
        }
    }

    fn path(self, config: &str) -> String {
        let directory = match self {
            Self::Secrets => SECRETS,
            Self::Values => VALUES,
        };
        format!("{directory}{config}{LIST_SUFFIX}")
    }
}

/// Whether a path is that of a list, which has no effect by itself.
pub fn is_list(path: &str) -> bool {
    ListKind::of(path).is_some()
}

/// Returns the files that a config has on nodes: those of the lists too, unless they are among its files already, and
/// without the lists.
pub fn files_on_nodes(config: &Config) -> Cow<'_, [File]> {
    let files = &config.storage.files;
    if !files.iter().any(|file| is_list(&file.path)) {
        return Cow::Borrowed(files);
    }
    let lists = NodeFiles::of(config);
    let mut all: Vec<File> = files
        .iter()
        .filter(|file| !is_list(&file.path))
        .cloned()
        .collect();
    let known: BTreeSet<String> = all.iter().map(|file| file.path.clone()).collect();
    let secrets = lists.secrets.iter().map(SecretFile::placeholder);
    let values = lists.values.iter().map(|file| file.with_contents(&file.contents));
    all.extend(secrets.chain(values).filter(|file| !known.contains(&file.path)));
    Cow::Owned(all)
}

/// Returns the config with [`files_on_nodes`].
pub fn on_nodes(config: &Config) -> Cow<'_, Config> {
    match files_on_nodes(config) {
        Cow::Borrowed(_) => Cow::Borrowed(config),
        Cow::Owned(files) => {
            let mut config = config.clone();
            config.storage.files = files;
            Cow::Owned(config)
        }
    }
}

/// A file of a list, and the MachineConfig that defines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedFile {
    pub path: String,
    pub machine_config: String,
    /// The Secret whose value it has; `None` if it has per-node values.
    pub secret: Option<SecretReference>,
}

/// Returns the files of all lists of a config.
pub fn listed(config: &Config) -> Vec<ListedFile> {
    let mut all = Vec::new();
    for file in &config.storage.files {
        let Some(kind) = ListKind::of(&file.path) else {
            continue;
        };
        let source = file.path.rsplit('/').next().unwrap_or_default();
        let source = source.strip_suffix(LIST_SUFFIX).unwrap_or(source);
        let listed = |path: String, secret: Option<SecretReference>| ListedFile {
            path,
            machine_config: source.to_owned(),
            secret,
        };
        match kind {
            ListKind::Secrets => {
                let files = read::<SecretFile>(file).into_iter();
                all.extend(files.map(|file| listed(file.path, Some(file.secret))));
            }
            ListKind::Values => {
                let files = read::<ValueFile>(file).into_iter();
                all.extend(files.map(|file| listed(file.path, None)));
            }
        }
    }
    all
}

/// Returns what is wrong with the lists of a merged config: paths that more than one MachineConfig defines in different
/// ways. Elsewhere the last one wins; here a node with support would write one file and another node the other.
pub fn conflicts(config: &Config) -> Vec<String> {
    let storage = &config.storage;
    if !storage.files.iter().any(|file| is_list(&file.path)) {
        return Vec::new();
    }
    let mut definitions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut add = |path: &str, what: String| definitions.entry(path.to_owned()).or_default().push(what);
    for file in storage.files.iter().filter(|file| !is_list(&file.path)) {
        add(&file.path, "storage.files".to_owned());
    }
    for file in listed(config) {
        let what = if file.secret.is_some() {
            "secret file"
        } else {
            "file with per-node values"
        };
        add(
            &file.path,
            format!("{what} of MachineConfig {:?}", file.machine_config),
        );
    }
    let links = storage.links.iter().map(|link| (&link.path, "storage.links"));
    let directories = storage
        .directories
        .iter()
        .map(|directory| (&directory.path, "storage.directories"));
    for (path, section) in links.chain(directories) {
        add(path, section.to_owned());
    }
    let conflicts = definitions.into_iter().filter(|(_, definitions)| {
        definitions.len() > 1
            && definitions
                .iter()
                .any(|definition| !definition.starts_with("storage."))
    });
    conflicts
        .map(|(path, definitions)| format!("{path} is defined more than once: {}", definitions.join(", ")))
        .collect()
}

#[cfg(test)]
#[allow(clippy::too_many_lines, reason = "tables of cases are long")]
mod tests;
