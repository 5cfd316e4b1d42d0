//! A failure during a change leaves the node as it was, is reported, and a retry succeeds once the cause is gone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod support;

use std::cell::Cell;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use mco_daemon::config::NodeConfig;
use mco_daemon::once::{self, OnceOutcome, RebootPolicy};
use mco_daemon::paths;
use mco_daemon::transaction::{Checkpoints, Uninterrupted};
use mco_host::Machine;
use mco_host::systemd::SimulatedServices;
use serde_json::json;
use support::{Breakage, BrokenOs, Node, config, config_with, file, files};

fn old() -> NodeConfig {
    config(
        "old",
        &files(&[file("/etc/a", "old\n"), file("/etc/gone", "old\n")]),
    )
}

fn new() -> NodeConfig {
    let mut body = files(&[file("/etc/a", "new\n"), file("/etc/sub/b", "new\n")]);
    body["systemd"] = json!({"units": [{"name": "x.service", "enabled": true,
        "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"}]});
    body["passwd"] = json!({"users": [{"name": "core", "sshAuthorizedKeys": ["k"], "passwordHash": "$y$x"}]});
    config("new", &body)
}

/// The disk returns this error at the n-th step.
struct FailAt {
    left: Cell<u32>,
    errno: i32,
}

impl Checkpoints for FailAt {
    fn at(&self, _: &'static str) -> io::Result<()> {
        self.left.set(self.left.get().wrapping_sub(1));
        if self.left.get() == 0 {
            Err(io::Error::from_raw_os_error(self.errno))
        } else {
            Ok(())
        }
    }
}

#[test]
fn an_error_of_the_disk_at_any_step_undoes_everything() {
    const NO_SPACE: i32 = 28;
    let mut step = 0;
    loop {
        step += 1;
        let node = Node::new();
        node.apply(&old()).unwrap();
        let before = node.snapshot();
        let disk = FailAt {
            left: Cell::new(step),
            errno: NO_SPACE,
        };
        match once::apply(&node.machine, &new(), RebootPolicy::WhenNeeded, &disk) {
            Ok(_) => {
                assert!(disk.left.get() > 0, "an error at step {step} went unnoticed");
                break;
            }
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("No space left on device"), "step {step}: {error}");
                // Once everything is in place, only the reboot is left: then the new state stays.
                if node
                    .read("/etc/machine-config-daemon/currentconfig")
                    .contains("\"new\"")
                {
                    node.apply(&new()).unwrap();
                } else {
                    assert_eq!(node.snapshot(), before, "step {step}");
                }
            }
        }
        assert!(
            matches!(
                node.apply(&new()).unwrap(),
                OnceOutcome::Applied { .. } | OnceOutcome::Unchanged
            ),
            "step {step}"
        );
        assert_eq!(node.read("/etc/sub/b"), "new\n");
    }
    assert!(step > 40, "only {step} steps");
}

/// The disk is full while old contents are copied, because they are on another filesystem: half of each arrives.
struct HalfCopied(PathBuf);

impl Checkpoints for HalfCopied {
    fn at(&self, point: &'static str) -> io::Result<()> {
        if point != "sync directory of old contents" {
            return Ok(());
        }
        for kept in fs::read_dir(&self.0)? {
            let kept = kept?.path();
            let contents = fs::read(&kept)?;
            fs::remove_file(&kept)?;
            fs::write(&kept, &contents[..contents.len() / 2])?;
        }
        Err(io::Error::from_raw_os_error(28))
    }
}

#[test]
fn half_a_copy_of_old_contents_replaced_a_file_that_was_not_changed_yet() {
    let node = Node::new();
    node.apply(&old()).unwrap();
    let before = node.snapshot();
    let disk = HalfCopied(node.path(paths::OLD_CONTENTS));
    let error = once::apply(&node.machine, &new(), RebootPolicy::WhenNeeded, &disk).unwrap_err();
    assert!(error.to_string().contains("No space left on device"), "{error}");
    assert_eq!(node.snapshot(), before);
    node.apply(&new()).unwrap();
    assert_eq!(node.read("/etc/a"), "new\n");
}

/// Runs with a real small filesystem, which needs privileges; without them only the test above runs.
#[test]
fn a_full_disk_undoes_everything() {
    let directory = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=512k", "tmpfs"])
        .arg(directory.path())
        .output()
        .is_ok_and(|output| output.status.success());
    if !mounted {
        eprintln!("note: no right to mount here; only injected errors are tested");
        return;
    }
    let path = directory.path().to_owned();
    let result = std::panic::catch_unwind(|| {
        support::lay_out(&path);
        let machine = Machine::directory(&path).unwrap();
        let apply =
            |config: &NodeConfig| once::apply(&machine, config, RebootPolicy::WhenNeeded, &Uninterrupted);
        apply(&old()).unwrap();
        let before = support::snapshot(&path);
        let big = "x".repeat(600 << 10);
        let large = config(
            "large",
            &files(&[file("/etc/a", "new\n"), file("/etc/big", &big)]),
        );
        let error = apply(&large).unwrap_err().to_string();
        assert!(error.contains("No space left on device"), "{error}");
        assert!(
            support::snapshot(&path) == before,
            "something was left behind or lost"
        );
        apply(&new()).unwrap();
        assert_eq!(fs::read_to_string(path.join("etc/a")).unwrap(), "new\n");
    });
    Command::new("umount").arg(directory.path()).status().unwrap();
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn a_read_only_file_is_no_obstacle_and_an_immutable_directory_is_one() {
    let node = Node::new();
    node.apply(&old()).unwrap();
    fs::set_permissions(node.path("/etc/motd"), fs::Permissions::from_mode(0o400)).unwrap();
    node.apply(&config(
        "ro",
        &files(&[file("/etc/motd", "ours\n"), file("/etc/a", "old\n")]),
    ))
    .unwrap();
    assert_eq!(node.read("/etc/motd"), "ours\n");

    fs::create_dir(node.path("/etc/frozen")).unwrap();
    let chattr = |flag: &str| {
        let output = Command::new("chattr")
            .arg(flag)
            .arg(node.path("/etc/frozen"))
            .output();
        output.is_ok_and(|output| output.status.success())
    };
    if !chattr("+i") {
        eprintln!("note: directories cannot be made immutable here");
        return;
    }
    let before = node.snapshot();
    let blocked = config(
        "im",
        &files(&[file("/etc/a", "new\n"), file("/etc/frozen/b", "new\n")]),
    );
    let error = node.apply(&blocked).unwrap_err().to_string();
    let after = node.snapshot();
    chattr("-i");
    assert!(
        error.contains("/etc/frozen/") && error.contains("not permitted"),
        "{error}"
    );
    assert_eq!(after, before);
    node.apply(&blocked).unwrap();
    assert_eq!(node.read("/etc/frozen/b"), "new\n");
}

#[test]
fn an_unknown_owner_stops_the_change_before_anything_is_written() {
    let node = Node::new();
    node.apply(&old()).unwrap();
    let before = node.snapshot();
    let mut entry = file("/etc/b", "new\n");
    entry["user"] = json!({"name": "nobody-here"});
    let error = node
        .apply(&config("x", &files(&[file("/etc/a", "new\n"), entry])))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "failed to retrieve UserID for username: nobody-here (owner of /etc/b)"
    );
    assert_eq!(node.snapshot(), before);
    node.write(
        "/etc/passwd",
        "nobody-here:x:99:99::/:/bin/false\ncore:x:1000:1000::/home/core:/bin/sh\n",
    );
    let mut entry = file("/etc/b", "new\n");
    entry["user"] = json!({"name": "nobody-here"});
    node.apply(&config("x", &files(&[file("/etc/a", "new\n"), entry])))
        .unwrap();
}

#[test]
fn unsupported_compression_and_unknown_extensions_are_reported_before_anything_is_written() {
    let node = Node::new();
    let before = node.snapshot();
    let bomb = config_with("x", &json!({}), &json!({"extensions": ["nonsense"]}));
    let error = node.apply(&bomb).unwrap_err().to_string();
    assert_eq!(error, "invalid extensions found: [nonsense]");
    assert_eq!(node.snapshot(), before);
}

#[test]
fn a_journal_of_a_newer_version_is_left_alone() {
    let node = Node::new();
    node.write(
        "/etc/machine-config-daemon/transaction.json",
        "{\"format\": 99, \"other\": true}",
    );
    let error = node.apply(&old()).unwrap_err().to_string();
    assert!(error.contains("newer version (format 99)"), "{error}");
    assert!(node.exists("/etc/machine-config-daemon/transaction.json"));
}

fn with_kernel_argument() -> NodeConfig {
    let entries = [file("/etc/a", "new\n"), file("/etc/sub/b", "new\n")];
    config_with("kernel", &files(&entries), &json!({"kernelArguments": ["nosmt"]}))
}

/// A node on the old config with an OS backend that fails on demand.
fn node_with_broken_os() -> (Node, BrokenOs) {
    let directory = tempfile::tempdir().unwrap();
    support::lay_out(directory.path());
    let services = Arc::new(SimulatedServices::default());
    let mut machine = Machine::directory_with(
        directory.path(),
        support::ownership(),
        Box::new(Arc::clone(&services)),
    )
    .unwrap();
    let os = BrokenOs::default();
    machine.os = Box::new(os.clone());
    let node = Node {
        directory,
        services,
        machine: Arc::new(machine),
    };
    node.apply(&old()).unwrap();
    (node, os)
}

#[test]
fn attempts_that_fail_in_the_system_do_not_leak_their_staged_files() {
    let (node, os) = node_with_broken_os();
    let before = node.snapshot();
    for (breakage, cause) in [
        (
            Breakage {
                missing: true,
                ..Breakage::default()
            },
            "grubby is not installed on this machine",
        ),
        (
            Breakage {
                stage_fails: true,
                ..Breakage::default()
            },
            "grubby failed with exit code 1: no boot loader",
        ),
    ] {
        os.set(breakage);
        for _ in 0..3 {
            let error = node.apply(&with_kernel_argument()).unwrap_err().to_string();
            assert_eq!(error, cause);
            assert_eq!(node.snapshot(), before);
        }
    }
    os.set(Breakage::default());
    node.apply(&with_kernel_argument()).unwrap();
    assert_eq!(node.read("/etc/sub/b"), "new\n");
}

#[test]
fn a_system_that_cannot_be_undone_does_not_keep_the_files_from_coming_back() {
    let (node, os) = node_with_broken_os();
    let mut before = node.snapshot();
    os.set(Breakage {
        stage_fails: true,
        discard_fails: true,
        ..Breakage::default()
    });
    let error = node.apply(&with_kernel_argument()).unwrap_err().to_string();
    assert!(
        error.starts_with("error rolling back files writes: [grubby failed"),
        "{error}"
    );
    let journal = "/etc/machine-config-daemon/transaction.json";
    let mut after = node.snapshot();
    assert!(after.remove(journal).is_some(), "the rest is not forgotten");
    assert_eq!(after, before);

    // A file that is created at a path of that change in the meantime does not belong to it.
    node.write("/etc/sub/b", "the administrator's\n");
    let error = node.apply(&with_kernel_argument()).unwrap_err().to_string();
    assert!(error.contains("while recovering"), "{error}");
    os.set(Breakage::default());
    node.apply(&old()).unwrap();
    assert_eq!(node.read("/etc/sub/b"), "the administrator's\n");
    fs::remove_dir_all(node.path("/etc/sub")).unwrap();
    before.remove("/var/lib/mco-simulated-os.json");
    let mut after = node.snapshot();
    after.remove("/var/lib/mco-simulated-os.json");
    assert_eq!(after, before);
}

#[test]
fn a_journal_that_an_earlier_version_left_without_the_tool_is_undone() {
    let (node, os) = node_with_broken_os();
    let before = node.snapshot();
    os.set(Breakage {
        missing: true,
        ..Breakage::default()
    });
    let boot = node.machine.power.boot_id(&node.machine.root).unwrap();
    let journal = json!({
        "format": 1, "id": "abc", "from": "old", "to": "kernel", "phase": "staging", "boot": boot,
        "os": {"append_kernel_arguments": ["nosmt"]},
        "steps": [{"path": "/etc/a", "change": {"put": {"replaces": true}}}],
    });
    node.write(
        "/etc/machine-config-daemon/transaction.json",
        &journal.to_string(),
    );
    node.write("/etc/.mco-abc-0.new", "new\n");
    node.apply(&old()).unwrap();
    assert_eq!(node.snapshot(), before);
}
