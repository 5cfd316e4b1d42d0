//! Compares our links and states with `systemctl --root`, which needs no running systemd. Without systemctl only the
//! unit tests of the module run.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use mco_host::systemd::{self, Preset, RootUnits};
use mco_host::{Ownership, Root};

const UNITS: &[(&str, &str)] = &[
    (
        "usr/lib/systemd/system/plain.service",
        "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
    ),
    (
        "etc/systemd/system/own.service",
        "[Service]\nExecStart=/bin/true\n[Install]\nRequiredBy=a.target\nWantedBy=b.target c.target\n",
    ),
    (
        "usr/lib/systemd/system/aliased.service",
        "[Service]\nExecStart=/bin/true\n[Install]\nAlias=other.service\nWantedBy=multi-user.target\n",
    ),
    (
        "usr/lib/systemd/system/static.service",
        "[Service]\nExecStart=/bin/true\n",
    ),
    (
        "usr/lib/systemd/system/pair.service",
        "[Service]\nExecStart=/bin/true\n[Install]\nAlso=pair.socket\n",
    ),
    (
        "usr/lib/systemd/system/pair.socket",
        "[Socket]\nListenStream=/run/x\n[Install]\nWantedBy=sockets.target\n",
    ),
    (
        "usr/lib/systemd/system/inst@.service",
        "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\nDefaultInstance=one\n",
    ),
    (
        "usr/lib/systemd/system/spec@.service",
        "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=%i.target\nAlias=%p-%i.service\n",
    ),
    (
        "usr/lib/systemd/system-preset/50-x.preset",
        "disable aliased.service\nenable *\n",
    ),
];
const NAMES: &[&str] = &[
    "plain.service",
    "own.service",
    "aliased.service",
    "static.service",
    "pair.service",
    "pair.socket",
    "inst@.service",
    "inst@two.service",
    "spec@x.service",
];

fn have_systemctl() -> bool {
    let found = Command::new("systemctl")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("note: no systemctl here; nothing to compare with");
    }
    found
}

fn fresh() -> (tempfile::TempDir, Root) {
    let directory = tempfile::tempdir().unwrap();
    for (path, text) in UNITS {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let root = Root::open(directory.path(), Ownership::Recorded).unwrap();
    (directory, root)
}

fn systemctl(root: &Path, arguments: &[&str]) -> String {
    let output = Command::new("systemctl")
        .arg("--root")
        .arg(root)
        .args(arguments)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn links_on_disk(directory: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![directory.join("etc/systemd/system")];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_symlink() {
                let name = format!("/{}", path.strip_prefix(directory).unwrap().display());
                found.insert(name, fs::read_link(&path).unwrap().display().to_string());
            } else if path.is_dir() {
                waiting.push(path);
            }
        }
    }
    found
}

#[test]
fn enabling_makes_the_same_links() {
    if !have_systemctl() {
        return;
    }
    for name in NAMES {
        let (directory, root) = fresh();
        let ours: BTreeMap<String, String> = systemd::links(name, &RootUnits(&root))
            .unwrap()
            .into_iter()
            .map(|(path, target)| (path.to_string(), target))
            .collect();
        systemctl(directory.path(), &["enable", name]);
        let theirs = links_on_disk(directory.path());
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn states_are_called_the_same() {
    if !have_systemctl() {
        return;
    }
    for action in ["none", "enable", "mask"] {
        for name in NAMES
            .iter()
            .filter(|name| !(action == "mask" && **name == "own.service"))
        {
            let (directory, root) = fresh();
            if action != "none" {
                systemctl(directory.path(), &[action, name]);
            }
            let ours = systemd::state(&root, name).unwrap();
            let theirs = systemctl(directory.path(), &["is-enabled", name]);
            // Older versions print nothing for an unknown unit, and report a template with a default instance as
            // indirect once that instance is enabled.
            if !(theirs.is_empty() || name.contains("@.") || name.starts_with("pair.service")) {
                assert_eq!(ours.as_str(), theirs, "{name} after {action}");
            }
        }
    }
}

#[test]
fn what_is_found_is_what_disabling_removes() {
    if !have_systemctl() {
        return;
    }
    for name in NAMES
        .iter()
        .filter(|name| !name.starts_with("pair.service") && !name.contains("@."))
    {
        let (directory, root) = fresh();
        for other in NAMES {
            systemctl(directory.path(), &["enable", other]);
        }
        let before = links_on_disk(directory.path());
        let ours: Vec<String> = systemd::existing_links(&root, name)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        systemctl(directory.path(), &["disable", name]);
        let after = links_on_disk(directory.path());
        let mut theirs: Vec<String> = before
            .keys()
            .filter(|link| !after.contains_key(*link))
            .cloned()
            .collect();
        let mut ours = ours;
        ours.sort();
        theirs.sort();
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn presets_decide_the_same() {
    if !have_systemctl() {
        return;
    }
    for name in ["plain.service", "aliased.service", "own.service"] {
        let (directory, root) = fresh();
        systemctl(directory.path(), &["preset", name]);
        let enabled = !systemd::existing_links(&root, name).unwrap().is_empty();
        assert_eq!(
            systemd::preset(&root, name).unwrap() == Preset::Enable,
            enabled,
            "{name}"
        );
    }
}
