//! `podman`: lists local images, and extracts the contents of the extensions image.

use std::sync::Arc;

use serde::Deserialize;

use super::retry::{PULL, Sleeper, ThreadSleeper};
use super::{OsError, credentials};
use crate::command::{CommandError, Commands, succeed, succeed_with};
use crate::path::RootedPath;
use crate::power::random_name;
use crate::root::{Attributes, FsError, Root};

const CONTENT_DIRECTORY: &str = "/run/mco-extensions";
const REPOSITORY_FILE: &str = "/etc/yum.repos.d/coreos-extensions.repo";

#[derive(Debug)]
pub(super) struct Podman {
    commands: Arc<dyn Commands>,
    sleeper: Arc<dyn Sleeper>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PodmanImage {
    #[serde(default)]
    id: String,
    #[serde(default)]
    repo_digests: Option<Vec<String>>,
}

/// An image of the local container storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LocalImage {
    /// By digest.
    pub reference: String,
    pub id: String,
}

#[derive(Debug, Deserialize)]
struct PodmanInfo {
    store: ContainerStore,
}

/// Where the local container storage is.
#[derive(Debug, Deserialize)]
pub(super) struct ContainerStore {
    #[serde(rename = "graphDriverName")]
    pub driver: String,
    #[serde(rename = "graphRoot")]
    pub root: String,
}

/// The unpacked extension packages and a repository file that points to them; both are removed on drop.
#[derive(Debug)]
pub(super) struct ExtensionsContent<'a> {
    root: &'a Root,
    commands: Arc<dyn Commands>,
    directory: String,
}

impl Podman {
    pub fn new(commands: Arc<dyn Commands>) -> Self {
        Self {
            commands,
            sleeper: Arc::new(ThreadSleeper),
        }
    }

    pub fn with_sleeper(mut self, sleeper: Arc<dyn Sleeper>) -> Self {
        self.sleeper = sleeper;
        self
    }

    fn run(&self, arguments: &[&str]) -> Result<String, CommandError> {
        succeed(self.commands.as_ref(), "podman", arguments)
    }

    /// Returns a local image that was pulled by this digest. Not `podman images` with a filter, which finds no digests
    /// before version 4.4.
    pub fn local_image(&self, image: &str) -> Option<LocalImage> {
        let text = self.run(&["image", "inspect", image]).ok()?;
        let images: Vec<PodmanImage> = serde_json::from_str(&text).ok()?;
        images.into_iter().find_map(|found| {
            let digests = found.repo_digests?;
            let reference = digests.into_iter().find(|digest| digest == image)?;
            Some(LocalImage {
                reference,
                id: found.id,
            })
        })
    }

    /// Returns where the local images are stored.
    pub fn store(&self) -> Result<ContainerStore, OsError> {
        let text = self.run(&["system", "info", "--format=json"])?;
        let info: PodmanInfo = serde_json::from_str(&text).map_err(|error| CommandError::Unexpected {
            command: "podman system info".to_owned(),
            why: error.to_string(),
        })?;
        Ok(info.store)
    }

    pub fn extract_extensions<'a>(
        &self,
        root: &'a Root,
        image: &str,
    ) -> Result<ExtensionsContent<'a>, OsError> {
        self.fetch(root, image)?;
        let name = random_name();
        let directory = format!("{CONTENT_DIRECTORY}/os-extensions-content-{name}");
        let path = RootedPath::new(&directory).map_err(FsError::from)?;
        root.create_directories(&path, Attributes::root(0o755))?;
        let content = ExtensionsContent {
            root,
            commands: Arc::clone(&self.commands),
            directory,
        };
        self.unpack(image, &name, &content.directory)?;
        let repository = format!(
            "[coreos-extensions]\nenabled=1\nmetadata_expire=1m\nbaseurl={}/usr/share/rpm-ostree/extensions/\n\
             gpgcheck=0\nskip_if_unavailable=False\n",
            content.directory
        );
        let path = RootedPath::new(REPOSITORY_FILE).map_err(FsError::from)?;
        if let Some(parent) = path.parent() {
            root.create_directories(&parent, Attributes::root(0o755))?;
        }
        root.write_atomically(&path, Attributes::root(0o644), repository.as_bytes())?;
        Ok(content)
    }

    /// Pulls an image that is not present yet.
    pub fn fetch(&self, root: &Root, image: &str) -> Result<(), OsError> {
        if self.local_image(image).is_some() {
            return Ok(());
        }
        self.pull(root, image)
    }

    /// Runs an image's own `bootupctl` to update the machine's boot loader.
    pub fn run_bootupctl(&self, image: &str) -> Result<(), OsError> {
        // The tool requires the environment of a service manager.
        let invocation = format!("INVOCATION_ID={}{}", random_name(), random_name());
        let privileges = ["--privileged", "--pid=host", "--net=host", "--rm"];
        let volumes = ["-v", "/boot:/boot:rslave", "-v", "/dev:/dev"];
        let arguments = [
            &["run", "--env", &invocation],
            &privileges[..],
            &volumes[..],
            &[image, "bootupctl", "update"],
        ];
        self.run(&arguments.concat())?;
        Ok(())
    }

    /// Copies a directory of an image to one of the machine.
    pub fn copy_out(&self, image: &str, inside: &str, directory: &str) -> Result<(), OsError> {
        self.copy(image, &random_name(), inside, directory)?;
        Ok(())
    }

    /// Pulls with the lowest priority, so that workloads keep their share of the disk and the CPUs.
    fn pull(&self, root: &Root, image: &str) -> Result<(), OsError> {
        let mut arguments = vec!["--", "ionice", "-c", "3", "podman", "pull", "-q"];
        if let Some(secret) = credentials::secret(root)? {
            arguments.extend(["--authfile", secret]);
        }
        arguments.push(image);
        let proxy = credentials::proxy(root)?;
        let proxy: Vec<(&str, &str)> = proxy
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        PULL.run(&self.sleeper, || {
            succeed_with(self.commands.as_ref(), "nice", &arguments, &proxy)
        })?;
        Ok(())
    }

    fn copy(&self, image: &str, name: &str, inside: &str, directory: &str) -> Result<(), CommandError> {
        let container = format!("ostree-container-pivot-{name}");
        let annotation = "--annotation=org.openshift.machineconfigoperator.pivot=true";
        // The command is never run, but an image may have none of its own.
        self.run(&[
            "create",
            "--net=none",
            annotation,
            "--name",
            &container,
            image,
            "/none",
        ])?;
        let copied = self.run(&["cp", &format!("{container}:{inside}"), directory]);
        // The container was never started; if it cannot be removed it only costs a little space.
        let _ = self.run(&["rm", "-f", &container]);
        copied.map(|_| ())
    }

    fn unpack(&self, image: &str, name: &str, directory: &str) -> Result<(), OsError> {
        self.copy(image, name, "/", directory)?;
        // rpm-ostree may only read files of this type; machines without SELinux have no such tool, and need none.
        let _ = succeed(
            self.commands.as_ref(),
            "chcon",
            &["-R", "-t", "var_run_t", directory],
        );
        Ok(())
    }
}

impl Drop for ExtensionsContent<'_> {
    fn drop(&mut self) {
        // Both are in places that the next update overwrites or the next boot clears.
        if let Ok(path) = RootedPath::new(REPOSITORY_FILE) {
            let _ = self.root.remove_file(&path);
        }
        let _ = succeed(self.commands.as_ref(), "rm", &["-rf", "--", &self.directory]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::testing::Recorded;
    use crate::root::Ownership;

    #[test]
    fn an_image_counts_as_local_only_under_its_own_digest() {
        let images = include_str!("fixtures/podman-images.json");
        let podman = Podman::new(Arc::new(Arc::new(Recorded::answering(&[("podman", images)]))));
        let image = "quay.io/openshift/os@sha256:bb22";
        assert_eq!(
            podman.local_image(image).map(|found| found.reference).as_deref(),
            Some(image)
        );
        assert_eq!(podman.local_image("quay.io/openshift/os:latest"), None);
    }

    #[test]
    fn extensions_are_unpacked_and_cleaned_up() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        let recorded = Arc::new(Recorded::answering(&[
            ("podman", "[]"),
            ("nice", ""),
            ("chcon", ""),
            ("rm", ""),
        ]));
        let podman = Podman::new(Arc::new(Arc::clone(&recorded)));
        let content = podman
            .extract_extensions(&root, "quay.io/extensions@sha256:1")
            .unwrap();
        let repository = directory.path().join("etc/yum.repos.d/coreos-extensions.repo");
        let text = std::fs::read_to_string(&repository).unwrap();
        assert!(
            text.contains(&format!(
                "baseurl={}/usr/share/rpm-ostree/extensions/\n",
                content.directory
            )),
            "{text}"
        );
        drop(content);
        assert!(!repository.exists());
        assert!(
            recorded
                .invocations()
                .last()
                .unwrap()
                .starts_with("rm -rf -- /run/mco-extensions/")
        );
    }

    /// Runs the machine's own podman with a storage of its own, and copies below the machine's root.
    #[derive(Debug)]
    struct RealPodman {
        root: std::path::PathBuf,
        storage: std::path::PathBuf,
    }

    impl Commands for RealPodman {
        fn run_with(
            &self,
            program: &str,
            arguments: &[&str],
            environment: &[(&str, &str)],
        ) -> Result<crate::command::CommandOutput, CommandError> {
            let host = crate::command::HostCommands::default();
            if program != "podman" {
                return host.run_with(program, arguments, environment);
            }
            let (store, run) = (self.storage.join("store"), self.storage.join("run"));
            let mut all: Vec<String> = [
                "--root",
                &store.display().to_string(),
                "--runroot",
                &run.display().to_string(),
            ]
            .map(str::to_owned)
            .to_vec();
            all.extend(["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"].map(str::to_owned));
            all.extend(arguments.iter().map(|one| (*one).to_owned()));
            if let (Some(&"cp"), Some(last)) = (arguments.first(), all.last_mut()) {
                *last = format!("{}{last}", self.root.display());
            }
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            host.run_with(program, &all, environment)
        }
    }

    #[test]
    #[allow(clippy::print_stderr)]
    fn a_real_podman_finds_and_extracts_a_local_image() {
        let (directory, storage) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let commands: Arc<dyn Commands> = Arc::new(RealPodman {
            root: directory.path().to_owned(),
            storage: storage.path().to_owned(),
        });
        let packages = storage.path().join("rootfs/usr/share/rpm-ostree/extensions");
        std::fs::create_dir_all(&packages).unwrap();
        std::fs::write(packages.join("usbguard.rpm"), "rpm").unwrap();
        let (tar, files) = (storage.path().join("image.tar"), storage.path().join("rootfs"));
        let (tar, files) = (tar.display().to_string(), files.display().to_string());
        succeed(commands.as_ref(), "tar", &["-C", &files, "-cf", &tar, "."]).unwrap();
        if let Err(error) = succeed(
            commands.as_ref(),
            "podman",
            &["import", "-q", &tar, "localhost/extensions:1"],
        ) {
            eprintln!("note: no usable podman here, so only doubles are tested: {error}");
            return;
        }
        let digest = succeed(
            commands.as_ref(),
            "podman",
            &["images", "--format", "{{.Digest}}", "localhost/extensions"],
        );
        let image = format!("localhost/extensions@{}", digest.unwrap().trim());
        let podman = Podman::new(Arc::clone(&commands));
        assert_eq!(podman.local_image(&image).unwrap().reference, image);
        assert_eq!(podman.local_image("localhost/extensions:1"), None);
        assert!(podman.local_image("localhost/none@sha256:1").is_none());
        assert_eq!(podman.store().unwrap().driver, "vfs");
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        let content = podman.extract_extensions(&root, &image).unwrap();
        let extracted = format!(
            "{}/usr/share/rpm-ostree/extensions/usbguard.rpm",
            content.directory
        );
        let extracted = directory.path().join(extracted.trim_start_matches('/'));
        assert_eq!(std::fs::read_to_string(extracted).unwrap(), "rpm");
    }
}
