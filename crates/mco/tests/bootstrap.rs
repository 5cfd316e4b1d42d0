//! From an installer's manifests to the first configurations, and on to the cluster, which must render the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use mco_api::MachineConfigPool;
use mco_core::config::manifest::{self, Manifest};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Deadline of every wait.
const DEADLINE: Duration = Duration::from_mins(2);

fn mco(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_mco"))
        .args(arguments)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "mco {arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn image(digit: &str) -> String {
    format!("quay.example.com/release/image@sha256:{}", digit.repeat(64))
}

fn image_references() -> Value {
    let tag = |name: &str, digit: &str| json!({"name": name, "from": {"kind": "DockerImage", "name": image(digit)}});
    json!({
        "apiVersion": "image.openshift.io/v1", "kind": "ImageStream", "metadata": {"name": "4.21.0"},
        "spec": {"tags": [
            tag("machine-config-operator", "0"), tag("pod", "a"),
            {
                "name": "rhel-coreos",
                "annotations": {"io.openshift.build.versions": "machine-os=9.6.20250514-0"},
                "from": {"kind": "DockerImage", "name": image("1")},
            },
            tag("rhel-coreos-extensions", "2"),
            tag("rhel-coreos-10", "3"), tag("rhel-coreos-10-extensions", "4"),
        ]},
    })
}

/// The manifests of an installer and of its user.
fn installer() -> Vec<Value> {
    let own = "machineconfiguration.openshift.io/v1";
    let config = "config.openshift.io/v1";
    vec![
        json!({
            "apiVersion": config, "kind": "Infrastructure", "metadata": {"name": "cluster"}, "spec": {},
            "status": {
                "apiServerInternalURI": "https://api-int.lab.example.com:6443",
                "controlPlaneTopology": "HighlyAvailable",
                "platform": "None", "platformStatus": {"type": "None"},
            },
        }),
        json!({"apiVersion": config, "kind": "Network", "metadata": {"name": "cluster"},
               "spec": {"serviceNetwork": ["172.30.0.0/16"], "networkType": "OVNKubernetes"}}),
        json!({"apiVersion": config, "kind": "Proxy", "metadata": {"name": "cluster"},
               "spec": {"trustedCA": {"name": "user-ca-bundle"}},
               "status": {"httpProxy": "http://proxy.example.com:3128", "noProxy": ".lab.example.com"}}),
        json!({"apiVersion": config, "kind": "DNS", "metadata": {"name": "cluster"},
               "spec": {"baseDomain": "lab.example.com"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap",
               "metadata": {"name": "user-ca-bundle", "namespace": "openshift-config"},
               "data": {"ca-bundle.crt": "a certificate of the user's own"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
               "metadata": {"name": "pull-secret", "namespace": "openshift-config"},
               // {"auths":{"registry.example.com":{"auth":"c2VjcmV0"}}}
               "data": {".dockerconfigjson":
                   "eyJhdXRocyI6eyJyZWdpc3RyeS5leGFtcGxlLmNvbSI6eyJhdXRoIjoiYzJWamNtVjAifX19"}}),
        json!({"apiVersion": own, "kind": "MachineConfig",
               "metadata": {"name": "50-user", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
               "spec": {"kernelArguments": ["audit=1"]}}),
        json!({"apiVersion": own, "kind": "KubeletConfig", "metadata": {"name": "dense"},
               "spec": {"kubeletConfig": {"maxPods": 321}, "machineConfigPoolSelector": {
                   "matchLabels": {"pools.operator.machineconfiguration.openshift.io/worker": ""}}}}),
        json!({"apiVersion": own, "kind": "MachineConfigPool", "metadata": {"name": "next"},
        "spec": {
            "osImageStream": {"name": "rhel-10"},
            "machineConfigSelector": {"matchExpressions": [
                {"key": "machineconfiguration.openshift.io/role", "operator": "In", "values": ["worker", "next"]},
            ]},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/next": ""}},
        }}),
    ]
}

/// Returns the rendered name of each pool from the files.
fn rendered(directory: &Path) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for entry in fs::read_dir(directory.join("machine-pools")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let pool: MachineConfigPool = serde_json::from_value(manifest::value(&text).unwrap()).unwrap();
        names.insert(pool.metadata.name.clone().unwrap(), pool.target_name().to_owned());
    }
    names
}

async fn eventually<T, F>(what: &str, ask: impl Fn() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(DEADLINE, asking)
        .await
        .unwrap_or_else(|_| panic!("not within {DEADLINE:?}: {what}"))
}

/// The CRD of an OpenShift kind, without validation.
fn definition(kind: &str, plural: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.config.openshift.io")},
        "spec": {
            "group": "config.openshift.io", "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

async fn apply(client: &Client, object: &Value) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let version = text("/apiVersion").unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind").unwrap()));
    let api: Api<DynamicObject> = match text("/metadata/namespace") {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = text("/metadata/name").unwrap();
    let patch = PatchParams::apply("installer").force();
    eventually(&format!("{} {name} is accepted", resource.kind), || async {
        api.patch(name, &patch, &Patch::Apply(object)).await.ok()
    })
    .await;
}

fn written(directory: &Path) -> Vec<Manifest> {
    let mut paths: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
        .iter()
        .flat_map(|path| manifest::read(&path.display().to_string(), &fs::read(path).unwrap()).unwrap())
        .collect()
}

/// Renders the input of the bootstrap machine, as its pod does.
fn bootstrap(scratch: &Path) -> BTreeMap<String, String> {
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (given, references) = (scratch.join("installer"), scratch.join("image-references"));
    fs::create_dir(&given).unwrap();
    for (index, object) in installer().iter().enumerate() {
        fs::write(given.join(format!("{index:02}.json")), object.to_string()).unwrap();
    }
    fs::write(&references, image_references().to_string()).unwrap();
    let (written, out) = (scratch.join("written"), scratch.join("rendered"));
    mco(&[
        "operator",
        "bootstrap",
        "--manifests",
        &text(&given),
        "--image-references",
        &text(&references),
        "--dest-dir",
        &text(&written),
    ]);
    let render = written.join("bootstrap/manifests");
    mco(&[
        "render",
        "--manifests",
        &text(&render),
        "--pull-secret",
        &text(&render.join("machineconfigcontroller-pull-secret")),
        "--out",
        &text(&out),
    ]);
    rendered(&out)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_renders_what_its_first_machines_were_given() {
    let scratch = tempfile::tempdir().unwrap();
    let expected = bootstrap(scratch.path());
    assert_eq!(expected.keys().collect::<Vec<_>>(), ["master", "next", "worker"]);

    let directory = tempfile::tempdir().unwrap();
    let server = mco_apiserver::ApiServer::open(directory.path(), mco_apiserver::ApiServerOptions::default())
        .await
        .unwrap();
    let client = Client::new(server.service(), "default");
    for (kind, plural) in [
        ("Infrastructure", "infrastructures"),
        ("Network", "networks"),
        ("Proxy", "proxies"),
        ("DNS", "dnses"),
    ] {
        apply(&client, &definition(kind, plural)).await;
    }
    for definition in mco_api::crds() {
        apply(&client, &serde_json::to_value(definition).unwrap()).await;
    }
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "openshift-config"}});
    apply(&client, &namespace).await;
    let mut manifests = written(&scratch.path().join("written/manifests"));
    manifests.sort_by_key(|manifest| manifest.kind != "Namespace");
    for manifest in &manifests {
        apply(&client, &manifest.value).await;
    }
    for object in installer() {
        apply(&client, &object).await;
    }

    let version = env!("CARGO_PKG_VERSION");
    let stop = CancellationToken::new();
    let operator = mco_operator::run(
        client.clone(),
        mco_operator::OperatorOptions::new(version),
        stop.clone(),
    );
    let options = mco_controllers::Options::new(version, version);
    let controllers = mco_controllers::run(client.clone(), options, stop.clone());
    let (operator, controllers) = (tokio::spawn(operator), tokio::spawn(controllers));

    let pools: Api<MachineConfigPool> = Api::all(client);
    let targets = || async {
        let pools = pools.list(&ListParams::default()).await.ok()?;
        let targets = pools.items.iter().map(|pool| {
            let name = pool.metadata.name.clone().unwrap_or_default();
            (name, pool.target_name().to_owned())
        });
        Some(targets.collect::<BTreeMap<String, String>>())
    };
    let same = async {
        while targets().await.as_ref() != Some(&expected) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let came = tokio::time::timeout(DEADLINE, same).await;
    assert!(came.is_ok(), "{:#?} instead of {expected:#?}", targets().await);
    stop.cancel();
    operator.await.unwrap().unwrap();
    controllers.await.unwrap().unwrap();
    server.shutdown().await;
}
