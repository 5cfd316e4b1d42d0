//! The choice of the Ignition spec version from the `Accept` header of a request.
//!
//! The header is parsed compatibly with machines in the field: parameters are case-sensitive, quotes are not removed,
//! and requests without a usable version get the oldest one.

use std::cmp::Ordering;

use mco_ignition::SpecVersion;
use thiserror::Error;

/// The versions that can be served, oldest first.
pub const SERVED: [SpecVersion; 7] = [
    SpecVersion::V2_2,
    SpecVersion::V3_0,
    SpecVersion::V3_1,
    SpecVersion::V3_2,
    SpecVersion::V3_3,
    SpecVersion::V3_4,
    SpecVersion::V3_5,
];

/// The version for requests without one: the oldest machines send none at their first boot.
const UNSPECIFIED: SpecVersion = SpecVersion::V2_2;

const IGNITION_SUBTYPE: &str = "vnd.coreos.ignition+json";

/// The client accepts only versions that cannot be served, so that retries do not help.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no Ignition version in the Accept header can be served: {0:?}")]
pub struct Unacceptable(pub String);

/// Returns the version for the first `Accept` header of a request.
pub fn version(accept: Option<&str>) -> Result<SpecVersion, Unacceptable> {
    let Some(header) = accept else {
        return Ok(UNSPECIFIED);
    };
    let mut requested: Vec<_> = header.split(',').filter_map(AcceptEntry::parse).collect();
    requested.sort_by(|a, b| b.quality.partial_cmp(&a.quality).unwrap_or(Ordering::Equal));
    let mut versions = requested.iter().filter_map(|entry| entry.version).peekable();
    if versions.peek().is_none() {
        return Ok(UNSPECIFIED);
    }
    versions
        .find_map(Requested::served)
        .ok_or_else(|| Unacceptable(header.to_owned()))
}

struct AcceptEntry {
    quality: f32,
    /// Set for the Ignition media type only.
    version: Option<Requested>,
}

impl AcceptEntry {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let (_, subtype) = parts.next()?.split_once('/')?;
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let values = |name: &'static str| {
            parameters
                .iter()
                .filter(move |(key, _)| *key == name)
                .map(|(_, value)| *value)
        };
        let version = values("version").find_map(Requested::parse);
        Some(Self {
            quality: values("q").find_map(quality).unwrap_or(1.0),
            version: version.filter(|_| subtype == IGNITION_SUBTYPE),
        })
    }
}

/// Parses a quality. NaN is rejected because it has no order.
fn quality(text: &str) -> Option<f32> {
    text.parse().ok().filter(|quality: &f32| !quality.is_nan())
}

#[derive(Clone, Copy)]
struct Requested {
    major: u64,
    minor: u64,
    patch: u64,
    is_prerelease: bool,
}

impl Requested {
    fn parse(text: &str) -> Option<Self> {
        let text = text.split_once('+').map_or(text, |(version, _)| version);
        let (numbers, is_prerelease) = match text.split_once('-') {
            Some((numbers, _)) => (numbers, true),
            None => (text, false),
        };
        let mut numbers = numbers.split('.').map(str::parse);
        let mut next = || numbers.next()?.ok();
        let (major, minor, patch) = (next()?, next()?, next()?);
        numbers.next().is_none().then_some(Self {
            major,
            minor,
            patch,
            is_prerelease,
        })
    }

    /// Returns the served version that the client supports: the newest one for newer minor versions, none before 2.2.
    fn served(self) -> Option<SpecVersion> {
        match (self.major, self.minor) {
            (2, 2) if self.patch == 0 && self.is_prerelease => None,
            (2, 2..) => Some(SpecVersion::V2_2),
            (3, 0) => Some(SpecVersion::V3_0),
            (3, 1) => Some(SpecVersion::V3_1),
            (3, 2) => Some(SpecVersion::V3_2),
            (3, 3) => Some(SpecVersion::V3_3),
            (3, 4) => Some(SpecVersion::V3_4),
            (3, 5..) => Some(SpecVersion::V3_5),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(name: &str, accept: Option<&str>, expected: Option<&str>) {
        let served = version(accept).ok().map(SpecVersion::as_str);
        assert_eq!(served, expected, "{name}: {accept:?}");
    }

    /// Rust's sort panics on an order that contradicts itself, from 21 entries on.
    #[test]
    fn a_quality_that_is_not_a_number_cannot_stop_the_server() {
        let entries: Vec<String> = (0..200)
            .map(|i| {
                let quality = if i % 3 == 0 {
                    "NaN".to_owned()
                } else {
                    format!("0.{i:03}")
                };
                format!("application/vnd.coreos.ignition+json;version=3.4.0;q={quality}")
            })
            .collect();
        check("NaN in the header", Some(&entries.join(",")), Some("3.4.0"));
        check(
            "NaN counts as no quality",
            Some(
                "application/vnd.coreos.ignition+json;version=3.5.0;q=0.5, application/vnd.coreos.ignition+json;version=3.4.0;q=NaN",
            ),
            Some("3.4.0"),
        );
    }

    #[test]
    fn every_client_gets_the_newest_version_it_understands() {
        let ignition =
            |parameters: &str| format!("application/vnd.coreos.ignition+json;{parameters}, */*;q=0.1");
        for (name, accept, expected) in [
            (
                "the oldest Ignition",
                "application/vnd.coreos.ignition+json; version=2.4.0, application/vnd.coreos.ignition+json; version=1; q=0.5, */*; q=0.1".to_owned(),
                Some("2.2.0"),
            ),
            ("spec 3.5", ignition("version=3.5.0"), Some("3.5.0")),
            ("spec 3.4", ignition("version=3.4.0"), Some("3.4.0")),
            ("spec 3.3", ignition("version=3.3.0"), Some("3.3.0")),
            ("spec 3.2", ignition("version=3.2.0"), Some("3.2.0")),
            ("spec 3.1", ignition("version=3.1.0"), Some("3.1.0")),
            ("spec 3.0", ignition("version=3.0.0"), Some("3.0.0")),
            ("a patch release", ignition("version=3.4.9"), Some("3.4.0")),
            ("no version", "application/vnd.coreos.ignition+json".to_owned(), Some("2.2.0")),
            ("a version that is none", ignition("version=abc"), Some("2.2.0")),
            ("another type", "text/plain".to_owned(), Some("2.2.0")),
            ("no slash", "an-invalid-accept-header".to_owned(), Some("2.2.0")),
            ("empty", String::new(), Some("2.2.0")),
            ("a later minor version", ignition("version=3.99.0"), Some("3.5.0")),
            ("a later major version", ignition("version=4.0.0"), None),
            (
                "a later major version with a way out of lower quality",
                "application/vnd.coreos.ignition+json;version=4.0.0, application/vnd.coreos.ignition+json;version=3.5.0;q=0.5".to_owned(),
                Some("3.5.0"),
            ),
            ("the next version, experimental", ignition("version=3.6.0-experimental"), Some("3.5.0")),
            ("a known version, experimental", ignition("version=3.5.0-experimental"), Some("3.5.0")),
            ("too old", ignition("version=2.1.0"), None),
            ("far too old", ignition("version=1.0.0"), None),
            ("quoted", ignition("version=\"3.4.0\""), Some("2.2.0")),
            ("capitalised", ignition("Version=3.4.0"), Some("2.2.0")),
            (
                "the better quality comes second",
                "application/vnd.coreos.ignition+json;version=3.1.0;q=0.2,application/vnd.coreos.ignition+json;version=3.3.0;q=0.9".to_owned(),
                Some("3.3.0"),
            ),
            (
                "a browser that also takes Ignition",
                "text/html,application/vnd.coreos.ignition+json;version=3.2.0;q=0.5".to_owned(),
                Some("3.2.0"),
            ),
            ("the main type does not matter", "x/vnd.coreos.ignition+json;version=3.2.0".to_owned(), Some("3.2.0")),
            ("the first version that can be read counts", ignition("version=x;version=3.1.0"), Some("3.1.0")),
        ] {
            check(name, Some(&accept), expected);
        }
        check("no header", None, Some("2.2.0"));
    }

    proptest! {
        #[test]
        fn no_header_is_answered_with_a_version_that_is_not_served(header in "\\PC{0,80}") {
            if let Ok(chosen) = version(Some(&header)) {
                prop_assert!(SERVED.contains(&chosen));
            }
        }

        #[test]
        fn a_known_minor_version_is_served_exactly(minor in 0usize..=5, patch in 0u8..=9) {
            let header = format!("application/vnd.coreos.ignition+json;version=3.{minor}.{patch}");
            prop_assert_eq!(version(Some(&header)), Ok(SERVED[minor + 1]));
        }
    }
}
