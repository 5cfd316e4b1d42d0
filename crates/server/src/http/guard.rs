//! Who may have a configuration: the tokens of a file that may change while we serve.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;
use tracing::{error, warn};

use super::answer::Refusal;
use crate::metrics::Metrics;
use crate::tokens::{Denied, Failures, Tokens, TokensError};

/// How often a token file is looked at: how long a revoked token may still work.
const TOKENS_INTERVAL: Duration = Duration::from_secs(2);

/// The tokens that are asked for.
#[derive(Debug)]
pub struct TokenGuard {
    path: PathBuf,
    current: RwLock<(Tokens, Option<Stamp>)>,
    failures: Failures,
}

/// What changes whenever the file is replaced or written.
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
    /// Reads the tokens for the first time, which must succeed.
    pub fn load(path: &Path) -> Result<Self, TokensError> {
        let stamp = Stamp::of(path);
        Ok(Self {
            path: path.to_owned(),
            current: RwLock::new((Tokens::read(path)?, stamp)),
            failures: Failures::default(),
        })
    }

    /// Looks at the file for ever. A file that cannot be used is ignored and said once.
    pub async fn follow(&self) {
        let mut complaint = String::new();
        loop {
            tokio::time::sleep(TOKENS_INTERVAL).await;
            match self.refresh() {
                Ok(_) => complaint.clear(),
                Err(problem) => {
                    let problem = problem.to_string();
                    if problem != complaint {
                        error!("keeping the old tokens: {problem}");
                        complaint = problem;
                    }
                }
            }
        }
    }

    /// Reads the file again if it has changed, and says whether it has. A few kilobytes from a local file do not delay
    /// anybody.
    fn refresh(&self) -> Result<bool, TokensError> {
        // Before reading: a change in between is then seen the next time.
        let stamp = Stamp::of(&self.path);
        let known = self.current.read().unwrap_or_else(PoisonError::into_inner);
        if stamp.is_some() && known.1 == stamp {
            return Ok(false);
        }
        drop(known);
        let tokens = Tokens::read(&self.path)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = (tokens, stamp);
        Ok(true)
    }

    pub(super) fn check(
        &self,
        headers: &HeaderMap,
        pool: &str,
        client: IpAddr,
        metrics: &Metrics,
    ) -> Result<(), Refusal> {
        let now = Instant::now();
        if self.failures.is_blocked(client, now) {
            metrics.token_failures.inc();
            return Err(Refusal::TooManyFailures);
        }
        let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        self.opens(authorization, pool).map_err(|denied| {
            warn!(%client, pool, "token refused: {denied:?}");
            metrics.token_failures.inc();
            self.failures.record(client, now);
            Refusal::Token
        })
    }

    /// A refusal ends a machine's boot for good, so a token that was made a moment ago must be known by now.
    fn opens(&self, authorization: Option<&str>, pool: &str) -> Result<(), Denied> {
        let check = || {
            let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
            current.0.check(authorization, pool, Timestamp::now())
        };
        match check() {
            Err(denied) if denied != Denied::Missing && self.refresh().unwrap_or(false) => check(),
            outcome => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::Record;

    #[test]
    fn a_token_opens_its_pool_as_soon_as_it_is_in_the_file_and_no_longer_than_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.json");
        let expires = Timestamp::now() + Duration::from_mins(1);
        Tokens::add_to(&path, Record::new("worker", "first", expires), Timestamp::now()).unwrap();
        let guard = TokenGuard::load(&path).unwrap();
        let opens = |token: &str| guard.opens(Some(&format!("Bearer {token}")), "worker");

        assert_eq!(opens("first"), Ok(()));
        assert_eq!(opens("second"), Err(Denied::Unknown));
        Tokens::add_to(&path, Record::new("worker", "second", expires), Timestamp::now()).unwrap();
        assert_eq!(opens("second"), Ok(()));

        std::fs::write(&path, r#"{"tokens": []}"#).unwrap();
        assert!(guard.refresh().unwrap());
        assert_eq!(opens("first"), Err(Denied::Unknown));
        std::fs::write(&path, "no tokens at all").unwrap();
        assert_eq!(opens("first"), Err(Denied::Unknown));
        assert!(guard.refresh().is_err());
    }
}
