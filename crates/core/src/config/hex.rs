//! Hexadecimal encoding of hashes.

use std::fmt::Write as _;

/// Encodes bytes as lower-case hexadecimal digits.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(super::encode(&[0, 0x0f, 0xff]), "000fff");
    }
}
