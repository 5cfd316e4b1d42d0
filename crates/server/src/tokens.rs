//! Bearer tokens: who may fetch a pool's configuration.
//!
//! Only hashes are kept. A token belongs to one pool, expires, and is revoked by removing its record. The tokens are
//! 256 random bits, so a plain hash is enough: there is nothing to guess that a slower one would protect.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, io};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// More failures than this from one address within [`WINDOW`] are no mistake.
const FAILURES_ALLOWED: u32 = 10;
const WINDOW: Duration = Duration::from_mins(1);
/// Addresses remembered at once; beyond it the oldest are forgotten, so an attacker cannot fill the memory.
const ADDRESSES: usize = 4096;

/// The records of all tokens, as stored in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    pub tokens: Vec<Record>,
}

/// What is known about one token. The token itself is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The only pool whose configuration it opens.
    pub pool: String,
    /// SHA-256 of the token, in hexadecimal.
    pub sha256: String,
    /// When it stops working, as RFC 3339.
    pub expires: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    Missing,
    Unknown,
    OtherPool,
    Expired,
}

#[derive(Debug, Error)]
pub enum TokensError {
    #[error("cannot read token file {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("token file {path} is not valid: {message}", path = path.display())]
    Invalid { path: PathBuf, message: String },
    #[error("cannot write token file {path}: {source}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("no randomness available: {0}")]
    Random(String),
}

/// A new token. It is shown once and never stored.
pub fn generate() -> Result<String, TokensError> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| TokensError::Random(error.to_string()))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

impl Record {
    pub fn new(pool: &str, token: &str, expires: Timestamp) -> Self {
        Self {
            pool: pool.to_owned(),
            sha256: hash(token),
            expires: expires.to_string(),
        }
    }
}

impl Tokens {
    /// Reads and checks a token file.
    pub fn read(path: &Path) -> Result<Self, TokensError> {
        let text = fs::read(path).map_err(|source| TokensError::Read {
            path: path.to_owned(),
            source,
        })?;
        let invalid = |message: String| TokensError::Invalid {
            path: path.to_owned(),
            message,
        };
        let tokens: Self = serde_json::from_slice(&text).map_err(|error| invalid(error.to_string()))?;
        for (index, record) in tokens.tokens.iter().enumerate() {
            let is_hash =
                record.sha256.len() == 64 && record.sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
            if !is_hash {
                return Err(invalid(format!(
                    "tokens[{index}].sha256 is not 64 hexadecimal digits"
                )));
            }
            if let Err(error) = record.expires.parse::<Timestamp>() {
                return Err(invalid(format!("tokens[{index}].expires: {error}")));
            }
        }
        Ok(tokens)
    }

    /// Adds a record to a file, dropping those that have expired. The file is replaced in one step and readable by its
    /// owner only.
    pub fn add_to(path: &Path, record: Record, now: Timestamp) -> Result<(), TokensError> {
        let mut tokens = if path.exists() {
            Self::read(path)?
        } else {
            Self::default()
        };
        tokens.tokens.retain(|record| !record.is_expired(now));
        tokens.tokens.push(record);
        let write = || -> io::Result<()> {
            let text = serde_json::to_string_pretty(&tokens)?;
            let temporary = path.with_extension("new");
            write_private(&temporary, format!("{text}\n").as_bytes())?;
            fs::rename(&temporary, path)
        };
        write().map_err(|source| TokensError::Write {
            path: path.to_owned(),
            source,
        })
    }

    /// Whether an `Authorization` header opens `pool`.
    pub fn check(&self, authorization: Option<&str>, pool: &str, now: Timestamp) -> Result<(), Denied> {
        let token = authorization
            .and_then(|header| header.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim())
            .filter(|token| !token.is_empty())
            .ok_or(Denied::Missing)?;
        let hash = hash(token);
        let mut found = self
            .tokens
            .iter()
            .filter(|record| record.sha256.eq_ignore_ascii_case(&hash))
            .peekable();
        if found.peek().is_none() {
            return Err(Denied::Unknown);
        }
        let mut denied = Denied::OtherPool;
        for record in found.filter(|record| record.pool == pool) {
            if !record.is_expired(now) {
                return Ok(());
            }
            denied = Denied::Expired;
        }
        Err(denied)
    }
}

impl Record {
    fn is_expired(&self, now: Timestamp) -> bool {
        self.expires
            .parse::<Timestamp>()
            .map_or(true, |expires| expires <= now)
    }
}

fn write_private(path: &Path, text: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

fn hash(token: &str) -> String {
    mco_core::config::hex::encode(&Sha256::digest(token.as_bytes()))
}

/// Counts failed attempts per address, so that nobody can try tokens without end.
#[derive(Debug, Default)]
pub struct Failures {
    addresses: Mutex<HashMap<IpAddr, (Instant, u32)>>,
}

impl Failures {
    /// Whether this address has failed too often lately.
    pub fn is_blocked(&self, address: IpAddr, now: Instant) -> bool {
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        addresses
            .get(&network(address))
            .is_some_and(|(since, count)| now.duration_since(*since) < WINDOW && *count >= FAILURES_ALLOWED)
    }

    pub fn record(&self, address: IpAddr, now: Instant) {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let address = network(address);
        if addresses.len() >= ADDRESSES && !addresses.contains_key(&address) {
            forget_oldest(&mut addresses, now);
        }
        let entry = addresses.entry(address).or_insert((now, 0));
        if now.duration_since(entry.0) >= WINDOW {
            *entry = (now, 0);
        }
        entry.1 = entry.1.saturating_add(1);
    }
}

/// Makes room for as many again, so that this work is rare however many addresses fail.
fn forget_oldest(addresses: &mut HashMap<IpAddr, (Instant, u32)>, now: Instant) {
    addresses.retain(|_, (since, _)| now.duration_since(*since) < WINDOW);
    if addresses.len() > ADDRESSES / 2 {
        let mut by_age: Vec<_> = addresses.drain().collect();
        by_age.sort_unstable_by_key(|(_, (since, _))| std::cmp::Reverse(*since));
        by_age.truncate(ADDRESSES / 2);
        addresses.extend(by_age);
    }
}

/// Whoever has one IPv6 address has the whole /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_token_opens_its_own_pool_until_it_expires() {
        let expires = at("2026-01-02T00:00:00Z");
        let tokens = Tokens {
            tokens: vec![Record::new("worker", "secret", expires)],
        };
        let before = at("2026-01-01T00:00:00Z");
        for (name, header, pool, now, expected) in [
            ("the right one", Some("Bearer secret"), "worker", before, Ok(())),
            (
                "another case of the scheme",
                Some("bearer secret"),
                "worker",
                before,
                Ok(()),
            ),
            ("no header", None, "worker", before, Err(Denied::Missing)),
            (
                "another scheme",
                Some("Basic secret"),
                "worker",
                before,
                Err(Denied::Missing),
            ),
            (
                "an empty token",
                Some("Bearer "),
                "worker",
                before,
                Err(Denied::Missing),
            ),
            (
                "a wrong token",
                Some("Bearer guess"),
                "worker",
                before,
                Err(Denied::Unknown),
            ),
            (
                "another pool",
                Some("Bearer secret"),
                "master",
                before,
                Err(Denied::OtherPool),
            ),
            (
                "too late",
                Some("Bearer secret"),
                "worker",
                expires,
                Err(Denied::Expired),
            ),
        ] {
            assert_eq!(tokens.check(header, pool, now), expected, "{name}");
        }
        assert_eq!(
            Tokens::default().check(Some("Bearer secret"), "worker", before),
            Err(Denied::Unknown),
            "revoked"
        );
    }

    #[test]
    fn the_file_holds_hashes_only_and_forgets_what_expired() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.json");
        let token = generate().unwrap();
        let now = at("2026-01-01T00:00:00Z");
        Tokens::add_to(&path, Record::new("old", "x", at("2025-01-01T00:00:00Z")), now).unwrap();
        Tokens::add_to(
            &path,
            Record::new("worker", &token, at("2026-01-02T00:00:00Z")),
            now,
        )
        .unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&token) && !text.contains("old"), "{text}");
        let tokens = Tokens::read(&path).unwrap();
        assert_eq!(
            tokens.check(Some(&format!("Bearer {token}")), "worker", now),
            Ok(())
        );

        fs::write(
            &path,
            r#"{"tokens": [{"pool": "a", "sha256": "short", "expires": "x"}]}"#,
        )
        .unwrap();
        let error = Tokens::read(&path).unwrap_err().to_string();
        assert!(error.contains("tokens[0].sha256"), "{error}");
    }

    #[test]
    fn an_address_that_keeps_failing_is_blocked_for_a_while() {
        let failures = Failures::default();
        let (attacker, other): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let start = Instant::now();
        for _ in 0..FAILURES_ALLOWED {
            assert!(!failures.is_blocked(attacker, start));
            failures.record(attacker, start);
        }
        assert!(failures.is_blocked(attacker, start));
        assert!(!failures.is_blocked(other, start));
        assert!(!failures.is_blocked(attacker, start + WINDOW));
        for host in 0..u32::try_from(2 * ADDRESSES).unwrap() {
            failures.record(IpAddr::V4(host.into()), start);
        }
        assert!(failures.addresses.lock().unwrap().len() <= ADDRESSES);
    }
}
