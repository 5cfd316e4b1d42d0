//! Serde helpers for the wire format. Decoding follows the reference: an explicit `null` means the same as an absent
//! field.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Deserializer};

/// Deserializes `null` as the type's default. Together with `#[serde(default)]` on the container, a field may be
/// absent, null or set.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// For `skip_serializing_if`: omits values that deserialize to the same value when absent.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Deserializes a number or a string. A number beyond all integer types is kept as its digits: the schema allows it,
/// and one unreadable object would break a watch of its whole kind.
pub(crate) fn int_or_string<'de, D>(deserializer: D) -> Result<Option<IntOrString>, D::Error>
where
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Wide {
        Number(i32),
        Text(String),
        Large(serde_json::Number),
    }
    Ok(
        Option::<Wide>::deserialize(deserializer)?.map(|value| match value {
            Wide::Number(number) => IntOrString::Int(number),
            Wide::Text(text) => IntOrString::String(text),
            Wide::Large(number) => IntOrString::String(number.to_string()),
        }),
    )
}
