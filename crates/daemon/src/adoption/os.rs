//! What a config would change of the operating system, for people.

use mco_core::config::diff::{ConfigDiff, Replaced};

use super::shortened;

/// Returns one text for each field of the MachineConfig that changes the operating system.
pub(super) fn changes(diff: &ConfigDiff) -> Vec<String> {
    let lists = [
        ("kernelArguments", diff.kernel_arguments.as_ref()),
        ("extensions", diff.extensions.as_ref()),
    ];
    let lists = lists
        .into_iter()
        .filter_map(|(field, change)| Some(format!("{field}: {}", added_and_removed(change?))));
    let kernel = diff.kernel_type.as_ref();
    let kernel = kernel.map(|change| format!("kernelType: {} instead of {}", change.new, change.old));
    let image = diff.os_image.as_ref().filter(|change| !change.new.is_empty());
    let image = image.map(|change| format!("osImageURL: {}", change.new));
    lists
        .chain(kernel)
        .chain(image)
        .map(|text| shortened(&text))
        .collect()
}

fn added_and_removed(change: &Replaced<Vec<String>>) -> String {
    let only = |of: &[String], not_of: &[String], verb: &str| {
        let found: Vec<&str> = of
            .iter()
            .filter(|entry| !not_of.contains(entry))
            .map(String::as_str)
            .collect();
        (!found.is_empty()).then(|| format!("{verb} {}", found.join(" ")))
    };
    let parts = [
        only(&change.new, &change.old, "add"),
        only(&change.old, &change.new, "remove"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return "another order".to_owned();
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(old: &[&str], new: &[&str]) -> Replaced<Vec<String>> {
        let owned = |list: &[&str]| list.iter().map(|entry| (*entry).to_owned()).collect();
        Replaced {
            old: owned(old),
            new: owned(new),
        }
    }

    #[test]
    fn every_change_of_the_operating_system_is_named() {
        let diff = ConfigDiff {
            kernel_arguments: Some(replaced(&["quiet", "a=1"], &["quiet", "b=2", "c"])),
            extensions: Some(replaced(&[], &["usbguard"])),
            kernel_type: Some(Replaced {
                old: "default",
                new: "realtime",
            }),
            os_image: Some(Replaced {
                old: String::new(),
                new: "quay.example/os@sha256:1".to_owned(),
            }),
            ..ConfigDiff::default()
        };
        assert_eq!(
            changes(&diff),
            [
                "kernelArguments: add b=2 c, remove a=1",
                "extensions: add usbguard",
                "kernelType: realtime instead of default",
                "osImageURL: quay.example/os@sha256:1",
            ]
        );
        assert_eq!(changes(&ConfigDiff::default()), Vec::<String>::new());
    }
}
