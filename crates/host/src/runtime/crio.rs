//! CRI-O, accessed through `crictl`; image sizes in a registry are read through `podman`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{ContainerRuntime, Layer, RuntimeError, crictl, manifest};
use crate::command::{CommandError, Commands};
use crate::path::RootedPath;
use crate::root::{FsError, Root};

const SOCKET: &str = "/var/run/crio/crio.sock";
const STORAGE: &str = "/var/lib/containers/storage";
/// The kernel's ENOSPC message, as it arrives through three programs.
const DISK_FULL: &str = "no space left on device";

#[derive(Debug)]
pub struct Crio {
    commands: Arc<dyn Commands>,
}

impl Crio {
    pub fn new(commands: Arc<dyn Commands>) -> Self {
        Self { commands }
    }

    /// Returns whether CRI-O listens on this machine.
    pub fn is_present(root: &Root) -> Result<bool, RuntimeError> {
        Ok(root.exists(&RootedPath::new(SOCKET).map_err(FsError::from)?)?)
    }

    fn check_present(root: &Root) -> Result<(), RuntimeError> {
        if Self::is_present(root)? {
            return Ok(());
        }
        Err(RuntimeError::Absent(format!("CRI-O does not listen at {SOCKET}")))
    }
}

impl ContainerRuntime for Crio {
    fn images(&self, root: &Root) -> Result<BTreeSet<String>, RuntimeError> {
        Self::check_present(root)?;
        crictl::images(self.commands.as_ref(), SOCKET).map_err(classified)
    }

    fn layers(&self, root: &Root, image: &str) -> Result<Vec<Layer>, RuntimeError> {
        manifest::layers(self.commands.as_ref(), root, image).map_err(classified)
    }

    fn pull(&self, root: &Root, image: &str, credential: Option<&str>) -> Result<(), RuntimeError> {
        Self::check_present(root)?;
        crictl::pull(self.commands.as_ref(), SOCKET, image, credential).map_err(classified)
    }

    fn free_space(&self, root: &Root) -> Option<u64> {
        root.free_space(&RootedPath::new(STORAGE).ok()?).ok()
    }
}

pub(super) fn classified(error: CommandError) -> RuntimeError {
    match error {
        CommandError::Missing { program } => RuntimeError::Absent(format!("{program} is not installed")),
        CommandError::Failed { ref complaint, .. } if complaint.contains(DISK_FULL) => {
            RuntimeError::Full(error)
        }
        other => RuntimeError::Command(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::testing::Recorded;
    use crate::root::Ownership;

    fn machine(with_socket: bool) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        if with_socket {
            let place = directory.path().join("var/run/crio");
            std::fs::create_dir_all(&place).unwrap();
            std::fs::write(place.join("crio.sock"), "").unwrap();
        }
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        (directory, root)
    }

    fn crio(recorded: Recorded) -> Crio {
        Crio::new(Arc::new(Arc::new(recorded)))
    }

    #[test]
    fn a_machine_without_a_runtime_says_what_is_missing() {
        let (_directory, root) = machine(false);
        let error = crio(Recorded::default()).images(&root).unwrap_err();
        assert_eq!(
            error.to_string(),
            "this machine has no container runtime that supports pinned images: CRI-O does not listen at \
             /var/run/crio/crio.sock"
        );
        let (_directory, root) = machine(true);
        let error = crio(Recorded::default()).images(&root).unwrap_err();
        assert_eq!(
            error.to_string(),
            "this machine has no container runtime that supports pinned images: crictl is not installed"
        );
    }

    #[test]
    fn a_full_disk_is_distinguished_from_other_failures() {
        let (_directory, root) = machine(true);
        for (complaint, full) in [
            (
                "FATA[0004] pulling image: rpc error: code = Unknown desc = writing blob: write /var/tmp/x: no space left on device",
                true,
            ),
            (
                "FATA[0000] pulling image: rpc error: code = Unknown desc = reading manifest: manifest unknown",
                false,
            ),
        ] {
            let failing = Recorded::default().failing("crictl", 1, complaint);
            let error = crio(failing)
                .pull(&root, "a.example/b@sha256:1", None)
                .unwrap_err();
            assert_eq!(matches!(error, RuntimeError::Full(_)), full, "{error}");
        }
        assert!(
            crio(Recorded::default())
                .free_space(&root)
                .is_some_and(|free| free > 0)
        );
    }
}
