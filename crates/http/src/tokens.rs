//! Bearer tokens, stored as hashes.
//!
//! Tokens are random, so a plain SHA-256 is enough: there is nothing to guess that a slower hash would protect. Looking
//! up or comparing hashes reveals nothing about the tokens that exist.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::RwLock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::write_private;

/// 256 bits cannot be guessed.
const TOKEN_BYTES: usize = 32;

#[derive(Debug, Error)]
pub enum TokenFileError {
    #[error("cannot read token file {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("token file {path} is not valid: {message}", path = path.display())]
    Invalid { path: PathBuf, message: String },
    #[error("cannot write token file {path}: {source}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// The system has no randomness.
#[derive(Debug, Error)]
#[error("no randomness available: {0}")]
pub struct RandomError(#[from] getrandom::Error);

/// Returns random bytes for identifiers and secrets.
pub fn random<const LENGTH: usize>() -> Result<[u8; LENGTH], RandomError> {
    let mut bytes = [0; LENGTH];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// Returns a new token of 256 random bits. Callers show it once and store its hash.
pub fn generate() -> Result<String, RandomError> {
    Ok(URL_SAFE_NO_PAD.encode(random::<TOKEN_BYTES>()?))
}

/// The SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the hash in lower-case hexadecimal.
    pub fn to_hex(self) -> String {
        self.0.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenHash(..)")
    }
}

/// Reads a token file; `None` if it does not exist.
pub fn read_file<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, TokenFileError> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(TokenFileError::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    let tokens = serde_json::from_slice(&text).map_err(|error| TokenFileError::Invalid {
        path: path.to_owned(),
        message: error.to_string(),
    })?;
    Ok(Some(tokens))
}

/// Replaces a token file atomically; only its owner can read it.
pub fn write_file(path: &Path, tokens: &impl Serialize) -> Result<(), TokenFileError> {
    let write = || {
        let text = serde_json::to_string_pretty(tokens)?;
        write_private(path, format!("{text}\n").as_bytes())
    };
    write().map_err(|source| TokenFileError::Write {
        path: path.to_owned(),
        source,
    })
}

/// The records of a token file, in memory and on disk. `T` holds hashes, never tokens.
#[derive(Debug)]
pub struct TokenStore<T> {
    path: PathBuf,
    records: RwLock<T>,
}

impl<T: Clone + Default + Serialize + DeserializeOwned> TokenStore<T> {
    /// Opens a file that need not exist yet.
    pub fn open(path: &Path) -> Result<Self, TokenFileError> {
        Ok(Self {
            path: path.to_owned(),
            records: RwLock::new(read_file(path)?.unwrap_or_default()),
        })
    }

    /// Returns what `lookup` finds among the records.
    pub fn find<R>(&self, lookup: impl FnOnce(&T) -> R) -> R {
        lookup(&self.records.read())
    }

    /// Changes the records. A change that cannot be written does not take effect.
    pub fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> Result<R, TokenFileError> {
        let mut records = self.records.write();
        let mut changed = records.clone();
        let result = change(&mut changed);
        write_file(&self.path, &changed)?;
        *records = changed;
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Owners = BTreeMap<String, String>;

    #[test]
    fn a_token_is_found_after_a_restart_and_never_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.json");
        let token = generate().unwrap();
        let key = TokenHash::of(&token).to_hex();
        assert_eq!(key.len(), 64);
        let store = TokenStore::<Owners>::open(&path).unwrap();
        store
            .update(|owners| owners.insert(key.clone(), "node-a".to_owned()))
            .unwrap();
        assert!(!std::fs::read_to_string(&path).unwrap().contains(&token));

        let reopened = TokenStore::<Owners>::open(&path).unwrap();
        assert_eq!(
            reopened.find(|owners| owners.get(&key).cloned()),
            Some("node-a".to_owned())
        );
        std::fs::write(&path, "no tokens").unwrap();
        let error = TokenStore::<Owners>::open(&path).unwrap_err();
        assert!(matches!(error, TokenFileError::Invalid { .. }), "{error}");
    }

    #[test]
    fn a_change_that_cannot_be_written_does_not_take_effect() {
        let directory = tempfile::tempdir().unwrap();
        let store = TokenStore::<Owners>::open(&directory.path().join("tokens.json")).unwrap();
        drop(directory);
        let change = store.update(|owners| owners.insert("hash".to_owned(), "node-a".to_owned()));
        assert!(matches!(change, Err(TokenFileError::Write { .. })));
        assert!(store.find(Owners::is_empty));
    }
}
