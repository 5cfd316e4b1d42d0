//! `podman manifest inspect`: an image's manifest, read from the registry before anything is pulled.

use serde::Deserialize;

use super::Layer;
use crate::command::{CommandError, Commands, succeed};
use crate::path::RootedPath;
use crate::root::Root;

const PULL_SECRET: &str = "/var/lib/kubelet/config.json";

#[derive(Debug, Deserialize)]
struct ImageManifest {
    /// Of a single-platform image.
    #[serde(default)]
    layers: Vec<Descriptor>,
    /// Of a multi-platform image index.
    #[serde(default)]
    manifests: Vec<ManifestEntry>,
}

#[derive(Debug, Deserialize)]
struct Descriptor {
    digest: String,
    #[serde(default)]
    size: u64,
}

#[derive(Debug, Deserialize)]
struct ManifestEntry {
    digest: String,
    #[serde(default)]
    platform: ManifestPlatform,
}

#[derive(Debug, Default, Deserialize)]
struct ManifestPlatform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

/// Returns the layers of an image for this machine's platform.
pub(super) fn layers(commands: &dyn Commands, root: &Root, image: &str) -> Result<Vec<Layer>, CommandError> {
    let mut manifest = inspect(commands, root, image)?;
    if let Some(ours) = manifest.manifests.iter().find(|entry| runs_here(&entry.platform)) {
        let repository = image.split('@').next().unwrap_or(image);
        manifest = inspect(commands, root, &format!("{repository}@{}", ours.digest))?;
    }
    let layers = manifest.layers.into_iter().map(|layer| Layer {
        digest: layer.digest,
        size: layer.size,
    });
    Ok(layers.collect())
}

fn inspect(commands: &dyn Commands, root: &Root, image: &str) -> Result<ImageManifest, CommandError> {
    let mut arguments = vec!["manifest", "--log-level", "error", "inspect"];
    if RootedPath::new(PULL_SECRET).is_ok_and(|path| root.exists(&path).unwrap_or_default()) {
        arguments.extend(["--authfile", PULL_SECRET]);
    }
    arguments.push(image);
    let text = succeed(commands, "podman", &arguments)?;
    serde_json::from_str(&text).map_err(|error| CommandError::Unexpected {
        command: format!("podman manifest inspect {image}"),
        why: error.to_string(),
    })
}

fn runs_here(platform: &ManifestPlatform) -> bool {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    };
    platform.os == "linux" && platform.architecture == architecture
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::command::testing::Recorded;
    use crate::root::Ownership;

    const IMAGE: &str = include_str!("fixtures/podman-manifest.json");
    const LIST: &str = include_str!("fixtures/podman-manifest-list.json");

    fn root() -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        (directory, root)
    }

    #[test]
    fn the_layers_of_an_image_have_their_compressed_sizes() {
        let (directory, root) = root();
        let secret = directory.path().join("var/lib/kubelet");
        std::fs::create_dir_all(&secret).unwrap();
        std::fs::write(secret.join("config.json"), "{}").unwrap();
        let recorded = Arc::new(Recorded::answering(&[("podman", IMAGE)]));
        let layers = layers(&Arc::clone(&recorded), &root, "a.example/b@sha256:1").unwrap();
        assert_eq!(layers.len(), 3);
        assert_eq!(
            layers.iter().map(|layer| layer.size).sum::<u64>(),
            79_186_321 + 12_433 + 5_120_998
        );
        assert_eq!(
            recorded.invocations(),
            [
                "podman manifest --log-level error inspect --authfile /var/lib/kubelet/config.json a.example/b@sha256:1"
            ]
        );
    }

    /// A list has no layers of its own, so every image in it would count as empty.
    #[test]
    fn of_a_list_the_image_for_this_machine_is_measured() {
        let (_directory, root) = root();
        let architecture = if std::env::consts::ARCH == "aarch64" {
            "arm64"
        } else {
            "amd64"
        };
        let list: serde_json::Value = serde_json::from_str(LIST).unwrap();
        let ours = list["manifests"]
            .as_array()
            .unwrap()
            .iter()
            .find(|entry| entry["platform"]["architecture"] == architecture);
        let digest = ours.unwrap()["digest"].as_str().unwrap().to_owned();
        let ask = |image: &str| format!("podman manifest --log-level error inspect {image}");
        let (whole, one) = (ask("a.example/b@sha256:1"), ask(&format!("a.example/b@{digest}")));
        let recorded = Arc::new(Recorded::answering(&[(&whole, LIST), (&one, IMAGE)]));
        assert_eq!(
            layers(&Arc::clone(&recorded), &root, "a.example/b@sha256:1")
                .unwrap()
                .len(),
            3
        );
        assert_eq!(recorded.invocations(), [whole, one]);
    }
}
