//! Hostile configs and roots: nothing outside the root is ever touched, and errors name the cause.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod support;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::process::Command;

use mco_daemon::config::NodeConfig;
use mco_daemon::once::OnceOutcome;
use mco_ignition::model::{Config, File};
use serde_json::json;
use support::{Node, config, file, files};

/// A config that admission would reject, built by hand.
fn unchecked(path: &str, mode: i64) -> NodeConfig {
    let mut ignition = Config::default();
    ignition.storage.files.push(File {
        path: path.to_owned(),
        mode: Some(mode),
        ..File::default()
    });
    let mut config = config("hostile", &json!({}));
    config.parsed.ignition = ignition;
    config
}

#[test]
fn links_planted_in_the_root_lead_nowhere_else() {
    let node = Node::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "untouched").unwrap();
    symlink(outside.path(), node.path("/etc/absolute")).unwrap();
    symlink("../../../../../../../../tmp", node.path("/etc/climbing")).unwrap();
    symlink(outside.path().join("secret"), node.path("/etc/file")).unwrap();
    fs::create_dir(node.path("/tmp")).unwrap();

    let error = node
        .apply(&config("a", &files(&[file("/etc/absolute/x", "1")])))
        .unwrap_err()
        .to_string();
    assert_eq!(error, "\"/etc/absolute\" is a symbolic link, not a directory");
    node.apply(&config(
        "b",
        &files(&[file("/etc/climbing/x", "1"), file("/etc/file", "1")]),
    ))
    .unwrap();
    assert_eq!(node.read("/tmp/x"), "1");
    assert!(!fs::symlink_metadata(node.path("/etc/file")).unwrap().is_symlink());

    assert_eq!(
        fs::read_to_string(outside.path().join("secret")).unwrap(),
        "untouched"
    );
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    // A link that was there before is restored as a link, and is still not followed.
    node.apply(&config("c", &json!({}))).unwrap();
    assert!(fs::symlink_metadata(node.path("/etc/file")).unwrap().is_symlink());
    assert_eq!(
        fs::read_to_string(outside.path().join("secret")).unwrap(),
        "untouched"
    );
}

#[test]
fn paths_that_climb_lead_through_files_or_belong_to_others_are_refused() {
    let node = Node::new();
    fs::create_dir_all(node.path("/etc/directory/below")).unwrap();
    let before = node.snapshot();
    let cases = [
        (
            "/etc/../../escape",
            0o644,
            "\"/etc/../../escape\" is not a usable path: it contains . or ..",
        ),
        (
            "relative",
            0o644,
            "\"relative\" is not a usable path: it is not absolute",
        ),
        ("/", 0o644, "\"/\" is not a usable path: it is the root itself"),
        (
            "/etc/motd/x",
            0o644,
            "\"/etc/motd\" is a regular file, not a directory",
        ),
        (
            "/etc/directory",
            0o644,
            "/etc/directory exists and is a directory; it cannot become a file or link",
        ),
        (
            "/etc/setuid",
            0o4755,
            "invalid mode 0o4755 for /etc/setuid, cannot exceed 0777",
        ),
        (
            "/etc/sticky",
            0o1777,
            "invalid mode 0o1777 for /etc/sticky, cannot exceed 0777",
        ),
        (
            "/proc/sys/kernel/panic",
            0o644,
            "/proc/sys/kernel/panic cannot be managed: the kernel provides this directory; use a sysctl file or a \
             unit instead",
        ),
        (
            "/etc/machine-config-daemon/currentconfig",
            0o644,
            "/etc/machine-config-daemon/currentconfig cannot be managed: it belongs to the daemon itself",
        ),
    ];
    for (path, mode, expected) in cases {
        let error = node.apply(&unchecked(path, mode)).unwrap_err().to_string();
        assert!(error.contains(expected), "{path}: {error}");
        assert_eq!(node.snapshot(), before, "{path}");
    }
}

#[test]
fn a_file_cannot_be_a_directory_of_the_same_config() {
    let node = Node::new();
    let before = node.snapshot();
    let body = files(&[file("/etc/a", "1"), file("/etc/a/b", "1")]);
    let error = node.apply(&config("x", &body)).unwrap_err().to_string();
    assert_eq!(
        error,
        "/etc/a cannot be a file and hold /etc/a/b at the same time"
    );
    assert_eq!(node.snapshot(), before);
}

#[test]
fn devices_and_pipes_are_left_alone() {
    let node = Node::new();
    let status = Command::new("mkfifo")
        .arg(node.path("/etc/pipe"))
        .status()
        .unwrap();
    assert!(status.success());
    let error = node
        .apply(&config("x", &files(&[file("/etc/pipe", "1")])))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "/etc/pipe exists and is a device, socket or pipe; it cannot become a file or link"
    );
    let device = Command::new("mknod")
        .arg(node.path("/etc/null"))
        .args(["c", "1", "3"])
        .status()
        .unwrap();
    if device.success() {
        let error = node
            .apply(&config("x", &files(&[file("/etc/null", "1")])))
            .unwrap_err()
            .to_string();
        assert!(error.contains("a device, socket or pipe"), "{error}");
    } else {
        eprintln!("note: no right to make devices here");
    }
}

#[test]
fn names_of_units_cannot_leave_the_unit_directory() {
    let node = Node::new();
    let mut hostile = config("x", &json!({}));
    hostile
        .parsed
        .ignition
        .systemd
        .units
        .push(mco_ignition::model::Unit {
            name: "../../../escape.service".to_owned(),
            contents: Some("[Service]\n".to_owned()),
            ..Default::default()
        });
    let error = node.apply(&hostile).unwrap_err().to_string();
    assert!(error.contains("the name contains a slash"), "{error}");
}

#[test]
fn ten_thousand_files_are_applied_and_taken_away() {
    let node = Node::new();
    let many: Vec<_> = (0..10_000)
        .map(|index| file(&format!("/etc/many/{}/{index}", index % 100), "x\n"))
        .collect();
    let many = config("many", &files(&many));
    assert!(matches!(node.apply(&many).unwrap(), OnceOutcome::Applied { changed } if changed > 20_000));
    assert_eq!(node.read("/etc/many/99/9999"), "x\n");
    assert_eq!(node.apply(&many).unwrap(), OnceOutcome::Unchanged);
}

#[test]
fn a_hundred_megabytes_are_written_and_a_bomb_is_refused() {
    let packed = |megabytes: usize| {
        let mut child = Command::new("gzip")
            .arg("-1c")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || {
            let block = vec![b'a'; 1 << 20];
            for _ in 0..megabytes {
                input.write_all(&block).unwrap();
            }
        });
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        let source = mco_ignition::resource::encode(&output.stdout);
        json!({"path": "/var/big", "contents": {"source": source, "compression": "gzip"}})
    };
    let node = Node::new();
    node.apply(&config("big", &files(&[packed(100)]))).unwrap();
    assert_eq!(fs::metadata(node.path("/var/big")).unwrap().len(), 100 << 20);
    let before = node.read("/etc/machine-config-daemon/currentconfig");
    let error = node
        .apply(&config("bomb", &files(&[packed(600)])))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "could not decode file \"/var/big\": contents exceed 536870912 bytes"
    );
    assert_eq!(node.read("/etc/machine-config-daemon/currentconfig"), before);
}

/// Both paths of a local user to root: the keys of `core`, and a file that a config writes below the home directory.
#[test]
fn a_link_planted_by_core_does_not_make_the_daemon_write_elsewhere() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: owners can only be changed by root");
        return;
    }
    let keys =
        json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA core"]}]}});
    let cases = [
        (".ssh/authorized_keys.d", "/etc/cron.hourly", keys.clone()),
        ("sub", "/etc", files(&[file("/home/core/sub/file", "1")])),
    ];
    for (link, target, body) in cases {
        let node = Node::new();
        fs::create_dir_all(node.path("/etc/cron.hourly")).unwrap();
        fs::create_dir_all(node.path("/home/core/.ssh")).unwrap();
        let link = node.path("/home/core").join(link);
        symlink(target, &link).unwrap();
        for path in [node.path("/home/core"), node.path("/home/core/.ssh"), link] {
            std::os::unix::fs::lchown(path, Some(1000), Some(1000)).unwrap();
        }
        let before = node.snapshot();
        let error = node.apply(&config("a", &body)).unwrap_err().to_string();
        assert!(error.contains("is under the control of user 1000"), "{error}");
        assert_eq!(node.snapshot(), before, "{error}");
    }

    // Without links the same configs are applied, and the keys belong to core.
    let node = Node::new();
    std::os::unix::fs::chown(node.path("/home/core"), Some(1000), Some(1000)).unwrap();
    node.apply(&config("a", &keys)).unwrap();
    for path in [
        "/.ssh",
        "/.ssh/authorized_keys.d",
        "/.ssh/authorized_keys.d/ignition",
    ] {
        let found = fs::symlink_metadata(node.path(&format!("/home/core{path}"))).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&found), 1000, "{path}");
    }
}

/// Everything of an Ignition config is applied, or it is refused with its path and nothing is written.
#[test]
fn what_a_running_machine_does_not_apply_is_refused_and_not_ignored() {
    let zeros = format!("sha512-{}", "0".repeat(128));
    let file = |contents: serde_json::Value| json!({"storage": {"files": [{"path": "/etc/a", "contents": contents}]}});
    let with = |section: serde_json::Value| json!({"ignition": section});
    let cases = [
        (
            "storage.luks",
            json!({"storage": {"luks": [{"name": "data", "device": "/dev/sdb"}]}}),
        ),
        (
            "ignition.config.merge",
            with(json!({"version": "3.5.0", "config": {"merge": [{"source": "data:,"}]}})),
        ),
        (
            "ignition.config.replace",
            with(json!({"version": "3.5.0", "config": {"replace": {"source": "data:,"}}})),
        ),
        (
            "ignition.security",
            with(
                json!({"version": "3.5.0", "security": {"tls": {"certificateAuthorities": [{"source": "data:,"}]}}}),
            ),
        ),
        (
            "ignition.proxy",
            with(json!({"version": "3.5.0", "proxy": {"httpProxy": "http://proxy.example.com"}})),
        ),
        (
            "ignition.timeouts",
            with(json!({"version": "3.5.0", "timeouts": {"httpTotal": 1}})),
        ),
        (
            "storage.files[0].contents.verification.hash",
            file(json!({"source": "data:,a", "verification": {"hash": zeros}})),
        ),
        (
            "storage.files[0].contents.source",
            file(json!({"source": "https://example.com/a"})),
        ),
    ];
    let node = Node::new();
    let before = node.snapshot();
    for (path, body) in cases {
        let error = node.apply(&config("a", &body)).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("spec.config.{path}")),
            "{path}: {error}"
        );
        assert_eq!(node.snapshot(), before, "{path}");
    }
}

#[test]
fn a_unit_whose_name_has_a_line_break_is_refused() {
    let node = Node::new();
    let before = node.snapshot();
    let mut hostile = config("hostile", &json!({}));
    hostile
        .parsed
        .ignition
        .systemd
        .units
        .push(mco_ignition::model::Unit {
            name: "a\nb.service".to_owned(),
            contents: Some("[Unit]\n".to_owned()),
            ..mco_ignition::model::Unit::default()
        });
    let error = node.apply(&hostile).unwrap_err().to_string();
    assert!(error.contains("control character"), "{error}");
    assert_eq!(node.snapshot(), before);
}
