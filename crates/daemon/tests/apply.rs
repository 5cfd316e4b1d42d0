//! The files of a node after a config was applied, changed and removed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use mco_daemon::once::{self, OnceOutcome, RebootPolicy};
use mco_daemon::transaction::Uninterrupted;
use mco_daemon::{disk, paths, validate};
use mco_host::systemd::ServiceAction;
use serde_json::{Value, json};
use support::{Node, config, config_with, file, files};

const UNIT: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";

fn drift(node: &Node) -> Vec<String> {
    let current = disk::current_config(&node.machine.root).unwrap().unwrap();
    validate::validate(&node.machine, &current)
        .unwrap()
        .into_iter()
        .map(|mismatch| mismatch.cause)
        .collect()
}

#[test]
fn files_get_contents_mode_and_owner_and_the_second_run_does_nothing() {
    let node = Node::new();
    let new = config(
        "a",
        &json!({"storage": {"files": [
            {"path": "/etc/deep/er/file", "mode": 0o600, "user": {"name": "core"}, "group": {"name": "wheel"},
             "contents": {"source": "data:,hello%0A"}},
            {"path": "/etc/packed", "contents": {
                "source": "data:;base64,H4sIAAAAAAACA8tIzcnJ5wIAIDA6NgYAAAA=", "compression": "gzip"}},
        ]}}),
    );
    assert!(matches!(node.apply(&new).unwrap(), OnceOutcome::Applied { .. }));
    assert_eq!(node.read("/etc/deep/er/file"), "hello\n");
    assert_eq!(node.read("/etc/packed"), "hello\n");
    let mode = fs::metadata(node.path("/etc/deep/er/file"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o600);
    assert!(drift(&node).is_empty());
    assert_eq!(node.apply(&new).unwrap(), OnceOutcome::Unchanged);
    assert!(!node.exists(paths::JOURNAL));
}

#[test]
fn a_file_that_did_not_change_keeps_its_inode() {
    use std::os::unix::fs::MetadataExt as _;
    let node = Node::new();
    node.apply(&config(
        "a",
        &files(&[file("/etc/same", "1"), file("/etc/other", "1")]),
    ))
    .unwrap();
    let inode = |path: &str| fs::metadata(node.path(path)).unwrap().ino();
    let (same, other) = (inode("/etc/same"), inode("/etc/other"));
    node.apply(&config(
        "b",
        &files(&[file("/etc/same", "1"), file("/etc/other", "2")]),
    ))
    .unwrap();
    assert_eq!(inode("/etc/same"), same);
    assert_ne!(inode("/etc/other"), other);
}

#[test]
fn what_was_there_before_comes_back_when_the_config_goes() {
    let node = Node::new();
    node.write("/etc/unmanaged", "precious\n");
    symlink("/etc/motd", node.path("/etc/link")).unwrap();
    let before = node.snapshot();
    let all = ["/etc/motd", "/etc/unmanaged", "/etc/link", "/etc/new"];
    let bodies: Vec<_> = all.iter().map(|path| file(path, "ours\n")).collect();
    node.apply(&config("a", &files(&bodies))).unwrap();
    for path in all {
        assert_eq!(node.read(path), "ours\n", "{path}");
    }
    assert_eq!(
        node.read("/etc/machine-config-daemon/orig/etc/motd.mcdorig"),
        "welcome\n"
    );
    assert!(node.exists("/etc/machine-config-daemon/noorig/etc/new.mcdnoorig"));
    // Several changes in between must not turn our own contents into the backup.
    node.apply(&config(
        "b",
        &files(&[file("/etc/motd", "second\n"), file("/etc/new", "second\n")]),
    ))
    .unwrap();
    node.apply(&config("c", &json!({}))).unwrap();
    let after = node.snapshot();
    for path in all {
        assert_eq!(after.get(path), before.get(path), "{path}");
    }
    let stamps: Vec<_> = after.keys().filter(|path| path.contains(".mcd")).collect();
    assert!(stamps.is_empty(), "{stamps:?}");
}

#[test]
fn stamps_of_the_other_implementation_are_understood() {
    let node = Node::new();
    // A node as the other daemon leaves it: currentconfig, one overwritten system file, one file of its own.
    let old = config(
        "rendered-worker-1",
        &files(&[file("/etc/motd", "theirs\n"), file("/etc/own", "theirs\n")]),
    );
    let text = serde_json::to_string(&*old.object).unwrap();
    node.write(paths::CURRENT_CONFIG, &text);
    node.write("/etc/motd", "theirs\n");
    node.write("/etc/own", "theirs\n");
    node.write("/etc/machine-config-daemon/orig/etc/motd.mcdorig", "welcome\n");
    node.write("/etc/machine-config-daemon/noorig/etc/own.mcdnoorig", "");
    assert!(drift(&node).is_empty());
    assert_eq!(node.apply(&old).unwrap(), OnceOutcome::Unchanged);
    node.apply(&config("rendered-worker-2", &json!({}))).unwrap();
    assert_eq!(node.read("/etc/motd"), "welcome\n");
    assert!(!node.exists("/etc/own"));
}

#[test]
fn the_distributions_own_copy_comes_back_where_there_is_one() {
    let node = Node::new();
    node.write("/usr/etc/chrony.conf", "pool default\n");
    let old = config("installed", &files(&[file("/etc/chrony.conf", "pool ours\n")]));
    node.write("/etc/chrony.conf", "pool ours\n");
    node.write(
        paths::CURRENT_CONFIG,
        &serde_json::to_string(&*old.object).unwrap(),
    );
    node.apply(&config("next", &json!({}))).unwrap();
    assert_eq!(node.read("/etc/chrony.conf"), "pool default\n");
}

#[test]
fn units_are_written_enabled_masked_and_taken_back() {
    let node = Node::new();
    let before = node.snapshot();
    let new = config(
        "a",
        &json!({"systemd": {"units": [
            {"name": "own.service", "enabled": true, "contents": UNIT,
             "dropins": [{"name": "10-x.conf", "contents": "[Unit]\n"}, {"name": "20-empty.conf"}]},
            {"name": "vendor.service", "enabled": true},
            {"name": "gone.service", "mask": true},
            {"name": "unknown.service", "enabled": true},
        ]}}),
    );
    node.apply(&new).unwrap();
    assert_eq!(node.read("/etc/systemd/system/own.service"), UNIT);
    assert!(node.exists("/etc/systemd/system/own.service.d/10-x.conf"));
    assert!(!node.exists("/etc/systemd/system/own.service.d/20-empty.conf"));
    let link = |path: &str| fs::read_link(node.path(path)).unwrap().display().to_string();
    let wants = "/etc/systemd/system/multi-user.target.wants";
    assert_eq!(
        link(&format!("{wants}/own.service")),
        "/etc/systemd/system/own.service"
    );
    assert_eq!(
        link(&format!("{wants}/vendor.service")),
        "/usr/lib/systemd/system/vendor.service"
    );
    assert_eq!(link("/etc/systemd/system/gone.service"), "/dev/null");
    assert!(!node.exists("/etc/systemd/system/unknown.service"));
    assert!(drift(&node).is_empty());
    assert_eq!(node.apply(&new).unwrap(), OnceOutcome::Unchanged);

    let disabled = config(
        "b",
        &json!({"systemd": {"units": [{"name": "own.service", "enabled": false, "contents": UNIT}]}}),
    );
    node.apply(&disabled).unwrap();
    assert!(!node.exists(&format!("{wants}/own.service")));
    // This machine's preset disables everything, so the vendor's unit is reset to disabled.
    assert!(!node.exists(&format!("{wants}/vendor.service")));
    assert!(!node.exists("/etc/systemd/system/gone.service"));

    node.apply(&config("c", &json!({}))).unwrap();
    let after = node.snapshot();
    assert!(!after.contains_key("/etc/systemd/system/own.service"));
    assert_eq!(
        after.get("/usr/lib/systemd/system/vendor.service"),
        before.get("/usr/lib/systemd/system/vendor.service")
    );
}

#[test]
fn a_unit_that_moves_to_another_target_leaves_the_first() {
    let node = Node::new();
    let unit = |target: &str| {
        let contents = format!("[Service]\nExecStart=/bin/true\n[Install]\nWantedBy={target}\n");
        config(
            target,
            &json!({"systemd": {"units": [{"name": "own.service", "enabled": true, "contents": contents}]}}),
        )
    };
    node.apply(&unit("one.target")).unwrap();
    node.apply(&unit("two.target")).unwrap();
    assert!(!node.exists("/etc/systemd/system/one.target.wants/own.service"));
    assert!(node.exists("/etc/systemd/system/two.target.wants/own.service"));
}

#[test]
fn keys_and_password_of_core_are_kept_in_order() {
    let node = Node::new();
    let with_keys = config(
        "a",
        &json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 A", "ssh-ed25519 B"],
                                      "passwordHash": "$y$secret"}]}}),
    );
    assert!(matches!(
        node.apply(&with_keys).unwrap(),
        OnceOutcome::Applied { .. }
    ));
    assert_eq!(
        node.read(paths::AUTHORIZED_KEYS),
        "ssh-ed25519 A\nssh-ed25519 B\n"
    );
    let mode = |path: &str| fs::metadata(node.path(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(paths::AUTHORIZED_KEYS), 0o600);
    assert_eq!(mode(paths::SSH_DIRECTORY), 0o700);
    assert!(node.read("/etc/shadow").contains("core:$y$secret:"));
    assert!(drift(&node).is_empty());
    assert_eq!(node.apply(&with_keys).unwrap(), OnceOutcome::Unchanged);

    node.apply(&config("b", &json!({}))).unwrap();
    assert_eq!(node.read(paths::AUTHORIZED_KEYS), "");
    assert!(
        node.read("/etc/shadow").contains("core:*:"),
        "a password taken back must not become an empty one"
    );
}

#[test]
fn keys_or_a_password_for_a_missing_user_are_refused_before_anything_is_written() {
    let node = Node::new();
    node.write("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    let with = |name: &str, user: Value| {
        let mut body = files(&[file("/etc/a", name)]);
        body["passwd"] = json!({"users": [user]});
        config(name, &body)
    };
    let before = node.snapshot();
    for user in [
        json!({"name": "core", "sshAuthorizedKeys": ["k"]}),
        json!({"name": "core", "passwordHash": "$y$x"}),
    ] {
        let error = node.apply(&with("a", user)).unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot set SSH keys or the password of user \"core\": this machine has no such user. Create it (for example \
             with `useradd --create-home core`), name another one in the annotation mco.dev/ssh-user of the pool, or remove \
             it from passwd.users of the MachineConfigs"
        );
        assert_eq!(node.snapshot(), before);
    }
    node.write("/etc/passwd", support::PASSWD);
    node.apply(&with("a", json!({"name": "core", "sshAuthorizedKeys": ["k"]})))
        .unwrap();
    assert_eq!(node.read(paths::AUTHORIZED_KEYS), "k\n");
}

#[test]
fn keys_that_a_change_does_not_touch_need_no_user() {
    let node = Node::new();
    let with = |name: &str, key: &str| {
        let mut body = files(&[file("/etc/a", name)]);
        body["passwd"] = json!({"users": [{"name": "core", "sshAuthorizedKeys": [key]}]});
        config(name, &body)
    };
    node.apply(&with("a", "k")).unwrap();
    node.write("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    node.apply(&with("b", "k")).unwrap();
    assert_eq!(node.read("/etc/a"), "b");
    assert!(drift(&node).is_empty());
    node.apply(&with("c", "other")).unwrap_err();
    assert_eq!(node.read("/etc/a"), "b");
    node.apply(&config("d", &files(&[file("/etc/a", "d")])))
        .expect("keys that go away need no user");
}

#[test]
fn directories_and_links_of_a_document_are_made_without_a_cluster() {
    let node = Node::new();
    let new = config(
        "a",
        &json!({"storage": {
            "directories": [{"path": "/var/lib/app/data", "mode": 0o750, "user": {"id": 1000}, "group": {"id": 1000}}],
            "links": [{"path": "/etc/localtime", "target": "../usr/share/zoneinfo/UTC"}],
            "files": [file("/var/lib/app/data/a", "x")],
        }}),
    );
    node.apply(&new).unwrap();
    let mode = fs::metadata(node.path("/var/lib/app/data"))
        .unwrap()
        .permissions()
        .mode()
        & 0o7777;
    assert_eq!(mode, 0o750);
    assert_eq!(
        fs::read_link(node.path("/etc/localtime"))
            .unwrap()
            .display()
            .to_string(),
        "../usr/share/zoneinfo/UTC"
    );
    assert!(drift(&node).is_empty());
    assert_eq!(node.apply(&new).unwrap(), OnceOutcome::Unchanged);
}

#[test]
fn a_change_that_a_policy_covers_reloads_and_one_that_none_covers_boots() {
    let node = Node::new();
    let boot = || node.machine.power.boot_id(&node.machine.root).unwrap();
    let first = boot();
    node.apply(&config("a", &files(&[file("/etc/containers/policy.json", "{}")])))
        .unwrap();
    assert_eq!(
        node.services.performed(),
        [ServiceAction::Reload("crio.service".to_owned())]
    );
    assert_eq!(boot(), first);
    node.apply(&config(
        "b",
        &files(&[file("/etc/containers/policy.json", "{}"), file("/etc/x", "1")]),
    ))
    .unwrap();
    assert_ne!(boot(), first);
    assert_eq!(node.services.performed().len(), 1);
}

#[test]
fn a_service_that_fails_brings_the_old_state_back() {
    let node = Node::new();
    let old = config("a", &files(&[file("/etc/containers/policy.json", "{}")]));
    let new = config("b", &files(&[file("/etc/containers/policy.json", "{\"new\":1}")]));
    node.apply(&old).unwrap();
    let before = node.snapshot();
    node.services.set_failing("crio.service", true);
    let error = node.apply(&new).unwrap_err().to_string();
    assert_eq!(
        error,
        "crio.service is failed after reload crio.service, with result exit-code"
    );
    assert_eq!(node.snapshot(), before);
    node.services.set_failing("crio.service", false);
    assert!(matches!(node.apply(&new).unwrap(), OnceOutcome::Applied { .. }));
}

#[test]
fn a_boot_is_owed_until_it_happened_even_if_the_config_changes_again() {
    let node = Node::new();
    let apply = |config: &_| once::apply(&node.machine, config, RebootPolicy::Never, &Uninterrupted).unwrap();
    let first = config("a", &files(&[file("/etc/x", "1")]));
    let second = config(
        "b",
        &files(&[file("/etc/x", "1"), file("/etc/containers/policy.json", "{}")]),
    );
    assert!(matches!(apply(&first), OnceOutcome::NeedsReboot { .. }));
    assert!(
        matches!(apply(&first), OnceOutcome::NeedsReboot { changed: 0, .. }),
        "asking again changes nothing"
    );
    // On its own this change only reloads a service.
    assert!(matches!(apply(&second), OnceOutcome::NeedsReboot { .. }));
    assert!(node.services.performed().is_empty());
    node.machine.power.reboot(&node.machine.root, "test").unwrap();
    assert_eq!(apply(&second), OnceOutcome::Unchanged);
    assert!(!node.exists(paths::JOURNAL));
    let left: Vec<_> = node
        .snapshot()
        .into_keys()
        .filter(|path| path.contains(".mco-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn kernel_arguments_and_images_are_there_after_the_boot_and_proven() {
    let node = Node::new();
    let spec = json!({"kernelArguments": ["nosmt"], "osImageURL": "quay.io/os@sha256:1"});
    let new = config_with("a", &json!({}), &spec);
    assert!(matches!(node.apply(&new).unwrap(), OnceOutcome::Applied { .. }));
    let state = node.machine.os.state(&node.machine.root).unwrap();
    assert_eq!(
        (state.image.as_deref(), state.kernel_arguments),
        (Some("quay.io/os@sha256:1"), vec!["nosmt".to_owned()])
    );
    assert!(drift(&node).is_empty());
    assert_eq!(node.apply(&new).unwrap(), OnceOutcome::Unchanged);
}

#[test]
fn two_daemons_cannot_work_on_one_machine() {
    let node = Node::new();
    let _held = once::lock(&node.machine).unwrap();
    let error = node.apply(&config("a", &json!({}))).unwrap_err();
    assert_eq!(error.to_string(), "another daemon is running on this machine");
}
