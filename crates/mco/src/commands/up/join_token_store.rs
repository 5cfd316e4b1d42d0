//! Join tokens, each bound to a pool and to an expiry time.
//!
//! A token can also be limited to a number of joins and to a pattern of node names. The file holds only hashes.

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

/// The pool and the labels of the Node of a machine that joins, and the limits of the token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinGrant {
    pub pool: String,
    /// The labels of its Node.
    pub labels: BTreeMap<String, String>,
    /// The number of machines that can join; unlimited if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_uses: Option<u32>,
    /// The names that its Node can have, in which `*` matches anything; any name if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_names: Option<String>,
}

/// A new token. Its secret is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedJoinToken {
    /// Identifies the token, for example to revoke it.
    pub id: String,
    pub token: String,
    pub expires: Timestamp,
}

/// A token as administrators see it, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedJoinToken {
    pub id: String,
    pub expires: Timestamp,
    pub uses: u32,
    #[serde(flatten)]
    pub grant: JoinGrant,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinTokenRejection {
    #[error("join token not found; it may be mistyped, revoked, or from another cluster")]
    Unknown,
    #[error("this join token expired at {0}")]
    Expired(Timestamp),
    #[error("this join token has been used {0} of {0} times")]
    UsedUp(u32),
    #[error("this join token is for nodes named {pattern}, and not for {node}")]
    NodeName { pattern: String, node: String },
}

/// A join in progress: the join token, and the machine that uses it.
#[derive(Clone, Copy, Debug)]
pub struct JoinAttempt<'a> {
    pub token: &'a str,
    pub node: &'a str,
    /// The credential that the machine generated for itself.
    pub credential: &'a str,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredJoinToken {
    hash: String,
    expires: Timestamp,
    grant: JoinGrant,
    /// The number of completed joins.
    #[serde(default)]
    uses: u32,
    /// Joins that have begun: the hash of the machine's credential by the name of its Node. A machine that retries
    /// after a crash of the server does not use the token twice.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pending: BTreeMap<String, String>,
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
            uses: 0,
            pending: BTreeMap::new(),
        };
        self.update(|by_id| {
            by_id.retain(|_, stored| now.duration_since(stored.expires) < EXPIRED_RETENTION);
            by_id.insert(id.clone(), stored);
        })?;
        Ok(IssuedJoinToken {
            token: format!("{id}.{secret}"),
            id,
            expires,
        })
    }

    /// Returns the grant of a token that is valid now, used up or not.
    ///
    /// Hashes are compared, so timing reveals nothing about the secret.
    pub fn authenticate(&self, token: &str, now: Timestamp) -> Result<JoinGrant, JoinTokenRejection> {
        let by_id = self.by_id.lock();
        let stored = find(&by_id, token).ok_or(JoinTokenRejection::Unknown)?;
        if stored.expires <= now {
            return Err(JoinTokenRejection::Expired(stored.expires));
        }
        Ok(stored.grant.clone())
    }

    /// Reserves one use of a token for a machine. [`JoinTokenStore::complete`] or [`JoinTokenStore::release`] ends it.
    pub fn reserve(
        &self,
        attempt: JoinAttempt<'_>,
    ) -> Result<Result<(), JoinTokenRejection>, TokenStoreError> {
        let credential = hash(attempt.credential);
        {
            let by_id = self.by_id.lock();
            let Some(stored) = find(&by_id, attempt.token) else {
                return Ok(Err(JoinTokenRejection::Unknown));
            };
            if let Err(rejection) = stored.admits(attempt.node, &credential) {
                return Ok(Err(rejection));
            }
        }
        self.update_token(attempt.token, |stored| {
            stored.pending.insert(attempt.node.to_owned(), credential);
        })?;
        Ok(Ok(()))
    }

    /// Counts the use of a machine that has joined, once.
    pub fn complete(&self, attempt: JoinAttempt<'_>) -> Result<(), TokenStoreError> {
        let is_pending = find(&self.by_id.lock(), attempt.token)
            .is_some_and(|stored| stored.pending.contains_key(attempt.node));
        if !is_pending {
            return Ok(());
        }
        self.update_token(attempt.token, |stored| {
            stored.pending.remove(attempt.node);
            stored.uses = stored.uses.saturating_add(1);
        })
    }

    /// Returns the use of a machine that could not join.
    pub fn release(&self, attempt: JoinAttempt<'_>) -> Result<(), TokenStoreError> {
        self.update_token(attempt.token, |stored| {
            stored.pending.remove(attempt.node);
        })
    }

    /// Returns all tokens, expired ones included until they are pruned.
    pub fn list(&self) -> Vec<ListedJoinToken> {
        let by_id = self.by_id.lock();
        let listed = by_id.iter().map(|(id, stored)| ListedJoinToken {
            id: id.clone(),
            expires: stored.expires,
            uses: stored.uses,
            grant: stored.grant.clone(),
        });
        listed.collect()
    }

    /// Revokes a token and returns whether it existed. Machines that joined with it keep their access.
    pub fn revoke(&self, id: &str) -> Result<bool, TokenStoreError> {
        self.update(|by_id| by_id.remove(id).is_some())
    }

    fn update_token(
        &self,
        token: &str,
        change: impl FnOnce(&mut StoredJoinToken),
    ) -> Result<(), TokenStoreError> {
        let id = token.split('.').next().unwrap_or_default();
        self.update(|by_id| {
            // A token that was revoked meanwhile has no use to count.
            if let Some(stored) = by_id.get_mut(id) {
                change(stored);
            }
        })
    }

    /// Changes the tokens. A change that cannot be written does not take effect.
    fn update<R>(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, StoredJoinToken>) -> R,
    ) -> Result<R, TokenStoreError> {
        let failed = |source: std::io::Error| TokenStoreError::Write {
            path: self.path.clone(),
            source,
        };
        let mut by_id = self.by_id.lock();
        let mut changed = by_id.clone();
        let result = change(&mut changed);
        let bytes = serde_json::to_vec(&changed).map_err(|error| failed(error.into()))?;
        files::write_private(&self.path, &bytes).map_err(failed)?;
        *by_id = changed;
        Ok(result)
    }
}

impl StoredJoinToken {
    /// Checks the limits of the token for a machine.
    fn admits(&self, node: &str, credential: &str) -> Result<(), JoinTokenRejection> {
        if let Some(pattern) = &self.grant.node_names
            && !matches_pattern(pattern, node)
        {
            return Err(JoinTokenRejection::NodeName {
                pattern: pattern.clone(),
                node: node.to_owned(),
            });
        }
        let is_retry = self
            .pending
            .get(node)
            .is_some_and(|pending| pending == credential);
        let others = self.pending.len() - usize::from(self.pending.contains_key(node));
        let used = usize::try_from(self.uses)
            .unwrap_or(usize::MAX)
            .saturating_add(others);
        match self.grant.max_uses {
            Some(max) if !is_retry && used >= usize::try_from(max).unwrap_or(usize::MAX) => {
                Err(JoinTokenRejection::UsedUp(max))
            }
            _ => Ok(()),
        }
    }
}

fn find<'a>(by_id: &'a BTreeMap<String, StoredJoinToken>, token: &str) -> Option<&'a StoredJoinToken> {
    let (id, secret) = token.split_once('.')?;
    by_id.get(id).filter(|stored| stored.hash == hash(secret))
}

/// Returns whether a name matches a pattern, in which `*` matches anything.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let (between, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let inner = name.strip_prefix(start).and_then(|name| name.strip_suffix(end));
    let Some(mut left) = inner else {
        return false;
    };
    // The first match of each part leaves the most for the others.
    between.split('*').all(|part| match left.find(part) {
        Some(at) => {
            left = &left[at + part.len()..];
            true
        }
        None => false,
    })
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

    fn grant() -> JoinGrant {
        JoinGrant {
            pool: "worker".to_owned(),
            labels: BTreeMap::from([("node-role.kubernetes.io/worker".to_owned(), String::new())]),
            ..JoinGrant::default()
        }
    }

    fn attempt<'a>(token: &'a str, node: &'a str, credential: &'a str) -> JoinAttempt<'a> {
        JoinAttempt {
            token,
            node,
            credential,
        }
    }

    #[test]
    fn a_token_is_valid_until_it_expires_or_is_revoked_and_its_secret_is_never_stored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("join-tokens.json");
        let (start, end) = (at("2026-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z"));
        let tokens = JoinTokenStore::open(&path).unwrap();
        let issued = tokens.issue(grant(), start, end).unwrap();
        let written = std::fs::read_to_string(&path).unwrap();
        let (_, secret) = issued.token.split_once('.').unwrap();
        assert!(!written.contains(secret), "{written}");

        let tokens = JoinTokenStore::open(&path).unwrap();
        assert_eq!(tokens.authenticate(&issued.token, start), Ok(grant()));
        assert_eq!(
            tokens.authenticate(&issued.token, end),
            Err(JoinTokenRejection::Expired(end))
        );
        for wrong in ["", "x", "x.y", &format!("{}.guess", issued.id), secret] {
            assert_eq!(
                tokens.authenticate(wrong, start),
                Err(JoinTokenRejection::Unknown),
                "{wrong}"
            );
        }

        assert!(tokens.revoke(&issued.id).unwrap());
        assert!(!tokens.revoke(&issued.id).unwrap());
        assert_eq!(
            tokens.authenticate(&issued.token, start),
            Err(JoinTokenRejection::Unknown)
        );

        tokens.issue(grant(), start, end).unwrap();
        tokens
            .issue(grant(), at("2026-02-01T00:00:00Z"), at("2026-02-02T00:00:00Z"))
            .unwrap();
        assert_eq!(tokens.list().len(), 1, "long expired tokens are pruned");
    }

    #[test]
    fn a_stolen_token_admitted_any_number_of_machines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("join-tokens.json");
        let (start, end) = (at("2026-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z"));
        let tokens = JoinTokenStore::open(&path).unwrap();
        let limited = JoinGrant {
            max_uses: Some(2),
            ..grant()
        };
        let token = tokens.issue(limited, start, end).unwrap().token;
        let reserve = |tokens: &JoinTokenStore, node: &str, credential: &str| {
            tokens.reserve(attempt(&token, node, credential)).unwrap()
        };
        let used_up = Err(JoinTokenRejection::UsedUp(2));
        assert_eq!(reserve(&tokens, "a", "1"), Ok(()));
        assert_eq!(reserve(&tokens, "b", "2"), Ok(()));
        assert_eq!(reserve(&tokens, "c", "3"), used_up, "two joins have begun");

        // A restart between the reservation and the end of a join.
        let tokens = JoinTokenStore::open(&path).unwrap();
        assert_eq!(reserve(&tokens, "a", "1"), Ok(()), "the same machine retries");
        tokens.complete(attempt(&token, "a", "1")).unwrap();
        assert_eq!(
            reserve(&tokens, "a", "1"),
            used_up,
            "a new join after its Node was deleted"
        );
        tokens.release(attempt(&token, "b", "2")).unwrap();
        assert_eq!(reserve(&tokens, "c", "3"), Ok(()));
        tokens.complete(attempt(&token, "c", "3")).unwrap();
        assert_eq!(reserve(&tokens, "d", "4"), used_up);
        assert_eq!(tokens.list()[0].uses, 2);
    }

    #[test]
    fn a_worker_token_took_the_name_of_a_control_plane_node() {
        let directory = tempfile::tempdir().unwrap();
        let tokens = JoinTokenStore::open(&directory.path().join("join-tokens.json")).unwrap();
        let (start, end) = (at("2026-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z"));
        let limited = JoinGrant {
            node_names: Some("lab-*".to_owned()),
            ..grant()
        };
        let token = tokens.issue(limited, start, end).unwrap().token;
        assert_eq!(tokens.reserve(attempt(&token, "lab-7", "1")).unwrap(), Ok(()));
        let rejection = tokens.reserve(attempt(&token, "master-1", "2")).unwrap();
        assert!(matches!(rejection, Err(JoinTokenRejection::NodeName { .. })));
    }

    #[test]
    fn a_star_in_a_pattern_matches_anything() {
        for (pattern, name, expected) in [
            ("lab-1", "lab-1", true),
            ("lab-1", "lab-10", false),
            ("*", "anything", true),
            ("lab-*", "lab-", true),
            ("lab-*", "xlab-1", false),
            ("*-1", "lab-1", true),
            ("lab-*-gpu", "lab-1-gpu", true),
            ("lab-*-gpu", "lab-gpu", false),
            ("a*b*c*d", "a-b-b-c-d", true),
            ("a*b*c*d", "a-c-b-d", false),
            ("ab*ba", "aba", false),
        ] {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
        }
    }
}
