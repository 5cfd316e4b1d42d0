//! Verification of embedded contents against the hash in a config.

use std::fmt::Write as _;
use std::io::Read;

use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256, Sha512};

use super::{DecodeError, data_url};
use crate::model::Resource;

const CHUNK: usize = 64 << 10;

/// Verifies embedded contents against `verification.hash`, if that is set. As Ignition does, the hash is that of the
/// decompressed contents.
///
/// The contents are hashed in chunks, so that compressed contents need no more memory than their source. Remote sources
/// are not fetched and not verified.
pub fn verify(resource: &Resource, limit: usize) -> Result<(), DecodeError> {
    let Some(hash) = resource
        .verification
        .hash
        .as_deref()
        .filter(|hash| !hash.is_empty())
    else {
        return Ok(());
    };
    let source = resource.source.as_deref().unwrap_or("data:,");
    if !source.is_empty() && !source.starts_with("data:") {
        return Ok(());
    }
    let contents = match source {
        "" => Vec::new(),
        source => data_url::decode(source).map_err(|error| DecodeError::Source(error.to_string()))?,
    };
    match resource.compression.as_deref().unwrap_or_default() {
        "" => compare(hash, contents.as_slice(), limit),
        "gzip" => compare(hash, MultiGzDecoder::new(contents.as_slice()), limit),
        other => Err(DecodeError::Compression(other.to_owned())),
    }
}

fn compare(hash: &str, contents: impl Read, limit: usize) -> Result<(), DecodeError> {
    let (function, expected, found) = match hash.split_once('-') {
        Some(("sha512", sum)) => ("sha512", sum, digest::<Sha512>(contents, limit)?),
        Some(("sha256", sum)) => ("sha256", sum, digest::<Sha256>(contents, limit)?),
        _ => return Err(DecodeError::Hash(hash.to_owned())),
    };
    if found.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    Err(DecodeError::HashMismatch {
        function,
        expected: expected.to_owned(),
        found,
    })
}

fn digest<D: Digest>(mut contents: impl Read, limit: usize) -> Result<String, DecodeError> {
    let mut digest = D::new();
    let mut buffer = vec![0_u8; CHUNK];
    let mut total = 0_usize;
    loop {
        let read = contents.read(&mut buffer).map_err(DecodeError::Gzip)?;
        if read == 0 {
            break;
        }
        total += read;
        if total > limit {
            return Err(DecodeError::TooLarge { limit });
        }
        digest.update(buffer.get(..read).unwrap_or_default());
    }
    let hex = digest.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    Ok(hex)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::model::Verification;

    /// The SHA-256 of "hello".
    const HELLO: &str = "sha256-2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    fn resource(source: &str, compression: Option<&str>, hash: &str) -> Resource {
        Resource {
            source: Some(source.to_owned()),
            compression: compression.map(str::to_owned),
            verification: Verification {
                hash: Some(hash.to_owned()),
            },
            ..Resource::default()
        }
    }

    fn gzip(contents: &[u8]) -> String {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(contents).unwrap();
        super::super::encode(&encoder.finish().unwrap())
    }

    #[test]
    fn contents_with_their_hash_are_accepted() {
        let sha512 = format!("sha512-{}", digest::<Sha512>(b"hello".as_slice(), 100).unwrap());
        for case in [
            resource("data:,hello", None, HELLO),
            resource(
                "data:;base64,aGVsbG8=",
                None,
                &HELLO.to_uppercase().replace("SHA", "sha"),
            ),
            resource("data:,hello", None, &sha512),
            resource("https://example.com/remote", None, HELLO),
        ] {
            verify(&case, 100).unwrap();
        }
        verify(&Resource::default(), 100).unwrap();
    }

    #[test]
    fn contents_with_another_hash_are_refused() {
        let error = verify(&resource("data:,jello", None, HELLO), 100).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("the sha256 hash of the contents is "),
            "{error}"
        );
        assert!(
            error.to_string().ends_with(&format!(", not {}", &HELLO[7..])),
            "{error}"
        );
        assert!(verify(&resource("data:,hello", None, "md5-1"), 100).is_err());
    }

    #[test]
    fn the_hash_of_compressed_contents_is_that_of_the_decompressed_ones() {
        let source = gzip(b"hello");
        verify(&resource(&source, Some("gzip"), HELLO), 100).unwrap();
        // The hash of the compressed bytes is not accepted.
        let bytes = super::super::decode(Some(&source), None, 100).unwrap();
        let compressed = format!("sha256-{}", digest::<Sha256>(bytes.as_slice(), 100).unwrap());
        assert!(verify(&resource(&source, Some("gzip"), &compressed), 100).is_err());
    }

    #[test]
    fn a_gzip_bomb_ends_at_the_limit() {
        let bomb = resource(&gzip(&vec![0; 1 << 20]), Some("gzip"), HELLO);
        assert!(matches!(
            verify(&bomb, 1000),
            Err(DecodeError::TooLarge { limit: 1000 })
        ));
    }
}
