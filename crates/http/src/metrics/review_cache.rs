//! Recent token reviews: a bounded number, each for a bounded time, by the hash of the token.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::tokens::TokenHash;

/// How long a revoked right may still work. Every process is scraped by every scraper, and one API server reviews for
/// all of them.
const ALLOWED_TTL: Duration = Duration::from_mins(5);
/// Short, so that a new right works soon.
const DENIED_TTL: Duration = Duration::from_secs(30);
/// There are few scrapers, each with one token at a time.
const MAX_ENTRIES: usize = 64;

/// The outcome of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReviewVerdict {
    Allowed,
    /// Authenticated but not authorized.
    Forbidden,
    Unauthenticated,
}

#[derive(Debug, Default)]
pub(super) struct ReviewCache {
    entries: HashMap<TokenHash, CachedReview>,
}

#[derive(Debug)]
struct CachedReview {
    verdict: ReviewVerdict,
    expires: Instant,
}

impl ReviewCache {
    pub fn get(&self, token: TokenHash, now: Instant) -> Option<ReviewVerdict> {
        let found = self.entries.get(&token).filter(|entry| now < entry.expires);
        found.map(|entry| entry.verdict)
    }

    pub fn insert(&mut self, token: TokenHash, verdict: ReviewVerdict, now: Instant) {
        self.entries.retain(|_, entry| now < entry.expires);
        if self.entries.len() >= MAX_ENTRIES && !self.entries.contains_key(&token) {
            self.evict_one();
        }
        let ttl = match verdict {
            ReviewVerdict::Allowed => ALLOWED_TTL,
            ReviewVerdict::Forbidden | ReviewVerdict::Unauthenticated => DENIED_TTL,
        };
        let expires = now + ttl;
        self.entries.insert(token, CachedReview { verdict, expires });
    }

    /// Denied tokens are evicted first: a client can invent any number of them, and must not displace the scrapers.
    fn evict_one(&mut self) {
        let first = self
            .entries
            .iter()
            .min_by_key(|(_, entry)| (entry.verdict == ReviewVerdict::Allowed, entry.expires))
            .map(|(token, _)| *token);
        if let Some(token) = first {
            self.entries.remove(&token);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn verdicts_expire() {
        let start = Instant::now();
        for (verdict, ttl) in [
            (ReviewVerdict::Allowed, ALLOWED_TTL),
            (ReviewVerdict::Forbidden, DENIED_TTL),
            (ReviewVerdict::Unauthenticated, DENIED_TTL),
        ] {
            let mut cache = ReviewCache::default();
            let token = TokenHash::of("a");
            assert_eq!(cache.get(token, start), None);
            cache.insert(token, verdict, start);
            let last = start + ttl - Duration::from_nanos(1);
            assert_eq!(cache.get(token, last), Some(verdict));
            assert_eq!(cache.get(token, start + ttl), None, "{verdict:?}");
            assert_eq!(cache.get(TokenHash::of("b"), start), None, "another token");
        }
    }

    #[test]
    fn a_flood_of_unknown_tokens_does_not_evict_an_allowed_one() {
        let start = Instant::now();
        let mut cache = ReviewCache::default();
        let scraper = TokenHash::of("scraper");
        cache.insert(scraper, ReviewVerdict::Allowed, start);
        for number in 0..10 * MAX_ENTRIES {
            cache.insert(
                TokenHash::of(&number.to_string()),
                ReviewVerdict::Unauthenticated,
                start,
            );
        }
        assert_eq!(cache.get(scraper, start), Some(ReviewVerdict::Allowed));
        assert_eq!(cache.entries.len(), MAX_ENTRIES);
    }

    proptest! {
        #[test]
        fn the_number_is_bounded_and_the_last_verdict_counts(
            answers in prop::collection::vec((0..200_u32, 0..3_u8, 0..60_u64), 1..400)
        ) {
            let mut cache = ReviewCache::default();
            let mut now = Instant::now();
            for (token, verdict, pause) in answers {
                now += Duration::from_secs(pause);
                let verdict = [ReviewVerdict::Allowed, ReviewVerdict::Forbidden, ReviewVerdict::Unauthenticated][usize::from(verdict)];
                let token = TokenHash::of(&token.to_string());
                cache.insert(token, verdict, now);
                prop_assert_eq!(cache.get(token, now), Some(verdict));
                prop_assert!(cache.entries.len() <= MAX_ENTRIES);
            }
        }
    }
}
