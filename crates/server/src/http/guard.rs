//! Access to configurations: the tokens of a file that may change while serving.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use http::HeaderMap;
use jiff::Timestamp;
use mco_http::bearer_token;
use mco_http::tokens::TokenFileError;
use tracing::{error, warn};

use super::answer::RequestRefusal;
use crate::metrics::ServerMetrics;
use crate::tokens::{FailureLimiter, PoolTokens, TokenDenial};

/// How often the token file is checked: how long a revoked token may still work.
const TOKENS_INTERVAL: Duration = Duration::from_secs(2);

/// Checks the tokens of requests.
#[derive(Debug)]
pub struct TokenGuard {
    path: PathBuf,
    current: RwLock<(PoolTokens, Option<Stamp>)>,
    failures: FailureLimiter,
}

/// The metadata that changes whenever the file is replaced or written.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self {
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

impl TokenGuard {
    /// Reads the token file, which must exist and be valid.
    pub fn load(path: &Path) -> Result<Self, TokenFileError> {
        let stamp = Stamp::of(path);
        Ok(Self {
            path: path.to_owned(),
            current: RwLock::new((PoolTokens::read(path)?, stamp)),
            failures: FailureLimiter::default(),
        })
    }

    /// Reloads the file when it changes, without end. An invalid file is logged once and ignored.
    pub async fn follow(&self) {
        let mut last_error = String::new();
        loop {
            tokio::time::sleep(TOKENS_INTERVAL).await;
            match self.refresh() {
                Ok(_) => last_error.clear(),
                Err(problem) => {
                    let problem = problem.to_string();
                    if problem != last_error {
                        error!("keeping the old tokens: {problem}");
                        last_error = problem;
                    }
                }
            }
        }
    }

    /// Reloads the file if it has changed and returns whether it had. Reading a few kilobytes from a local file does
    /// not delay requests noticeably.
    fn refresh(&self) -> Result<bool, TokenFileError> {
        // Before reading, so that a change in between is detected the next time.
        let stamp = Stamp::of(&self.path);
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        if stamp.is_some() && current.1 == stamp {
            return Ok(false);
        }
        drop(current);
        let tokens = PoolTokens::read(&self.path)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = (tokens, stamp);
        Ok(true)
    }

    pub(super) fn check(
        &self,
        headers: &HeaderMap,
        pool: &str,
        client: IpAddr,
        metrics: &ServerMetrics,
    ) -> Result<(), RequestRefusal> {
        // A valid token always passes: behind a load balancer all machines have one address.
        let Err(denial) = self.grants(bearer_token(headers), pool) else {
            return Ok(());
        };
        metrics.token_failures.inc();
        let now = Instant::now();
        if self.failures.is_blocked(client, now) {
            return Err(RequestRefusal::TooManyFailures);
        }
        warn!(%client, pool, "token rejected: {denial:?}");
        self.failures.record(client, now);
        Err(RequestRefusal::Token)
    }

    /// Rejecting a token fails the boot of a machine for good, so the file is reloaded first: the token may be new.
    fn grants(&self, token: Option<&str>, pool: &str) -> Result<(), TokenDenial> {
        let check = || {
            let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
            current.0.check(token, pool, Timestamp::now())
        };
        match check() {
            Err(denial) if denial != TokenDenial::Missing && self.refresh().unwrap_or(false) => check(),
            outcome => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::TokenRecord;

    #[test]
    fn a_token_is_valid_exactly_while_it_is_in_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.json");
        let expires = Timestamp::now() + Duration::from_mins(1);
        PoolTokens::add_to(
            &path,
            TokenRecord::new("worker", "first", expires),
            Timestamp::now(),
        )
        .unwrap();
        let guard = TokenGuard::load(&path).unwrap();
        let check = |token: &str| guard.grants(Some(token), "worker");

        assert_eq!(check("first"), Ok(()));
        assert_eq!(check("second"), Err(TokenDenial::Unknown));
        PoolTokens::add_to(
            &path,
            TokenRecord::new("worker", "second", expires),
            Timestamp::now(),
        )
        .unwrap();
        assert_eq!(check("second"), Ok(()));

        std::fs::write(&path, r#"{"tokens": []}"#).unwrap();
        assert!(guard.refresh().unwrap());
        assert_eq!(check("first"), Err(TokenDenial::Unknown));
        std::fs::write(&path, "no tokens").unwrap();
        assert_eq!(check("first"), Err(TokenDenial::Unknown));
        assert!(guard.refresh().is_err());
    }

    #[test]
    fn failed_attempts_of_others_kept_a_machine_with_a_valid_token_from_booting() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.json");
        let expires = Timestamp::now() + Duration::from_mins(1);
        PoolTokens::add_to(
            &path,
            TokenRecord::new("worker", "good", expires),
            Timestamp::now(),
        )
        .unwrap();
        let guard = TokenGuard::load(&path).unwrap();
        let metrics = ServerMetrics::default();
        let check = |token: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(
                http::header::AUTHORIZATION,
                format!("Bearer {token}").parse().unwrap(),
            );
            guard.check(&headers, "worker", IpAddr::from([192, 0, 2, 1]), &metrics)
        };
        for _ in 0..20 {
            assert!(check("guess").is_err());
        }
        assert!(matches!(check("guess"), Err(RequestRefusal::TooManyFailures)));
        assert!(check("good").is_ok());
    }
}
