//! The crate borders of ARCHITECTURE.md, checked against the crates' manifests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Each crate and the crates of ours on which it may depend. A new crate needs a line here, and a paragraph in
/// ARCHITECTURE.md.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("mco-ignition", &[]),
    ("mco-api", &[]),
    ("mco-core", &["mco-ignition", "mco-api"]),
    ("mco-testkit", &[]),
    ("mco-simulator", &["mco-api", "mco-core", "mco-runtime"]),
    ("mco-client", &["mco-ignition", "mco-api", "mco-core"]),
    ("mco-telemetry", &[]),
    ("mco-http", &["mco-telemetry"]),
    ("mco-runtime", &["mco-telemetry"]),
    ("mco-host", &[]),
    (
        "mco-controllers",
        &["mco-api", "mco-core", "mco-runtime", "mco-http", "mco-telemetry"],
    ),
    ("mco-builder", &["mco-api", "mco-core", "mco-runtime", "mco-http"]),
    (
        "mco-daemon",
        &[
            "mco-ignition",
            "mco-api",
            "mco-core",
            "mco-host",
            "mco-runtime",
            "mco-http",
        ],
    ),
    (
        "mco-server",
        &["mco-ignition", "mco-api", "mco-core", "mco-runtime", "mco-http"],
    ),
    (
        "mco-operator",
        &[
            "mco-ignition",
            "mco-api",
            "mco-core",
            "mco-runtime",
            "mco-http",
            "mco-telemetry",
        ],
    ),
    (
        "mco-console",
        &["mco-api", "mco-core", "mco-client", "mco-http", "mco-runtime"],
    ),
    ("mco-apiserver", &["mco-http", "mco-telemetry"]),
    ("mco-parity", &[]),
    (
        "mco-simulation",
        &[
            "mco-api",
            "mco-core",
            "mco-apiserver",
            "mco-controllers",
            "mco-runtime",
            "mco-simulator",
        ],
    ),
    (
        "mco",
        &[
            "mco-ignition",
            "mco-api",
            "mco-core",
            "mco-server",
            "mco-operator",
            "mco-host",
            "mco-daemon",
            "mco-apiserver",
            "mco-controllers",
            "mco-builder",
            "mco-console",
            "mco-runtime",
            "mco-http",
            "mco-simulator",
            "mco-client",
        ],
    ),
];

/// Pure crates: none of the dependencies below is allowed, directly or transitively.
const PURE: &[&str] = &["mco-ignition", "mco-api", "mco-core"];
const ACTING: &[&str] = &[
    "tokio", "hyper", "reqwest", "axum", "redb", "notify", "rustls", "tempfile", "walkdir", "rand",
];

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(mco_testkit::repository_root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn metadata() -> Value {
    serde_json::from_str(&cargo(&["metadata", "--format-version", "1", "--no-deps"])).unwrap()
}

fn known_by_each() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap();
            let real = dependencies
                .iter()
                .filter(|one| one["kind"] != "dev")
                .map(name)
                .filter(|one| ours.contains(one));
            (name(package), real.collect())
        })
        .collect()
}

#[test]
fn no_crate_knows_more_than_it_may() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> = MAY_KNOW
        .iter()
        .map(|(name, known)| (*name, known.iter().copied().collect()))
        .collect();
    for (name, known) in known_by_each() {
        let allowed = allowed
            .get(name.as_str())
            .unwrap_or_else(|| panic!("crate {name} has no border in this test"));
        for other in known {
            assert!(
                allowed.contains(other.as_str()),
                "{name} must not depend on {other}"
            );
        }
    }
}

#[test]
fn what_decides_does_not_act() {
    for name in PURE {
        let tree = cargo(&[
            "tree",
            "--package",
            name,
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ]);
        let used: BTreeSet<&str> = tree
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        for acting in ACTING {
            assert!(!used.contains(acting), "{name} depends on {acting}");
        }
    }
}

/// `cargo run --release -- up` works without selecting one of the workspace's programs.
#[test]
fn one_program_is_what_cargo_runs() {
    let metadata = metadata();
    let is_default = |package: &&Value| {
        let members = metadata["workspace_default_members"].as_array().unwrap();
        members.contains(&package["id"])
    };
    let packages = metadata["packages"].as_array().unwrap().iter();
    let targets = packages
        .filter(is_default)
        .flat_map(|package| package["targets"].as_array().unwrap());
    let programs = targets.filter(|target| target["kind"][0] == "bin");
    let names: Vec<&Value> = programs.map(|program| &program["name"]).collect();
    assert_eq!(names, ["mco"]);
}

#[test]
fn the_entry_point_stays_small() {
    let text =
        std::fs::read_to_string(mco_testkit::repository_root().join("crates/mco/src/main.rs")).unwrap();
    assert!(text.lines().count() < 50, "main.rs only parses, calls and exits");
}

/// A daemon in a pod has no tools of its own: a process that is started anywhere else would look for the tool in the
/// container. Tests may start processes.
#[test]
fn the_machines_tools_have_one_runner() {
    const RUNNER: [&str; 3] = [
        "crates/host/src/command.rs",
        "crates/host/src/enter.rs",
        // Through the same launcher.
        "crates/host/src/programs.rs",
    ];
    let root = mco_testkit::repository_root();
    let mut directories = vec![root.join("crates/host/src"), root.join("crates/daemon/src")];
    let mut starters = BTreeSet::new();
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(&root).unwrap().display().to_string();
            if path.is_dir() {
                directories.push(path);
            } else if !name.contains("test") {
                let source = std::fs::read_to_string(&path).unwrap_or_default();
                let code = source.split("#[cfg(test)]").next().unwrap_or_default();
                if code.contains("Command::new(") {
                    starters.insert(name);
                }
            }
        }
    }
    assert_eq!(
        starters,
        RUNNER.map(str::to_owned).into(),
        "use mco_host::Commands"
    );
}
