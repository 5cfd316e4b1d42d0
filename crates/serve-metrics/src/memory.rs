//! What the cluster said about tokens lately: a bounded number of answers, each for a bounded time, by the hash of the token
//! and never by the token itself. Asks nobody; the time comes in.

use std::collections::HashMap;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

/// Whoever loses the right sees metrics for so much longer. Every process is asked by every scraper, and one cluster answers
/// for all of them.
const ALLOWED_FOR: Duration = Duration::from_mins(5);
/// Somebody who has just got the right should not have to wait for long.
const REFUSED_FOR: Duration = Duration::from_secs(30);
/// There are few scrapers, each with one token at a time.
const MOST: usize = 64;

/// What the cluster says about the bearer of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allowed,
    /// Known, but not allowed.
    Forbidden,
    Unknown,
}

/// What is remembered instead of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    known: HashMap<Fingerprint, Remembered>,
}

#[derive(Debug)]
struct Remembered {
    verdict: Verdict,
    until: Instant,
}

impl Memory {
    pub fn recall(&self, token: Fingerprint, now: Instant) -> Option<Verdict> {
        let found = self.known.get(&token).filter(|found| now < found.until);
        found.map(|found| found.verdict)
    }

    pub fn keep(&mut self, token: Fingerprint, verdict: Verdict, now: Instant) {
        self.known.retain(|_, remembered| now < remembered.until);
        if self.known.len() >= MOST && !self.known.contains_key(&token) {
            self.forget_one();
        }
        let lasts = match verdict {
            Verdict::Allowed => ALLOWED_FOR,
            Verdict::Forbidden | Verdict::Unknown => REFUSED_FOR,
        };
        let until = now + lasts;
        self.known.insert(token, Remembered { verdict, until });
    }

    /// There is no end of tokens that belong to nobody, so they give way before those of the scrapers do.
    fn forget_one(&mut self) {
        let first_to_go = self
            .known
            .iter()
            .min_by_key(|(_, one)| (one.verdict == Verdict::Allowed, one.until))
            .map(|(token, _)| *token);
        if let Some(token) = first_to_go {
            self.known.remove(&token);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn answers_are_remembered_for_a_while() {
        let start = Instant::now();
        for (verdict, lasts) in [
            (Verdict::Allowed, ALLOWED_FOR),
            (Verdict::Forbidden, REFUSED_FOR),
            (Verdict::Unknown, REFUSED_FOR),
        ] {
            let mut memory = Memory::default();
            let token = Fingerprint::of("a");
            assert_eq!(memory.recall(token, start), None);
            memory.keep(token, verdict, start);
            let last = start + lasts - Duration::from_nanos(1);
            assert_eq!(memory.recall(token, last), Some(verdict));
            assert_eq!(memory.recall(token, start + lasts), None, "{verdict:?}");
            assert_eq!(
                memory.recall(Fingerprint::of("b"), start),
                None,
                "another's token"
            );
        }
    }

    #[test]
    fn a_flood_of_strangers_makes_nobody_forgotten_who_may() {
        let start = Instant::now();
        let mut memory = Memory::default();
        let scraper = Fingerprint::of("scraper");
        memory.keep(scraper, Verdict::Allowed, start);
        for number in 0..10 * MOST {
            memory.keep(Fingerprint::of(&number.to_string()), Verdict::Unknown, start);
        }
        assert_eq!(memory.recall(scraper, start), Some(Verdict::Allowed));
        assert_eq!(memory.known.len(), MOST);
    }

    proptest! {
        #[test]
        fn the_number_is_bounded_and_the_last_answer_counts(
            answers in prop::collection::vec((0..200_u32, 0..3_u8, 0..60_u64), 1..400)
        ) {
            let mut memory = Memory::default();
            let mut now = Instant::now();
            for (token, verdict, pause) in answers {
                now += Duration::from_secs(pause);
                let verdict = [Verdict::Allowed, Verdict::Forbidden, Verdict::Unknown][usize::from(verdict)];
                let token = Fingerprint::of(&token.to_string());
                memory.keep(token, verdict, now);
                prop_assert_eq!(memory.recall(token, now), Some(verdict));
                prop_assert!(memory.known.len() <= MOST);
            }
        }
    }
}
