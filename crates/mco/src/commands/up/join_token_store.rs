//! Join tokens, each bound to a pool and to an expiry time.
//!
//! Any number of machines can use a token until it expires or is revoked. The file holds only hashes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use mco_apiserver::auth::TokenStoreError;
use mco_apiserver::files;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

const ID_BYTES: usize = 4;
/// 128 bits, which cannot be guessed before the token expires.
const SECRET_BYTES: usize = 16;
/// Expired tokens are stored this long, so that their use is reported as expired and not as unknown.
const EXPIRED_RETENTION: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The pool and the labels of the Node of a machine that joins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinGrant {
    pub pool: String,
    /// The labels of its Node.
    pub labels: BTreeMap<String, String>,
}

/// A new token. Its secret is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedJoinToken {
    /// Identifies the token, for example to revoke it.
    pub id: String,
    pub token: String,
    pub expires: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinTokenRejection {
    #[error("join token not found; it may be mistyped, revoked, or from another cluster")]
    Unknown,
    #[error("this join token expired at {0}")]
    Expired(Timestamp),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredJoinToken {
    hash: String,
    expires: Timestamp,
    grant: JoinGrant,
}

/// The join tokens of this cluster, in memory and in one file.
#[derive(Debug)]
pub struct JoinTokenStore {
    path: PathBuf,
    by_id: Mutex<BTreeMap<String, StoredJoinToken>>,
}

impl JoinTokenStore {
    pub fn open(path: &Path) -> Result<Self, TokenStoreError> {
        let failed = |source| TokenStoreError::Read {
            path: path.to_owned(),
            source,
        };
        let by_id = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|source| TokenStoreError::Parse {
                path: path.to_owned(),
                source,
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(source) => return Err(failed(source)),
        };
        Ok(Self {
            path: path.to_owned(),
            by_id: Mutex::new(by_id),
        })
    }

    pub fn issue(
        &self,
        grant: JoinGrant,
        now: Timestamp,
        expires: Timestamp,
    ) -> Result<IssuedJoinToken, TokenStoreError> {
        let id = hexadecimal(&random::<ID_BYTES>()?);
        let secret = URL_SAFE_NO_PAD.encode(random::<SECRET_BYTES>()?);
        let stored = StoredJoinToken {
            hash: hash(&secret),
            expires,
            grant,
        };
        let mut by_id = self.by_id.lock();
        by_id.retain(|_, stored| now.duration_since(stored.expires) < EXPIRED_RETENTION);
        by_id.insert(id.clone(), stored);
        self.save(&by_id)?;
        Ok(IssuedJoinToken {
            token: format!("{id}.{secret}"),
            id,
            expires,
        })
    }

    /// Returns the grant of a token.
    ///
    /// Hashes are compared, so timing reveals nothing about the secret.
    pub fn redeem(&self, token: &str, now: Timestamp) -> Result<JoinGrant, JoinTokenRejection> {
        let (id, secret) = token.split_once('.').ok_or(JoinTokenRejection::Unknown)?;
        let by_id = self.by_id.lock();
        let stored = by_id.get(id).filter(|stored| stored.hash == hash(secret));
        match stored {
            None => Err(JoinTokenRejection::Unknown),
            Some(stored) if stored.expires <= now => Err(JoinTokenRejection::Expired(stored.expires)),
            Some(stored) => Ok(stored.grant.clone()),
        }
    }

    /// Revokes a token and returns whether it existed. Machines that joined with it keep their access.
    pub fn revoke(&self, id: &str) -> Result<bool, TokenStoreError> {
        let mut by_id = self.by_id.lock();
        let existed = by_id.remove(id).is_some();
        if existed {
            self.save(&by_id)?;
        }
        Ok(existed)
    }

    fn save(&self, by_id: &BTreeMap<String, StoredJoinToken>) -> Result<(), TokenStoreError> {
        let failed = |source: std::io::Error| TokenStoreError::Write {
            path: self.path.clone(),
            source,
        };
        let bytes = serde_json::to_vec(by_id).map_err(|error| failed(error.into()))?;
        files::write_private(&self.path, &bytes).map_err(failed)
    }
}

fn random<const LENGTH: usize>() -> Result<[u8; LENGTH], TokenStoreError> {
    let mut bytes = [0; LENGTH];
    getrandom::fill(&mut bytes).map_err(TokenStoreError::Random)?;
    Ok(bytes)
}

fn hash(secret: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(secret))
}

pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_token_is_valid_until_it_expires_or_is_revoked_and_its_secret_is_never_stored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("join-tokens.json");
        let (start, end) = (at("2026-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z"));
        let grant = JoinGrant {
            pool: "worker".to_owned(),
            labels: BTreeMap::from([("node-role.kubernetes.io/worker".to_owned(), String::new())]),
        };
        let tokens = JoinTokenStore::open(&path).unwrap();
        let issued = tokens.issue(grant.clone(), start, end).unwrap();
        let written = std::fs::read_to_string(&path).unwrap();
        let (_, secret) = issued.token.split_once('.').unwrap();
        assert!(!written.contains(secret), "{written}");

        let tokens = JoinTokenStore::open(&path).unwrap();
        assert_eq!(tokens.redeem(&issued.token, start), Ok(grant.clone()));
        assert_eq!(
            tokens.redeem(&issued.token, start),
            Ok(grant.clone()),
            "for another machine"
        );
        assert_eq!(
            tokens.redeem(&issued.token, end),
            Err(JoinTokenRejection::Expired(end))
        );
        for wrong in ["", "x", "x.y", &format!("{}.guess", issued.id), secret] {
            assert_eq!(
                tokens.redeem(wrong, start),
                Err(JoinTokenRejection::Unknown),
                "{wrong}"
            );
        }

        assert!(tokens.revoke(&issued.id).unwrap());
        assert!(!tokens.revoke(&issued.id).unwrap());
        assert_eq!(
            tokens.redeem(&issued.token, start),
            Err(JoinTokenRejection::Unknown)
        );

        tokens.issue(grant.clone(), start, end).unwrap();
        tokens
            .issue(grant, at("2026-02-01T00:00:00Z"), at("2026-02-02T00:00:00Z"))
            .unwrap();
        assert_eq!(tokens.by_id.lock().len(), 1, "long expired tokens are pruned");
    }
}
