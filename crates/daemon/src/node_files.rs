//! The files of a node that are not among the files of its rendered config: those with per-node values and those with
//! values of Secrets.
//!
//! What a node has of them is recorded in the same transaction that writes them. The record has the values of
//! placeholders and salted hashes of Secrets, so that drift is found without any request, also while the Node's labels
//! have changed already. The values of Secrets are in memory while they are written, and then in their files alone.

use std::collections::BTreeMap;
use std::fmt;

use mco_core::config::node_files::{NodeFiles, NodeValues, SecretFile, keyed_hash};
use mco_core::config::{hex, node_files};
use mco_host::{FsError, Root, RootedPath};
use serde::{Deserialize, Serialize};

use crate::config::NodeConfig;
use crate::disk::DiskError;
use crate::paths;

/// The largest Secret that the API server stores.
pub const LARGEST_SECRET: u64 = 1 << 20;
const LARGEST_RECORD: u64 = 16 << 20;
const SALT_BYTES: usize = 16;

/// The value of a Secret. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretBytes(Vec<u8>);

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBytes(..)")
    }
}

/// The contents of a file with the value of a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretContents {
    /// As in the rendered config.
    pub version: String,
    /// Differs on every node, so that the hashes of two nodes cannot be compared.
    salt: String,
    hash: String,
    /// `None` in the record, and for a file that need not be written.
    #[serde(skip)]
    bytes: Option<SecretBytes>,
}

impl SecretContents {
    pub fn new(version: &str, bytes: Vec<u8>) -> Result<Self, getrandom::Error> {
        let mut salt = [0; SALT_BYTES];
        getrandom::fill(&mut salt)?;
        let salt = hex::encode(&salt);
        Ok(Self {
            version: version.to_owned(),
            hash: hash(&salt, &bytes),
            salt,
            bytes: Some(SecretBytes(bytes)),
        })
    }

    /// Returns the value, if it is to be written.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.bytes.as_ref().map(|bytes| bytes.0.as_slice())
    }

    /// Returns whether a file has this value.
    pub fn is_in(&self, root: &Root, path: &RootedPath) -> Result<bool, FsError> {
        let Some(entry) = root.entry(path)? else {
            return Ok(false);
        };
        if entry.size > LARGEST_SECRET {
            return Ok(false);
        }
        let found = root.read(path, LARGEST_SECRET)?;
        Ok(found.is_some_and(|found| hash(&self.salt, &found) == self.hash))
    }
}

fn hash(salt: &str, bytes: &[u8]) -> String {
    hex::encode(&keyed_hash(salt.as_bytes(), &[bytes]))
}

/// What a node has in its files with values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedFiles {
    pub values: NodeValues,
    /// By path.
    pub secrets: BTreeMap<String, SecretContents>,
}

impl ResolvedFiles {
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.secrets.is_empty()
    }

    /// Returns whether the node has these values, and the Secrets of these lists in their versions.
    pub fn are_current(&self, lists: &NodeFiles, values: &NodeValues) -> bool {
        let has = |file: &SecretFile| {
            let known = self.secrets.get(&file.path);
            known.is_some_and(|known| known.version == file.version)
        };
        self.values == *values && lists.secrets.iter().all(has)
    }

    /// Returns the record as it is written to disk.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }
}

/// Reads the record of what the node has; `None` if its config has no such files, or they were not written yet.
pub fn recorded(root: &Root) -> Result<Option<ResolvedFiles>, DiskError> {
    let path = RootedPath::new(paths::NODE_FILES).map_err(FsError::from)?;
    let Some(bytes) = root.read(&path, LARGEST_RECORD)? else {
        return Ok(None);
    };
    let record = serde_json::from_slice(&bytes);
    record.map(Some).map_err(|error| DiskError::Unreadable {
        path: paths::NODE_FILES,
        why: error.to_string(),
    })
}

/// Returns the recorded Secrets of a config whose files are as they were written.
pub fn intact_secrets(
    root: &Root,
    record: &ResolvedFiles,
    lists: &NodeFiles,
) -> Result<BTreeMap<String, SecretContents>, FsError> {
    let mut intact = BTreeMap::new();
    for file in &lists.secrets {
        let known = record
            .secrets
            .get(&file.path)
            .filter(|known| known.version == file.version);
        if let (Some(known), Ok(path)) = (known, RootedPath::new(&file.path))
            && known.is_in(root, &path)?
        {
            intact.insert(file.path.clone(), known.clone());
        }
    }
    Ok(intact)
}

impl NodeConfig {
    /// Returns the config with the files of its lists, or everything that keeps the node from having them. Secrets that
    /// are not among `files` are left out.
    pub fn with_node_files(mut self, node: &str, files: ResolvedFiles) -> Result<Self, Vec<String>> {
        let lists = NodeFiles::of(&self.parsed.ignition);
        let mut all = lists.expand(node, &files.values)?;
        let secrets = lists
            .secrets
            .iter()
            .filter(|file| files.secrets.contains_key(&file.path));
        all.extend(secrets.map(SecretFile::placeholder));
        self.parsed.ignition.storage.files.extend(all);
        self.node_files = Some(files);
        Ok(self)
    }

    /// Returns the config with what the node has according to its record, which belongs to the same config.
    #[must_use]
    pub fn with_recorded_files(self, record: Option<ResolvedFiles>) -> Self {
        match record {
            Some(record) if !NodeFiles::of(&self.parsed.ignition).is_empty() => {
                let unresolved = self.clone();
                self.with_node_files("", record).unwrap_or(unresolved)
            }
            _ => self,
        }
    }

    /// Returns the config for comparisons: without files that the node does not have yet.
    pub(crate) fn on_this_node(&self) -> mco_core::config::parsed_config::ParsedConfig {
        let mut parsed = self.parsed.clone();
        parsed
            .ignition
            .storage
            .files
            .retain(|file| !node_files::is_list(&file.path));
        parsed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECRET: &str = "correct horse battery staple";

    #[test]
    fn neither_debug_output_nor_the_record_has_the_value() {
        let contents = SecretContents::new("v1", SECRET.into()).unwrap();
        let files = ResolvedFiles {
            secrets: [("/etc/x".to_owned(), contents)].into(),
            ..ResolvedFiles::default()
        };
        let record = files.to_bytes().unwrap();
        let shown = format!("{files:?} {}", String::from_utf8_lossy(&record));
        assert!(!shown.contains("horse") && !shown.contains("111, 114"), "{shown}");
        let again: ResolvedFiles = serde_json::from_slice(&record).unwrap();
        assert_eq!(again.secrets["/etc/x"].bytes(), None);
    }

    #[test]
    fn the_hash_on_disk_does_not_reveal_that_two_nodes_have_the_same_secret() {
        let [one, other] = [(); 2].map(|()| SecretContents::new("v1", SECRET.into()).unwrap());
        assert_ne!(one.hash, other.hash);
    }

    #[test]
    fn a_list_without_a_record_is_an_ordinary_file() {
        let list = json!([{"path": "/etc/a", "mode": "0644", "owner": "0:0", "contents": "${node.name}"}]);
        let source = format!("data:,{}", list.to_string().replace(' ', "").replace('%', "%25"));
        let object = json!({"metadata": {"name": "x"}, "spec": {"config": {
            "ignition": {"version": "3.5.0"},
            "storage": {"files": [{"path": "/etc/mco/values.d/50-a.json", "contents": {"source": source}}]},
        }}});
        let config = NodeConfig::new(serde_json::from_value(object).unwrap()).unwrap();
        assert_eq!(config.clone().with_recorded_files(None), config);
        assert!(config.on_this_node().ignition.storage.files.is_empty());
    }
}
