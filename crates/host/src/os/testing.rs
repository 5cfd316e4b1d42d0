//! Machines of the doubles, for the tests of the backends.

use std::sync::Arc;

use mco_testkit::os_double::{OsDouble, OsTools};

use super::retry::testing::RecordedSleeper;
use super::{Bootc, RpmOstree};
use crate::command::{Commands, HostCommands};
use crate::root::{Ownership, Root};

pub struct DoubledMachine {
    pub directory: tempfile::TempDir,
    _state: tempfile::TempDir,
    pub double: OsDouble,
    pub root: Root,
    pub commands: Arc<dyn Commands>,
    pub sleeper: Arc<RecordedSleeper>,
}

pub const BOOTED: &str = "quay.io/openshift/os@sha256:aa11";
pub const BOOTED_DIGEST: &str = "sha256:aa11";

impl DoubledMachine {
    pub fn new(tools: OsTools) -> Self {
        let (directory, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let double = OsDouble::new(directory.path(), state.path(), tools, BOOTED, BOOTED_DIGEST);
        let commands: Arc<dyn Commands> = Arc::new(HostCommands::through(double.launcher()));
        Self {
            root: Root::open(directory.path(), Ownership::Recorded).unwrap(),
            directory,
            _state: state,
            double,
            commands,
            sleeper: Arc::default(),
        }
    }

    pub fn rpm_ostree(&self) -> RpmOstree {
        RpmOstree::new(Arc::clone(&self.commands)).with_sleeper(self.sleeper.clone())
    }

    pub fn bootc(&self) -> Bootc {
        Bootc::new(Arc::clone(&self.commands)).with_sleeper(self.sleeper.clone())
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn exists(&self, path: &str) -> bool {
        std::fs::symlink_metadata(self.directory.path().join(path)).is_ok()
    }
}
