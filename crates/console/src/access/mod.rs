//! Who may look: logins become clients of the person who logged in, and sessions remember them.
//!
//! Neither codes nor tokens nor session ids are kept: their hashes are.

mod door;
mod sessions;

pub use door::{Door, Refused};
pub(crate) use sessions::{Session, Sessions};

use base64::Engine as _;
use sha2::{Digest as _, Sha256};

/// A secret as it is kept. Comparing two of them tells nothing about either secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Hashed([u8; 32]);

impl Hashed {
    pub fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }
}

impl std::fmt::Debug for Hashed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hashed(..)")
    }
}

/// 256 random bits: nobody guesses them.
pub(crate) fn secret() -> Result<String, getrandom::Error> {
    let mut random = [0_u8; 32];
    getrandom::fill(&mut random)?;
    Ok(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random))
}
