//! The images a node keeps for its PinnedImageSets: which they are, whether they fit, with what credentials they are
//! pulled, how the runtime is told, and what the node's `MachineConfigNode` says about it.
//!
//! Which sets belong to which pool is the controllers' decision; pulling is the daemon's.

mod choice;
mod credentials;
mod report;
mod storage;

use std::collections::BTreeSet;

use crate::generators::generated::toml_text::TomlText;

pub use choice::{ImageSet, wanted};
pub use credentials::{Credential, CredentialsError, credential};
pub use report::{Keeping, SetReport, SetState, conditions, forgotten, set_statuses};
pub use storage::{RESERVE, Room, StorageError, check_storage};

/// The part of CRI-O's configuration that is ours: images named there are never collected as garbage.
pub const CRIO_DROP_IN: &str = "/etc/crio/crio.conf.d/50-pinned-images";
/// The credentials of the kubelet, which images of workloads are pulled with.
pub const PULL_SECRET: &str = "/var/lib/kubelet/config.json";

/// What CRI-O reads; none if there is nothing to keep.
pub fn crio_drop_in(images: &BTreeSet<String>) -> Option<String> {
    if images.is_empty() {
        return None;
    }
    let images: Vec<&String> = images.iter().collect();
    let mut text = TomlText::default();
    text.table(&["crio"]);
    text.table(&["crio", "image"]);
    text.strings("pinned_images", &images);
    Some(text.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_is_told_in_one_order_and_not_at_all_about_nothing() {
        let images = ["b.example/x@sha256:2", "a.example/x@sha256:1"].map(str::to_owned);
        assert_eq!(
            crio_drop_in(&images.into()).as_deref(),
            Some(
                "[crio]\n  [crio.image]\n    pinned_images = [\"a.example/x@sha256:1\", \"b.example/x@sha256:2\"]\n"
            )
        );
        assert_eq!(crio_drop_in(&BTreeSet::new()), None);
    }
}
