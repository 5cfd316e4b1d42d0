//! `mco install --check` and `mco uninstall` against the embedded API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::Path;

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind, TypeMeta};
use kube::{Api, Client};
use serde_json::{Value, json};
use support::{Up, text};

/// An API server with nothing installed, and what a test does in it.
struct Bare {
    up: Up,
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl Bare {
    fn start(data: &Path) -> Self {
        let up = Up::start_with(data, &["--bare"]);
        let (runtime, client) = up.client();
        Self { up, runtime, client }
    }

    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let types: TypeMeta = serde_json::from_value(object.clone()).unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Applies like `kubectl apply --server-side`.
    fn apply(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let patch = Patch::Apply(object);
        let parameters = PatchParams::apply("kubectl");
        let applied = self
            .runtime
            .block_on(self.api(object).patch(name, &parameters, &patch));
        applied.unwrap_or_else(|error| panic!("{object}: {error}"));
    }

    fn merge(&self, object: &Value, patch: &Value, subresource: Option<&str>) {
        let api = self.api(object);
        let name = object["metadata"]["name"].as_str().unwrap();
        // The client that cordons for updates.
        let parameters = PatchParams {
            field_manager: Some("machine-config-controller-drain".to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(patch);
        self.runtime
            .block_on(async {
                match subresource {
                    Some(_) => api.patch_status(name, &parameters, &patch).await,
                    None => api.patch(name, &parameters, &patch).await,
                }
            })
            .unwrap();
    }

    fn get(&self, object: &Value) -> Option<Value> {
        let name = object["metadata"]["name"].as_str().unwrap();
        match self.runtime.block_on(self.api(object).get_opt(name)) {
            Err(kube::Error::Api(status)) if status.is_not_found() => None,
            found => found.unwrap().map(|found| serde_json::to_value(found).unwrap()),
        }
    }

    fn mco(&self, arguments: &[&str], code: i32) -> String {
        let output = self.up.mco(arguments);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {}",
            text(&output)
        );
        text(&output)
    }

    /// Installs with the operator's objects too, which no operator applies here.
    fn install(&self) {
        let printed = self
            .up
            .mco(&["install", "--image", "localhost/mco:1", "-o", "json"]);
        self.apply_list(&printed.stdout);
        let operands = [
            "install",
            "--image",
            "localhost/mco:1",
            "--with-operands",
            "--without-crds",
        ];
        let printed = self.up.mco(&[&operands[..], &["-o", "json"]].concat());
        self.apply_list(&printed.stdout);
    }

    fn apply_list(&self, list: &[u8]) {
        let list: Value = serde_json::from_slice(list).unwrap();
        // The embedded API server has no network policies.
        let served = |object: &&Value| object["kind"] != "NetworkPolicy";
        for object in list["items"].as_array().unwrap().iter().filter(served) {
            self.apply(object);
        }
    }

    fn add_node(&self, name: &str, kubelet: &str, ready: &str) {
        let node = node(name);
        self.apply(&node);
        let status = json!({"status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "nodeInfo": {"architecture": "amd64", "bootID": "", "containerRuntimeVersion": "containerd://1.6.20",
                "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": kubelet, "machineID": "",
                "operatingSystem": "linux", "osImage": "", "systemUUID": ""},
        }});
        self.merge(&node, &status, Some("status"));
    }
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"node-role.kubernetes.io/worker": ""}}})
}

fn named(version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}})
}

fn namespaced(version: &str, kind: &str, name: &str) -> Value {
    let mut object = named(version, kind, name);
    object["metadata"]["namespace"] = json!("openshift-machine-config-operator");
    object
}

#[test]
fn a_check_reports_what_an_installation_would_change() {
    let scratch = tempfile::tempdir().unwrap();
    let cluster = Bare::start(&scratch.path().join("data"));
    cluster.add_node("worker-1", "v1.34.1", "True");
    let check = ["install", "--image", "localhost/mco:1", "--check"];

    let before = cluster.mco(&check, 3);
    for expected in [
        "ok        Kubernetes: v1.",
        "ok        permissions: you are a cluster administrator",
        "ok        node worker-1: kubelet v1.34.1, containerd://1.6.20",
        "create    CustomResourceDefinition machineconfigs.machineconfiguration.openshift.io",
        "create    Namespace openshift-machine-config-operator",
        "create    Deployment machine-config-operator",
    ] {
        assert!(before.contains(expected), "{expected}: {before}");
    }
    let namespace = named("v1", "Namespace", "openshift-machine-config-operator");
    assert_eq!(cluster.get(&namespace), None, "a check changes nothing");

    cluster.install();
    let same = cluster.mco(&check, 0);
    assert!(same.contains("none      every object is up to date"), "{same}");

    let upgrade = cluster.mco(&["install", "--image", "localhost/mco:2", "--check"], 3);
    let change = "change    Deployment machine-config-operator: spec.template.spec.containers[0]";
    assert!(upgrade.contains(change), "{upgrade}");
    assert!(!upgrade.contains("create "), "{upgrade}");

    cluster.add_node("worker-2", "v1.99.0", "True");
    let refused = cluster.mco(&check, 1);
    assert!(
        refused.contains("not met   node worker-2: its kubelet v1.99.0 is newer"),
        "{refused}"
    );
    let output = cluster.up.mco(&[&check[..], &["-o", "json"]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["requirements"][0]["status"], "met", "{report}");
    assert_eq!(report["changes"][0]["effect"], "unchanged", "{report}");
}

/// What components leave in objects that stay.
fn leave_traces(cluster: &Bare) {
    let record = json!({"since": "2026-01-01T00:00:00Z", "request": "drain-b", "cordon": "made"});
    let annotations = json!({
        "machineconfiguration.openshift.io/currentConfig": "rendered-worker-1",
        "machineconfiguration.openshift.io/desiredConfig": "rendered-worker-2",
        "machineconfiguration.openshift.io/drain-record": record.to_string(),
        "machineconfiguration.openshift.io/drift-policy": "heal",
        "machineconfiguration.openshift.io/state": "Working",
        "mco.dev/drift": "[]",
        "example.com/rack": "7",
    });
    let taints = json!([{"key": "UpdateInProgress", "effect": "PreferNoSchedule"},
        {"key": "dedicated", "effect": "NoSchedule"}]);
    let spec =
        json!({"metadata": {"annotations": annotations}, "spec": {"unschedulable": true, "taints": taints}});
    cluster.merge(&node("dead"), &spec, None);
    let mut adoption = named("mco.dev/v1alpha1", "NodeAdoption", "dead");
    adoption["spec"] = json!({});
    cluster.apply(&adoption);
    cluster.merge(
        &adoption,
        &json!({"status": {"phase": "Adopted"}}),
        Some("status"),
    );
    let group = "machineconfiguration.openshift.io/v1";
    let mut rendered = named(group, "MachineConfig", "rendered-worker-1");
    rendered["metadata"]["finalizers"] = json!([
        "machineconfiguration.openshift.io/rendered-config-in-use",
        "example.com/backup"
    ]);
    cluster.apply(&rendered);
    let mut kubelet = named(group, "KubeletConfig", "pods");
    kubelet["metadata"]["finalizers"] = json!(["99-worker-generated-kubelet"]);
    kubelet["spec"] = json!({"kubeletConfig": {"maxPods": 100}});
    cluster.apply(&kubelet);
    // The daemon's pod on a node whose kubelet does not respond any more.
    let mut pod = namespaced("v1", "Pod", "machine-config-daemon-dead");
    pod["metadata"]["labels"] = json!({"k8s-app": "machine-config-daemon"});
    pod["spec"] = json!({"nodeName": "dead", "containers": [{"name": "daemon", "image": "localhost/mco:1"}]});
    cluster.apply(&pod);
}

#[test]
fn an_uninstall_leaves_nothing_behind_and_waits_for_no_dead_node() {
    let scratch = tempfile::tempdir().unwrap();
    let cluster = Bare::start(&scratch.path().join("data"));
    cluster.add_node("alive", "v1.34.1", "True");
    cluster.add_node("dead", "v1.34.1", "Unknown");
    cluster.install();
    leave_traces(&cluster);

    let planned = cluster.mco(&["uninstall", "--dry-run"], 3);
    let order = [
        "delete Deployment machine-config-operator",
        "delete ValidatingAdmissionPolicyBinding",
        "delete Deployment machine-config-controller, DaemonSet machine-config-daemon",
        "ClusterRoleBinding",
        "release 1 MachineConfig from our finalizer",
        "remove our annotations, taint and cordon from 1 node",
        "delete Namespace openshift-machine-config-operator",
    ];
    let places: Vec<usize> = order
        .iter()
        .map(|step| planned.find(step).unwrap_or_else(|| panic!("{step}: {planned}")))
        .collect();
    assert!(places.is_sorted(), "{planned}");
    let namespace = named("v1", "Namespace", "openshift-machine-config-operator");
    assert!(cluster.get(&namespace).is_some(), "a dry run changes nothing");

    let refused = cluster.mco(&["uninstall", "--yes"], 1);
    assert!(
        refused.contains("1 node is adopted and not released: dead"),
        "{refused}"
    );
    assert!(cluster.get(&namespace).is_some());

    let done = cluster.mco(&["uninstall", "--yes", "--leave-adopted"], 0);
    assert!(done.contains("done: delete Namespace"), "{done}");
    assert_eq!(cluster.get(&namespace), None);
    let role = named(
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        "machine-config-controller",
    );
    assert_eq!(cluster.get(&role), None);
    let dead = cluster.get(&node("dead")).unwrap();
    assert_eq!(
        dead["metadata"]["annotations"],
        json!({"example.com/rack": "7", "machineconfiguration.openshift.io/drift-policy": "heal"})
    );
    assert_eq!(
        dead["spec"]["taints"],
        json!([{"key": "dedicated", "effect": "NoSchedule"}])
    );
    assert_eq!(dead["spec"]["unschedulable"], Value::Null);
    let group = "machineconfiguration.openshift.io/v1";
    let rendered = cluster
        .get(&named(group, "MachineConfig", "rendered-worker-1"))
        .unwrap();
    assert_eq!(rendered["metadata"]["finalizers"], json!(["example.com/backup"]));
    let kubelet = cluster.get(&named(group, "KubeletConfig", "pods")).unwrap();
    assert_eq!(kubelet["metadata"]["finalizers"], Value::Null);

    assert!(cluster.mco(&["uninstall", "--yes"], 0).contains("nothing to do"));
    let mut backup = named(group, "MachineConfig", "rendered-worker-1");
    backup["metadata"]["finalizers"] = json!([]);
    cluster.merge(&backup, &json!({"metadata": {"finalizers": null}}), None);
    cluster.mco(&["uninstall", "--yes", "--crds"], 0);
    let definition = named(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "machineconfigs.machineconfiguration.openshift.io",
    );
    assert_eq!(cluster.get(&definition), None);
    cluster.install();
}

#[test]
fn the_other_implementation_is_not_uninstalled() {
    let scratch = tempfile::tempdir().unwrap();
    let cluster = Bare::start(&scratch.path().join("data"));
    cluster.apply(&named("v1", "Namespace", "openshift-machine-config-operator"));
    let mut foreign = namespaced("apps/v1", "Deployment", "machine-config-operator");
    foreign["spec"] = json!({
        "selector": {"matchLabels": {"k8s-app": "machine-config-operator"}},
        "template": {
            "metadata": {"labels": {"k8s-app": "machine-config-operator"}},
            "spec": {"containers": [{"name": "operator", "image": "x", "command": ["/usr/bin/machine-config-operator"]}]},
        },
    });
    cluster.apply(&foreign);
    let refused = cluster.mco(&["uninstall", "--yes"], 1);
    assert!(refused.contains("another implementation"), "{refused}");
    assert!(cluster.get(&foreign).is_some());
}

fn mco(arguments: &[&str]) -> std::process::Output {
    std::process::Command::new(env!("CARGO_BIN_EXE_mco"))
        .args(arguments)
        .env("KUBECONFIG", "/dev/null")
        .output()
        .unwrap()
}

#[test]
fn an_installation_without_an_image_named_one_that_no_node_can_pull() {
    let refused = mco(&["install", "--base", "none"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused).contains("--image <IMAGE>"), "{}", text(&refused));
    let removal = mco(&["install", "--removal"]);
    assert_eq!(removal.status.code(), Some(0), "{}", text(&removal));
}

#[test]
fn packages_replace_the_image_of_all_components_at_once_and_name_the_way_to_uninstall() {
    let scratch = tempfile::tempdir().unwrap();
    let package = |kind: &str| {
        let directory = scratch.path().join(kind);
        let path = directory.to_str().unwrap();
        let image = ["install", "--image", "registry.example.com/mco:1"];
        let written = mco(&[&image[..], &[&format!("--{kind}"), path][..]].concat());
        assert_eq!(written.status.code(), Some(0), "{}", text(&written));
        directory
    };
    let base = package("kustomize");
    let operator = std::fs::read_to_string(base.join("deployment-machine-config-operator.yaml")).unwrap();
    assert!(
        operator.contains("image: registry.example.com/mco:1"),
        "{operator}"
    );
    assert!(!operator.contains("--image="), "{operator}");
    assert!(!operator.contains("--base="), "{operator}");

    let notes = std::fs::read_to_string(package("helm").join("templates/NOTES.txt")).unwrap();
    assert!(notes.contains("mco uninstall"), "{notes}");
}
