//! Join tokens: what a machine shows once to be let in, bound to what it may become and for how long.
//!
//! A token can be used by any number of machines until it expires or is revoked. The file keeps hashes only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::tokens::TokensError;
use crate::files;

const ID_BYTES: usize = 4;
/// 128 bits: nobody guesses one before it expires.
const SECRET_BYTES: usize = 16;
/// An expired token is remembered this long, so that whoever shows it hears what is wrong with it.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(7 * 24);

/// What a machine becomes by joining.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub pool: String,
    /// The labels its Node gets.
    pub labels: BTreeMap<String, String>,
}

/// A new token, shown this once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// Names the token without being it.
    pub id: String,
    pub token: String,
    pub expires: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("this join token is not known here; it may be mistyped, revoked, or from another cluster")]
    Unknown,
    #[error("this join token expired at {0}")]
    Expired(Timestamp),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    hash: String,
    expires: Timestamp,
    grant: Grant,
}

/// The join tokens that exist.
#[derive(Debug)]
pub struct JoinTokens {
    path: PathBuf,
    by_id: Mutex<BTreeMap<String, Kept>>,
}

impl JoinTokens {
    pub fn open(path: &Path) -> Result<Self, TokensError> {
        let failed = |source| TokensError::Read {
            path: path.to_owned(),
            source,
        };
        let by_id = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|source| TokensError::Parse {
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

    pub fn issue(&self, grant: Grant, now: Timestamp, expires: Timestamp) -> Result<Issued, TokensError> {
        let id = hexadecimal(&random::<ID_BYTES>()?);
        let secret = URL_SAFE_NO_PAD.encode(random::<SECRET_BYTES>()?);
        let kept = Kept {
            hash: hash(&secret),
            expires,
            grant,
        };
        let mut by_id = self.by_id.lock();
        by_id.retain(|_, kept| now.duration_since(kept.expires) < REMEMBERED);
        by_id.insert(id.clone(), kept);
        self.save(&by_id)?;
        Ok(Issued {
            token: format!("{id}.{secret}"),
            id,
            expires,
        })
    }

    /// What the bearer may become. Comparing hashes tells nobody how close a guess was.
    pub fn redeem(&self, token: &str, now: Timestamp) -> Result<Grant, Refusal> {
        let (id, secret) = token.split_once('.').ok_or(Refusal::Unknown)?;
        let by_id = self.by_id.lock();
        let kept = by_id.get(id).filter(|kept| kept.hash == hash(secret));
        match kept {
            None => Err(Refusal::Unknown),
            Some(kept) if kept.expires <= now => Err(Refusal::Expired(kept.expires)),
            Some(kept) => Ok(kept.grant.clone()),
        }
    }

    /// Makes a token useless; whether there was one. Machines that have joined with it stay.
    pub fn revoke(&self, id: &str) -> Result<bool, TokensError> {
        let mut by_id = self.by_id.lock();
        let existed = by_id.remove(id).is_some();
        if existed {
            self.save(&by_id)?;
        }
        Ok(existed)
    }

    fn save(&self, by_id: &BTreeMap<String, Kept>) -> Result<(), TokensError> {
        let failed = |source: std::io::Error| TokensError::Write {
            path: self.path.clone(),
            source,
        };
        let bytes = serde_json::to_vec(by_id).map_err(|error| failed(error.into()))?;
        files::write_private(&self.path, &bytes).map_err(failed)
    }
}

fn random<const LENGTH: usize>() -> Result<[u8; LENGTH], TokensError> {
    let mut bytes = [0; LENGTH];
    getrandom::fill(&mut bytes).map_err(TokensError::Random)?;
    Ok(bytes)
}

fn hash(secret: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(secret))
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
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
    fn a_token_lets_in_until_it_expires_or_is_revoked_and_is_never_written_down() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("join-tokens.json");
        let (start, end) = (at("2026-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z"));
        let grant = Grant {
            pool: "worker".to_owned(),
            labels: BTreeMap::from([("node-role.kubernetes.io/worker".to_owned(), String::new())]),
        };
        let tokens = JoinTokens::open(&path).unwrap();
        let issued = tokens.issue(grant.clone(), start, end).unwrap();
        let written = std::fs::read_to_string(&path).unwrap();
        let (_, secret) = issued.token.split_once('.').unwrap();
        assert!(!written.contains(secret), "{written}");

        let tokens = JoinTokens::open(&path).unwrap();
        assert_eq!(tokens.redeem(&issued.token, start), Ok(grant.clone()));
        assert_eq!(
            tokens.redeem(&issued.token, start),
            Ok(grant.clone()),
            "for another machine"
        );
        assert_eq!(tokens.redeem(&issued.token, end), Err(Refusal::Expired(end)));
        for wrong in ["", "x", "x.y", &format!("{}.guess", issued.id), secret] {
            assert_eq!(tokens.redeem(wrong, start), Err(Refusal::Unknown), "{wrong}");
        }

        assert!(tokens.revoke(&issued.id).unwrap());
        assert!(!tokens.revoke(&issued.id).unwrap());
        assert_eq!(tokens.redeem(&issued.token, start), Err(Refusal::Unknown));

        tokens.issue(grant.clone(), start, end).unwrap();
        tokens
            .issue(grant, at("2026-02-01T00:00:00Z"), at("2026-02-02T00:00:00Z"))
            .unwrap();
        assert_eq!(tokens.by_id.lock().len(), 1, "long expired ones are forgotten");
    }
}
