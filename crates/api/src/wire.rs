//! How fields behave on the wire. Decoding follows the Go implementation our users' objects were written by:
//! an explicit `null` means the same as an absent field.

use serde::{Deserialize, Deserializer};

/// Reads `null` as the type's default. Together with `#[serde(default)]` on the container, a field may be
/// absent, null or set.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// For `skip_serializing_if`: leaves out what reads back as the same value.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
