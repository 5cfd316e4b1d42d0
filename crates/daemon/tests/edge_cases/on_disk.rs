//! The files that a config leaves on disk, and what is restored when it is removed.

use std::fs;

use mco_daemon::firstboot::{self, FirstBoot};
use mco_daemon::once::RebootPolicy;
use mco_daemon::{paths, validate};
use mco_host::os::{OperatingSystem as _, OsChange, SimulatedOs};
use serde_json::json;

use crate::support::{Node, config, config_with, file, files, gzip};

const UNIT: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";

#[test]
fn compressed_contents_are_inflated_and_compared_inflated() {
    let node = Node::new();
    let compressed = config(
        "x",
        &files(&[json!({"path": "/etc/a", "mode": 0o644, "contents": gzip("long ago\n")})]),
    );
    node.apply(&compressed).unwrap();
    assert_eq!(node.read("/etc/a"), "long ago\n");
    assert_eq!(validate::validate(&node.machine, &compressed).unwrap(), []);
    node.write("/etc/a", "edited\n");
    let found = validate::validate(&node.machine, &compressed).unwrap();
    assert_eq!(found[0].cause, "content mismatch for file \"/etc/a\"");
}

#[test]
fn an_unknown_compression_is_refused_and_named_and_nothing_is_written() {
    let node = Node::new();
    let entry = json!({"path": "/etc/a", "mode": 0o644, "contents": gzip("long ago\n")});
    let mut unknown = config("x", &files(&[entry, file("/etc/b", "1\n")]));
    // Parsing rejects documents like this; one that got past it must fail as well.
    unknown.parsed.ignition.storage.files[0].contents.compression = Some("xz".to_owned());
    let error = node.apply(&unknown).unwrap_err();
    assert_eq!(
        error.to_string(),
        "could not decode file \"/etc/a\": unsupported compression type \"xz\""
    );
    assert!(!node.exists("/etc/a") && !node.exists("/etc/b"));
}

#[test]
fn files_without_a_vendor_copy_are_backed_up_as_well() {
    let node = Node::new();
    node.write("/etc/own", "somebody's\n");
    let managed = config(
        "x",
        &files(&[file("/etc/own", "ours\n"), file("/etc/new", "ours\n")]),
    );
    node.apply(&managed).unwrap();
    node.apply(&managed).unwrap();
    assert!(node.exists("/etc/machine-config-daemon/orig/etc/own.mcdorig"));
    assert!(node.exists("/etc/machine-config-daemon/noorig/etc/new.mcdnoorig"));
    node.apply(&config("y", &json!({}))).unwrap();
    assert_eq!(node.read("/etc/own"), "somebody's\n");
    assert!(!node.exists("/etc/new"));
    assert!(!node.exists("/etc/machine-config-daemon/orig/etc/own.mcdorig"));
}

#[test]
fn the_distributions_motd_comes_back() {
    let node = Node::new();
    node.apply(&config("x", &files(&[file("/etc/motd", "managed\n")])))
        .unwrap();
    assert_eq!(node.read("/etc/motd"), "managed\n");
    node.apply(&config("y", &json!({}))).unwrap();
    assert_eq!(node.read("/etc/motd"), "welcome\n");
}

#[test]
fn a_file_that_becomes_a_drop_in_stays_and_any_other_goes() {
    const OURS: &str = "/etc/systemd/system/kubelet.service.d/10-foo.conf";
    const SHIPPED: &str = "/usr/etc/systemd/system/kubelet.service.d/10-foo.conf";
    let dropin = |unit: &str, name: &str| {
        let dropin = json!({"name": name, "contents": "[Unit]\n"});
        config(
            "y",
            &json!({"systemd": {"units": [{"name": unit, "dropins": [dropin]}]}}),
        )
    };
    for (path, unit, name, stays) in [
        (OURS, "kubelet.service", "10-foo.conf", true),
        (OURS, "kubelet.service", "20-bar.conf", false),
        (OURS, "crio.service", "10-foo.conf", false),
        (SHIPPED, "kubelet.service", "10-foo.conf", false),
    ] {
        let node = Node::new();
        node.apply(&config("x", &files(&[file(path, "[Unit]\n")])))
            .unwrap();
        node.apply(&dropin(unit, name)).unwrap();
        assert_eq!(node.exists(path), stays, "{path} with {unit} {name}");
        assert!(
            node.exists(&format!("/etc/systemd/system/{unit}.d/{name}")),
            "{path} with {unit} {name}"
        );
    }
}

#[test]
fn missing_units_are_left_alone_and_their_drop_ins_are_written() {
    let node = Node::new();
    let unknown = config(
        "x",
        &json!({"systemd": {"units": [
            {"name": "unknown.service", "enabled": true},
            {"name": "other.service", "enabled": true, "dropins": [{"name": "10.conf"}, {"name": "20.conf", "contents": "[Unit]\n"}]},
        ]}}),
    );
    node.apply(&unknown).unwrap();
    assert!(!node.exists("/etc/systemd/system/unknown.service"));
    assert!(!node.exists("/etc/systemd/system/multi-user.target.wants/unknown.service"));
    assert!(!node.exists("/etc/systemd/system/other.service.d/10.conf"));
    assert_eq!(
        node.read("/etc/systemd/system/other.service.d/20.conf"),
        "[Unit]\n"
    );
    assert_eq!(validate::validate(&node.machine, &unknown).unwrap(), []);
}

#[test]
fn a_mask_wins_over_contents_and_an_empty_drop_in_may_be_there_or_not() {
    let node = Node::new();
    let masked = config(
        "x",
        &json!({"systemd": {"units": [
            {"name": "a.service", "mask": true, "contents": UNIT, "enabled": true},
            {"name": "b.service", "contents": UNIT, "dropins": [{"name": "10.conf"}]},
        ]}}),
    );
    node.apply(&masked).unwrap();
    let link = fs::read_link(node.path("/etc/systemd/system/a.service")).unwrap();
    assert_eq!(link.to_str(), Some("/dev/null"));
    assert_eq!(validate::validate(&node.machine, &masked).unwrap(), []);
    node.write("/etc/systemd/system/b.service.d/10.conf", "");
    assert_eq!(validate::validate(&node.machine, &masked).unwrap(), []);
}

#[test]
fn of_a_path_that_old_documents_have_twice_the_last_counts() {
    let node = Node::new();
    let entry = |text: &str| json!({"filesystem": "root", "path": "/etc/a", "mode": 0o644, "contents": {"source": format!("data:,{text}")}});
    let object = json!({"metadata": {"name": "x"}, "spec": {"config": {
        "ignition": {"version": "2.2.0"},
        "storage": {"files": [entry("first"), entry("last")]},
    }}});
    let twice = mco_daemon::config::NodeConfig::new(serde_json::from_value(object).unwrap()).unwrap();
    node.apply(&twice).unwrap();
    assert_eq!(node.read("/etc/a"), "last");
    assert_eq!(validate::validate(&node.machine, &twice).unwrap(), []);
}

#[test]
fn kernel_arguments_with_quoted_spaces_are_found_again() {
    let node = Node::new();
    let quoted = config_with(
        "x",
        &json!({}),
        &json!({"kernelArguments": [" baz=test bar=\"hello world\""]}),
    );
    node.apply(&quoted).unwrap();
    let state = SimulatedOs.state(&node.machine.root).unwrap();
    assert_eq!(state.kernel_arguments, ["baz=test", "bar=\"hello world\""]);
    assert_eq!(validate::validate(&node.machine, &quoted).unwrap(), []);
}

#[test]
fn a_first_boot_puts_kernel_arguments_in_order_and_boots_only_if_something_changed() {
    for (name, runs, wanted, boots) in [
        ("all there", vec!["ro", "a", "b"], json!(["a", "b"]), false),
        ("more than wanted", vec!["a", "x", "b"], json!(["a", "b"]), false),
        ("in one entry", vec!["a", "b"], json!(["a b"]), false),
        ("another order", vec!["b", "a"], json!(["a", "b"]), true),
        ("one twice", vec!["a", "b", "a"], json!(["a", "a", "b"]), true),
        ("missing", vec!["a"], json!(["a", "b"]), true),
    ] {
        let node = Node::new();
        let change = OsChange {
            append_kernel_arguments: runs.iter().map(|argument| (*argument).to_owned()).collect(),
            ..OsChange::default()
        };
        SimulatedOs.stage(&node.machine.root, &change).unwrap();
        node.machine
            .power
            .reboot(&node.machine.root, "installed")
            .unwrap();
        let encapsulated = json!({"metadata": {"name": "rendered-worker-1"}, "spec": {
            "config": {"ignition": {"version": "3.5.0"}}, "kernelArguments": wanted,
        }});
        node.write(paths::ENCAPSULATED, &encapsulated.to_string());
        let outcome = firstboot::complete(&node.machine, RebootPolicy::Never).unwrap();
        let config = "rendered-worker-1".to_owned();
        let expected = if boots {
            FirstBoot::NeedsReboot { config }
        } else {
            FirstBoot::Complete { config }
        };
        assert_eq!(outcome, expected, "{name}");
        assert!(!node.exists(paths::ENCAPSULATED), "{name}");
        assert_eq!(node.exists(paths::ENCAPSULATED_DONE), boots, "{name}");
    }
    let node = Node::new();
    assert_eq!(
        firstboot::complete(&node.machine, RebootPolicy::Never).unwrap(),
        FirstBoot::NotNeeded
    );
}
