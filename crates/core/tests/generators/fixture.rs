//! Objects for a directory, and accessors of the result.

use mco_core::config::manifest::Manifest;
use mco_core::generators::templates::TemplateTree;
use mco_core::pipeline::bootstrap::{self, BootstrapCluster, BootstrapSettings};
use serde_json::{Value, json};

pub fn pool(name: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name, "labels": {"pool": name, "any": ""}},
        "spec": {
            "machineConfigSelector": {"matchExpressions": [
                {"key": "machineconfiguration.openshift.io/role", "operator": "In", "values": if name == "master" { vec!["master"] } else { vec!["worker", name] }},
            ]},
            "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}},
        },
    })
}

pub fn kubelet_config(pool: &str, spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "KubeletConfig",
        "metadata": {"name": "tuned"}, "spec": spec,
    });
    object["spec"]["machineConfigPoolSelector"] = json!({"matchLabels": {"pool": pool}});
    object
}

pub fn runtime_config(spec: &Value) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ContainerRuntimeConfig",
        "metadata": {"name": "runtime"},
        "spec": {"machineConfigPoolSelector": {"matchLabels": {"pool": "worker"}}, "containerRuntimeConfig": spec},
    })
}

pub fn image(sources: &Value) -> Value {
    json!({"apiVersion": "config.openshift.io/v1", "kind": "Image", "metadata": {"name": "cluster"}, "spec": {"registrySources": sources}})
}

pub fn mirrors(kind: &str, name: &str, list: &Value) -> Value {
    let (api, field) = match kind {
        "ImageDigestMirrorSet" => ("config.openshift.io/v1", "imageDigestMirrors"),
        "ImageTagMirrorSet" => ("config.openshift.io/v1", "imageTagMirrors"),
        _ => ("operator.openshift.io/v1alpha1", "repositoryDigestMirrors"),
    };
    json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": {field: list}})
}

pub fn controller_config(release_image: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
        "metadata": {"name": "machine-config-controller"},
        "spec": {"clusterDNSIP": "10.96.0.10", "releaseImage": release_image,
                 "infra": {"status": {"platformStatus": {"type": "None"}}}},
    })
}

pub fn gates(enabled: &[&str]) -> Value {
    let enabled: Vec<Value> = enabled.iter().map(|name| json!({ "name": name })).collect();
    json!({
        "apiVersion": "config.openshift.io/v1", "kind": "FeatureGate", "metadata": {"name": "cluster"},
        "status": {"featureGates": [{"version": "1.2.3", "enabled": enabled, "disabled": [{"name": "Off"}]}]},
    })
}

pub fn manifests(objects: &[Value]) -> Vec<Manifest> {
    let read = |(index, object): (usize, &Value)| {
        let text = serde_json::to_vec(object).unwrap();
        mco_core::config::manifest::read(&format!("{index}.json"), &text).unwrap()
    };
    objects.iter().enumerate().flat_map(read).collect()
}

pub fn assemble(objects: &[Value], templates: Option<&TemplateTree>) -> Result<BootstrapCluster, String> {
    let mut all = vec![pool("master"), pool("worker")];
    all.extend_from_slice(objects);
    let settings = BootstrapSettings {
        templates,
        pull_secret: None,
        controller_version: "test",
        payload_version: None,
        stage: None,
        base: None,
    };
    bootstrap::assemble(manifests(&all), &settings).map_err(|errors| {
        errors
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    })
}

/// The files of a generated MachineConfig, in order.
pub fn files(cluster: &BootstrapCluster, config: &str) -> Vec<(String, String)> {
    let config = cluster
        .inventory
        .configs
        .iter()
        .find(|one| one.metadata.name.as_deref() == Some(config))
        .unwrap_or_else(|| panic!("there is no {config}"));
    let files = config.spec.config.as_ref().unwrap()["storage"]["files"]
        .as_array()
        .cloned();
    files
        .unwrap_or_default()
        .iter()
        .map(|file| {
            let source = file["contents"]["source"].as_str();
            let contents = mco_ignition::resource::decode(source, None, 1 << 20).unwrap();
            (
                file["path"].as_str().unwrap().to_owned(),
                String::from_utf8(contents).unwrap(),
            )
        })
        .collect()
}

pub fn file(cluster: &BootstrapCluster, config: &str, path: &str) -> Option<String> {
    files(cluster, config)
        .into_iter()
        .find(|(p, _)| p == path)
        .map(|(_, contents)| contents)
}
