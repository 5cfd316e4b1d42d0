//! Secrets and per-node values in files, with every component of `mco up`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use support::{Up, eventually, text};

const NAMESPACE: &str = "openshift-machine-config-operator";
const FIRST: &str = "correct-horse-battery-staple";
const SECOND: &str = "another-secret-after-rotation";
const CONFIG: &str = r#"
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-agent
  labels: {machineconfiguration.openshift.io/role: worker}
  annotations:
    mco.dev/node-values: "true"
    mco.dev/secret-files: '[{"path": "/etc/agent/token", "secret": "agent/token"}]'
spec:
  config:
    ignition: {version: 3.4.0}
    storage:
      files:
      - path: /etc/agent/conf
        contents:
          source: data:,node%3D%24%7Bnode.name%7D%20rack%3D%24%7Bnode.label%5B%22rack%22%5D%7D%0A
"#;

fn secret(value: &str) -> Secret {
    serde_json::from_value(json!({
        "metadata": {"name": "agent", "namespace": NAMESPACE, "labels": {"mco.dev/secret-files": "true"}},
        "data": {"token": k8s_openapi::ByteString(value.as_bytes().to_vec())},
    }))
    .unwrap()
}

fn label(up: &Up, node: &str, rack: &str) {
    let (runtime, client) = up.client();
    let nodes: Api<Node> = Api::all(client);
    let patch = Patch::Merge(json!({"metadata": {"labels": {"rack": rack}}}));
    runtime
        .block_on(nodes.patch(node, &PatchParams::default(), &patch))
        .unwrap();
}

fn write_secret(up: &Up, value: &str) {
    let (runtime, client) = up.client();
    let secrets: Api<Secret> = Api::namespaced(client, NAMESPACE);
    let wanted = secret(value);
    runtime.block_on(async {
        if secrets.get_opt("agent").await.unwrap().is_none() {
            secrets.create(&PostParams::default(), &wanted).await.unwrap();
        } else {
            let patch = Patch::Merge(json!({"data": wanted.data}));
            secrets
                .patch("agent", &PatchParams::default(), &patch)
                .await
                .unwrap();
        }
    });
}

/// Returns the paths of files below a directory that contain a text.
fn files_with(directory: &Path, text: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            files_with(&entry.path(), text, found);
        } else if fs::read(entry.path()).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text)) {
            found.push(entry.path().display().to_string());
        }
    }
}

fn contents(up: &Up, node: &str, path: &str) -> String {
    fs::read_to_string(up.file(node, path)).unwrap_or_default()
}

fn until_contents(up: &Up, node: &str, path: &str, expected: &str) {
    eventually(&format!("{path} of {node} is {expected:?}"), || {
        (contents(up, node, path) == expected).then_some(())
    });
}

/// Asserts that a value is in the files of nodes that have it, and in no answer of the API but the Secret.
fn assert_hidden(up: &Up, scratch: &Path, value: &str, nodes: &[&str]) {
    for node in ["master-0", "worker-0", "worker-1"] {
        let mut found = Vec::new();
        files_with(&up.file(node, ""), value, &mut found);
        let file = up.file(node, "etc/agent/token").display().to_string();
        let expected = if nodes.contains(&node) {
            vec![file]
        } else {
            Vec::new()
        };
        assert_eq!(found, expected, "{node}");
    }
    let (runtime, client) = up.client();
    for (group, version, kind) in [
        ("machineconfiguration.openshift.io", "v1", "MachineConfig"),
        ("machineconfiguration.openshift.io", "v1", "MachineConfigNode"),
        ("machineconfiguration.openshift.io", "v1", "MachineConfigPool"),
        ("", "v1", "ConfigMap"),
        ("", "v1", "Event"),
        ("", "v1", "Node"),
    ] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let found = runtime.block_on(all.list(&ListParams::default())).unwrap();
        assert!(!found.items.is_empty(), "{kind}");
        let shown = serde_json::to_string(&found).unwrap();
        assert!(!shown.contains(value), "{kind}: {shown}");
    }
    let log = fs::read_to_string(scratch.join("data.output")).unwrap();
    assert!(!log.contains(value), "{log}");
}

#[test]
fn a_secret_is_rotated_and_a_label_changed_on_running_nodes() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(&scratch.path().join("data"));
    up.wait("master");
    up.wait("worker");
    for (node, rack) in [("worker-0", "r0"), ("worker-1", "r1")] {
        label(&up, node, rack);
    }
    write_secret(&up, FIRST);

    // The plan names what happens, and shows neither size nor hash of the secret.
    let manifest = scratch.path().join("50-agent.yaml");
    fs::write(&manifest, CONFIG).unwrap();
    let plan = eventually("the version of the Secret is published", || {
        let plan = up.mco(&["plan", "-f", manifest.to_str().unwrap()]);
        (plan.status.code() == Some(3)).then(|| text(&plan))
    });
    assert!(plan.contains("/etc/agent/token"), "{plan}");
    let plan = up.mco(&["plan", "-f", manifest.to_str().unwrap(), "-o", "json"]);
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    let pools = plan["pools"].as_array().unwrap();
    let worker = pools.iter().find(|pool| pool["pool"] == "worker").unwrap();

    up.create(CONFIG).unwrap();
    for (node, rack) in [("worker-0", "r0"), ("worker-1", "r1")] {
        until_contents(&up, node, "etc/agent/conf", &format!("node={node} rack={rack}\n"));
        until_contents(&up, node, "etc/agent/token", FIRST);
        let mode = fs::metadata(up.file(node, "etc/agent/token"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    up.wait("worker");
    assert_eq!(
        up.status("worker")["target"],
        worker["new"],
        "the plan knew the name"
    );
    assert_hidden(&up, scratch.path(), FIRST, &["worker-0", "worker-1"]);

    // A rotation is a rollout of another rendered config.
    let before = up.status("worker")["target"].clone();
    write_secret(&up, SECOND);
    for node in ["worker-0", "worker-1"] {
        until_contents(&up, node, "etc/agent/token", SECOND);
    }
    up.wait("worker");
    assert_ne!(up.status("worker")["target"], before);
    assert_hidden(&up, scratch.path(), SECOND, &["worker-0", "worker-1"]);
    assert_hidden(&up, scratch.path(), FIRST, &[]);
    let bundle = scratch.path().join("bundle.tar.gz");
    let gathered = up.mco(&["gather", "--out", bundle.to_str().unwrap()]);
    assert!(gathered.status.success(), "{}", text(&gathered));
    let mut unpacked = Vec::new();
    let bundle = fs::File::open(&bundle).unwrap();
    flate2::read::GzDecoder::new(bundle)
        .read_to_end(&mut unpacked)
        .unwrap();
    assert!(!String::from_utf8_lossy(&unpacked).contains(SECOND));

    // A label changes one node, within the budget, and no rendered config.
    let target = up.status("worker")["target"].clone();
    label(&up, "worker-1", "r9");
    until_contents(&up, "worker-1", "etc/agent/conf", "node=worker-1 rack=r9\n");
    assert_eq!(
        contents(&up, "worker-0", "etc/agent/conf"),
        "node=worker-0 rack=r0\n"
    );
    up.wait("worker");
    assert_eq!(up.status("worker")["target"], target);

    // Without the MachineConfig everything of it goes.
    up.delete("50-agent").unwrap();
    eventually("the files are gone", || {
        let gone = |node: &str| {
            !up.file(node, "etc/agent/token").exists() && !up.file(node, "etc/agent/conf").exists()
        };
        (gone("worker-0") && gone("worker-1")).then_some(())
    });
    up.wait("worker");
    assert_hidden(&up, scratch.path(), SECOND, &[]);
}

#[test]
fn expanded_contents_are_shown_for_a_node_before_a_rollout() {
    let scratch = tempfile::tempdir().unwrap();
    let values = CONFIG.lines().filter(|line| !line.contains("secret-files"));
    fs::write(
        scratch.path().join("50-agent.yaml"),
        values.collect::<Vec<_>>().join("\n"),
    )
    .unwrap();
    let node = |labels: &str| {
        let path = scratch.path().join("node.txt");
        let node = format!("apiVersion: v1\nkind: Node\nmetadata: {{name: worker-7, labels: {labels}}}\n");
        fs::write(&path, node).unwrap();
        path
    };
    let why = |node: &Path| {
        std::process::Command::new(env!("CARGO_BIN_EXE_mco"))
            .args(["why", "--pool", "worker", "--manifests"])
            .arg(scratch.path().join("50-agent.yaml"))
            .arg("--node")
            .arg(node)
            .arg("/etc/agent/conf")
            .output()
            .unwrap()
    };
    let shown = why(&node("{rack: r7}"));
    let shown = text(&shown);
    assert!(
        shown.contains("MachineConfig 50-agent: contents with values of the node"),
        "{shown}"
    );
    assert!(
        shown.contains("/etc/agent/conf on this node:\n  node=worker-7 rack=r7\n"),
        "{shown}"
    );
    let refused = text(&why(&node("{}")));
    assert!(refused.contains("node worker-7 has no label rack"), "{refused}");
}
