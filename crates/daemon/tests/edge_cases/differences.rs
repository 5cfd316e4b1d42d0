//! What counts as a difference between two configs, and what does not.

use mco_daemon::apply::difference;
use mco_daemon::config::NodeConfig;
use serde_json::{Value, json};

use crate::support::{Node, config, config_with, file, files};

fn spec(body: &Value) -> NodeConfig {
    config_with("x", &json!({}), body)
}

/// Returns the names of the sections that differ.
fn sections(old: &NodeConfig, new: &NodeConfig) -> Vec<String> {
    let difference = serde_json::to_value(difference(old, new)).unwrap();
    difference.as_object().unwrap().keys().cloned().collect()
}

fn check(name: &str, old: &NodeConfig, new: &NodeConfig, expected: &[&str]) {
    assert_eq!(sections(old, new), expected, "{name}");
}

#[test]
fn kernel_arguments_are_a_list_in_which_order_counts() {
    let arguments = |list: &[&str]| spec(&json!({"kernelArguments": list}));
    check("none and an empty list", &spec(&json!({})), &arguments(&[]), &[]);
    check("the same", &arguments(&["a", "b"]), &arguments(&["a", "b"]), &[]);
    check(
        "another order",
        &arguments(&["a", "b"]),
        &arguments(&["b", "a"]),
        &["kernelArguments"],
    );
    check(
        "one twice",
        &arguments(&["a", "b"]),
        &arguments(&["a", "b", "b"]),
        &["kernelArguments"],
    );
}

#[test]
fn each_part_of_a_config_differs_alone() {
    let user = |body: Value| config("x", &json!({"passwd": {"users": [body]}}));
    let plain = user(json!({"name": "core", "sshAuthorizedKeys": ["a"]}));
    check(
        "an image appears",
        &spec(&json!({})),
        &spec(&json!({"osImageURL": "registry.example/os@sha256:1"})),
        &["osImageURL"],
    );
    check(
        "a key is replaced",
        &plain,
        &user(json!({"name": "core", "sshAuthorizedKeys": ["b"]})),
        &["users"],
    );
    check("a user appears", &config("x", &json!({})), &plain, &["users"]);
    check(
        "a password appears",
        &plain,
        &user(json!({"name": "core", "sshAuthorizedKeys": ["a"], "passwordHash": "$6$x"})),
        &["users"],
    );
    check(
        "a file appears",
        &config("x", &json!({})),
        &config("x", &files(&[file("/etc/a", "1")])),
        &["files"],
    );
    check(
        "all files go",
        &config("x", &files(&[file("/etc/a", "1"), file("/etc/b", "1")])),
        &config("x", &json!({})),
        &["files"],
    );
}

#[test]
fn what_a_machine_would_not_notice_is_no_difference() {
    let (a, b) = (file("/etc/a", "1"), file("/etc/b", "1"));
    check(
        "files in another order",
        &config("x", &files(&[a.clone(), b.clone()])),
        &config("x", &files(&[b, a.clone()])),
        &[],
    );
    let percent = json!({"path": "/etc/a", "contents": {"source": "data:,1"}});
    check(
        "the same bytes in another encoding, and the default mode left out",
        &config("x", &files(&[a])),
        &config("x", &files(&[percent])),
        &[],
    );
    let version = |version: &str| {
        let object =
            json!({"metadata": {"name": "x"}, "spec": {"config": {"ignition": {"version": version}}}});
        NodeConfig::new(serde_json::from_value(object).unwrap()).unwrap()
    };
    check(
        "another version of the format",
        &version("3.2.0"),
        &version("3.5.0"),
        &[],
    );
}

#[test]
fn a_built_image_takes_the_place_of_the_configs_own() {
    let image = |built: Option<&str>| {
        spec(&json!({"osImageURL": "registry.example/base@sha256:0"}))
            .with_built_image(built.map(str::to_owned))
    };
    let (one, two) = (
        image(Some("registry.example/built@sha256:1")),
        image(Some("registry.example/built@sha256:2")),
    );
    check("the same built image", &one, &one, &[]);
    check("another built image", &one, &two, &["osImageURL"]);
    check("a pool begins to build", &image(None), &one, &["osImageURL"]);
    check("a pool ceases to build", &one, &image(None), &["osImageURL"]);
    check("an empty image is none", &image(None), &image(Some("")), &[]);
}

#[test]
fn a_built_image_is_noted_beside_the_config_and_not_in_it() {
    let node = Node::new();
    let plain = config_with(
        "layered",
        &files(&[file("/etc/a", "1")]),
        &json!({"osImageURL": "registry.example/base@sha256:0"}),
    );
    let built = plain
        .clone()
        .with_built_image(Some("registry.example/built@sha256:1".to_owned()));
    node.apply(&built).unwrap();
    assert_eq!(
        node.read("/etc/machine-config-daemon/currentimage"),
        "registry.example/built@sha256:1"
    );
    let stored: Value = serde_json::from_str(&node.read("/etc/machine-config-daemon/currentconfig")).unwrap();
    assert_eq!(stored["spec"]["osImageURL"], "registry.example/base@sha256:0");
    assert_eq!(stored["metadata"].get("annotations"), None);
    let read = mco_daemon::disk::current_config(&node.machine.root)
        .unwrap()
        .unwrap();
    assert_eq!(read, built);
    node.apply(&plain).unwrap();
    assert_eq!(node.read("/etc/machine-config-daemon/currentimage"), "");
}
