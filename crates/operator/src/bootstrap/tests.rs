//! Tests of the written files for different installers.

use std::collections::BTreeMap;

use mco_api::ControllerConfig;
use mco_core::config::manifest;
use mco_core::pipeline::bootstrap::default_controller_config;

use super::*;

fn manifests(objects: &[Value]) -> Vec<Manifest> {
    let read = |(index, object): (usize, &Value)| {
        manifest::read(&format!("{index}.json"), object.to_string().as_bytes()).unwrap()
    };
    objects.iter().enumerate().flat_map(read).collect()
}

fn written(inputs: &BootstrapInputs, options: &OperatorOptions) -> BTreeMap<String, String> {
    let files = files(inputs, &Places::default(), options).unwrap();
    let count = files.len();
    let by_path: BTreeMap<String, String> = files
        .into_iter()
        .map(|file| (file.path, String::from_utf8(file.contents).unwrap()))
        .collect();
    assert_eq!(by_path.len(), count, "no file is written twice");
    by_path
}

fn config(files: &BTreeMap<String, String>) -> ControllerConfig {
    let text = &files["bootstrap/manifests/machineconfigcontroller-controllerconfig.yaml"];
    serde_json::from_value(manifest::value(text).unwrap()).unwrap()
}

fn options() -> OperatorOptions {
    OperatorOptions::new("0.1.0")
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn config_map(name: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "openshift-config"}, "data": data,
    })
}

#[test]
fn an_installer_that_says_nothing_gets_what_the_offline_render_assumes() {
    let mut images = BootstrapImages::default();
    images.set_operator("registry.example.com/mco:1");
    let inputs = BootstrapInputs {
        images,
        ..BootstrapInputs::default()
    };
    let files = written(&inputs, &options());
    let expected = [
        "bootstrap/machineconfigoperator-bootstrap-pod.yaml",
        "bootstrap/manifests/machineconfigcontroller-controllerconfig.yaml",
        "bootstrap/manifests/master.machineconfigpool.yaml",
        "bootstrap/manifests/worker.machineconfigpool.yaml",
        "manifests/csr-bootstrap-role-binding.yaml",
        "manifests/machine-config-namespace.yaml",
        "manifests/machine-config-operator-images.yaml",
    ];
    assert_eq!(files.keys().collect::<Vec<_>>(), expected);
    let mut spec = config(&files).spec;
    assert_eq!(spec.images["machineConfigOperator"], "registry.example.com/mco:1");
    spec.images.clear();
    assert_eq!(spec, default_controller_config().spec);
}

#[test]
fn manifests_say_what_a_cluster_would() {
    let inputs = BootstrapInputs {
        manifests: manifests(&[
            json!({
                "apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": {"name": "cluster"},
                "spec": {"cloudConfig": {"name": "cloud", "key": "config"}},
                "status": {
                    "apiServerInternalURI": "https://api-int.lab.example.com:6443",
                    "controlPlaneTopology": "HighlyAvailableArbiter",
                    "platformStatus": {"type": "OpenStack"},
                },
            }),
            object(
                "Network",
                "cluster",
                &json!({"serviceNetwork": ["172.30.0.0/16"]}),
            ),
            object("Proxy", "cluster", &json!({"trustedCA": {"name": "replaced"}})),
            object("Proxy", "cluster", &json!({"trustedCA": {"name": "bundle"}})),
            config_map("bundle", &json!({"ca-bundle.crt": "TRUSTED"})),
            config_map("cloud", &json!({"config": "[Global]"})),
        ]),
        kube_ca: b"KUBE".to_vec(),
        root_ca: "ROOT".to_owned(),
        release_image: "registry.example.com/release@sha256:1".to_owned(),
        ..BootstrapInputs::default()
    };
    let files = written(&inputs, &options());
    let spec = config(&files).spec;
    assert_eq!(spec.cluster_dns_ip, "172.30.0.10");
    assert_eq!(spec.cloud_provider_config, "[Global]");
    assert_eq!(spec.additional_trust_bundle.unwrap().0, b"TRUSTED");
    assert_eq!(spec.kube_api_server_serving_ca_data.0, b"KUBE");
    assert_eq!(spec.root_ca_data.0, b"ROOT");
    assert_eq!(spec.release_image, "registry.example.com/release@sha256:1");
    assert_eq!(spec.pull_secret, None, "there is no cluster to read it from");
    assert!(files.contains_key("bootstrap/manifests/arbiter.machineconfigpool.yaml"));
    assert!(files["manifests/kube-apiserver-serving-ca-configmap.yaml"].contains("KUBE"));
}

#[test]
fn a_release_names_its_images_for_the_render_and_for_the_cluster() {
    let tag = |name: &str| json!({"name": name, "from": {"kind": "DockerImage", "name": format!("r.example.com/{name}")}});
    let release = json!({
        "apiVersion": "image.openshift.io/v1", "kind": "ImageStream", "metadata": {"name": "4.21.0"},
        "spec": {"tags": [
            tag("machine-config-operator"), tag("pod"), tag("rhel-coreos"), tag("rhel-coreos-extensions"),
        ]},
    });
    let images = ReleaseImages::read(&release).unwrap();
    let inputs = BootstrapInputs {
        images: BootstrapImages::of_release(&images).unwrap(),
        release: Some(release),
        ..BootstrapInputs::default()
    };
    let options = OperatorOptions {
        release_version: Some(images.version),
        ..options()
    };
    let files = written(&inputs, &options);
    let config = config(&files);
    assert_eq!(config.spec.base_os_container_image, "r.example.com/rhel-coreos");
    assert_eq!(
        config.spec.base_os_extensions_container_image,
        "r.example.com/rhel-coreos-extensions"
    );
    assert_eq!(config.spec.images["infraImageKey"], "r.example.com/pod");
    let map = manifest::value(&files["manifests/machine-config-osimageurl.yaml"]).unwrap();
    assert_eq!(map["data"]["releaseVersion"], "4.21.0");
    assert!(
        map["data"]["image-references"]
            .as_str()
            .unwrap()
            .contains("rhel-coreos")
    );
    let pod = &files["bootstrap/machineconfigoperator-bootstrap-pod.yaml"];
    assert!(
        pod.contains("image: r.example.com/machine-config-operator"),
        "{pod}"
    );
    assert!(pod.contains("--payload-version=4.21.0"), "{pod}");
}

#[test]
fn only_what_configs_are_rendered_from_is_copied() {
    let user = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "50-user", "labels": {"machineconfiguration.openshift.io/role": "worker"}}, "spec": {},
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "pull-secret", "namespace": "openshift-config"},
        "data": {".dockerconfigjson": "e30="},
    });
    let mut inputs = BootstrapInputs {
        manifests: manifests(&[
            user,
            secret,
            object("Image", "cluster", &json!({})),
            object("DNS", "cluster", &json!({})),
            json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
                   "metadata": {"name": "machine-config-controller"}, "spec": {}}),
        ]),
        copies: BootstrapCopies::Made,
        ..BootstrapInputs::default()
    };
    let copied = |inputs: &BootstrapInputs| {
        let files = written(inputs, &options()).into_keys();
        files
            .filter(|path| path.contains("installer-") || path == PULL_SECRET)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        copied(&inputs),
        [
            "bootstrap/manifests/installer-image-cluster.yaml",
            "bootstrap/manifests/installer-machineconfig-50-user.yaml",
            PULL_SECRET,
        ]
    );
    inputs.copies = BootstrapCopies::Elsewhere;
    assert_eq!(copied(&inputs), [PULL_SECRET]);
}

#[test]
fn what_is_missing_is_named_with_who_names_it() {
    let refused = |objects: &[Value]| {
        let inputs = BootstrapInputs {
            manifests: manifests(objects),
            copies: BootstrapCopies::Made,
            ..BootstrapInputs::default()
        };
        files(&inputs, &Places::default(), &options())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused(&[object(
            "Proxy",
            "cluster",
            &json!({"trustedCA": {"name": "bundle"}})
        )]),
        "ConfigMap openshift-config/bundle, named by spec.trustedCA of the Proxy, is not among the manifests"
    );
    let bad = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
                     "metadata": {"name": "../x"}, "spec": {}});
    assert!(refused(&[bad]).contains("is not a valid file name"));
}

#[test]
fn the_first_config_server_ignored_the_tls_profile_of_the_manifests() {
    let pod = |spec: Value| {
        let inputs = BootstrapInputs {
            manifests: manifests(&[object("APIServer", "cluster", &spec)]),
            ..BootstrapInputs::default()
        };
        written(&inputs, &options())[POD].clone()
    };
    let modern = pod(json!({"tlsSecurityProfile": {"type": "Modern", "modern": {}}}));
    assert!(modern.contains("- --tls-min-version=VersionTLS13\n"), "{modern}");
    assert!(!pod(json!({})).contains("tls-min-version"));
}
