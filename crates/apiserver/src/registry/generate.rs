//! Generated names and UIDs.

use crate::error::ApiError;

/// Unambiguous letters that cannot form words, as in Kubernetes.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;
/// A generated name must leave room for suffixes of controllers.
const LONGEST_BASE: usize = 63 - SUFFIX;

/// Returns a name for `generateName`.
pub(super) fn name(base: &str) -> Result<String, ApiError> {
    let kept: String = base.chars().take(LONGEST_BASE).collect();
    let mut random = [0_u8; SUFFIX];
    fill(&mut random)?;
    let suffix = random
        .iter()
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]));
    Ok(kept.chars().chain(suffix).collect())
}

/// Returns a random (version 4) UUID.
pub fn uid() -> Result<String, ApiError> {
    let mut bytes = [0_u8; 16];
    fill(&mut bytes)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!(
        "{}-{}-{}-{}-{}",
        hex[0..4].concat(),
        hex[4..6].concat(),
        hex[6..8].concat(),
        hex[8..10].concat(),
        hex[10..].concat()
    ))
}

fn fill(bytes: &mut [u8]) -> Result<(), ApiError> {
    getrandom::fill(bytes).map_err(|error| ApiError::internal(format!("no random numbers: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_keep_their_base_and_their_length() {
        let short = name("pool-").unwrap();
        assert!(short.starts_with("pool-") && short.len() == 10, "{short}");
        assert_eq!(name(&"x".repeat(100)).unwrap().len(), 63);
    }

    #[test]
    fn uids_are_random_uuids() {
        let uid = uid().unwrap();
        assert_eq!(uid.len(), 36);
        assert_eq!(uid.as_bytes()[14], b'4');
    }
}
