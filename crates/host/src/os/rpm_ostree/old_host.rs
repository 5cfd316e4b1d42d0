//! Systems whose rpm-ostree cannot deploy container images: the image's own rpm-ostree deploys itself.

use std::sync::Arc;

use serde::Deserialize;

use super::status;
use crate::command::{CommandError, Commands, succeed};
use crate::os::{OsError, credentials};
use crate::path::RootedPath;
use crate::root::{FsError, Root};

const UNIT: &str = "machine-config-daemon-update-rpmostree-via-container";
const ENVIRONMENT: &str = "EnvironmentFile=-/etc/mco/proxy.env";
/// For podman versions that do not understand all of the machine's policy.
const OLD_PODMAN_POLICY: &str = "/etc/machine-config-daemon/policy-for-old-podman.json";
const PODMAN_WITH_POLICY: [u32; 3] = [4, 4, 1];
/// The first skopeo with which a new machine can pull images for several architectures.
const SKOPEO_WITH_LISTS: [u32; 3] = [1, 22, 2];
const LISTS: [&str; 2] = [
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.index.v1+json",
];

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawManifest {
    media_type: String,
    manifests: Option<Vec<serde_json::Value>>,
}

/// Returns whether the image must deploy itself: rpm-ostree is too old, or at a first boot skopeo is.
pub(super) fn is_needed(
    commands: &dyn Commands,
    root: &Root,
    image: &str,
    first_boot: bool,
) -> Result<bool, OsError> {
    let version = succeed(commands, "rpm-ostree", &["--version"])?;
    if !status::has_feature(&version, "container") {
        return Ok(true);
    }
    if !first_boot || tool_version(commands, "skopeo") >= Some(SKOPEO_WITH_LISTS) {
        return Ok(false);
    }
    Ok(!is_single_image(commands, root, image))
}

/// Pulls the image and lets it deploy itself. SELinux would prevent that, so it is permissive meanwhile.
pub(super) fn deploy(commands: &Arc<dyn Commands>, root: &Root, image: &str) -> Result<(), OsError> {
    let _permissive = Permissive::begin(commands)?;
    let mut pull = vec!["podman", "pull"];
    if let Some(secret) = credentials::secret(root)? {
        pull.extend(["--authfile", secret]);
    }
    let policy = RootedPath::new(OLD_PODMAN_POLICY).map_err(FsError::from)?;
    if tool_version(commands.as_ref(), "podman") < Some(PODMAN_WITH_POLICY) && root.exists(&policy)? {
        pull.extend(["--signature-policy", OLD_PODMAN_POLICY]);
    }
    pull.push(image);
    in_unit(commands.as_ref(), &pull)?;
    let mut run = vec!["podman", "run"];
    if credentials::has_proxy(root)? {
        run.extend(["--env-file", "/etc/mco/proxy.env"]);
    }
    run.extend([
        "--privileged",
        "--pid=host",
        "--net=host",
        "--rm",
        "-v",
        "/:/run/host",
    ]);
    run.extend([image, "rpm-ostree", "ex", "deploy-from-self", "/run/host"]);
    in_unit(commands.as_ref(), &run)
}

fn in_unit(commands: &dyn Commands, command: &[&str]) -> Result<(), OsError> {
    let wrapper = ["--unit", UNIT, "-p", ENVIRONMENT, "--collect", "--wait", "--"];
    succeed(commands, "systemd-run", &[&wrapper, command].concat())?;
    Ok(())
}

/// Any failure counts as an unsupported image.
fn is_single_image(commands: &dyn Commands, root: &Root, image: &str) -> bool {
    let source = format!("docker://{image}");
    let mut arguments = vec!["inspect", "--raw"];
    if let Ok(Some(secret)) = credentials::secret(root) {
        arguments.extend(["--authfile", secret]);
    }
    arguments.push(&source);
    let manifest = succeed(commands, "skopeo", &arguments)
        .ok()
        .and_then(|text| serde_json::from_str::<RawManifest>(&text).ok());
    manifest.is_some_and(|manifest| {
        !LISTS.contains(&manifest.media_type.as_str()) && manifest.manifests.is_none()
    })
}

/// Returns the version that `tool --version` ends with.
fn tool_version(commands: &dyn Commands, tool: &str) -> Option<[u32; 3]> {
    let text = succeed(commands, tool, &["--version"]).ok()?;
    let version = text
        .split_whitespace()
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let mut numbers = version
        .split(['.', '-', '+'])
        .map(|part| part.parse().unwrap_or(0));
    Some([
        numbers.next()?,
        numbers.next().unwrap_or(0),
        numbers.next().unwrap_or(0),
    ])
}

/// SELinux is permissive until this value is dropped, also when the deployment fails.
struct Permissive {
    commands: Option<Arc<dyn Commands>>,
}

impl Permissive {
    fn begin(commands: &Arc<dyn Commands>) -> Result<Self, OsError> {
        let enforcing = match succeed(commands.as_ref(), "getenforce", &[]) {
            Ok(mode) => mode.trim() == "Enforcing",
            Err(CommandError::Missing { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        if enforcing {
            succeed(commands.as_ref(), "setenforce", &["0"])?;
        }
        Ok(Self {
            commands: enforcing.then(|| Arc::clone(commands)),
        })
    }
}

impl Drop for Permissive {
    fn drop(&mut self) {
        if let Some(commands) = &self.commands
            && let Err(error) = succeed(commands.as_ref(), "setenforce", &["1"])
        {
            tracing::error!(%error, "SELinux is still permissive; run `setenforce 1`");
        }
    }
}
