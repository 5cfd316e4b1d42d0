//! The simulated container runtime of a directory machine: a file lists the images it "has".

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::{ContainerRuntime, Layer, RuntimeError};
use crate::path::RootedPath;
use crate::root::{Attributes, FsError, Root};

const STATE_FILE: &str = "/var/lib/mco-simulated-images.json";

#[derive(Debug, Default)]
pub struct SimulatedRuntime {
    /// Concurrent pulls write to one file.
    writing: Mutex<()>,
}

impl ContainerRuntime for SimulatedRuntime {
    fn images(&self, root: &Root) -> Result<BTreeSet<String>, RuntimeError> {
        let path = RootedPath::new(STATE_FILE).map_err(FsError::from)?;
        // An unreadable file counts as a fresh machine, because it exists for simulations only.
        let known = root.read(&path, 16 << 20)?;
        Ok(known
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default())
    }

    fn layers(&self, _: &Root, _: &str) -> Result<Vec<Layer>, RuntimeError> {
        Ok(Vec::new())
    }

    fn pull(&self, root: &Root, image: &str, _: Option<&str>) -> Result<(), RuntimeError> {
        let _alone = self.writing.lock();
        let mut images = self.images(root)?;
        images.insert(image.to_owned());
        let path = RootedPath::new(STATE_FILE).map_err(FsError::from)?;
        if let Some(parent) = path.parent() {
            root.create_directories(&parent, Attributes::root(0o755))?;
        }
        let text = serde_json::to_vec(&images).unwrap_or_default();
        Ok(root.write_atomically(&path, Attributes::root(0o644), &text)?)
    }

    fn free_space(&self, _: &Root) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Ownership;

    #[test]
    fn what_was_pulled_stays() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
        let runtime = SimulatedRuntime::default();
        assert!(runtime.images(&root).unwrap().is_empty());
        std::thread::scope(|scope| {
            for image in ["a@sha256:1", "b@sha256:2", "a@sha256:1"] {
                scope.spawn(|| runtime.pull(&root, image, None).unwrap());
            }
        });
        let images = runtime.images(&root).unwrap();
        assert_eq!(
            images,
            BTreeSet::from(["a@sha256:1".to_owned(), "b@sha256:2".to_owned()])
        );
    }
}
