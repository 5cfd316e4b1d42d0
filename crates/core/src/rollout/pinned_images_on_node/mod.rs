//! The pinned images of a node: which images its PinnedImageSets require, whether they fit on its disk, their pull
//! credentials, the runtime's configuration, and the status in the node's `MachineConfigNode`.
//!
//! The controllers assign sets to pools; the daemon pulls the images.

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

/// The drop-in of CRI-O's configuration that we own: images listed there are never garbage-collected.
pub const CRIO_DROP_IN: &str = "/etc/crio/crio.conf.d/50-pinned-images";
/// The kubelet's credentials, with which workload images are pulled.
pub const PULL_SECRET: &str = "/var/lib/kubelet/config.json";

/// Returns CRI-O's drop-in; `None` if no image is pinned.
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
    fn the_runtime_drop_in_is_sorted_and_absent_without_images() {
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
