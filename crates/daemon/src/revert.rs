//! Reverts a node from an image that was built in the cluster to an ordinary one.
//!
//! Files that the built image had in `/etc` disappear with it, though the config defines them. So the revert stores the
//! config and installs a unit that applies it again, before the kubelet, once the machine has booted without the built
//! image; see [`crate::firstboot`], which also removes the unit.

use mco_api::ControllerConfig;
use mco_host::os::OsBackend;
use mco_host::systemd::UNIT_DIRECTORY;
use mco_host::{Attributes, FsError, Root, RootedPath};
use thiserror::Error;

use crate::config::NodeConfig;
use crate::paths;
use crate::plan::{NewContents, PlanAction, PlanStep};

pub const UNIT: &str = "machine-config-daemon-revert.service";
/// The key of the image with the command `machine-config-daemon` in a ControllerConfig: the release's on OpenShift, so
/// that its rendered configs do not change, else ours. Both have the same interface.
const OWN_IMAGE: &str = "machineConfigOperator";
/// Not world-readable, because a config may contain secrets.
const NOTE_ATTRIBUTES: Attributes = Attributes::root(0o600);
const UNIT_ATTRIBUTES: Attributes = Attributes::root(0o644);
const DIRECTORY_ATTRIBUTES: Attributes = Attributes::root(0o755);

#[derive(Debug, Error)]
pub enum RevertError {
    #[error(
        "reverting from a built image needs our own image, but the cluster's ControllerConfig has no {OWN_IMAGE} among \
         its images"
    )]
    NoImage,
    #[error(
        "the cluster has a proxy, but {} does not exist on this machine",
        paths::PROXY_ENV
    )]
    NoProxyFile,
    #[error("could not serialize the config: {0}")]
    Encode(serde_json::Error),
    #[error(transparent)]
    Files(#[from] FsError),
}

/// The parts of the ControllerConfig that a revert needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WayBack {
    image: String,
    proxied: bool,
}

impl WayBack {
    pub fn of(config: &ControllerConfig) -> Result<Self, RevertError> {
        let image = config.spec.images.get(OWN_IMAGE);
        let proxy = config.spec.proxy.as_ref();
        Ok(Self {
            image: image
                .filter(|image| !image.is_empty())
                .ok_or(RevertError::NoImage)?
                .clone(),
            proxied: proxy.is_some_and(|proxy| !proxy.http_proxy.is_empty() || !proxy.https_proxy.is_empty()),
        })
    }

    /// Returns the unit that runs at the next boot.
    fn unit(&self) -> String {
        let image = &self.image;
        let (environment, handed_on) = if self.proxied {
            (
                format!("EnvironmentFile={}\n", paths::PROXY_ENV_BACKUP),
                format!(" --env-file {}", paths::PROXY_ENV_BACKUP),
            )
        } else {
            (String::new(), String::new())
        };
        format!(
            "[Unit]\n\
             Description=Machine Config Daemon: put files in place after leaving a built image\n\
             ConditionPathExists=/run/ostree-booted\n\
             ConditionPathExists={note}\n\
             Wants=network-online.target\n\
             After=network-online.target\n\
             Before=kubelet-dependencies.target kubelet.service crio.service\n\
             StartLimitIntervalSec=0\n\
             \n\
             [Service]\n\
             Type=oneshot\n\
             RemainAfterExit=yes\n\
             Restart=on-failure\n\
             RestartSec=10\n\
             {environment}\
             ExecStartPre={pull}\n\
             ExecStart=/usr/bin/podman run --rm --privileged --pid=host --net=host{handed_on} -v /:/rootfs \
             --entrypoint machine-config-daemon {image} firstboot-complete-machineconfig --root-mount=/rootfs \
             --machineconfig-file={note}\n\
             \n\
             [Install]\n\
             RequiredBy=multi-user.target\n",
            note = paths::REVERT_CONFIG,
            pull = pull(image),
        )
    }
}

/// Returns the command that pulls the image. The cluster may have no pull secret, or lose it with the config that is
/// applied, and podman fails if the file of `--authfile` does not exist: so it is looked for when the unit runs.
fn pull(image: &str) -> String {
    let secret = mco_core::rollout::pinned_images_on_node::PULL_SECRET;
    format!(
        "/bin/sh -c 'test ! -e {secret} || exec /usr/bin/podman pull --quiet --authfile {secret} \"$$0\"; \
         exec /usr/bin/podman pull --quiet \"$$0\"' {image}"
    )
}

/// Returns whether a change leaves a built image on a machine where that affects files.
pub fn is_needed(backend: OsBackend, old: &NodeConfig, new: &NodeConfig) -> bool {
    let from_image = matches!(backend, OsBackend::RpmOstree | OsBackend::Bootc);
    from_image && old.built_image.is_some() && new.built_image.is_none()
}

/// Returns the steps that prepare the revert. They are part of the change, so a rollback removes them.
pub fn preparation(
    root: &Root,
    way: &WayBack,
    new: &NodeConfig,
) -> Result<Vec<PlanStep<'static>>, RevertError> {
    let note = serde_json::to_vec(&*new.object).map_err(RevertError::Encode)?;
    let mut steps = vec![
        write(paths::REVERT_CONFIG, note, NOTE_ATTRIBUTES)?,
        write(&unit_path(), way.unit().into_bytes(), UNIT_ATTRIBUTES)?,
        PlanStep {
            path: RootedPath::new(&link_path()).map_err(FsError::from)?,
            action: PlanAction::Link { target: unit_path() },
        },
    ];
    if way.proxied {
        let from = RootedPath::new(paths::PROXY_ENV).map_err(FsError::from)?;
        if !root.exists(&from)? {
            return Err(RevertError::NoProxyFile);
        }
        steps.push(PlanStep {
            path: RootedPath::new(paths::PROXY_ENV_BACKUP).map_err(FsError::from)?,
            action: PlanAction::Copy { from },
        });
    }
    with_directories(root, steps)
}

/// Returns the steps that remove the files of an earlier revert.
pub fn leftovers(root: &Root) -> Result<Vec<PlanStep<'static>>, FsError> {
    let mut steps = Vec::new();
    for path in [
        link_path(),
        unit_path(),
        paths::PROXY_ENV_BACKUP.to_owned(),
        paths::REVERT_CONFIG.to_owned(),
    ] {
        let path = RootedPath::new(&path)?;
        if root.entry(&path)?.is_some() {
            steps.push(PlanStep {
                path,
                action: PlanAction::Remove,
            });
        }
    }
    Ok(steps)
}

fn unit_path() -> String {
    format!("{UNIT_DIRECTORY}/{UNIT}")
}

fn link_path() -> String {
    format!("{UNIT_DIRECTORY}/multi-user.target.requires/{UNIT}")
}

fn write(path: &str, bytes: Vec<u8>, attributes: Attributes) -> Result<PlanStep<'static>, FsError> {
    Ok(PlanStep {
        path: RootedPath::new(path)?,
        action: PlanAction::Write {
            contents: NewContents::Bytes(bytes),
            attributes,
        },
    })
}

fn with_directories(
    root: &Root,
    steps: Vec<PlanStep<'static>>,
) -> Result<Vec<PlanStep<'static>>, RevertError> {
    let mut directories: Vec<RootedPath> = Vec::new();
    for parent in steps.iter().filter_map(|step| step.path.parent()) {
        directories.extend(root.missing_directories(&parent)?);
    }
    directories.sort();
    directories.dedup();
    let attributes = DIRECTORY_ATTRIBUTES;
    let create = |path| PlanStep {
        path,
        action: PlanAction::CreateDirectory { attributes },
    };
    Ok(directories.into_iter().map(create).chain(steps).collect())
}

#[cfg(test)]
mod tests {
    use mco_host::Ownership;
    use serde_json::{Value, json};

    use super::*;

    fn cluster(images: &Value, proxy: &Value) -> ControllerConfig {
        let object = json!({"metadata": {"name": "machine-config-controller"}, "spec": {"images": images, "proxy": proxy}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn the_unit_speaks_of_a_proxy_only_where_there_is_one() {
        let images = json!({OWN_IMAGE: "registry.example/mco@sha256:1"});
        let unit = |proxy: &Value| WayBack::of(&cluster(&images, proxy)).unwrap().unit();
        for (name, proxy, proxied) in [
            ("none", json!(null), false),
            (
                "an empty one",
                json!({"httpProxy": "", "noProxy": ".cluster"}),
                false,
            ),
            ("one", json!({"httpsProxy": "http://proxy.example:3128"}), true),
        ] {
            let text = unit(&proxy);
            assert_eq!(text.contains("proxy.env"), proxied, "{name}: {text}");
            assert!(
                text.contains(
                    " --entrypoint machine-config-daemon registry.example/mco@sha256:1 \
                     firstboot-complete-machineconfig --root-mount=/rootfs \
                     --machineconfig-file=/etc/mco/machineconfig-revert.json\n"
                ),
                "{text}"
            );
            assert!(
                text.contains("ConditionPathExists=/etc/mco/machineconfig-revert.json\n"),
                "{text}"
            );
            assert!(
                text.ends_with("[Install]\nRequiredBy=multi-user.target\n"),
                "{text}"
            );
        }
        assert!(unit(&json!({"httpProxy": "x"})).contains("\nEnvironmentFile=/etc/mco/proxy.env.backup\n"));
    }

    #[test]
    fn a_cluster_without_a_pull_secret_pulls_without_a_file_of_credentials() {
        use std::process::Command;

        let image = "registry.example/mco@sha256:1";
        let line = pull(image);
        let script = line
            .strip_prefix("/bin/sh -c '")
            .and_then(|rest| rest.strip_suffix(&format!("' {image}")))
            .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let secret = directory.path().join("config.json");
        let secret = secret.to_str().unwrap();
        // As systemd passes it on, with the path of this test and an echo for podman.
        let script = script
            .replace("$$", "$")
            .replace("/var/lib/kubelet/config.json", secret)
            .replace("/usr/bin/podman", "/bin/echo");
        let arguments = || {
            let output = Command::new("/bin/sh")
                .args(["-c", &script, image])
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(arguments(), format!("pull --quiet {image}\n"));
        std::fs::write(secret, "{}").unwrap();
        assert_eq!(arguments(), format!("pull --quiet --authfile {secret} {image}\n"));
    }

    #[test]
    fn without_our_image_or_the_proxys_file_there_is_no_way_back() {
        for images in [json!({}), json!({OWN_IMAGE: ""})] {
            let error = WayBack::of(&cluster(&images, &json!(null))).unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains("no machineConfigOperator among its images"),
                "{error}"
            );
        }
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        let images = json!({OWN_IMAGE: "mco"});
        let plain = WayBack::of(&cluster(&images, &json!(null))).unwrap();
        preparation(&root, &plain, &NodeConfig::empty()).expect("the file is not needed without a proxy");
        let proxied = WayBack::of(&cluster(&images, &json!({"httpProxy": "x"}))).unwrap();
        let error = preparation(&root, &proxied, &NodeConfig::empty()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the cluster has a proxy, but /etc/mco/proxy.env does not exist on this machine"
        );
        std::fs::create_dir_all(directory.path().join("etc/mco")).unwrap();
        std::fs::write(directory.path().join("etc/mco/proxy.env"), "HTTP_PROXY=x\n").unwrap();
        let steps = preparation(&root, &proxied, &NodeConfig::empty()).unwrap();
        let paths: Vec<&str> = steps.iter().map(|step| step.path.as_str()).collect();
        assert!(paths.contains(&paths::PROXY_ENV_BACKUP), "{paths:?}");
    }

    #[test]
    fn only_leaving_a_built_image_needs_a_way_back() {
        let plain = NodeConfig::empty;
        let built = |image: &str| plain().with_built_image(Some(image.to_owned()));
        for (name, backend, old, new, needed) in [
            ("left", OsBackend::RpmOstree, built("a"), plain(), true),
            ("left on bootc", OsBackend::Bootc, built("a"), plain(), true),
            (
                "another build",
                OsBackend::RpmOstree,
                built("a"),
                built("b"),
                false,
            ),
            ("entered", OsBackend::RpmOstree, plain(), built("a"), false),
            (
                "a machine without images",
                OsBackend::PackageMode,
                built("a"),
                plain(),
                false,
            ),
            ("a directory", OsBackend::Simulated, built("a"), plain(), false),
        ] {
            assert_eq!(is_needed(backend, &old, &new), needed, "{name}");
        }
    }
}
