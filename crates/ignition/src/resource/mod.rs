//! Decodes and verifies contents embedded in a config: data URLs and compression. Nothing is fetched here.

mod base64;
pub(crate) mod data_url;
mod verify;

use std::io::{self, Read as _};

use flate2::read::MultiGzDecoder;
use thiserror::Error;

pub(crate) use base64::decode as decode_base64;
pub use verify::verify;

/// Why contents could not be decoded. The contents are not included.
#[derive(Debug, Error)]
pub enum DecodeError {
    /// The source is not a data URL that can be decoded here.
    #[error("{0}")]
    Source(String),
    /// The compression is not supported by Ignition.
    #[error("unsupported compression type {0:?}")]
    Compression(String),
    /// The contents are not valid in their compression.
    #[error("contents are not valid gzip: {0}")]
    Gzip(#[source] io::Error),
    /// The contents exceed the caller's limit.
    #[error("contents exceed {limit} bytes")]
    TooLarge { limit: usize },
    /// The contents do not have the hash in `verification`.
    #[error("the {function} hash of the contents is {found}, not {expected}")]
    HashMismatch {
        function: &'static str,
        expected: String,
        found: String,
    },
    /// The hash in `verification` is not one that Ignition supports.
    #[error("the hash {0:?} is not of the form sha512-<sum> or sha256-<sum>")]
    Hash(String),
}

/// Decodes contents, up to `limit` bytes.
///
/// Without a source the contents are empty, regardless of the compression.
pub fn decode(source: Option<&str>, compression: Option<&str>, limit: usize) -> Result<Vec<u8>, DecodeError> {
    let Some(source) = source else {
        return Ok(Vec::new());
    };
    let contents = data_url::decode(source).map_err(|error| DecodeError::Source(error.to_string()))?;
    match compression.unwrap_or_default() {
        "" if contents.len() > limit => Err(DecodeError::TooLarge { limit }),
        "" => Ok(contents),
        "gzip" => decompress(&contents, limit),
        other => Err(DecodeError::Compression(other.to_owned())),
    }
}

/// Encodes contents as a data URL in which only unreserved characters stay literal.
pub fn encode(contents: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut url = String::with_capacity("data:,".len() + contents.len());
    url.push_str("data:,");
    for &byte in contents {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url.push('%');
            url.push(char::from(HEX[usize::from(byte >> 4)]));
            url.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    url
}

/// Expands gzip, stopping as soon as the result exceeds `limit` bytes.
pub(crate) fn decompress(compressed: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
    let mut contents = Vec::new();
    let one_too_many = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    MultiGzDecoder::new(compressed)
        .take(one_too_many)
        .read_to_end(&mut contents)
        .map_err(DecodeError::Gzip)?;
    if contents.len() > limit {
        Err(DecodeError::TooLarge { limit })
    } else {
        Ok(contents)
    }
}
