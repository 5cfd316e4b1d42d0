//! `mco daemon` on a directory that simulates a machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const CONFIG: &str = "\
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-motd
  labels: {machineconfiguration.openshift.io/role: worker}
spec:
  config:
    ignition: {version: 3.5.0}
    storage:
      files:
      - path: /etc/motd
        mode: 0644
        contents: {source: \"data:,managed%0A\"}
";

fn mco(root: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mco"))
        .arg("daemon")
        .args(arguments)
        .arg("--root")
        .arg(root)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_file_is_applied_watched_over_and_taken_back() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::write(root.join("etc/motd"), "original\n").unwrap();
    let file = directory.path().join("50-motd.yaml");
    fs::write(&file, CONFIG).unwrap();
    let file = file.to_str().unwrap();

    let output = mco(&root, &["once-from", file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).starts_with("50-motd: applied, "),
        "{}",
        text(&output.stdout)
    );
    assert_eq!(fs::read_to_string(root.join("etc/motd")).unwrap(), "managed\n");
    assert_eq!(
        text(&mco(&root, &["once-from", file]).stdout),
        "50-motd: nothing to do\n"
    );
    assert_eq!(text(&mco(&root, &["validate"]).stdout), "50-motd: no drift\n");
    let status = text(&mco(&root, &["status"]).stdout);
    assert!(
        status.contains("config:  50-motd\ndoing:   nothing; idle\nsystem:  simulated\n"),
        "{status}"
    );

    fs::write(root.join("etc/motd"), "edited by hand\n").unwrap();
    let output = mco(&root, &["validate"]);
    assert_eq!(output.status.code(), Some(3));
    let shown = text(&output.stdout);
    assert!(
        shown.starts_with("content mismatch for file \"/etc/motd\"\n  expected 8 bytes sha256:"),
        "{shown}"
    );
    assert!(!shown.contains("edited"), "contents must not be shown: {shown}");

    let empty = directory.path().join("empty.ign");
    fs::write(&empty, r#"{"ignition": {"version": "3.5.0"}}"#).unwrap();
    let output = mco(&root, &["once-from", empty.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(root.join("etc/motd")).unwrap(), "original\n");
}

#[test]
fn a_machine_that_never_had_a_config_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let output = mco(directory.path(), &["validate"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("no configuration was ever applied"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_config_that_cannot_be_applied_says_why_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    fs::create_dir(&root).unwrap();
    let file = directory.path().join("bad.ign");
    let body = r#"{"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "/etc/x", "user": {"name": "ghost"}}]}}"#;
    fs::write(&file, body).unwrap();
    let output = mco(&root, &["once-from", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(
        error.contains("bad was not applied: failed to retrieve UserID for username: ghost"),
        "{error}"
    );
    assert!(!root.join("etc/x").exists());
}

#[test]
fn a_first_boot_is_completed_once() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let output = mco(root, &["firstboot"]);
    assert_eq!(
        text(&output.stdout),
        "nothing to complete: this is not a first boot\n"
    );
    let file = root.join("etc/ignition-machine-config-encapsulated.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let config = r#"{"metadata": {"name": "rendered-worker-1"}, "spec": {"config": {"ignition": {"version": "3.2.0"}},
        "kernelArguments": ["nosmt"]}}"#;
    fs::write(&file, config).unwrap();
    let output = mco(root, &["firstboot", "--skip-reboot"]);
    assert_eq!(
        text(&output.stdout),
        "rendered-worker-1: in place; boot the machine to finish\n",
        "{}",
        text(&output.stderr)
    );
    assert!(!file.exists());
    let status = text(&mco(root, &["status"]).stdout);
    assert!(
        status.contains("waiting for a boot into rendered-worker-1: Completing firstboot provisioning to rendered-worker-1"),
        "{status}"
    );
}

#[test]
fn a_machine_that_ignition_provisioned_is_compared_with_what_it_was_installed_with() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    fs::create_dir_all(root.join("etc/machine-config-daemon")).unwrap();
    let config = r#"{"metadata": {"name": "rendered-worker-1"}, "spec": {"osImageURL": "registry.example/os@sha256:1", "config": {
        "ignition": {"version": "3.2.0"},
        "storage": {"files": [{"path": "/etc/a", "mode": 420, "contents": {"source": "data:,right"}}]}}}}"#;
    fs::write(root.join("etc/mcs-machine-config-content.json"), config).unwrap();
    fs::write(root.join("etc/machine-config-daemon/node-annotations.json"), "{}").unwrap();
    fs::write(root.join("etc/a"), "right").unwrap();
    assert_eq!(
        text(&mco(root, &["validate"]).stdout),
        "rendered-worker-1: no drift\n"
    );
    fs::write(root.join("etc/a"), "wrong").unwrap();
    assert_eq!(mco(root, &["validate"]).status.code(), Some(3));
}
