//! Versions of the Ignition specification.

use std::fmt;

/// A supported spec version, oldest first. Configs can be converted down to [`SpecVersion::V2_2`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpecVersion {
    V2_0,
    V2_1,
    V2_2,
    V3_0,
    V3_1,
    V3_2,
    V3_3,
    V3_4,
    V3_5,
}

impl SpecVersion {
    /// The version that the model has and rendered configs are written in.
    ///
    /// To support Ignition 3.6: add the variant, list and name it here, and make it `NEWEST`; mark the new fields
    /// `since(V3_6)` in [`crate::model`]; list what older clients do not have in `convert::refuse`; serve it in
    /// `mco_server::negotiate`.
    pub const NEWEST: Self = Self::V3_5;

    /// Every version, oldest first.
    pub const ALL: [Self; 9] = [
        Self::V2_0,
        Self::V2_1,
        Self::V2_2,
        Self::V3_0,
        Self::V3_1,
        Self::V3_2,
        Self::V3_3,
        Self::V3_4,
        Self::V3_5,
    ];

    /// Returns the value of `ignition.version`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2_0 => "2.0.0",
            Self::V2_1 => "2.1.0",
            Self::V2_2 => "2.2.0",
            Self::V3_0 => "3.0.0",
            Self::V3_1 => "3.1.0",
            Self::V3_2 => "3.2.0",
            Self::V3_3 => "3.3.0",
            Self::V3_4 => "3.4.0",
            Self::V3_5 => "3.5.0",
        }
    }
}

/// Why a text is not a supported version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unrecognised {
    /// It is not a semantic version.
    Malformed,
    /// It is a version, but not a supported one.
    Unsupported,
}

impl SpecVersion {
    /// Parses a version. Leading zeros are ignored.
    pub(crate) fn recognise(text: &str) -> Result<Self, Unrecognised> {
        let (text, build) = text.split_once('+').unwrap_or((text, ""));
        let (numbers, pre_release) = text.split_once('-').unwrap_or((text, ""));
        let mut numbers = numbers.splitn(3, '.').map(str::parse::<i64>);
        let mut next = || numbers.next().and_then(Result::ok).ok_or(Unrecognised::Malformed);
        let (major, minor, patch) = (next()?, next()?, next()?);
        if !is_identifier(build) || !is_identifier(pre_release) {
            return Err(Unrecognised::Malformed);
        }
        let plain = format!("{major}.{minor}.{patch}");
        Self::ALL
            .into_iter()
            .find(|known| known.as_str() == plain && build.is_empty() && pre_release.is_empty())
            .ok_or(Unrecognised::Unsupported)
    }
}

/// Returns whether the text is empty, or parts of letters, digits and hyphens between dots.
fn is_identifier(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    text.is_empty() || text.split('.').all(is_part)
}

impl fmt::Display for SpecVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
