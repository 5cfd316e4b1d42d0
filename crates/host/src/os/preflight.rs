//! `skopeo inspect`: whether an image can boot on this machine, before anything is pulled.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{OsError, credentials, policy};
use crate::command::{CommandError, Commands, succeed_with};
use crate::path::RootedPath;
use crate::root::{FsError, Root};

/// The labels of images that can be booted, one of which tools require.
const BOOTABLE: [&str; 3] = ["ostree.bootable", "ostree.commit", "containers.bootc"];
/// Images are unpacked here.
const STORAGE: &str = "/ostree";
/// ostree has a ref for each layer that it has imported, and imports it once.
const PRESENT_LAYERS: &str = "/ostree/repo/refs/heads/ostree/container/blob";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct InspectedImage {
    architecture: String,
    os: String,
    labels: Option<BTreeMap<String, String>>,
    layers_data: Option<Vec<ImageLayer>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ImageLayer {
    digest: String,
    /// Compressed.
    size: u64,
}

impl ImageLayer {
    /// Returns the name of the ref, in which a colon is escaped.
    fn reference(&self) -> String {
        self.digest.replacen(':', "_3A_", 1)
    }
}

/// Checks the image's existence and credentials, its architecture, system and bootability, the signature policy, and the
/// size of what has to be pulled against the free space. Without skopeo only the policy is checked.
pub(super) fn check(commands: &dyn Commands, root: &Root, image: &str) -> Result<(), OsError> {
    policy::check(root, image)?;
    let Some(found) = inspect(commands, root, image)? else {
        return Ok(());
    };
    let free = root.free_space(&RootedPath::new(STORAGE).map_err(FsError::from)?)?;
    let present = root.list(&RootedPath::new(PRESENT_LAYERS).map_err(FsError::from)?)?;
    let present: BTreeSet<String> = present.into_iter().collect();
    match objection(&found, std::env::consts::ARCH, &present, free) {
        Some(why) => Err(OsError::Rejected {
            image: image.to_owned(),
            why,
        }),
        None => Ok(()),
    }
}

fn inspect(commands: &dyn Commands, root: &Root, image: &str) -> Result<Option<InspectedImage>, OsError> {
    let source = format!("docker://{image}");
    let mut arguments = vec!["inspect", "--no-tags"];
    if let Some(secret) = credentials::secret(root)? {
        arguments.extend(["--authfile", secret]);
    }
    arguments.push(&source);
    let proxy = credentials::proxy(root)?;
    let proxy: Vec<(&str, &str)> = proxy
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let text = match succeed_with(commands, "skopeo", &arguments, &proxy) {
        Err(CommandError::Missing { .. }) => return Ok(None),
        other => other?,
    };
    let found = serde_json::from_str(&text).map_err(|error| CommandError::Unexpected {
        command: format!("skopeo inspect {source}"),
        why: error.to_string(),
    })?;
    Ok(Some(found))
}

/// Returns why an image cannot boot here. `present` are the refs of layers that this machine has.
fn objection(
    image: &InspectedImage,
    architecture: &str,
    present: &BTreeSet<String>,
    free: u64,
) -> Option<String> {
    let wanted = match architecture {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    };
    if !image.architecture.is_empty() && image.architecture != wanted {
        return Some(format!(
            "it is for {}, and this machine is {wanted}; use an image for this architecture",
            image.architecture
        ));
    }
    if !image.os.is_empty() && image.os != "linux" {
        return Some(format!("it is for {}, not for linux", image.os));
    }
    let labels = image.labels.iter().flatten();
    let bootable = labels.into_iter().any(|(name, value)| {
        BOOTABLE.contains(&name.as_str()) && !matches!(value.as_str(), "" | "0" | "false")
    });
    if !bootable {
        return Some(
            "it is not a bootable OS image: none of its labels is ostree.bootable, ostree.commit or containers.bootc. \
             Build it from an OS image"
                .to_owned(),
        );
    }
    let layers = image.layers_data.iter().flatten();
    let missing = layers.filter(|layer| !present.contains(&layer.reference()));
    let size: u64 = missing.map(|layer| layer.size).sum();
    // A lower bound: unpacked, they are larger, except for files that layers have in common.
    (size > free).then(|| {
        format!(
            "its layers that this machine does not have are {size} bytes compressed, and only {free} bytes are free in \
             {STORAGE}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(digest: &str, size: u64) -> ImageLayer {
        ImageLayer {
            digest: format!("sha256:{digest}"),
            size,
        }
    }

    #[test]
    fn an_image_that_cannot_boot_here_is_refused_with_the_reason() {
        let image = |architecture: &str, os: &str, label: &str, size: u64| InspectedImage {
            architecture: architecture.to_owned(),
            os: os.to_owned(),
            labels: Some([(label.to_owned(), "1".to_owned())].into()),
            layers_data: Some(vec![layer("a", size), layer("b", 1)]),
        };
        let none = BTreeSet::new();
        let why = |image: &InspectedImage, free| objection(image, "x86_64", &none, free).unwrap_or_default();
        assert_eq!(why(&image("amd64", "linux", "containers.bootc", 10), 11), "");
        let arm = image("arm64", "linux", "containers.bootc", 10);
        assert!(why(&arm, 11).starts_with("it is for arm64, and this machine is amd64"));
        assert_eq!(objection(&arm, "aarch64", &none, 11), None);
        assert!(why(&image("amd64", "windows", "ostree.commit", 10), 11).starts_with("it is for windows"));
        assert!(why(&image("amd64", "linux", "name", 10), 11).starts_with("it is not a bootable OS image"));
        assert_eq!(
            why(&image("amd64", "linux", "ostree.bootable", 10), 10),
            "its layers that this machine does not have are 11 bytes compressed, and only 10 bytes are free in /ostree"
        );
    }

    #[test]
    fn an_update_that_shares_most_layers_was_refused_for_the_size_of_the_whole_image() {
        let image = InspectedImage {
            labels: Some([("containers.bootc".to_owned(), "1".to_owned())].into()),
            layers_data: Some(vec![layer("a", 1000), layer("b", 10)]),
            ..InspectedImage::default()
        };
        let present = BTreeSet::from(["sha256_3A_a".to_owned()]);
        assert_eq!(objection(&image, "x86_64", &present, 10), None);
        let why = objection(&image, "x86_64", &present, 9).unwrap();
        assert!(why.contains("are 10 bytes compressed"), "{why}");
    }
}
