//! Bearer tokens. The file holds only their hashes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::Identity;

/// 256 bits, which cannot be guessed.
const TOKEN_BYTES: usize = 32;

#[derive(Debug, thiserror::Error)]
pub enum TokenStoreError {
    #[error("reading the tokens {path}: {source}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the tokens {path} are damaged: {source}")]
    Parse {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("writing the tokens {path}: {source}")]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("no random numbers: {0}")]
    Random(#[source] getrandom::Error),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct TokenEntry {
    user: String,
    groups: Vec<String>,
    /// The UID of the Node that the token is bound to.
    #[serde(default, rename = "nodeUID", skip_serializing_if = "Option::is_none")]
    node_uid: Option<String>,
    /// Set in files of versions that bound a token to the name of a Node.
    #[serde(default, rename = "lasts", skip_serializing)]
    earlier_lifetime: EarlierLifetime,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum EarlierLifetime {
    #[default]
    UntilRevoked,
    WhileItsNodeExists,
}

/// The lifetime of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenLifetime {
    UntilRevoked,
    /// For a node's token: it is valid while the Node with this UID exists. Another Node with the same name does not
    /// make it valid again.
    WhileNodeExists {
        uid: String,
    },
}

/// The hash by which a token is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenHash(String);

impl TokenHash {
    pub fn of(token: &str) -> Self {
        Self(hash(token))
    }
}

/// The valid tokens, in memory and in one file.
#[derive(Debug)]
pub struct TokenStore {
    path: PathBuf,
    by_hash: RwLock<HashMap<String, TokenEntry>>,
    revocations: watch::Sender<()>,
}

impl TokenStore {
    pub fn open(path: &Path) -> Result<Self, TokenStoreError> {
        let by_hash = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|source| TokenStoreError::Parse {
                path: path.to_owned(),
                source,
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => HashMap::new(),
            Err(source) => {
                return Err(TokenStoreError::Read {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        Ok(Self {
            path: path.to_owned(),
            by_hash: RwLock::new(by_hash),
            revocations: watch::Sender::default(),
        })
    }

    /// Issues a token for an identity; earlier ones stay valid until revoked.
    pub fn issue(&self, identity: &Identity) -> Result<String, TokenStoreError> {
        let mut random = [0_u8; TOKEN_BYTES];
        getrandom::fill(&mut random).map_err(TokenStoreError::Random)?;
        let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random);
        let entry = TokenEntry::new(identity, None);
        self.change(|by_hash| {
            by_hash.insert(hash(&token), entry);
        })?;
        Ok(token)
    }

    /// Registers a token that a node generated for itself, and revokes the node's earlier ones.
    ///
    /// The token is valid while the Node with this UID exists.
    pub fn register_node_token(
        &self,
        identity: &Identity,
        uid: &str,
        token: &str,
    ) -> Result<(), TokenStoreError> {
        let entry = TokenEntry::new(identity, Some(uid.to_owned()));
        self.change(|by_hash| {
            by_hash.retain(|_, entry| entry.user != identity.user);
            by_hash.insert(hash(token), entry);
        })
    }

    /// Revokes all tokens of a user.
    pub fn revoke(&self, user: &str) -> Result<(), TokenStoreError> {
        self.retain(|entry| entry.user != user)
    }

    /// Revokes the tokens that are bound to a Node.
    pub(crate) fn revoke_node(&self, uid: &str) -> Result<(), TokenStoreError> {
        self.retain(|entry| entry.node_uid.as_deref() != Some(uid))
    }

    /// Revokes the tokens of all members of a group.
    pub(crate) fn revoke_group(&self, group: &str) -> Result<(), TokenStoreError> {
        self.retain(|entry| !entry.groups.iter().any(|member| member == group))
    }

    /// Removes the tokens of nodes whose Node is gone. `uid_of` returns the UID of the Node with a name.
    ///
    /// A token of an earlier version, which bound it to a name, is bound to the Node that has the name now.
    pub(crate) fn prune(&self, uid_of: impl Fn(&str) -> Option<String>) -> Result<(), TokenStoreError> {
        let mut pruned = self.by_hash.read().clone();
        pruned.retain(|_, entry| {
            let is_unbound = entry.earlier_lifetime == EarlierLifetime::WhileItsNodeExists;
            if entry.node_uid.is_none() && !is_unbound {
                return true;
            }
            let existing = entry.identity().node_name().and_then(&uid_of);
            let is_bound_here = entry.node_uid.is_none() || entry.node_uid == existing;
            entry.node_uid.clone_from(&existing);
            existing.is_some() && is_bound_here
        });
        self.change(|by_hash| *by_hash = pruned)
    }

    /// Returns the owner and the lifetime of a token.
    ///
    /// The lookup is by hash, so its timing reveals nothing about the valid tokens.
    pub fn identify(&self, token: &str) -> Option<(Identity, TokenLifetime)> {
        self.identify_hash(&TokenHash::of(token))
    }

    pub(crate) fn identify_hash(&self, hash: &TokenHash) -> Option<(Identity, TokenLifetime)> {
        let by_hash = self.by_hash.read();
        let entry = by_hash.get(&hash.0)?;
        let lifetime = match &entry.node_uid {
            Some(uid) => TokenLifetime::WhileNodeExists { uid: uid.clone() },
            None => TokenLifetime::UntilRevoked,
        };
        Some((entry.identity(), lifetime))
    }

    /// Returns a channel that changes after each revocation of a credential.
    pub(crate) fn revocations(&self) -> watch::Receiver<()> {
        self.revocations.subscribe()
    }

    /// Makes the streams of all callers check whether their credential is still valid.
    pub(crate) fn announce_revocation(&self) {
        self.revocations.send_replace(());
    }

    /// Removes tokens. The removal takes effect in memory even if it cannot be written.
    fn retain(&self, keep: impl Fn(&TokenEntry) -> bool) -> Result<(), TokenStoreError> {
        let mut by_hash = self.by_hash.write();
        let before = by_hash.len();
        by_hash.retain(|_, entry| keep(entry));
        if by_hash.len() == before {
            return Ok(());
        }
        let saved = self.save(&by_hash);
        drop(by_hash);
        self.announce_revocation();
        saved
    }

    /// Changes the tokens. A change that cannot be written does not take effect.
    fn change(&self, change: impl FnOnce(&mut HashMap<String, TokenEntry>)) -> Result<(), TokenStoreError> {
        let mut by_hash = self.by_hash.write();
        let mut changed = by_hash.clone();
        change(&mut changed);
        self.save(&changed)?;
        *by_hash = changed;
        drop(by_hash);
        self.announce_revocation();
        Ok(())
    }

    fn save(&self, by_hash: &HashMap<String, TokenEntry>) -> Result<(), TokenStoreError> {
        let failed = |source: std::io::Error| TokenStoreError::Write {
            path: self.path.clone(),
            source,
        };
        let bytes = serde_json::to_vec(by_hash).map_err(|error| failed(error.into()))?;
        crate::files::write_private(&self.path, &bytes).map_err(failed)
    }
}

impl TokenEntry {
    fn new(identity: &Identity, node_uid: Option<String>) -> Self {
        Self {
            user: identity.user.clone(),
            groups: identity.groups.clone(),
            node_uid,
            earlier_lifetime: EarlierLifetime::default(),
        }
    }

    fn identity(&self) -> Identity {
        let groups: Vec<&str> = self.groups.iter().map(String::as_str).collect();
        Identity::new(self.user.as_str(), &groups)
    }
}

fn hash(token: &str) -> String {
    base64::engine::general_purpose::STANDARD_NO_PAD.encode(Sha256::digest(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_valid_after_a_restart_and_never_written_to_disk() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.json");
        let token = TokenStore::open(&path)
            .unwrap()
            .issue(&Identity::node("a"))
            .unwrap();
        assert!(!std::fs::read_to_string(&path).unwrap().contains(&token));
        let tokens = TokenStore::open(&path).unwrap();
        let owner = Some((Identity::node("a"), TokenLifetime::UntilRevoked));
        assert_eq!(tokens.identify(&token), owner);
        assert_eq!(tokens.identify("other"), None);
        tokens.revoke("system:node:a").unwrap();
        assert_eq!(tokens.identify(&token), None);
    }

    #[test]
    fn the_token_of_a_machine_replaces_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = TokenStore::open(&directory.path().join("tokens.json")).unwrap();
        let (first, second) = ("the-first-credential", "the-second-credential");
        let node = Identity::node("a");
        tokens.register_node_token(&node, "u-1", first).unwrap();
        tokens
            .register_node_token(&Identity::node("b"), "u-2", "of-another-node")
            .unwrap();
        tokens.register_node_token(&node, "u-3", second).unwrap();
        assert_eq!(tokens.identify(first), None);
        let lifetime = TokenLifetime::WhileNodeExists {
            uid: "u-3".to_owned(),
        };
        assert_eq!(tokens.identify(second), Some((node, lifetime)));
        assert!(tokens.identify("of-another-node").is_some());
        tokens.revoke_node("u-2").unwrap();
        assert_eq!(tokens.identify("of-another-node"), None);
    }

    #[test]
    fn the_token_of_a_deleted_node_stayed_in_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.json");
        let earlier = serde_json::json!({
            hash("by-name"): {"user": "system:node:a", "groups": ["system:nodes"], "lasts": "WhileItsNodeExists"},
            hash("gone"): {"user": "system:node:b", "groups": ["system:nodes"], "lasts": "WhileItsNodeExists"},
            hash("replaced"): {"user": "system:node:c", "groups": ["system:nodes"], "nodeUID": "u-old"},
            hash("admin"): {"user": "alice", "groups": ["system:masters"], "lasts": "UntilRevoked"},
        });
        std::fs::write(&path, earlier.to_string()).unwrap();
        let tokens = TokenStore::open(&path).unwrap();
        let uids = HashMap::from([("a", "u-a"), ("c", "u-new")]);
        tokens
            .prune(|name| uids.get(name).map(|uid| (*uid).to_owned()))
            .unwrap();
        let tokens = TokenStore::open(&path).unwrap();
        let lifetime = |token: &str| tokens.identify(token).map(|(_, lifetime)| lifetime);
        let bound = TokenLifetime::WhileNodeExists {
            uid: "u-a".to_owned(),
        };
        assert_eq!(lifetime("by-name"), Some(bound));
        assert_eq!(lifetime("gone"), None);
        assert_eq!(lifetime("replaced"), None);
        assert_eq!(lifetime("admin"), Some(TokenLifetime::UntilRevoked));
    }
}
