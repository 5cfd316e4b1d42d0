//! Bearer tokens for the configuration of a pool.
//!
//! The file holds hashes only. A token belongs to one pool, expires, and is revoked by removing its record.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use mco_http::tokens::{TokenFileError, TokenHash, read_file, write_file};
use serde::{Deserialize, Serialize};

pub use mco_http::tokens::generate;

/// More failures than this from one address within [`WINDOW`] are no mistake.
const FAILURES_ALLOWED: u32 = 10;
const WINDOW: Duration = Duration::from_mins(1);
/// Addresses tracked at once. Beyond it the oldest are evicted, so that an attacker cannot exhaust the memory.
const ADDRESSES: usize = 4096;

/// The records of a token file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolTokens {
    pub tokens: Vec<TokenRecord>,
}

/// One token, by its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    /// The only pool whose configuration it grants.
    pub pool: String,
    /// The SHA-256 of the token, in hexadecimal.
    pub sha256: String,
    /// When it expires, in RFC 3339.
    pub expires: String,
}

/// Why a token is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenDenial {
    Missing,
    Unknown,
    OtherPool,
    Expired,
}

impl TokenRecord {
    pub fn new(pool: &str, token: &str, expires: Timestamp) -> Self {
        Self {
            pool: pool.to_owned(),
            sha256: TokenHash::of(token).to_hex(),
            expires: expires.to_string(),
        }
    }
}

impl PoolTokens {
    /// Reads and validates a token file.
    pub fn read(path: &Path) -> Result<Self, TokenFileError> {
        let tokens: Option<Self> = read_file(path)?;
        let tokens = tokens.ok_or_else(|| TokenFileError::Read {
            path: path.to_owned(),
            source: std::io::ErrorKind::NotFound.into(),
        })?;
        let invalid = |message: String| TokenFileError::Invalid {
            path: path.to_owned(),
            message,
        };
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

    /// Adds a record to a file and drops the expired ones.
    pub fn add_to(path: &Path, record: TokenRecord, now: Timestamp) -> Result<(), TokenFileError> {
        let mut tokens = if path.exists() {
            Self::read(path)?
        } else {
            Self::default()
        };
        tokens.tokens.retain(|record| !record.is_expired(now));
        tokens.tokens.push(record);
        write_file(path, &tokens)
    }

    /// Checks the bearer token of a request for a pool.
    pub fn check(&self, token: Option<&str>, pool: &str, now: Timestamp) -> Result<(), TokenDenial> {
        let token = token.ok_or(TokenDenial::Missing)?;
        let hash = TokenHash::of(token).to_hex();
        let mut found = self
            .tokens
            .iter()
            .filter(|record| record.sha256.eq_ignore_ascii_case(&hash))
            .peekable();
        if found.peek().is_none() {
            return Err(TokenDenial::Unknown);
        }
        let mut denied = TokenDenial::OtherPool;
        for record in found.filter(|record| record.pool == pool) {
            if !record.is_expired(now) {
                return Ok(());
            }
            denied = TokenDenial::Expired;
        }
        Err(denied)
    }
}

impl TokenRecord {
    fn is_expired(&self, now: Timestamp) -> bool {
        self.expires
            .parse::<Timestamp>()
            .map_or(true, |expires| expires <= now)
    }
}

/// Limits failed attempts per address, so that tokens cannot be guessed by trying.
#[derive(Debug, Default)]
pub struct FailureLimiter {
    addresses: Mutex<HashMap<IpAddr, (Instant, u32)>>,
}

impl FailureLimiter {
    /// Whether this address has failed too often within the window.
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
            evict_oldest(&mut addresses, now);
        }
        let entry = addresses.entry(address).or_insert((now, 0));
        if now.duration_since(entry.0) >= WINDOW {
            *entry = (now, 0);
        }
        entry.1 = entry.1.saturating_add(1);
    }
}

/// Evicts half of the addresses, so that evictions are rare even if many addresses fail.
fn evict_oldest(addresses: &mut HashMap<IpAddr, (Instant, u32)>, now: Instant) {
    addresses.retain(|_, (since, _)| now.duration_since(*since) < WINDOW);
    if addresses.len() > ADDRESSES / 2 {
        let mut by_age: Vec<_> = addresses.drain().collect();
        by_age.sort_unstable_by_key(|(_, (since, _))| std::cmp::Reverse(*since));
        by_age.truncate(ADDRESSES / 2);
        addresses.extend(by_age);
    }
}

/// Returns the network that one client controls: the address in IPv4, the /64 in IPv6.
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
    fn a_token_grants_its_own_pool_until_it_expires() {
        let expires = at("2026-01-02T00:00:00Z");
        let tokens = PoolTokens {
            tokens: vec![TokenRecord::new("worker", "secret", expires)],
        };
        let before = at("2026-01-01T00:00:00Z");
        for (name, token, pool, now, expected) in [
            ("the right one", Some("secret"), "worker", before, Ok(())),
            ("no token", None, "worker", before, Err(TokenDenial::Missing)),
            (
                "a wrong token",
                Some("guess"),
                "worker",
                before,
                Err(TokenDenial::Unknown),
            ),
            (
                "another pool",
                Some("secret"),
                "master",
                before,
                Err(TokenDenial::OtherPool),
            ),
            (
                "too late",
                Some("secret"),
                "worker",
                expires,
                Err(TokenDenial::Expired),
            ),
        ] {
            assert_eq!(tokens.check(token, pool, now), expected, "{name}");
        }
        assert_eq!(
            PoolTokens::default().check(Some("secret"), "worker", before),
            Err(TokenDenial::Unknown),
            "revoked"
        );
    }

    #[test]
    fn the_file_holds_hashes_only_and_no_expired_records() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.json");
        let token = generate().unwrap();
        let now = at("2026-01-01T00:00:00Z");
        PoolTokens::add_to(
            &path,
            TokenRecord::new("old", "x", at("2025-01-01T00:00:00Z")),
            now,
        )
        .unwrap();
        PoolTokens::add_to(
            &path,
            TokenRecord::new("worker", &token, at("2026-01-02T00:00:00Z")),
            now,
        )
        .unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&token) && !text.contains("old"), "{text}");
        let tokens = PoolTokens::read(&path).unwrap();
        assert_eq!(tokens.check(Some(&token), "worker", now), Ok(()));

        std::fs::write(
            &path,
            r#"{"tokens": [{"pool": "a", "sha256": "short", "expires": "x"}]}"#,
        )
        .unwrap();
        let error = PoolTokens::read(&path).unwrap_err().to_string();
        assert!(error.contains("tokens[0].sha256"), "{error}");
    }

    #[test]
    fn an_address_that_keeps_failing_is_blocked_for_a_while() {
        let failures = FailureLimiter::default();
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
