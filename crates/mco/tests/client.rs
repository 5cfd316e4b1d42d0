//! Client commands against a running cluster: node, drift, gather, undo and switch. All tests share one cluster,
//! because its start is slow.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::io::Read as _;
use std::path::Path;

use serde_json::{Value, json};

use support::{Up, eventually, text};

/// Planted in every place that can hold a secret, and searched for in the bundle.
const PLANTED: &str = "hunter2planted";

fn motd(name: &str, contents: &str) -> String {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": "/etc/motd", "mode": 420, "contents": {"source": format!("data:,{contents}")}}]}}},
    })
    .to_string()
}

fn json_of(up: &Up, arguments: &[&str], code: i32) -> Value {
    let output = up.mco(arguments);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}: {}",
        text(&output)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_running_cluster_answers_what_people_ask() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(&scratch.path().join("data"));
    up.wait("worker");
    up.create(&motd("50-motd", &format!("welcome%20{PLANTED}")))
        .unwrap();
    up.wait("worker");

    a_node_tells_its_story(&up);
    drift_is_found_and_forgotten(&up);
    a_bundle_holds_no_secret(&up, scratch.path());
    a_rollout_is_undone(&up);
    a_cluster_can_change_hands(&up, scratch.path());
}

fn a_node_tells_its_story(up: &Up) {
    let steps = eventually("the last step is reported", || {
        let node = json_of(up, &["node", "worker-0", "-o", "json"], 0);
        assert_eq!(node["pool"], "worker");
        assert_eq!(node["state"], "Done");
        let moments = node["timeline"]["moments"].as_array().unwrap().clone();
        let steps: Vec<String> = moments
            .iter()
            .map(|moment| moment["step"].as_str().unwrap().to_owned())
            .collect();
        steps.contains(&"done".to_owned()).then_some(steps)
    });
    for expected in ["asked", "cordoned", "draining", "rebooting"] {
        assert!(steps.contains(&expected.to_owned()), "{expected}: {steps:?}");
    }
    let shown = text(&up.mco(&["node", "worker-0"]));
    assert!(shown.contains("The last update took "), "{shown}");
    let unknown = up.mco(&["node", "missing"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(
        text(&unknown).contains("there is no node missing"),
        "{}",
        text(&unknown)
    );
}

fn drift_is_found_and_forgotten(up: &Up) {
    let quiet = up.mco(&["drift"]);
    assert_eq!(quiet.status.code(), Some(0), "{}", text(&quiet));
    assert_eq!(text(&quiet), "No node reports drift.\n");
    let file = up.file("worker-1", "etc/motd");
    let right = fs::read(&file).unwrap();
    fs::write(&file, "vandalised\n").unwrap();
    eventually("the drift is reported", || {
        (up.mco(&["drift"]).status.code() == Some(3)).then_some(())
    });
    let report = json_of(up, &["drift", "-o", "json"], 3);
    let drift = &report["drifted"][0];
    assert_eq!(drift["node"], "worker-1");
    assert_eq!(drift["subject"], "/etc/motd");
    assert_eq!(drift["difference"], "its contents are different");
    assert_eq!(drift["setBy"], "50-motd");
    assert_eq!(drift["wanted"]["size"], json!(right.len()));
    assert!(drift["since"].is_string(), "{drift}");
    assert_eq!(
        up.mco(&["drift", "worker-0"]).status.code(),
        Some(0),
        "only that node"
    );

    let node = text(&up.mco(&["node", "worker-1"]));
    for expected in ["state     Degraded", "/etc/motd", "to do     ", "trouble"] {
        assert!(node.contains(expected), "{expected}: {node}");
    }
    fs::write(&file, right).unwrap();
    up.wait("worker");
    assert_eq!(up.mco(&["drift"]).status.code(), Some(0));
}

fn a_bundle_holds_no_secret(up: &Up, scratch: &Path) {
    plant_secrets(up);
    let path = scratch.join("bundle.tar.gz");
    let output = up.mco(&["gather", "--out", path.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output));
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(fs::File::open(&path).unwrap())
        .read_to_end(&mut bytes)
        .unwrap();
    let everything = String::from_utf8_lossy(&bytes);
    for planted in [PLANTED, "aHVudGVyMnBsYW50ZWQ"] {
        let found = everything.find(planted).map(|at| {
            let start = everything[..at].rfind('\n').unwrap_or(0);
            everything[start..at].to_owned()
        });
        assert_eq!(found, None, "{planted}");
    }
    for kept in [
        "mco-gather/status.txt",
        "mco-gather/objects/MachineConfig/50-motd.yaml",
        "mco-gather/objects/MachineConfigPool/worker.yaml",
        "mco-gather/objects/Node/worker-0.yaml",
        "mco-gather/objects/Secret/",
        "mco-gather/objects/Event/",
        "mco-gather/objects/ControllerConfig/",
        "hmac:",
    ] {
        assert!(everything.contains(kept), "{kept}");
    }
    let second = scratch.join("second.tar.gz");
    let report = json_of(
        up,
        &["gather", "-o", "json", "--out", second.to_str().unwrap()],
        0,
    );
    assert_eq!(report["path"], json!(second));
    assert_eq!(report["missing"], json!([]));
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(fs::File::open(&second).unwrap()));
    let inside = archive.entries().unwrap().map(|entry| {
        let path = entry.unwrap().path().unwrap().into_owned();
        json!(path)
    });
    assert_eq!(report["files"], Value::Array(inside.collect()));
    let objects = report["files"].as_array().unwrap().iter();
    let objects = objects.filter(|name| name.as_str().unwrap().starts_with("mco-gather/objects/"));
    assert_eq!(report["objects"], json!(objects.count()));

    let again = up.mco(&["gather", "--out", path.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again).contains("exists already"), "{}", text(&again));
}

fn plant_secrets(up: &Up) {
    let (runtime, client) = up.client();
    let namespace = "openshift-machine-config-operator";
    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> =
        kube::Api::namespaced(client.clone(), namespace);
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(client);
    let secret =
        serde_json::from_value(json!({"metadata": {"name": "planted"}, "stringData": {"key": PLANTED}}));
    let annotation = json!({"metadata": {"annotations": {
        "example.com/connection": format!("https://me:{PLANTED}@example.com/"),
        "kubectl.kubernetes.io/last-applied-configuration": PLANTED,
    }}});
    runtime.block_on(async {
        secrets
            .create(&kube::api::PostParams::default(), &secret.unwrap())
            .await
            .unwrap();
        let patch = kube::api::Patch::Merge(&annotation);
        nodes
            .patch("worker-0", &kube::api::PatchParams::default(), &patch)
            .await
            .unwrap();
    });
    up.create(
        &json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": {"name": "51-unused", "labels": {"machineconfiguration.openshift.io/role": "unused"}},
            "spec": {"config": {
                "ignition": {"version": "3.5.0"},
                "passwd": {"users": [{"name": "core", "passwordHash": PLANTED,
                    "sshAuthorizedKeys": [format!("ssh-ed25519 {PLANTED}")]}]},
                "systemd": {"units": [{"name": "a.service", "contents": format!("[Service]\nEnvironment=X={PLANTED}\n")}]},
            }},
        })
        .to_string(),
    )
    .unwrap();
}

/// Writes a template tree that adds another file to every worker.
fn other_templates(scratch: &Path) -> String {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let target = to.join(path.file_name().unwrap());
            if path.is_dir() {
                copy(&path, &target);
            } else {
                fs::copy(&path, &target).unwrap();
            }
        }
    }
    let other = scratch.join("templates");
    copy(&mco_testkit::repository_root().join("templates"), &other);
    let file = "path: /etc/other\nmode: 0644\ncontents:\n  inline: other\n";
    fs::write(other.join("worker/00-worker/_base/files/other.yaml"), file).unwrap();
    other.to_str().unwrap().to_owned()
}

fn a_cluster_can_change_hands(up: &Up, scratch: &Path) {
    up.wait("worker");
    let ours = mco_testkit::repository_root().join("templates");
    let ours = ours.to_str().unwrap();
    let report = json_of(up, &["switch", "check", "--templates", ours, "-o", "json"], 0);
    assert_eq!(report["safe"], true);
    assert_eq!(report["pools"].as_array().map(Vec::len), Some(2), "{report}");
    let other = up.mco(&["switch", "check", "--templates", &other_templates(scratch)]);
    assert_eq!(other.status.code(), Some(3), "{}", text(&other));
    for expected in ["differs", "file /etc/other", "Not safe to switch: 1 pool"] {
        assert!(text(&other).contains(expected), "{expected}: {}", text(&other));
    }

    let paused = || {
        let (runtime, client) = up.client();
        let pools: kube::Api<mco_api::MachineConfigPool> = kube::Api::all(client);
        ["master", "worker"].map(|pool| runtime.block_on(pools.get(pool)).unwrap().spec.paused)
    };
    assert!(up.mco(&["rollout", "pause", "master"]).status.success());
    let file = scratch.join("original.yaml");
    let prepare = ["switch", "prepare", "--save", file.to_str().unwrap()];
    let shown = up.mco(&[&prepare[..], &["--dry-run"]].concat());
    assert_eq!(shown.status.code(), Some(3), "{}", text(&shown));
    assert!(
        text(&shown).contains("- pause pool worker\n") && !text(&shown).contains("master"),
        "{}",
        text(&shown)
    );
    assert_eq!(paused(), [true, false], "a dry run changes nothing");
    let unconfirmed = up.mco(&prepare);
    assert_eq!(unconfirmed.status.code(), Some(1), "without confirmation");
    let done = up.mco(&[&prepare[..], &["--yes", "--timeout", "60s"]].concat());
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!(paused(), [true, true]);
    let again = up.mco(&[&prepare[..], &["--yes"]].concat());
    assert_eq!(text(&again), "nothing to do\n");

    let back = up.mco(&["switch", "back", "--yes", "--no-wait"]);
    assert!(back.status.success(), "{}", text(&back));
    assert!(text(&back).contains("from our finalizer"), "{}", text(&back));
    assert_eq!(
        paused(),
        [true, false],
        "what an administrator paused stays paused"
    );
    assert!(up.mco(&["rollout", "resume", "master"]).status.success());
}

fn a_rollout_is_undone(up: &Up) {
    let before = up.status("worker")["target"].as_str().unwrap().to_owned();
    up.create(&motd("60-motd", "worse")).unwrap();
    up.wait("worker");
    assert_ne!(up.status("worker")["target"], json!(before));

    let shown = up.mco(&["rollout", "undo", "worker", "--dry-run"]);
    assert_eq!(shown.status.code(), Some(3), "{}", text(&shown));
    assert!(
        text(&shown).contains("delete MachineConfig 60-motd"),
        "{}",
        text(&shown)
    );
    let worse = up.status("worker")["target"].clone();
    let report = json_of(up, &["rollout", "undo", "worker", "--dry-run", "-o", "json"], 3);
    assert_eq!(report["pool"], "worker");
    assert_eq!(report["from"], worse);
    assert_eq!(report["to"], json!(before));
    assert_eq!(report["result"], json!(before));
    assert_eq!(report["edits"], json!([{"action": "delete", "name": "60-motd"}]));
    assert_eq!(report["done"], json!(false));
    let pools = report["plan"]["pools"].as_array().unwrap();
    assert!(
        pools
            .iter()
            .any(|pool| pool["pool"] == "worker" && pool["new"] == json!(before))
    );
    let undecided = up.mco(&["rollout", "undo", "worker", "-o", "json"]);
    assert_eq!(undecided.status.code(), Some(2), "{}", text(&undecided));
    assert!(text(&undecided).contains("--yes"), "{}", text(&undecided));
    let history = json_of(up, &["rollout", "history", "worker", "-o", "json"], 0);
    let states = |name: &Value| -> Vec<Value> {
        let all = history.as_array().unwrap().iter();
        all.filter(|one| one["config"] == *name)
            .map(|one| one["state"].clone())
            .collect()
    };
    assert_eq!(states(&worse), ["current"], "{history}");
    assert_eq!(states(&json!(before)), [""], "{history}");

    let unconfirmed = up.mco(&["rollout", "undo", "worker"]);
    assert_eq!(unconfirmed.status.code(), Some(1));
    assert!(text(&unconfirmed).contains("--yes"), "{}", text(&unconfirmed));

    let done = json_of(up, &["rollout", "undo", "worker", "--yes", "-o", "json"], 0);
    assert_eq!(done["done"], json!(true));
    assert_eq!(done["edits"], report["edits"]);
    up.wait("worker");
    assert_eq!(up.status("worker")["target"], json!(before));
    let contents = fs::read_to_string(up.file("worker-0", "etc/motd")).unwrap();
    assert_eq!(contents, format!("welcome {PLANTED}"));
}
