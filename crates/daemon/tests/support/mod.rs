//! A directory that simulates a node, and its contents.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use mco_daemon::config::NodeConfig;
use mco_daemon::once::{self, OnceError, OnceOutcome, RebootPolicy};
use mco_daemon::transaction::Uninterrupted;
use mco_host::os::{OperatingSystem, OsBackend, OsChange, OsError, OsState, SimulatedOs};
use mco_host::systemd::SimulatedServices;
use mco_host::{CommandError, Machine, Ownership, Root};
use serde_json::{Value, json};

pub const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\ncore:x:1000:1000:CoreOS:/home/core:/bin/bash\n";
pub const GROUP: &str = "root:x:0:\ncore:x:1000:\nwheel:x:10:core\n";
pub const SHADOW: &str = "root:!:19000::::::\ncore:!:19000:0:99999:7:::\n";

pub struct Node {
    pub directory: tempfile::TempDir,
    pub services: Arc<SimulatedServices>,
    pub machine: Arc<Machine>,
}

impl Node {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        lay_out(directory.path());
        Self::at(directory)
    }

    pub fn at(directory: tempfile::TempDir) -> Self {
        let services = Arc::new(SimulatedServices::default());
        let machine =
            Machine::directory_with(directory.path(), ownership(), Box::new(Arc::clone(&services))).unwrap();
        Self {
            directory,
            services,
            machine: Arc::new(machine),
        }
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path.trim_start_matches('/'))
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub fn exists(&self, path: &str) -> bool {
        fs::symlink_metadata(self.path(path)).is_ok()
    }

    pub fn apply(&self, config: &NodeConfig) -> Result<OnceOutcome, OnceError> {
        once::apply(&self.machine, config, RebootPolicy::WhenNeeded, &Uninterrupted)
    }

    pub fn snapshot(&self) -> Snapshot {
        snapshot(self.directory.path())
    }
}

/// Changing owners needs privileges; without them owners are recorded.
pub fn ownership() -> Ownership {
    if rustix::process::geteuid().is_root() {
        Ownership::Enforced
    } else {
        Ownership::Recorded
    }
}

pub fn lay_out(root: &Path) {
    for (path, text, mode) in [
        ("etc/passwd", PASSWD, 0o644),
        ("etc/group", GROUP, 0o644),
        ("etc/shadow", SHADOW, 0o600),
        ("etc/motd", "welcome\n", 0o644),
        (
            "usr/lib/systemd/system/vendor.service",
            "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
            0o644,
        ),
        (
            "usr/lib/systemd/system-preset/99-default.preset",
            "disable *\n",
            0o644,
        ),
    ] {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    for directory in ["home/core", "run", "etc/systemd/system"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
}

/// Returns a MachineConfig with this name and Ignition body.
pub fn config(name: &str, body: &Value) -> NodeConfig {
    config_with(name, body, &json!({}))
}

pub fn config_with(name: &str, body: &Value, spec: &Value) -> NodeConfig {
    let mut ignition = json!({"ignition": {"version": "3.5.0"}});
    ignition
        .as_object_mut()
        .unwrap()
        .extend(body.as_object().unwrap().clone());
    let mut object = json!({"metadata": {"name": name}, "spec": {"config": ignition}});
    object["spec"]
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    NodeConfig::new(serde_json::from_value(object).unwrap()).unwrap()
}

pub fn file(path: &str, text: &str) -> Value {
    json!({"path": path, "mode": 0o644, "contents": {"source": mco_ignition::resource::encode(text.as_bytes())}})
}

pub fn files(entries: &[Value]) -> Value {
    json!({"storage": {"files": entries}})
}

/// A snapshot of a node: type, mode, owner and contents of each path. Files below /run and timestamps are excluded.
pub type Snapshot = BTreeMap<String, String>;

pub fn snapshot(root: &Path) -> Snapshot {
    let mut found = Snapshot::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("/{}", path.strip_prefix(root).unwrap().display());
            if name == "/run" || name == "/etc/.pwd.lock" {
                continue;
            }
            let metadata = fs::symlink_metadata(&path).unwrap();
            let contents = if metadata.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if metadata.is_dir() {
                waiting.push(path.clone());
                "directory".to_owned()
            } else {
                format!("{:?}", String::from_utf8_lossy(&fs::read(&path).unwrap()))
            };
            let shape = format!(
                "{:o} {}:{} {contents}",
                metadata.mode(),
                metadata.uid(),
                metadata.gid()
            );
            found.insert(name, shape);
        }
    }
    found
}

pub fn gzip(text: &str) -> Value {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text.as_bytes()).unwrap();
    json!({"source": mco_ignition::resource::encode(&encoder.finish().unwrap()), "compression": "gzip"})
}

/// A simulated OS that reports an image-based backend.
#[derive(Debug)]
pub struct ImageBased;

impl OperatingSystem for ImageBased {
    fn backend(&self) -> OsBackend {
        OsBackend::RpmOstree
    }

    fn state(&self, root: &Root) -> Result<OsState, OsError> {
        SimulatedOs.state(root)
    }

    fn check(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        SimulatedOs.check(root, change)
    }

    fn stage(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        SimulatedOs.stage(root, change)
    }

    fn discard(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        SimulatedOs.discard(root, change)
    }
}

/// A simulated OS whose tool can fail. All clones share one state.
#[derive(Debug, Clone, Default)]
pub struct BrokenOs(Arc<Mutex<Breakage>>);

#[derive(Debug, Clone, Default)]
pub struct Breakage {
    /// The tool is missing, for staging and discarding.
    pub missing: bool,
    pub stage_fails: bool,
    pub discard_fails: bool,
    /// Staging succeeds and creates a directory here, so that the following steps fail.
    pub obstacle: Option<PathBuf>,
}

impl BrokenOs {
    pub fn set(&self, breakage: Breakage) {
        *self.0.lock().unwrap() = breakage;
    }

    fn run(&self, fails: impl Fn(&Breakage) -> bool) -> Result<(), OsError> {
        let breakage = self.0.lock().unwrap();
        let error = if breakage.missing {
            CommandError::Missing {
                program: "grubby".to_owned(),
            }
        } else if fails(&breakage) {
            CommandError::Failed {
                command: "grubby".to_owned(),
                code: Some(1),
                complaint: "no boot loader".to_owned(),
            }
        } else {
            return Ok(());
        };
        Err(error.into())
    }
}

impl OperatingSystem for BrokenOs {
    fn backend(&self) -> OsBackend {
        OsBackend::Simulated
    }

    fn state(&self, root: &Root) -> Result<OsState, OsError> {
        SimulatedOs.state(root)
    }

    fn check(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        SimulatedOs.check(root, change)
    }

    fn stage(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        self.run(|breakage| breakage.stage_fails)?;
        if let Some(obstacle) = &self.0.lock().unwrap().obstacle {
            fs::create_dir_all(obstacle).unwrap();
        }
        SimulatedOs.stage(root, change)
    }

    fn discard(&self, root: &Root, change: &OsChange) -> Result<(), OsError> {
        self.run(|breakage| breakage.discard_fails)?;
        SimulatedOs.discard(root, change)
    }
}

/// Returns the temporary files that transactions have left behind.
pub fn leftovers(root: &Path) -> Vec<String> {
    let staged = |path: &String| path.contains("/.mco-");
    snapshot(root).into_keys().filter(staged).collect()
}
