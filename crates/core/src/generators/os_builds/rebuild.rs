//! Whether a new rendered config needs a new image, or the image of the former one is reused.

use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// What an image depends on in a rendered MachineConfig. Read from the object as it is stored, because an absent list
/// differs from an empty one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageInputs {
    #[serde(rename = "osImageURL", deserialize_with = "null_is_empty")]
    os_image_url: String,
    #[serde(deserialize_with = "null_is_empty")]
    kernel_type: String,
    extensions: Option<Vec<String>>,
    kernel_arguments: Option<Vec<String>>,
}

fn null_is_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The field because of which an image must be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebuildReason {
    OsImage,
    KernelType,
    Extensions,
    KernelArguments,
}

impl fmt::Display for RebuildReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OsImage => "osImageURL",
            Self::KernelType => "kernelType",
            Self::Extensions => "extensions",
            Self::KernelArguments => "kernelArguments",
        })
    }
}

impl ImageInputs {
    /// Reads the inputs from a MachineConfig as it is stored.
    pub fn of(machine_config: &Value) -> Result<Self, serde_json::Error> {
        match machine_config.get("spec") {
            Some(spec) if !spec.is_null() => Self::deserialize(spec),
            _ => Ok(Self::default()),
        }
    }
}

/// Returns why the image of `old` cannot be used for `new`; `None` if it can. Lists are compared in their order.
pub fn rebuild_reason(old: &ImageInputs, new: &ImageInputs) -> Option<RebuildReason> {
    let differences = [
        (old.os_image_url != new.os_image_url, RebuildReason::OsImage),
        (old.kernel_type != new.kernel_type, RebuildReason::KernelType),
        (old.extensions != new.extensions, RebuildReason::Extensions),
        (
            old.kernel_arguments != new.kernel_arguments,
            RebuildReason::KernelArguments,
        ),
    ];
    let mut reasons = differences
        .into_iter()
        .filter_map(|(differs, reason)| differs.then_some(reason));
    reasons.next()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_part_of_the_image_needs_a_build() {
        let check = |old: Value, new: Value| {
            let inputs = |spec: Value| ImageInputs::of(&json!({"spec": spec})).unwrap();
            rebuild_reason(&inputs(old), &inputs(new)).map(|reason| reason.to_string())
        };
        assert_eq!(check(json!({"fips": true, "config": {}}), json!({})), None);
        assert_eq!(
            check(json!({"osImageURL": "a"}), json!({"osImageURL": "b"})).as_deref(),
            Some("osImageURL")
        );
        assert_eq!(
            check(json!({"kernelType": ""}), json!({"kernelType": "default"})).as_deref(),
            Some("kernelType")
        );
        assert_eq!(check(json!({"extensions": null}), json!({})), None);
        assert_eq!(
            check(json!({"extensions": []}), json!({})).as_deref(),
            Some("extensions"),
            "an absent list is not an empty one"
        );
        assert_eq!(
            check(
                json!({"kernelArguments": ["a", "b"]}),
                json!({"kernelArguments": ["b", "a"]})
            )
            .as_deref(),
            Some("kernelArguments")
        );
    }
}
