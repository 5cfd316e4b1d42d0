//! Bearer tokens, kept as hashes: the file tells nobody a token.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::Identity;

/// 256 bits: nobody guesses one.
const TOKEN_BYTES: usize = 32;

#[derive(Debug, thiserror::Error)]
pub enum TokensError {
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
    #[error("no randomness: {0}")]
    Random(#[source] getrandom::Error),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    user: String,
    groups: Vec<String>,
    #[serde(default)]
    lasts: Lasts,
}

/// How long a token is good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lasts {
    #[default]
    UntilRevoked,
    /// For a machine that has joined: whoever deletes its Node has shown it the door.
    WhileItsNodeExists,
}

/// The tokens that are valid now.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    by_hash: RwLock<HashMap<String, Entry>>,
}

impl Tokens {
    pub fn open(path: &Path) -> Result<Self, TokensError> {
        let by_hash = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|source| TokensError::Parse {
                path: path.to_owned(),
                source,
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => HashMap::new(),
            Err(source) => {
                return Err(TokensError::Read {
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
    pub fn issue(&self, identity: &Identity) -> Result<String, TokensError> {
        let mut random = [0_u8; TOKEN_BYTES];
        getrandom::fill(&mut random).map_err(TokensError::Random)?;
        let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random);
        let entry = Entry {
            user: identity.user.clone(),
            groups: identity.groups.clone(),
            lasts: Lasts::UntilRevoked,
        };
        let mut by_hash = self.by_hash.write();
        by_hash.insert(hash(&token), entry);
        self.save(&by_hash)?;
        Ok(token)
    }

    /// Takes note of a token that a machine has made for itself, in place of all that were good for its name before.
    pub fn adopt(&self, identity: &Identity, token: &str) -> Result<(), TokensError> {
        let entry = Entry {
            user: identity.user.clone(),
            groups: identity.groups.clone(),
            lasts: Lasts::WhileItsNodeExists,
        };
        let mut by_hash = self.by_hash.write();
        by_hash.retain(|_, entry| entry.user != identity.user);
        by_hash.insert(hash(token), entry);
        self.save(&by_hash)
    }

    /// Makes every token of a user invalid.
    pub fn revoke(&self, user: &str) -> Result<(), TokensError> {
        let mut by_hash = self.by_hash.write();
        by_hash.retain(|_, entry| entry.user != user);
        self.save(&by_hash)
    }

    /// Whose token this is, and for how long. Looking up a hash leaks nothing about the tokens that exist.
    pub fn identify(&self, token: &str) -> Option<(Identity, Lasts)> {
        let by_hash = self.by_hash.read();
        let entry = by_hash.get(&hash(token))?;
        let identity = Identity {
            user: entry.user.clone(),
            groups: entry.groups.clone(),
        };
        Some((identity, entry.lasts))
    }

    fn save(&self, by_hash: &HashMap<String, Entry>) -> Result<(), TokensError> {
        let failed = |source: std::io::Error| TokensError::Write {
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
    fn a_token_is_known_after_a_restart_and_never_written_down() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.json");
        let token = Tokens::open(&path).unwrap().issue(&Identity::node("a")).unwrap();
        assert!(!std::fs::read_to_string(&path).unwrap().contains(&token));
        let tokens = Tokens::open(&path).unwrap();
        let owner = Some((Identity::node("a"), Lasts::UntilRevoked));
        assert_eq!(tokens.identify(&token), owner);
        assert_eq!(tokens.identify("other"), None);
        tokens.revoke("system:node:a").unwrap();
        assert_eq!(tokens.identify(&token), None);
    }

    #[test]
    fn the_token_of_a_machine_replaces_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(&directory.path().join("tokens.json")).unwrap();
        let (first, second) = ("the-first-credential", "the-second-credential");
        tokens.adopt(&Identity::node("a"), first).unwrap();
        tokens.adopt(&Identity::node("b"), "of-somebody-else").unwrap();
        tokens.adopt(&Identity::node("a"), second).unwrap();
        assert_eq!(tokens.identify(first), None);
        let owner = Some((Identity::node("a"), Lasts::WhileItsNodeExists));
        assert_eq!(tokens.identify(second), owner);
        assert!(tokens.identify("of-somebody-else").is_some());
    }
}
