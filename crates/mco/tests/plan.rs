//! A plan predicts what happens: the same rendered name, the same files, the same actions, in the same order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(
    clippy::print_stdout,
    reason = "what a plan shows is part of what these tests show"
)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use support::{Up, eventually, text};

const NODES: [&str; 3] = ["worker-0", "worker-1", "worker-2"];

/// Returns the files of a node below /etc, without the daemon's own.
fn files(up: &Up, node: &str) -> BTreeMap<String, Vec<u8>> {
    let root = up.data.join("nodes").join(node);
    let mut found = BTreeMap::new();
    let mut directories = vec![root.join("etc")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = Path::new("/").join(path.strip_prefix(&root).unwrap());
            if name.starts_with("/etc/machine-config-daemon") || name == Path::new("/etc/mco") {
                continue;
            }
            if path.is_dir() && !path.is_symlink() {
                directories.push(path);
            } else {
                found.insert(name.display().to_string(), fs::read(&path).unwrap_or_default());
            }
        }
    }
    found
}

fn changed(before: &BTreeMap<String, Vec<u8>>, after: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let mut paths: Vec<&String> = before.keys().chain(after.keys()).collect();
    paths.sort();
    paths.dedup();
    let differs = |path: &&&String| before.get(**path) != after.get(**path);
    paths.iter().filter(differs).map(|path| (*path).clone()).collect()
}

fn node(up: &Up, name: &str) -> Value {
    let output = up.mco(&["node", name, "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the steps of a node's last update, once it is complete.
fn steps(up: &Up, name: &str, config: &Value) -> Vec<(String, String)> {
    eventually("the update is complete and reported", || {
        let node = node(up, name);
        let moments = node["timeline"]["moments"].as_array().unwrap().clone();
        let is_over = node["current"] == *config && moments.iter().any(|moment| moment["step"] == "done");
        let word = |moment: &Value, key: &str| moment[key].as_str().unwrap().to_owned();
        is_over.then(|| {
            moments
                .iter()
                .map(|moment| (word(moment, "step"), word(moment, "at")))
                .collect()
        })
    })
}

/// Plans a change, applies it, and compares.
fn foretold_is_what_happens(up: &Up, scratch: &Path, name: &str, spec: &Value) {
    let manifest = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": spec,
    })
    .to_string();
    let path = scratch.join(format!("{name}.json"));
    fs::write(&path, &manifest).unwrap();
    let plan = up.mco(&["plan", "-f", path.to_str().unwrap(), "-o", "json"]);
    assert_eq!(plan.status.code(), Some(3), "{name}: {}", text(&plan));
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    let pools = plan["pools"].as_array().unwrap();
    let worker = pools.iter().find(|pool| pool["pool"] == "worker").unwrap();
    let before: Vec<_> = NODES.iter().map(|node| files(up, node)).collect();

    up.create(&manifest).unwrap();
    up.wait("worker");

    assert_eq!(
        up.status("worker")["target"],
        worker["new"],
        "{name}: the rendered name"
    );
    let foretold: Vec<&str> = worker["changes"]["files"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    let mut asked = Vec::new();
    for (node, before) in NODES.iter().zip(&before) {
        let happened = changed(before, &files(up, node));
        assert_eq!(happened, foretold, "{name}: the files of {node}");

        let steps = steps(up, node, &worker["new"]);
        let took = |step: &str| steps.iter().any(|(name, _)| name == step);
        let level = worker["level"].as_str().unwrap();
        assert_eq!(
            took("rebooting"),
            level == "reboot",
            "{name}: {node}: {level}: {steps:?}"
        );
        let drains = worker["cost"]["drain"]["needed"].is_object();
        assert_eq!(
            took("draining"),
            drains,
            "{name}: {node}: {}: {steps:?}",
            worker["cost"]["drain"]
        );
        let (first, at) = &steps[0];
        assert_eq!(first, "asked", "{name}: {node}: {steps:?}");
        asked.push((at.parse::<jiff::Timestamp>().unwrap(), (*node).to_owned()));
    }
    asked.sort();
    let order: Vec<String> = asked.into_iter().map(|(_, node)| node).collect();
    let waves = worker["rollout"]["waves"].as_array().unwrap();
    let foretold: Vec<&str> = waves
        .iter()
        .flat_map(|wave| wave.as_array().unwrap())
        .map(|node| node.as_str().unwrap())
        .collect();
    assert_eq!(order, foretold, "{name}: the order");
}

#[test]
fn a_plan_is_what_happens() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start_with(&scratch.path().join("data"), &["--nodes", "masters=1,workers=3"]);
    up.wait("worker");
    let cases = [
        (
            "50-files",
            json!({"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
                {"path": "/etc/motd", "mode": 420, "contents": {"source": "data:,hello%0A"}},
                {"path": "/etc/other", "mode": 384, "contents": {"source": "data:,x"}}]}}}),
        ),
        (
            "51-keys",
            json!({"config": {"ignition": {"version": "3.5.0"}, "passwd": {"users": [
                {"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample me"]}]}}}),
        ),
        ("52-kernel", json!({"kernelArguments": ["audit=1"]})),
    ];
    for (name, spec) in cases {
        foretold_is_what_happens(&up, scratch.path(), name, &spec);
    }
}

const OWN_GROUP: &str = "machineconfiguration.openshift.io/v1";
const ROLE: &str = "machineconfiguration.openshift.io/role";

fn for_workers(kind: &str, name: &str, settings: &Value) -> Value {
    let mut spec = json!({"machineConfigPoolSelector":
        {"matchLabels": {"pools.operator.machineconfiguration.openshift.io/worker": ""}}});
    spec.as_object_mut()
        .unwrap()
        .extend(settings.as_object().unwrap().clone());
    json!({"apiVersion": OWN_GROUP, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn file_of_size(name: &str, size: usize) -> Value {
    json!({"apiVersion": OWN_GROUP, "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {ROLE: "worker"}},
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": format!("/etc/{name}"), "contents": {"source": format!("data:,{}", "x".repeat(size))}}]}}}})
}

/// Returns the result for the worker pool: its target, or its render error.
fn published(up: &Up) -> (Value, Option<String>) {
    let (runtime, client) = up.client();
    let pools: kube::Api<mco_api::MachineConfigPool> = kube::Api::all(client);
    let pool = runtime.block_on(pools.get("worker")).unwrap();
    let conditions = pool.status.as_ref().unwrap().conditions.iter();
    let mut degraded = conditions.filter(|one| one.type_ == "RenderDegraded" && one.status == "True");
    let why = degraded.next().map(|one| one.message.clone());
    (json!(pool.target_name()), why)
}

/// Plans a change with the command line, applies it, and compares with what the controllers publish.
fn generator_case(up: &Up, scratch: &Path, title: &str, objects: &[Value], code: i32) {
    let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    let path = scratch.join("change.yaml");
    fs::write(&path, texts.join("\n---\n")).unwrap();
    let path = path.to_str().unwrap();
    let shown = up.mco(&["plan", "-f", path]);
    println!(
        "== {title}: exit code {:?}\n{}",
        shown.status.code(),
        text(&shown)
    );
    assert_eq!(shown.status.code(), Some(code), "{title}: {}", text(&shown));
    let plan = up.mco(&["plan", "-f", path, "-o", "json"]);
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    let pools = plan["pools"].as_array().unwrap();
    let worker = pools.iter().find(|pool| pool["pool"] == "worker").unwrap();
    let refused = plan["refused"].as_array().is_some_and(|all| !all.is_empty());
    for object in objects {
        let applied = up.apply(object);
        assert_eq!(applied.is_err(), refused, "{title}: {applied:?}");
    }
    eventually(
        &format!("{title}: the controllers publish what was planned"),
        || {
            let (target, why) = published(up);
            match worker["error"].as_str() {
                Some(error) => why.filter(|why| why.ends_with(error)).map(|_| ()),
                None => (why.is_none() && target == worker["new"]).then_some(()),
            }
        },
    );
}

#[test]
fn eight_changes_to_what_configs_are_generated_from_are_planned_as_they_happen() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start_with(&scratch.path().join("data"), &["--nodes", "masters=1,workers=1"]);
    up.wait("worker");
    let kubelet = |name: &str, settings: &Value| {
        for_workers("KubeletConfig", name, &json!({"kubeletConfig": settings}))
    };
    let runtime = |settings: &Value| {
        for_workers(
            "ContainerRuntimeConfig",
            "logs",
            &json!({"containerRuntimeConfig": settings}),
        )
    };
    let config = |kind: &str, name: &str, spec: &Value| json!({"apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let mirrors = json!({"imageDigestMirrors": [{"source": "registry.example.com/team", "mirrors": ["mirror.local/team"]}]});
    let cases = [
        (
            "a first KubeletConfig",
            vec![kubelet("first", &json!({"maxPods": 110}))],
            3,
        ),
        (
            "a second KubeletConfig",
            vec![kubelet("second", &json!({"podPidsLimit": 2048}))],
            3,
        ),
        (
            "a change to the first KubeletConfig",
            vec![kubelet("first", &json!({"maxPods": 120}))],
            0,
        ),
        (
            "a ContainerRuntimeConfig",
            vec![runtime(&json!({"logLevel": "debug"}))],
            3,
        ),
        (
            "an ImageDigestMirrorSet",
            vec![config("ImageDigestMirrorSet", "mirrors", &mirrors)],
            3,
        ),
        (
            "a KubeletConfig that cannot be used",
            vec![kubelet("third", &json!({"featureGates": {"A": true}}))],
            1,
        ),
        (
            "an ordinary MachineConfig",
            vec![file_of_size("50-small", 100)],
            3,
        ),
        (
            "two MachineConfigs that together are too large",
            vec![
                file_of_size("60-large", 800_000),
                file_of_size("61-large", 800_000),
            ],
            1,
        ),
    ];
    for (title, objects, code) in cases {
        generator_case(&up, scratch.path(), title, &objects, code);
    }
}
