//! Changes that a running machine cannot apply, and configs that are invalid in themselves.

use std::sync::Arc;

use mco_core::config::disruption::DisruptionPolicy;
use mco_core::config::reconcilable::Overrides;
use mco_daemon::apply::{self, ApplyRequest, Circumstances, ConfigApplyError};
use mco_daemon::config::NodeConfig;
use mco_daemon::once::OnceOutcome;
use mco_host::HostCommands;
use mco_host::os::PackageMode;
use serde_json::{Value, json};

use crate::support::{Node, config, config_with, file, files};

/// Returns why a cluster's node cannot change from one config to the other; `None` if it can.
fn obstacle(old: &NodeConfig, new: &NodeConfig, overrides: Overrides) -> Option<String> {
    let node = Node::new();
    let request = ApplyRequest {
        old,
        new,
        policy: &DisruptionPolicy::default(),
        overrides,
        circumstances: Circumstances::Cluster,
        reboot_owed: None,
        pending_os: None,
        custody: mco_daemon::custody::Custody::Installed,
    };
    match apply::prepare(&node.machine, &request) {
        Ok(_) => None,
        Err(ConfigApplyError::Irreconcilable(problems)) => Some(problems[0].message.clone()),
        Err(other) => panic!("{other}"),
    }
}

fn check(name: &str, old: &Value, new: &Value, expected: Option<&str>) {
    let found = obstacle(&config("old", old), &config("new", new), Overrides::default());
    match expected {
        None => assert_eq!(found, None, "{name}"),
        Some(text) => assert!(
            found.as_deref().is_some_and(|found| found.contains(text)),
            "{name}: {found:?}"
        ),
    }
}

/// Returns what is invalid in a config.
fn invalid(ignition: &Value) -> Option<String> {
    let object = json!({"metadata": {"name": "x"}, "spec": {"config": ignition}});
    NodeConfig::new(serde_json::from_value(object).unwrap())
        .err()
        .map(|error| error.to_string())
}

#[test]
fn files_come_and_go_on_a_running_machine() {
    let (one, two) = (file("/etc/a", "1\n"), file("/etc/b", "1\n"));
    let (none, both) = (json!({}), files(&[one.clone(), two]));
    for (name, old, new) in [
        ("one file is added", &files(&[one]), &both),
        ("the first file is added", &none, &both),
        ("all files are removed", &both, &none),
    ] {
        check(name, old, new, None);
        let difference = apply::difference(&config("old", old), &config("new", new));
        let sections = serde_json::to_value(&difference).unwrap();
        let sections: Vec<&String> = sections.as_object().unwrap().keys().collect();
        assert_eq!(sections, ["files"], "{name}");
    }
}

#[test]
fn sections_of_the_first_boot_cannot_change() {
    let disk = json!({"storage": {"disks": [{"device": "/dev/sda", "wipeTable": true}]}});
    let filesystem =
        json!({"storage": {"filesystems": [{"device": "/dev/sda1", "format": "xfs", "path": "/var"}]}});
    let raid = json!({"storage": {"raid": [{"name": "data", "level": "raid1", "devices": ["/dev/sda", "/dev/sdb"]}]}});
    let group = json!({"passwd": {"groups": [{"name": "users"}]}});
    let arguments = json!({"kernelArguments": {"shouldExist": ["quiet"]}});
    let luks = json!({"storage": {"luks": [{"name": "data", "device": "/dev/sdb", "clevis": {"tang": [
        {"url": "https://tang.example", "thumbprint": "x"}]}}]}});
    let nothing = json!({});
    for (name, new, expected) in [
        ("disks", &disk, Some("ignition disks section contains changes")),
        (
            "filesystems",
            &filesystem,
            Some("ignition filesystems section contains changes"),
        ),
        ("raid", &raid, Some("ignition raid section contains changes")),
        (
            "groups",
            &group,
            Some("ignition Passwd Groups section contains changes"),
        ),
        (
            "kernel arguments of Ignition",
            &arguments,
            Some("ignition kargs section contains changes"),
        ),
    ] {
        check(name, &nothing, new, expected);
        check(&format!("the same {name}"), new, new, None);
    }
    check(
        "disk encryption is decided at installation",
        &luks,
        &nothing,
        None,
    );
}

#[test]
fn an_override_lifts_its_own_section_and_no_other() {
    let nothing = config("old", &json!({}));
    let none = Overrides {
        disks: false,
        filesystems: false,
        raid: false,
    };
    let sections: [(Value, Overrides); 3] = [
        (
            json!({"disks": [{"device": "/dev/sda", "wipeTable": true}]}),
            Overrides { disks: true, ..none },
        ),
        (
            json!({"filesystems": [{"device": "/dev/sda1", "format": "xfs", "path": "/var"}]}),
            Overrides {
                filesystems: true,
                ..none
            },
        ),
        (
            json!({"raid": [{"name": "data", "level": "raid1", "devices": ["/dev/sda", "/dev/sdb"]}]}),
            Overrides { raid: true, ..none },
        ),
    ];
    for (changed, (section, _)) in sections.iter().enumerate() {
        let new = config("new", &json!({"storage": section}));
        for (lifted, (_, overrides)) in sections.iter().enumerate() {
            let found = obstacle(&nothing, &new, *overrides);
            assert_eq!(
                found.is_none(),
                changed == lifted,
                "{section} with {overrides:?}: {found:?}"
            );
        }
    }
}

#[test]
fn fips_is_decided_at_installation() {
    let fips = |on: bool| config_with("x", &json!({}), &json!({"fips": on}));
    let found = obstacle(&fips(false), &fips(true), Overrides::default());
    assert_eq!(
        found.as_deref(),
        Some("detected change to FIPS flag; refusing to modify FIPS on a running cluster")
    );
}

#[test]
fn only_keys_and_password_of_core_can_change() {
    let users = |users: Value| json!({"passwd": {"users": users}});
    let nobody = json!({});
    let core = json!({"name": "core", "sshAuthorizedKeys": ["a"]});
    check("core gets keys", &nobody, &users(json!([core])), None);
    check("users go", &users(json!([core])), &users(json!([])), None);
    check(
        "another user",
        &nobody,
        &users(json!([{"name": "another user", "sshAuthorizedKeys": ["a"]}])),
        Some("non-core user"),
    );
    check(
        "another user beside core",
        &nobody,
        &users(json!([core, {"name": "other", "sshAuthorizedKeys": ["a"]}])),
        Some("non-core user"),
    );
    check(
        "core gets a home",
        &nobody,
        &users(json!([{"name": "core", "sshAuthorizedKeys": ["a"], "homeDir": "/srv"}])),
        Some("SSH keys and password hash are not reconcilable"),
    );
    check(
        "core gets nothing at all",
        &nobody,
        &users(json!([{"name": "core", "sshAuthorizedKeys": []}])),
        Some("user must be core and have 1 or more sshKeys"),
    );
}

#[test]
fn configs_that_are_wrong_in_themselves_are_refused() {
    let at = |path: &str, mode: i64| json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [{"path": path, "mode": mode}]}});
    let cases = [
        (
            "a future format",
            json!({"ignition": {"version": "4.0.0"}}),
            Some("version"),
        ),
        (
            "a relative path",
            at("home/core/test", 0o644),
            Some("not absolute"),
        ),
        ("an absolute path", at("/home/core/test", 0o644), None),
        ("a sticky bit", at("/tmp/x", 0o1777), Some("1777")),
        ("a setuid bit", at("/usr/bin/x", 0o4755), Some("4755")),
        (
            "no version",
            json!({"passwd": {"users": [{"name": "core"}]}}),
            Some("version"),
        ),
    ];
    for (name, ignition, expected) in cases {
        let found = invalid(&ignition);
        match expected {
            None => assert_eq!(found, None, "{name}"),
            Some(text) => assert!(
                found.as_deref().is_some_and(|found| found.contains(text)),
                "{name}: {found:?}"
            ),
        }
    }
    let object = json!({"metadata": {"name": "x"}, "spec": {}});
    NodeConfig::new(serde_json::from_value(object).unwrap()).expect("an empty config is a config");
}

#[test]
fn a_machine_of_packages_reported_that_it_runs_an_image_that_was_built_for_its_pool() {
    let mut node = Node::new();
    let commands = Arc::new(HostCommands::default());
    Arc::get_mut(&mut node.machine).unwrap().os = Box::new(PackageMode::new(commands));
    let image = json!({"osImageURL": "registry.example/base@sha256:0"});
    let plain = config_with("plain", &files(&[file("/etc/a", "1")]), &image);
    node.apply(&plain).unwrap();
    let before = node.snapshot();

    let built = config_with("built", &files(&[file("/etc/a", "2")]), &image)
        .with_built_image(Some("registry.example/built@sha256:1".to_owned()));
    let refusal = node.apply(&built).unwrap_err().to_string();
    assert!(
        refusal.contains("image registry.example/built@sha256:1 cannot be used on this machine"),
        "{refusal}"
    );
    assert_eq!(node.snapshot(), before, "nothing is written");
    assert_eq!(node.apply(&plain).unwrap(), OnceOutcome::Unchanged);
}
