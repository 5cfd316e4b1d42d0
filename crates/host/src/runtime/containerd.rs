//! containerd, accessed through `crictl`; images are pinned through `ctr`, because containerd has no file for that.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::crio::classified;
use super::{ContainerRuntime, Layer, Pinning, RuntimeError, crictl, manifest};
use crate::command::{CommandError, Commands, succeed};
use crate::path::RootedPath;
use crate::root::{FsError, Root};

const PROGRAM: &str = "ctr";
/// The namespace of the kubelet's images.
const NAMESPACE: &str = "k8s.io";
/// The label by which containerd's CRI service reports an image as pinned.
const PINNED: &str = "io.cri-containerd.pinned";
/// Marks what we have pinned: others, such as the sandbox image, stay pinned.
const OURS: &str = "mco.dev/pinned";

/// Sockets, each with the directory of its images: the usual one, and that of k3s and RKE2.
const LOCATIONS: [(&str, &str); 2] = [
    ("/run/containerd/containerd.sock", "/var/lib/containerd"),
    ("/run/k3s/containerd/containerd.sock", "/var/lib/rancher"),
];

#[derive(Debug)]
pub struct Containerd {
    commands: Arc<dyn Commands>,
}

impl Containerd {
    pub fn new(commands: Arc<dyn Commands>) -> Self {
        Self { commands }
    }

    /// Returns whether containerd listens on this machine.
    pub fn is_present(root: &Root) -> Result<bool, RuntimeError> {
        Ok(location(root)?.is_some())
    }

    fn ctr(&self, socket: &str, arguments: &[&str]) -> Result<String, CommandError> {
        let options = ["--address", socket, "--namespace", NAMESPACE, "images"];
        succeed(self.commands.as_ref(), PROGRAM, &[&options, arguments].concat())
    }

    fn set_pinned(&self, socket: &str, images: &BTreeSet<String>) -> Result<bool, CommandError> {
        let filter = format!("labels.{OURS:?}==true");
        let listed = self.ctr(socket, &["list", "--quiet", &filter])?;
        let pinned: BTreeSet<&str> = listed
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        let mut changed = false;
        for image in images.iter().filter(|image| !pinned.contains(image.as_str())) {
            let (pin, own) = (format!("{PINNED}=pinned"), format!("{OURS}=true"));
            self.ctr(socket, &["label", image, &pin, &own])?;
            changed = true;
        }
        for image in pinned.into_iter().filter(|image| !images.contains(*image)) {
            // A label without a value is removed.
            let (pin, own) = (format!("{PINNED}="), format!("{OURS}="));
            self.ctr(socket, &["label", image, &pin, &own])?;
            changed = true;
        }
        Ok(changed)
    }
}

impl Containerd {
    /// Older releases keep the label, but do not report it to the kubelet, which may then remove the image.
    fn check_pinned(&self, socket: &str, images: &BTreeSet<String>) -> Result<(), RuntimeError> {
        if images.is_empty() {
            return Ok(());
        }
        let pinned = crictl::pinned_images(self.commands.as_ref(), socket).map_err(classified)?;
        match images.difference(&pinned).next() {
            None => Ok(()),
            Some(image) => Err(RuntimeError::Absent(format!(
                "containerd does not report {image} as pinned, so the kubelet may remove it; upgrade to containerd 1.7"
            ))),
        }
    }
}

fn location(root: &Root) -> Result<Option<(&'static str, &'static str)>, RuntimeError> {
    for (socket, storage) in LOCATIONS {
        if root.exists(&RootedPath::new(socket).map_err(FsError::from)?)? {
            return Ok(Some((socket, storage)));
        }
    }
    Ok(None)
}

fn socket(root: &Root) -> Result<&'static str, RuntimeError> {
    let [(usual, _), _] = LOCATIONS;
    let absent = || RuntimeError::Absent(format!("containerd does not listen at {usual}"));
    Ok(location(root)?.ok_or_else(absent)?.0)
}

impl ContainerRuntime for Containerd {
    fn images(&self, root: &Root) -> Result<BTreeSet<String>, RuntimeError> {
        crictl::images(self.commands.as_ref(), socket(root)?).map_err(classified)
    }

    fn layers(&self, root: &Root, image: &str) -> Result<Vec<Layer>, RuntimeError> {
        manifest::layers(self.commands.as_ref(), root, image).map_err(classified)
    }

    fn pull(&self, root: &Root, image: &str, credential: Option<&str>) -> Result<(), RuntimeError> {
        crictl::pull(self.commands.as_ref(), socket(root)?, image, credential).map_err(classified)
    }

    fn free_space(&self, root: &Root) -> Option<u64> {
        let (_, storage) = location(root).ok()??;
        root.free_space(&RootedPath::new(storage).ok()?).ok()
    }

    fn pin(&self, root: &Root, images: &BTreeSet<String>) -> Result<Pinning, RuntimeError> {
        match self.set_pinned(socket(root)?, images) {
            // A machine without the program has nothing that could be unpinned.
            Err(CommandError::Missing { .. }) if images.is_empty() => Ok(Pinning::Done { changed: false }),
            pinned => {
                let changed = pinned.map_err(classified)?;
                self.check_pinned(socket(root)?, images)?;
                Ok(Pinning::Done { changed })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::testing::Recorded;
    use crate::root::Ownership;

    fn machine(socket: &str) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(socket.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        (directory, root)
    }

    #[test]
    fn images_are_pinned_and_unpinned_by_label_and_only_ours() {
        let (_directory, root) = machine("/run/k3s/containerd/containerd.sock");
        let images = r#"{"images": [
            {"repoDigests": ["kept@sha256:02"], "pinned": true}, {"repoDigests": ["new@sha256:03"], "pinned": true}]}"#;
        let answers = [("ctr", "old@sha256:01\nkept@sha256:02\n"), ("crictl", images)];
        let recorded = Arc::new(Recorded::answering(&answers));
        let containerd = Containerd::new(Arc::new(Arc::clone(&recorded)));
        let wanted = BTreeSet::from(["kept@sha256:02".to_owned(), "new@sha256:03".to_owned()]);
        let pinned = containerd.pin(&root, &wanted).unwrap();
        assert_eq!(pinned, Pinning::Done { changed: true });
        let prefix = "ctr --address /run/k3s/containerd/containerd.sock --namespace k8s.io images";
        assert_eq!(
            recorded.invocations()[..3],
            [
                format!("{prefix} list --quiet labels.\"mco.dev/pinned\"==true"),
                format!("{prefix} label new@sha256:03 io.cri-containerd.pinned=pinned mco.dev/pinned=true"),
                format!("{prefix} label old@sha256:01 io.cri-containerd.pinned= mco.dev/pinned="),
            ]
        );
        let old = images.replace("\"pinned\": true", "\"pinned\": false");
        let old = Recorded::answering(&[("ctr", ""), ("crictl", old.as_str())]);
        let old = Containerd::new(Arc::new(Arc::new(old)));
        let error = old.pin(&root, &wanted).unwrap_err().to_string();
        assert!(
            error.contains("does not report kept@sha256:02 as pinned"),
            "{error}"
        );
        let absent = Containerd::new(Arc::new(Arc::new(Recorded::default())));
        let nothing = absent.pin(&root, &BTreeSet::new()).unwrap();
        assert_eq!(nothing, Pinning::Done { changed: false });
        assert!(absent.pin(&root, &wanted).is_err());
    }
}
