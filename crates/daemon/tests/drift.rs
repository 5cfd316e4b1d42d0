//! Drift is detected within moments, for every way to change a file, and only real drift is reported.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use mco_daemon::config::NodeConfig;
use mco_daemon::drift::{DriftCheck, Monitor};
use serde_json::json;
use support::{Node, config, file, gzip};

const UNIT: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";

fn node() -> (Node, NodeConfig) {
    let node = Node::new();
    let config = config(
        "watched",
        &json!({
            "storage": {"files": [
                file("/etc/watched/a", "right\n"),
                file("/etc/watched/b", "right\n"),
                {"path": "/etc/watched/compressed", "mode": 0o644, "contents": gzip("right\n")},
            ]},
            "systemd": {"units": [
                {"name": "x.service", "enabled": true, "contents": UNIT,
                 "dropins": [{"name": "10.conf", "contents": "[Unit]\n"}, {"name": "20.conf"}]},
                {"name": "gone.service", "mask": true, "contents": UNIT},
            ]},
        }),
    );
    node.apply(&config).unwrap();
    (node, config)
}

/// The timeout for events that must happen, generous for a busy machine.
const LONG: Duration = Duration::from_mins(1);

/// Returns the first result after a change; `None` on timeout.
async fn verdict(monitor: &mut Monitor, longest: Duration) -> Option<DriftCheck> {
    tokio::time::timeout(longest, monitor.wait())
        .await
        .ok()
        .map(Result::unwrap)
}

fn watch(node: &Node, config: NodeConfig) -> Monitor {
    Monitor::start(Arc::clone(&node.machine), Arc::new(config)).unwrap()
}

/// Covers every kind of path a config can manage and every kind of change.
#[tokio::test]
async fn every_kind_of_change_to_every_kind_of_file_is_noticed() {
    type Change = fn(&Node, &str);
    let subjects = [
        ("file", "/etc/watched/a"),
        ("file that came compressed", "/etc/watched/compressed"),
        ("unit", "/etc/systemd/system/x.service"),
        ("drop-in", "/etc/systemd/system/x.service.d/10.conf"),
    ];
    let changes: [(&str, &str, Change); 5] = [
        ("edited", "content mismatch for file", |node, path| {
            node.write(path, "wrong\n");
        }),
        ("renamed", "could not stat file", |node, path| {
            fs::rename(node.path(path), node.path(&format!("{path}.away"))).unwrap();
        }),
        ("deleted", "could not stat file", |node, path| {
            fs::remove_file(node.path(path)).unwrap();
        }),
        ("replaced", "content mismatch for file", |node, path| {
            let beside = format!("{path}.swp");
            node.write(&beside, "wrong\n");
            fs::rename(node.path(&beside), node.path(path)).unwrap();
        }),
        ("made world-readable", "mode mismatch for file:", |node, path| {
            fs::set_permissions(node.path(path), fs::Permissions::from_mode(0o666)).unwrap();
        }),
    ];
    for (subject, path) in subjects {
        for (what, cause, change) in &changes {
            let (node, config) = node();
            let mut monitor = watch(&node, config);
            change(&node, path);
            let cause = format!("{cause} {path:?}");
            match verdict(&mut monitor, LONG).await {
                Some(DriftCheck::Drifted(mismatches)) => assert!(
                    mismatches[0].cause.starts_with(&cause),
                    "{subject} {what}: {}",
                    mismatches[0].cause
                ),
                other => panic!("{subject} {what}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn changes_that_hide_are_noticed_as_well() {
    type Change = fn(&Node);
    let cases: &[(&str, &str, Change)] = &[
        (
            "contents of the same size",
            "content mismatch for file \"/etc/watched/a\"",
            |node| node.write("/etc/watched/a", "RIGHT\n"),
        ),
        (
            "a mode, with both in full",
            "mode mismatch for file: \"/etc/watched/a\"; expected: -rw-r--r--/420/0644; received: -rwxrwxrwx/511/0777",
            |node| {
                fs::set_permissions(node.path("/etc/watched/a"), fs::Permissions::from_mode(0o777)).unwrap();
            },
        ),
        (
            "a unit that is no longer masked",
            "state validation: invalid unit masked setting",
            |node| {
                fs::remove_file(node.path("/etc/systemd/system/gone.service")).unwrap();
                node.write("/etc/systemd/system/gone.service", UNIT);
            },
        ),
        (
            "the whole directory",
            "could not stat file \"/etc/watched/a\"",
            |node| {
                fs::rename(node.path("/etc/watched"), node.path("/etc/elsewhere")).unwrap();
            },
        ),
    ];
    for (name, cause, change) in cases {
        let (node, config) = node();
        let mut monitor = watch(&node, config);
        change(&node);
        match verdict(&mut monitor, LONG).await {
            Some(DriftCheck::Drifted(mismatches)) => {
                assert!(
                    mismatches[0].cause.starts_with(cause),
                    "{name}: {}",
                    mismatches[0].cause
                );
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn what_is_no_drift_is_not_reported() {
    let (node, config) = node();
    let mut monitor = watch(&node, config);
    node.write("/etc/watched/unrelated", "x");
    node.write("/etc/systemd/system/x.service.d/30-own.conf", "[Unit]\n");
    assert_eq!(verdict(&mut monitor, Duration::from_millis(300)).await, None);
    // Neither timestamps nor rewriting the same text is drift.
    node.write("/etc/watched/a", "right\n");
    assert_eq!(verdict(&mut monitor, LONG).await, Some(DriftCheck::Intact));
    // An empty drop-in may be absent.
    node.write("/etc/systemd/system/x.service.d/20.conf", "");
    assert_eq!(verdict(&mut monitor, LONG).await, Some(DriftCheck::Intact));
}

#[tokio::test]
async fn putting_it_back_clears_it() {
    let (node, config) = node();
    let mut monitor = watch(&node, config);
    node.write("/etc/watched/a", "wrong\n");
    assert!(
        matches!(verdict(&mut monitor, LONG).await, Some(DriftCheck::Drifted(found)) if found.len() == 1)
    );
    node.write("/etc/watched/a", "right\n");
    assert_eq!(verdict(&mut monitor, LONG).await, Some(DriftCheck::Intact));
}
