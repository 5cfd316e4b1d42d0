//! Rendering on the bases other than OpenShift's: what is generated for nodes of each, and what is refused.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use mco_api::{ClusterBase, MachineConfig, MachineConfigPool};
use mco_core::config::node_versions::NodeVersions;
use mco_core::config::parsed_config::{ParsedConfig, SourceConfig};
use mco_core::config::reconcilable::Overrides;
use mco_core::config::render::RenderIdentity;
use mco_core::generators::os_streams::ReleaseStreams;
use mco_core::generators::templates::TemplateTree;
use mco_core::pipeline::bootstrap::{self, BootstrapSettings, default_controller_config};
use mco_core::pipeline::offline::built_in_pools;
use mco_core::pipeline::{
    self, BaseConfigs, BaseSettings, ClusterObjects, ClusterStage, GenerationResult, GeneratorInputs,
    PoolInputs, RenderFailure, RenderedPool,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn pool(name: &str) -> MachineConfigPool {
    object(json!({
        "metadata": {"name": name, "labels": {"pool": name}},
        "spec": {
            "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": name}},
            "nodeSelector": {"matchExpressions": [{"key": format!("node-role.kubernetes.io/{name}"), "operator": "Exists"}]},
        },
    }))
}

fn node(name: &str, role: &str, kubelet: &str, runtime: &str) -> NodeVersions {
    NodeVersions {
        name: name.to_owned(),
        labels: BTreeMap::from([(format!("node-role.kubernetes.io/{role}"), "true".to_owned())]),
        kubelet: kubelet.to_owned(),
        runtime: runtime.to_owned(),
    }
}

fn cluster(base: ClusterBase, nodes: Vec<NodeVersions>) -> ClusterObjects {
    let mut config = default_controller_config();
    config.set_base(base);
    ClusterObjects {
        pools: vec![pool("control-plane"), pool("gpu")],
        controller_config: Some(Arc::new(config)),
        nodes,
        ..ClusterObjects::default()
    }
}

fn with_kubelet_config(mut objects: ClusterObjects, spec: &Value) -> ClusterObjects {
    let mut value = json!({"metadata": {"name": "k", "uid": "k"}, "spec": spec});
    value["spec"]["machineConfigPoolSelector"] = json!({"matchLabels": {"pool": "gpu"}});
    objects.kubelet_configs = vec![object(value)];
    objects
}

fn with_mirrors(mut objects: ClusterObjects, digest: &Value, tag: &Value) -> ClusterObjects {
    objects.digest_mirrors = vec![object(
        json!({"metadata": {"name": "d"}, "spec": {"imageDigestMirrors": digest}}),
    )];
    objects.tag_mirrors = vec![object(
        json!({"metadata": {"name": "t"}, "spec": {"imageTagMirrors": tag}}),
    )];
    objects
}

fn generate(objects: &ClusterObjects) -> GenerationResult {
    let tree = TemplateTree::embedded();
    let settings = BaseSettings {
        templates: &tree,
        pull_secret: "",
        version: "v",
        payload_version: None,
    };
    let config = objects.controller_config.as_ref().unwrap();
    let base = BaseConfigs::render(objects, config, &settings).unwrap();
    let inputs = GeneratorInputs {
        objects,
        base: &base,
        version: "v",
        stage: ClusterStage::Cluster,
    };
    pipeline::generate(&inputs, &BTreeMap::new())
}

/// Returns the files of all generated configs: config and path, and contents.
fn files(result: &GenerationResult) -> BTreeMap<(String, String), String> {
    let mut all = BTreeMap::new();
    for config in &result.configs {
        let parsed = ParsedConfig::applicable((*config.object).clone()).unwrap();
        for file in &parsed.ignition.storage.files {
            let key = (config.name().to_owned(), file.path.clone());
            all.insert(key, parsed.text_of(&file.path).unwrap_or_default());
        }
    }
    all
}

fn failures(result: &GenerationResult) -> Vec<String> {
    result.failures.iter().map(ToString::to_string).collect()
}

fn render(
    base: ClusterBase,
    pool: &MachineConfigPool,
    configs: Vec<MachineConfig>,
) -> Result<RenderedPool, RenderFailure> {
    let mut config = default_controller_config();
    config.set_base(base);
    let sources: Vec<Arc<SourceConfig>> = configs
        .into_iter()
        .map(|config| Arc::new(SourceConfig::new(config)))
        .collect();
    pipeline::render_pool(&PoolInputs {
        pool,
        worker: None,
        controller_config: Some(&config),
        sources: &sources,
        streams: &ReleaseStreams::default(),
        os_image_stream: None,
        current: None,
        overrides: Overrides::default(),
        identity: RenderIdentity::default(),
        versions: None,
    })
}

fn sysctl() -> MachineConfig {
    object(json!({
        "metadata": {"name": "50-sysctl", "labels": {"machineconfiguration.openshift.io/role": "gpu"}},
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": "/etc/sysctl.d/50-x.conf", "mode": 0o644, "contents": {"source": "data:,vm.swappiness%3D10%0A"}}]}}},
    }))
}

#[test]
fn without_a_base_a_pool_is_its_machine_configs_alone() {
    let rendered = render(ClusterBase::None, &pool("gpu"), vec![sysctl()]).unwrap();
    let spec = &rendered.rendered.config.object.spec;
    let paths: Vec<&str> = rendered
        .rendered
        .config
        .ignition
        .storage
        .files
        .iter()
        .map(|file| file.path.as_str())
        .collect();
    assert_eq!(paths, ["/etc/sysctl.d/50-x.conf"]);
    assert!(spec.kernel_arguments.is_empty() && spec.os_image_url.is_empty() && spec.extensions.is_empty());
    let generated = generate(&cluster(ClusterBase::None, Vec::new()));
    assert!(generated.configs.is_empty() && generated.failures.is_empty());
}

#[test]
fn an_empty_pool_renders_an_empty_config_except_where_it_lacks_its_base() {
    for base in ClusterBase::ALL {
        let rendered = render(base, &pool("gpu"), Vec::new());
        if base.has_templates() {
            assert!(matches!(rendered, Err(RenderFailure::Select(_))), "{base}");
            continue;
        }
        let rendered = rendered.unwrap().rendered;
        assert!(rendered.name().starts_with("rendered-gpu-"), "{base}");
        let ignition = &rendered.config.ignition;
        assert!(
            ignition.storage.files.is_empty()
                && ignition.systemd.units.is_empty()
                && ignition.passwd.users.is_empty(),
            "{base}"
        );
        assert_eq!(rendered.config.object.spec.os_image_url, "", "{base}");
    }
}

#[test]
fn base_configs_that_another_base_has_left_behind_are_no_sources() {
    let mut left = sysctl();
    left.metadata.name = Some("00-gpu".to_owned());
    left.metadata.owner_references = Some(vec![object(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
        "name": "machine-config-controller", "uid": "u", "controller": true,
    }))]);
    let files = |base| {
        let rendered = render(base, &pool("gpu"), vec![left.clone()]).unwrap();
        rendered.rendered.config.ignition.storage.files.len()
    };
    assert_eq!((files(ClusterBase::Machine), files(ClusterBase::None)), (1, 0));
}

#[test]
fn an_unknown_base_renders_nothing() {
    let mut config = default_controller_config();
    config.metadata.annotations = Some(BTreeMap::from([("mco.dev/base".to_owned(), "talos".to_owned())]));
    let settings = BaseSettings {
        templates: &TemplateTree::embedded(),
        pull_secret: "",
        version: "v",
        payload_version: None,
    };
    let error = BaseConfigs::render(&ClusterObjects::default(), &Arc::new(config), &settings).unwrap_err();
    assert!(error.to_string().starts_with("unknown base \"talos\""), "{error}");
}

#[test]
fn the_machine_base_is_the_tree_of_openshift_without_certificates_that_no_controller_approves() {
    let objects = |base| ClusterObjects {
        pools: built_in_pools().into(),
        ..cluster(base, Vec::new())
    };
    let (machine, openshift) = (
        files(&generate(&objects(ClusterBase::Machine))),
        files(&generate(&objects(ClusterBase::OpenShift))),
    );
    assert!(machine.len() > 20);
    let requested = "serverTLSBootstrap: true\n";
    let mut differing = 0;
    for (key, text) in &openshift {
        differing += usize::from(text.contains(requested));
        assert_eq!(machine[key], text.replace(requested, ""), "{key:?}");
    }
    assert!(differing > 0);
}

#[test]
fn a_kubelet_config_is_a_drop_in_with_the_users_settings_alone() {
    let spec =
        json!({"kubeletConfig": {"maxPods": 60, "evictionHard": {"memory.available": "5%"}}, "logLevel": 3});
    let drop_in = "apiVersion: kubelet.config.k8s.io/v1beta1\nevictionHard:\n  memory.available: 5%\nkind: \
                   KubeletConfiguration\nlogging:\n  verbosity: 3\nmaxPods: 60\n";
    let config = |path: &str| ("99-gpu-generated-kubelet".to_owned(), path.to_owned());
    let objects = cluster(
        ClusterBase::Kubeadm,
        vec![node("n1", "gpu", "v1.35.2", "containerd://2.2.1")],
    );
    let result = generate(&with_kubelet_config(objects, &spec));
    assert_eq!(failures(&result), Vec::<String>::new());
    assert_eq!(
        files(&result),
        BTreeMap::from([
            (
                config("/etc/kubernetes/kubelet.conf.d/90-mco-00.conf"),
                drop_in.to_owned()
            ),
            (
                config("/etc/systemd/system/kubelet.service.d/20-mco-config-dir.conf"),
                "[Service]\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml \
                 --config-dir=/etc/kubernetes/kubelet.conf.d\"\n"
                    .to_owned()
            ),
        ])
    );
    for (base, role, path) in [
        (
            ClusterBase::K3s,
            "gpu",
            "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/90-mco-00.conf",
        ),
        (
            ClusterBase::Rke2,
            "control-plane",
            "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d/90-mco-server-00.conf",
        ),
    ] {
        let mut server = node("n1", "gpu", "v1.35.2+k3s1", "containerd://2.1.5-k3s1");
        server
            .labels
            .insert(format!("node-role.kubernetes.io/{role}"), "true".to_owned());
        let mut objects = cluster(base, vec![server]);
        objects.pools = vec![pool("gpu")];
        let result = generate(&with_kubelet_config(objects, &spec));
        assert_eq!(
            files(&result),
            BTreeMap::from([(config(path), drop_in.to_owned())]),
            "{base}"
        );
    }
}

#[test]
fn a_kubelet_config_that_the_nodes_of_a_pool_cannot_take_is_refused_by_their_names() {
    use ClusterBase::{K3s, Kubeadm, None};
    let old = node("n1", "gpu", "v1.29.4", "containerd://1.7.28");
    let new = node("n2", "gpu", "v1.35.0", "containerd://2.2.0");
    let mut server = new.clone();
    server.name = "s1".to_owned();
    server.labels.insert(
        "node-role.kubernetes.io/control-plane".to_owned(),
        "true".to_owned(),
    );
    let max_pods = json!({"kubeletConfig": {"maxPods": 60}});
    for (base, nodes, spec, expected) in [
        (
            None,
            vec![new.clone()],
            max_pods.clone(),
            "the base of this cluster is none",
        ),
        (
            Kubeadm,
            vec![old, new.clone()],
            max_pods.clone(),
            "older than 1.30 do not read on base kubeadm: n1 (v1.29.4)",
        ),
        (K3s, vec![new.clone(), server], max_pods, "servers s1"),
        (
            Kubeadm,
            vec![new],
            json!({"autoSizingReserved": true}),
            "spec.autoSizingReserved cannot be set on base kubeadm",
        ),
    ] {
        let mut objects = cluster(base, nodes);
        objects.pools = vec![pool("gpu")];
        let result = generate(&with_kubelet_config(objects, &spec));
        let found = failures(&result);
        assert!(
            found.len() == 1 && found[0].contains(expected),
            "{expected}: {found:?}"
        );
        assert!(result.configs.is_empty());
    }
}

#[test]
fn mirrors_are_files_of_the_runtime_that_a_pool_has() {
    let digest = json!([{"source": "quay.io", "mirrors": ["mirror.example.com:5000/quay"]},
        {"source": "docker.io", "mirrors": ["mirror.example.com"], "mirrorSourcePolicy": "NeverContactSource"}]);
    let tag = json!([{"source": "registry.k8s.io", "mirrors": ["mirror.example.com"]}]);
    let objects = cluster(
        ClusterBase::Kubeadm,
        vec![
            node("n1", "gpu", "v1.35.2", "containerd://2.2.1"),
            node("n2", "control-plane", "v1.35.2", "cri-o://1.35.0"),
        ],
    );
    let result = generate(&with_mirrors(objects, &digest, &tag));
    assert_eq!(failures(&result), Vec::<String>::new());
    let files = files(&result);
    let hosts = |host: &str| {
        let path = format!("/etc/containerd/certs.d/{host}/hosts.toml");
        files[&("99-gpu-generated-registries".to_owned(), path)].as_str()
    };
    assert_eq!(
        hosts("quay.io"),
        "server = \"https://quay.io\"\n  [host.\"https://mirror.example.com:5000/v2/quay\"]\n    capabilities = \
         [\"pull\"]\n    override_path = true\n"
    );
    assert!(hosts("docker.io").starts_with("server = \"https://mirror.example.com\"\n"));
    assert!(hosts("registry.k8s.io").contains("capabilities = [\"pull\", \"resolve\"]"));
    let crio = &files[&(
        "99-control-plane-generated-registries".to_owned(),
        "/etc/containers/registries.conf.d/99-mco-mirrors.conf".to_owned(),
    )];
    assert!(crio.starts_with("[[registry]]"), "{crio}");
    assert!(crio.contains("mirror.example.com:5000/quay"), "{crio}");
    assert_eq!(files.len(), 4, "{files:?}");
}

#[test]
fn mirrors_that_containerd_cannot_express_are_refused() {
    let objects = || {
        cluster(
            ClusterBase::K3s,
            vec![node("n1", "gpu", "v1.35.2+k3s1", "containerd://2.1.5-k3s1")],
        )
    };
    let tag = json!([]);
    let digest = json!([{"source": "quay.io/team", "mirrors": ["mirror.example.com/team"]}]);
    let result = generate(&with_mirrors(objects(), &digest, &tag));
    let found = failures(&result);
    assert!(
        found
            .iter()
            .any(|text| text.contains("source \"quay.io/team\" cannot be mirrored")),
        "{found:?}"
    );
    let digest = json!([{"source": "quay.io", "mirrors": ["mirror.example.com"]}]);
    let result = generate(&with_mirrors(objects(), &digest, &tag));
    let paths: Vec<String> = files(&result).into_keys().map(|(_, path)| path).collect();
    assert!(
        paths.contains(&"/var/lib/rancher/k3s/agent/etc/containerd/certs.d/quay.io/hosts.toml".to_owned()),
        "{paths:?}"
    );
}

#[test]
fn a_runtime_config_is_a_drop_in_of_a_containerd_that_merges_it() {
    let config = |wishes: Value, nodes: Vec<NodeVersions>| {
        let mut objects = cluster(ClusterBase::Kubeadm, nodes);
        objects.runtime_configs = vec![object(json!({"metadata": {"name": "c", "uid": "c"},
            "spec": {"machineConfigPoolSelector": {"matchLabels": {"pool": "gpu"}}, "containerRuntimeConfig": wishes}}))];
        generate(&objects)
    };
    let new = || vec![node("n1", "gpu", "v1.35.0", "containerd://2.2.0")];
    let result = config(json!({"logLevel": "debug"}), new());
    assert_eq!(
        files(&result).into_iter().collect::<Vec<_>>(),
        [(
            (
                "99-gpu-generated-containerruntime".to_owned(),
                "/etc/containerd/conf.d/90-mco-00.toml".to_owned()
            ),
            "version = 2\n\n[debug]\n  level = \"debug\"\n".to_owned()
        )]
    );
    let old = vec![node("n1", "gpu", "v1.35.0", "containerd://1.7.28")];
    for (wishes, nodes, expected) in [
        (
            json!({"logLevel": "debug"}),
            old,
            "since version 2.2: n1 (containerd://1.7.28)",
        ),
        (
            json!({"pidsLimit": 4096}),
            new(),
            "set podPidsLimit in a KubeletConfig",
        ),
        (
            json!({"overlaySize": "8G"}),
            new(),
            "overlaySize cannot be set on base kubeadm",
        ),
    ] {
        let found = failures(&config(wishes, nodes));
        assert!(
            found.len() == 1 && found[0].contains(expected),
            "{expected}: {found:?}"
        );
    }
}

#[test]
fn a_directory_is_rendered_with_the_base_that_is_asked_for() {
    let manifest = |value: Value| mco_core::config::manifest::Manifest {
        origin: mco_core::config::manifest::ManifestOrigin {
            file: "f".to_owned(),
            line: 1,
        },
        api_version: value["apiVersion"].as_str().unwrap().to_owned(),
        kind: value["kind"].as_str().unwrap().to_owned(),
        name: value["metadata"]["name"].as_str().unwrap().to_owned(),
        value,
    };
    let mut own = json!(pool("gpu"));
    own["spec"]["paused"] = json!(false);
    let manifests = vec![manifest(own), manifest(json!(sysctl()))];
    let settings = BootstrapSettings {
        base: Some(ClusterBase::None),
        ..BootstrapSettings::default()
    };
    let cluster = bootstrap::assemble(manifests, &settings).unwrap();
    let outcomes = cluster.render(RenderIdentity::default());
    let rendered: Vec<(&str, usize)> = outcomes
        .iter()
        .map(|outcome| {
            let rendered = outcome.rendered().unwrap();
            (outcome.name(), rendered.config.ignition.storage.files.len())
        })
        .collect();
    assert_eq!(rendered, [("gpu", 1)]);
}

#[test]
fn a_write_is_refused_if_the_nodes_of_a_pool_cannot_take_it() {
    use ClusterBase::{Kubeadm, None as NoBase, OpenShift};
    use mco_core::pipeline::admission::{AdmissionContext, check_on};
    let context = |base, kubelet: &str| AdmissionContext {
        base,
        pools: vec![pool("gpu")],
        nodes: vec![node("n1", "gpu", kubelet, "containerd://2.2.0")],
    };
    let kubelet_config = json!({"metadata": {"name": "k"}, "spec": {"kubeletConfig": {"maxPods": 60},
        "machineConfigPoolSelector": {"matchLabels": {"pool": "gpu"}}}});
    let elsewhere = json!({"metadata": {"name": "k"}, "spec": {"kubeletConfig": {"maxPods": 60},
        "machineConfigPoolSelector": {"matchLabels": {"pool": "of-tomorrow"}}}});
    let mirrors = json!({"metadata": {"name": "d"}, "spec": {"imageDigestMirrors": [
        {"source": "quay.io/team", "mirrors": ["mirror.example.com/team"]}]}});
    let (own, plain) = ("machineconfiguration.openshift.io", "mco.dev");
    for (base, kubelet, group, kind, object, expected) in [
        (Kubeadm, "v1.35.0", own, "KubeletConfig", &kubelet_config, ""),
        (
            Kubeadm,
            "v1.29.0",
            own,
            "KubeletConfig",
            &kubelet_config,
            "n1 (v1.29.0)",
        ),
        (Kubeadm, "v1.29.0", own, "KubeletConfig", &elsewhere, ""),
        (
            NoBase,
            "v1.35.0",
            own,
            "KubeletConfig",
            &kubelet_config,
            "base of this cluster is none",
        ),
        (OpenShift, "v1.29.0", own, "KubeletConfig", &kubelet_config, ""),
        (
            Kubeadm,
            "v1.35.0",
            plain,
            "ImageDigestMirrorSet",
            &mirrors,
            "mirrors whole registries",
        ),
        (OpenShift, "v1.35.0", plain, "ImageDigestMirrorSet", &mirrors, ""),
    ] {
        let checked = check_on(|| context(base, kubelet), group, kind, object).unwrap();
        let problems = checked.err().unwrap_or_default();
        let found: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(found.is_empty(), expected.is_empty(), "{base} {kind}: {found:?}");
        assert!(
            found.iter().all(|text| text.contains(expected)),
            "{base} {kind}: {found:?}"
        );
    }
}
