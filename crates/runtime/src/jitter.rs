//! Randomness for delays, so that components that failed together do not retry together.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// Returns a random number below 1,000. Each `RandomState` has keys of its own; delays need no better source.
pub(crate) fn random_per_mille() -> u32 {
    let random = RandomState::new().build_hasher().finish() % 1_000;
    u32::try_from(random).unwrap_or_default()
}
