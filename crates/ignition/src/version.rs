//! Versions of the Ignition specification.

use std::fmt;

/// A spec version that can be read, oldest first. Configs can be converted down to [`SpecVersion::V2_2`].
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

    /// As it is written in `ignition.version`.
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

impl fmt::Display for SpecVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
