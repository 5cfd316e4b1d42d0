//! `crictl`: lists and pulls the images of a CRI runtime.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::command::{CommandError, Commands, succeed_with};

const PROGRAM: &str = "crictl";
/// The request timeout. A runtime on a busy machine may need more than the default of two seconds.
const TIMEOUT: &str = "30s";
/// The pull timeout. A longer pull is stalled; the runtime keeps the completed layers.
const LONGEST_PULL: &str = "30m";

#[derive(Debug, Deserialize)]
struct CrictlImages {
    #[serde(default)]
    images: Vec<CrictlImage>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CrictlImage {
    #[serde(default)]
    repo_digests: Vec<String>,
    /// The kubelet's garbage collection keeps the image.
    #[serde(default)]
    pinned: bool,
}

/// Returns every reference by digest that an image is stored under.
pub(super) fn images(commands: &dyn Commands, socket: &str) -> Result<BTreeSet<String>, CommandError> {
    let list = list(commands, socket)?;
    let names = list.images.into_iter().flat_map(|image| image.repo_digests);
    Ok(names.collect())
}

/// Returns those of the images that the runtime reports as pinned.
pub(super) fn pinned_images(commands: &dyn Commands, socket: &str) -> Result<BTreeSet<String>, CommandError> {
    let list = list(commands, socket)?;
    let pinned = list.images.into_iter().filter(|image| image.pinned);
    Ok(pinned.flat_map(|image| image.repo_digests).collect())
}

fn list(commands: &dyn Commands, socket: &str) -> Result<CrictlImages, CommandError> {
    let text = run(commands, socket, &["images", "--output", "json"], &[])?;
    serde_json::from_str(&text).map_err(|error| CommandError::Unexpected {
        command: format!("{PROGRAM} images"),
        why: error.to_string(),
    })
}

pub(super) fn pull(
    commands: &dyn Commands,
    socket: &str,
    image: &str,
    credential: Option<&str>,
) -> Result<(), CommandError> {
    let mut environment = vec![("CRICTL_PULL_TIMEOUT", LONGEST_PULL)];
    environment.extend(credential.map(|credential| ("CRICTL_AUTH", credential)));
    run(commands, socket, &["pull", "--", image], &environment)?;
    Ok(())
}

fn run(
    commands: &dyn Commands,
    socket: &str,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Result<String, CommandError> {
    let address = format!("unix://{socket}");
    let options = [
        "--runtime-endpoint",
        &address,
        "--image-endpoint",
        &address,
        "--timeout",
        TIMEOUT,
    ];
    succeed_with(commands, PROGRAM, &[&options, arguments].concat(), environment)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::command::testing::Recorded;

    const ENDPOINTS: &str = "crictl --runtime-endpoint unix:///s --image-endpoint unix:///s --timeout 30s";

    #[test]
    fn images_are_known_by_each_of_their_digests() {
        let list = include_str!("fixtures/crictl-images.json");
        let recorded = Arc::new(Recorded::answering(&[("crictl", list)]));
        let images = images(&Arc::clone(&recorded), "/s").unwrap();
        let images: Vec<&str> = images.iter().map(String::as_str).collect();
        assert_eq!(
            images,
            [
                "quay.io/openshift-release-dev/ocp-v4.0-art-dev@sha256:3a6de4a1ee02b9d0bd1ed3fb1b8a40dcbb3a37f86c4d5c4bd4da6c8a4a1e5b11",
                "registry.k8s.io/pause@sha256:7031c1b283388d2c2e09b57badb803c05ebed362dc88d84b480cc47f72a21097",
                "registry.k8s.io/pause@sha256:7c38f24774e3cbd906d2d33c38354ccf787635581c122965132c9bd309754d4a",
            ]
        );
        assert_eq!(
            recorded.invocations(),
            [format!("{ENDPOINTS} images --output json")]
        );
        let garbage = Arc::new(Recorded::answering(&[("crictl", "NAME TAG\n")]));
        assert!(matches!(
            super::images(&garbage, "/s"),
            Err(CommandError::Unexpected { .. })
        ));
    }

    #[test]
    fn credentials_are_not_passed_as_arguments() {
        let recorded = Arc::new(Recorded::answering(&[("crictl", "Image is up to date\n")]));
        pull(
            &Arc::clone(&recorded),
            "/s",
            "a.example/b@sha256:1",
            Some("dXNlcjpw"),
        )
        .unwrap();
        pull(&Arc::clone(&recorded), "/s", "a.example/b@sha256:1", None).unwrap();
        assert_eq!(
            recorded.invocations(),
            [
                format!(
                    "CRICTL_PULL_TIMEOUT=30m CRICTL_AUTH=dXNlcjpw {ENDPOINTS} pull -- a.example/b@sha256:1"
                ),
                format!("CRICTL_PULL_TIMEOUT=30m {ENDPOINTS} pull -- a.example/b@sha256:1"),
            ]
        );
        let failing = Arc::new(Recorded::default().failing("crictl", 1, "FATA unauthorized"));
        let error = pull(&failing, "/s", "a.example/b@sha256:1", Some("dXNlcjpw")).unwrap_err();
        assert!(!error.to_string().contains("dXNlcjpw"), "{error}");
    }
}
