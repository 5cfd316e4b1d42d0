//! Tokens for the configuration of a pool: the records of a token file.
//!
//! Records hold hashes only. A token belongs to one pool, expires, and is revoked by removing its record.

use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::tokens::{TokenFileError, TokenHash, read_file, write_file};

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
        tokens.validated().map_err(|message| TokenFileError::Invalid {
            path: path.to_owned(),
            message,
        })
    }

    /// Parses and validates the contents of a token file.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let tokens: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        tokens.validated()
    }

    fn validated(self) -> Result<Self, String> {
        for (index, record) in self.tokens.iter().enumerate() {
            let is_hash =
                record.sha256.len() == 64 && record.sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
            if !is_hash {
                return Err(format!("tokens[{index}].sha256 is not 64 hexadecimal digits"));
            }
            if let Err(error) = record.expires.parse::<Timestamp>() {
                return Err(format!("tokens[{index}].expires: {error}"));
            }
        }
        Ok(self)
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
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires
            .parse::<Timestamp>()
            .map_or(true, |expires| expires <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::generate;

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
}
