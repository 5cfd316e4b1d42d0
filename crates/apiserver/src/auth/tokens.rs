//! Bearer tokens. The file holds only their hashes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

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
    #[serde(default, rename = "lasts")]
    lifetime: TokenLifetime,
}

/// The lifetime of a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenLifetime {
    #[default]
    UntilRevoked,
    /// For a node's token: deleting the Node revokes it.
    #[serde(rename = "WhileItsNodeExists")]
    WhileNodeExists,
}

/// The valid tokens, in memory and in one file.
#[derive(Debug)]
pub struct TokenStore {
    path: PathBuf,
    by_hash: RwLock<HashMap<String, TokenEntry>>,
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
        })
    }

    /// Issues a token for an identity; earlier ones stay valid until revoked.
    pub fn issue(&self, identity: &Identity) -> Result<String, TokenStoreError> {
        let mut random = [0_u8; TOKEN_BYTES];
        getrandom::fill(&mut random).map_err(TokenStoreError::Random)?;
        let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random);
        let entry = TokenEntry {
            user: identity.user.clone(),
            groups: identity.groups.clone(),
            lifetime: TokenLifetime::UntilRevoked,
        };
        let mut by_hash = self.by_hash.write();
        by_hash.insert(hash(&token), entry);
        self.save(&by_hash)?;
        Ok(token)
    }

    /// Registers a token that a node generated for itself, and revokes the node's earlier ones.
    ///
    /// The token is valid while the Node exists.
    pub fn register_node_token(&self, identity: &Identity, token: &str) -> Result<(), TokenStoreError> {
        let entry = TokenEntry {
            user: identity.user.clone(),
            groups: identity.groups.clone(),
            lifetime: TokenLifetime::WhileNodeExists,
        };
        let mut by_hash = self.by_hash.write();
        by_hash.retain(|_, entry| entry.user != identity.user);
        by_hash.insert(hash(token), entry);
        self.save(&by_hash)
    }

    /// Revokes all tokens of a user.
    pub fn revoke(&self, user: &str) -> Result<(), TokenStoreError> {
        let mut by_hash = self.by_hash.write();
        by_hash.retain(|_, entry| entry.user != user);
        self.save(&by_hash)
    }

    /// Returns the owner and the lifetime of a token.
    ///
    /// The lookup is by hash, so its timing reveals nothing about the valid tokens.
    pub fn identify(&self, token: &str) -> Option<(Identity, TokenLifetime)> {
        let by_hash = self.by_hash.read();
        let entry = by_hash.get(&hash(token))?;
        let identity = Identity {
            user: entry.user.clone(),
            groups: entry.groups.clone(),
            uid: String::new(),
            extra: std::collections::BTreeMap::new(),
            impersonated_by: None,
        };
        Some((identity, entry.lifetime))
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
        tokens.register_node_token(&Identity::node("a"), first).unwrap();
        tokens
            .register_node_token(&Identity::node("b"), "of-another-node")
            .unwrap();
        tokens.register_node_token(&Identity::node("a"), second).unwrap();
        assert_eq!(tokens.identify(first), None);
        let owner = Some((Identity::node("a"), TokenLifetime::WhileNodeExists));
        assert_eq!(tokens.identify(second), owner);
        assert!(tokens.identify("of-another-node").is_some());
    }
}
