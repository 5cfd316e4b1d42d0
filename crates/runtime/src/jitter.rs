//! Randomness for delays, so that components that failed together do not retry together, and for identities.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// Returns a random number. Each `RandomState` has keys of its own, which follow from random bits of the operating
/// system; nothing here needs a better source.
pub(crate) fn random_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns a random number below 1,000.
pub(crate) fn random_per_mille() -> u32 {
    u32::try_from(random_number() % 1_000).unwrap_or_default()
}
