//! KubeletConfig, ContainerRuntimeConfig and registry settings: what they give, what they refuse and in which words.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use mco_core::bootstrap::{self, Cluster, Settings};
use mco_core::manifest::Manifest;
use mco_core::render::Identity;
use mco_core::templates::TemplateTree;
use serde_json::{Value, json};

fn pool(name: &str) -> Value {
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

fn kubelet_config(pool: &str, spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "KubeletConfig",
        "metadata": {"name": "tuned"}, "spec": spec,
    });
    object["spec"]["machineConfigPoolSelector"] = json!({"matchLabels": {"pool": pool}});
    object
}

fn runtime_config(spec: &Value) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ContainerRuntimeConfig",
        "metadata": {"name": "runtime"},
        "spec": {"machineConfigPoolSelector": {"matchLabels": {"pool": "worker"}}, "containerRuntimeConfig": spec},
    })
}

fn image(sources: &Value) -> Value {
    json!({"apiVersion": "config.openshift.io/v1", "kind": "Image", "metadata": {"name": "cluster"}, "spec": {"registrySources": sources}})
}

fn mirrors(kind: &str, name: &str, list: &Value) -> Value {
    let (api, field) = match kind {
        "ImageDigestMirrorSet" => ("config.openshift.io/v1", "imageDigestMirrors"),
        "ImageTagMirrorSet" => ("config.openshift.io/v1", "imageTagMirrors"),
        _ => ("operator.openshift.io/v1alpha1", "repositoryDigestMirrors"),
    };
    json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": {field: list}})
}

fn controller_config(release_image: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
        "metadata": {"name": "machine-config-controller"},
        "spec": {"clusterDNSIP": "10.96.0.10", "releaseImage": release_image,
                 "infra": {"status": {"platformStatus": {"type": "None"}}}},
    })
}

fn gates(enabled: &[&str]) -> Value {
    let enabled: Vec<Value> = enabled.iter().map(|name| json!({ "name": name })).collect();
    json!({
        "apiVersion": "config.openshift.io/v1", "kind": "FeatureGate", "metadata": {"name": "cluster"},
        "status": {"featureGates": [{"version": "1.2.3", "enabled": enabled, "disabled": [{"name": "Off"}]}]},
    })
}

fn manifests(objects: &[Value]) -> Vec<Manifest> {
    let read = |(index, object): (usize, &Value)| {
        let text = serde_json::to_vec(object).unwrap();
        mco_core::manifest::read(&format!("{index}.json"), &text).unwrap()
    };
    objects.iter().enumerate().flat_map(read).collect()
}

fn assemble(objects: &[Value], templates: Option<&TemplateTree>) -> Result<Cluster, String> {
    let mut all = vec![pool("master"), pool("worker")];
    all.extend_from_slice(objects);
    let settings = Settings {
        templates,
        pull_secret: None,
        controller_version: "test",
        payload_version: None,
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
fn files(cluster: &Cluster, config: &str) -> Vec<(String, String)> {
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

fn file(cluster: &Cluster, config: &str, path: &str) -> Option<String> {
    files(cluster, config)
        .into_iter()
        .find(|(p, _)| p == path)
        .map(|(_, contents)| contents)
}

fn kubelet_conf(cluster: &Cluster, config: &str) -> Value {
    let text = file(cluster, config, "/etc/kubernetes/kubelet.conf").unwrap();
    mco_core::manifest::value(&text).unwrap()
}

const KUBELET: &str = "99-worker-generated-kubelet";
const RUNTIME: &str = "99-worker-generated-containerruntime";
const REGISTRIES: &str = "99-worker-generated-registries";

#[test]
fn a_kubelet_config_is_laid_over_the_base() {
    let cases: Vec<(&str, Value, Vec<(&str, Value)>)> = vec![
        (
            "only maxPods: the base's enforcement stays",
            json!({"kubeletConfig": {"maxPods": 100}}),
            vec![
                ("maxPods", json!(100)),
                ("systemReservedCgroup", json!("/system.slice")),
                (
                    "enforceNodeAllocatable",
                    json!(["pods", "system-reserved-compressible"]),
                ),
                ("failSwapOn", json!(false)),
            ],
        ),
        (
            "enforcing pods only clears the cgroup",
            json!({"kubeletConfig": {"enforceNodeAllocatable": ["pods"]}}),
            vec![
                ("systemReservedCgroup", Value::Null),
                ("enforceNodeAllocatable", json!(["pods"])),
            ],
        ),
        (
            "reserved CPUs clear the cgroup and ensure pods",
            json!({"kubeletConfig": {"reservedSystemCPUs": "0-1", "enforceNodeAllocatable": ["kube-reserved", "system-reserved"]}}),
            vec![
                ("systemReservedCgroup", Value::Null),
                ("enforceNodeAllocatable", json!(["pods", "kube-reserved"])),
            ],
        ),
        (
            "zeros do not override",
            json!({"kubeletConfig": {"enableSystemLogQuery": false, "kubeAPIQPS": 0, "staticPodPath": "", "seccompDefault": false}}),
            vec![
                ("enableSystemLogQuery", json!(true)),
                ("kubeAPIQPS", json!(50)),
                ("staticPodPath", json!("/etc/kubernetes/manifests")),
                ("seccompDefault", json!(false)),
            ],
        ),
        (
            "protectKernelDefaults is the one that does",
            json!({"kubeletConfig": {"protectKernelDefaults": false}}),
            vec![("protectKernelDefaults", Value::Null)],
        ),
        (
            "a profile of its own",
            json!({"tlsSecurityProfile": {"type": "Modern"}}),
            vec![("tlsMinVersion", json!("VersionTLS13"))],
        ),
        (
            "suites of its own beat the profile",
            json!({"tlsSecurityProfile": {"type": "Old"}, "kubeletConfig": {"tlsCipherSuites": ["A"]}}),
            vec![
                ("tlsMinVersion", json!("VersionTLS10")),
                ("tlsCipherSuites", json!(["A"])),
            ],
        ),
        (
            "maps merge key by key, unknown keys vanish, durations are written in full",
            json!({"kubeletConfig": {"evictionHard": {"memory.available": "1Gi"}, "nonsense": 1, "streamingConnectionIdleTimeout": "4h"}}),
            vec![
                ("evictionHard", json!({"memory.available": "1Gi"})),
                ("nonsense", Value::Null),
                ("streamingConnectionIdleTimeout", json!("4h0m0s")),
            ],
        ),
        (
            "what is reserved goes elsewhere, but for the rest",
            json!({"kubeletConfig": {"systemReserved": {"memory": "2Gi", "pid": "100"}}}),
            vec![("systemReserved", json!({"pid": "100"}))],
        ),
    ];
    for (name, spec, expected) in cases {
        let cluster = assemble(&[kubelet_config("worker", &spec)], None).unwrap();
        let conf = kubelet_conf(&cluster, KUBELET);
        for (key, value) in expected {
            assert_eq!(conf.get(key).cloned().unwrap_or_default(), value, "{name}: {key}");
        }
    }
}

#[test]
fn kubelet_files_appear_in_order_and_only_when_asked_for() {
    let sizing = |enabled: bool, memory: &str| {
        format!(
            "NODE_SIZING_ENABLED={enabled}\nSYSTEM_RESERVED_MEMORY={memory}\nSYSTEM_RESERVED_CPU=500m\nSYSTEM_RESERVED_ES=1Gi\n"
        )
    };
    let cases: Vec<(&str, Value, Vec<&str>, Option<String>)> = vec![
        (
            "nothing but the kubelet's file",
            json!({}),
            vec!["kubelet.conf"],
            None,
        ),
        (
            "automatic sizing",
            json!({"autoSizingReserved": true}),
            vec!["node-sizing-enabled.env", "kubelet.conf"],
            Some(sizing(true, "1Gi")),
        ),
        (
            "no automatic sizing",
            json!({"autoSizingReserved": false}),
            vec!["node-sizing-enabled.env", "kubelet.conf"],
            Some(sizing(false, "1Gi")),
        ),
        (
            "reserved by hand",
            json!({"kubeletConfig": {"systemReserved": {"memory": "3Gi"}}, "logLevel": 0}),
            vec!["node-sizing-enabled.env", "20-logging.conf", "kubelet.conf"],
            Some(sizing(false, "3Gi")),
        ),
    ];
    for (name, spec, expected, contents) in cases {
        let cluster = assemble(&[kubelet_config("worker", &spec)], None).unwrap();
        let files = files(&cluster, KUBELET);
        let names: Vec<&str> = files
            .iter()
            .map(|(path, _)| path.rsplit('/').next().unwrap())
            .collect();
        assert_eq!(names, expected, "{name}");
        assert_eq!(
            file(&cluster, KUBELET, "/etc/node-sizing-enabled.env"),
            contents,
            "{name}"
        );
    }
}

#[test]
fn kubelet_configs_are_refused_in_known_words() {
    let not_allowed = |field: &str, found: &str| {
        format!(
            "KubeletConfig \"tuned\": KubeletConfiguration: {field} is not allowed to be set, but contains: {found}"
        )
    };
    let given = |config: Value| json!({ "kubeletConfig": config });
    let cases: Vec<(&str, Value, String)> = vec![
        ("worker", json!({"logLevel": 11}), "KubeletConfig's LogLevel is not valid [0,10]: 11".to_owned()),
        ("worker", json!({"logLevel": -1}), "KubeletConfig's LogLevel is not valid [0,10]: -1".to_owned()),
        ("worker", given(json!({"maxPods": "many"})), "KubeletConfig could not be unmarshalled, err: maxPods: ".to_owned()),
        ("worker", given(json!({"syncFrequency": 5})), "err: syncFrequency: expected a duration".to_owned()),
        ("worker", given(json!({"cgroupDriver": "cgroupfs"})), not_allowed("cgroupDriver", "cgroupfs")),
        ("worker", given(json!({"clusterDNS": ["1.1.1.1", "8.8.8.8"]})), not_allowed("clusterDNS", "[1.1.1.1 8.8.8.8]")),
        ("worker", given(json!({"clusterDomain": "x"})), not_allowed("clusterDomain", "x")),
        ("worker", given(json!({"featureGates": {"B": true, "A": false}})), not_allowed("featureGates", "map[A:false B:true]")),
        ("worker", given(json!({"failSwapOn": false})), not_allowed("failSwapOn", "false")),
        ("worker", given(json!({"memorySwap": {"swapBehavior": "LimitedSwap"}})), not_allowed("swapBehavior", "LimitedSwap")),
        (
            "worker",
            json!({"autoSizingReserved": true, "kubeletConfig": {"systemReserved": {"pid": "1"}}}),
            "autoSizingReserved and systemdReserved cannot be set together".to_owned(),
        ),
        (
            "worker",
            given(json!({"systemReservedCgroup": "/a", "systemCgroups": "/b"})),
            "KubeletConfiguration: systemReservedCgroup (/a) must match systemCgroups (/b)".to_owned(),
        ),
        (
            "worker",
            given(json!({"systemCgroups": "/foo.slice"})),
            "invalid merged configuration: systemReservedCgroup (/system.slice) must match systemCgroups (/foo.slice)".to_owned(),
        ),
        ("worker", given(json!({"staticPodPath": "/x"})), "staticPodPath must be empty for pool \"worker\", but contains: /x".to_owned()),
        ("master", given(json!({"staticPodPath": ""})), "staticPodPath is not allowed to be set for control plane pool \"master\"".to_owned()),
    ];
    for (pool, spec, expected) in cases {
        let error = assemble(&[kubelet_config(pool, &spec)], None).unwrap_err();
        assert!(error.contains(&expected), "{spec}: {error}");
        assert!(error.starts_with("KubeletConfig \"tuned\": "), "{error}");
    }
}

#[test]
fn node_settings_and_gates_reach_every_pool_and_changes_reach_existing_configs() {
    let node = |profile: &str, mode: &str| {
        json!({"apiVersion": "config.openshift.io/v1", "kind": "Node", "metadata": {"name": "cluster"},
               "spec": {"workerLatencyProfile": profile, "cgroupMode": mode}})
    };
    let server = |profile: &str| {
        json!({"apiVersion": "config.openshift.io/v1", "kind": "APIServer", "metadata": {"name": "cluster"},
               "spec": {"tlsSecurityProfile": {"type": profile}}})
    };
    for (profile, expected) in [
        ("", "10s"),
        ("Default", "10s"),
        ("MediumUpdateAverageReaction", "20s"),
        ("LowUpdateSlowReaction", "1m0s"),
    ] {
        // A KubeletConfig must not hide the profile: its own MachineConfig has it too.
        let cluster = assemble(&[node(profile, "v2"), kubelet_config("worker", &json!({}))], None).unwrap();
        for config in [
            KUBELET,
            "98-worker-generated-kubelet",
            "97-worker-generated-kubelet",
        ] {
            assert_eq!(
                kubelet_conf(&cluster, config)["nodeStatusUpdateFrequency"],
                expected,
                "{config} {profile}"
            );
        }
        assert_eq!(
            kubelet_conf(&cluster, "98-master-generated-kubelet")["nodeStatusUpdateFrequency"],
            "10s"
        );
    }
    let own = kubelet_config(
        "worker",
        &json!({"kubeletConfig": {"nodeStatusUpdateFrequency": "7s"}}),
    );
    let cluster = assemble(&[node("LowUpdateSlowReaction", ""), own], None).unwrap();
    assert_eq!(
        kubelet_conf(&cluster, KUBELET)["nodeStatusUpdateFrequency"],
        "7s",
        "the user's value wins"
    );

    let cluster = assemble(
        &[
            server("Old"),
            kubelet_config("worker", &json!({})),
            gates(&["On"]),
        ],
        None,
    )
    .unwrap();
    for config in [KUBELET, "98-master-generated-kubelet"] {
        let conf = kubelet_conf(&cluster, config);
        assert_eq!(conf["tlsMinVersion"], "VersionTLS10", "{config}");
        assert_eq!(
            conf["featureGates"],
            json!({"On": true, "Off": false}),
            "{config}"
        );
    }
    for (given, expected) in [
        (
            node("", "v1"),
            "unknown cgroup mode found v1, failed to update the machine config resource",
        ),
        (node("Fast", ""), "unknown workerLatencyProfile found \"Fast\""),
    ] {
        let error = assemble(&[given], None).unwrap_err();
        assert!(
            error.contains(expected) && error.starts_with("Node \"cluster\""),
            "{error}"
        );
    }
}

#[test]
fn a_worker_kubelet_config_reaches_custom_pools_that_ask_for_it() {
    let config = kubelet_config("worker", &json!({"kubeletConfig": {"maxPods": 42}}));
    let plain = assemble(&[pool("infra"), config.clone()], None).unwrap();
    assert!(
        plain
            .warnings
            .iter()
            .any(|w| w.contains("selects pool worker but not pool infra")),
        "{:?}",
        plain.warnings
    );
    let mut asking = pool("infra");
    asking["metadata"]["annotations"] =
        json!({"machineconfiguration.openshift.io/inherit-worker-kubelet": "true"});
    let cluster = assemble(&[asking, config], None).unwrap();
    assert_eq!(
        kubelet_conf(&cluster, "99-infra-generated-kubelet")["maxPods"],
        42
    );
    assert!(cluster.warnings.is_empty(), "{:?}", cluster.warnings);
}

#[test]
fn one_object_per_pool_and_selectors_that_select_nothing() {
    let mut second = kubelet_config("worker", &json!({}));
    second["metadata"]["name"] = json!("other");
    let error = assemble(&[kubelet_config("worker", &json!({})), second], None).unwrap_err();
    assert!(
        error.contains("error found multiple KubeletConfigs targeting MachineConfigPool worker. Please apply only one KubeletConfig manifest for each pool during installation"),
        "{error}"
    );
    assert!(error.contains("\"tuned\" and \"other\""), "{error}");
    let mut second = runtime_config(&json!({}));
    second["metadata"]["name"] = json!("other");
    let error = assemble(&[runtime_config(&json!({})), second], None).unwrap_err();
    assert!(
        error.contains("error found multiple ContainerConfigs targeting MachineConfigPool worker"),
        "{error}"
    );
    for selector in [json!({}), json!(null), json!({"matchLabels": {"pool": "nobody"}})] {
        let mut object = kubelet_config("worker", &json!({}));
        object["spec"]["machineConfigPoolSelector"] = selector;
        let cluster = assemble(&[object], None).unwrap();
        assert!(
            cluster
                .inventory
                .configs
                .iter()
                .all(|c| c.metadata.name.as_deref() != Some(KUBELET))
        );
        assert!(
            cluster.warnings[0].contains("KubeletConfig \"tuned\": could not find any MachineConfigPool")
        );
    }
    let mut object = kubelet_config("worker", &json!({}));
    object["spec"]["machineConfigPoolSelector"] =
        json!({"matchExpressions": [{"key": "a", "operator": "Is"}]});
    let error = assemble(&[object], None).unwrap_err();
    assert!(
        error.starts_with("KubeletConfig \"tuned\": invalid label selector: "),
        "{error}"
    );
}

#[test]
fn a_container_runtime_config_gives_one_file_per_setting() {
    let dropin = |line: &str| format!("[crio]\n  [crio.runtime]\n    {line}\n");
    let crio = |name: &str| format!("/etc/crio/crio.conf.d/01-ctrcfg-{name}");
    let cases: Vec<(&str, Value, Vec<(String, String)>)> = vec![
        ("nothing", json!({}), vec![]),
        (
            "a limit",
            json!({"pidsLimit": 2048}),
            vec![(crio("pidsLimit"), dropin("pids_limit = 2048"))],
        ),
        (
            "no limit",
            json!({"pidsLimit": 0}),
            vec![(crio("pidsLimit"), dropin("pids_limit = 0"))],
        ),
        (
            "a log size",
            json!({"logSizeMax": "10k"}),
            vec![(crio("logSizeMax"), dropin("log_size_max = 10000"))],
        ),
        (
            "unlimited logs",
            json!({"logSizeMax": "-1"}),
            vec![(crio("logSizeMax"), dropin("log_size_max = -1"))],
        ),
        (
            "zero sizes ask for nothing",
            json!({"logSizeMax": "0k", "overlaySize": "0k"}),
            vec![],
        ),
        (
            "all in a fixed order",
            json!({"defaultRuntime": "runc", "logLevel": "debug", "pidsLimit": 20}),
            vec![
                (crio("logLevel"), dropin("log_level = \"debug\"")),
                (crio("pidsLimit"), dropin("pids_limit = 20")),
                (crio("defaultRuntime"), dropin("default_runtime = \"runc\"")),
            ],
        ),
        (
            "stores without their gate",
            json!({"additionalImageStores": [{"path": "/x"}], "additionalArtifactStores": [{"path": "/y"}]}),
            vec![],
        ),
    ];
    for (name, spec, expected) in cases {
        let cluster = assemble(&[runtime_config(&spec)], None).unwrap();
        assert_eq!(files(&cluster, RUNTIME), expected, "{name}");
    }
    let cluster = assemble(&[runtime_config(&json!({"overlaySize": "10G"}))], None).unwrap();
    let storage = "[storage]\n  driver = \"overlay\"\n  runroot = \"/run/containers/storage\"\n  graphroot = \"/var/lib/containers/storage\"\n  \
        [storage.options]\n    size = \"10G\"\n    force_mask = 0\n    auto-userns-min-size = 0\n    auto-userns-max-size = 0\n    \
        [storage.options.overlay]\n      skip_mount_home = \"true\"\n    [storage.options.pull_options]\n      enable_partial_images = \"true\"\n";
    assert_eq!(
        files(&cluster, RUNTIME),
        [("/etc/containers/storage.conf".to_owned(), storage.to_owned())]
    );
    let stores = json!({
        "additionalLayerStores": [{"path": "/layers"}],
        "additionalImageStores": [{"path": "/images"}],
        "additionalArtifactStores": [{"path": "/artifacts"}],
    });
    let cluster = assemble(
        &[gates(&["AdditionalStorageConfig"]), runtime_config(&stores)],
        None,
    )
    .unwrap();
    let found = files(&cluster, RUNTIME);
    assert!(
        found[0].1.contains(
            "additionalimagestores = [\"/images\"]\n    additionallayerstores = [\"/layers:ref\"]\n"
        )
    );
    assert_eq!(
        found[1],
        (
            crio("additionalArtifactStores"),
            dropin("additional_artifact_stores = [\"/artifacts\"]")
        )
    );
}

#[test]
fn container_runtime_configs_are_refused_in_known_words() {
    let cases = [
        (json!({"pidsLimit": 10}), "invalid PidsLimit 10"),
        (json!({"pidsLimit": -10}), "invalid PidsLimit -10"),
        (
            json!({"logLevel": "loud"}),
            "invalid LogLevel \"loud\", must be one of error, fatal, panic, warn, info, debug, or trace",
        ),
        (
            json!({"logSizeMax": "3k"}),
            "invalid LogSizeMax \"3k\", cannot be less than 8kB",
        ),
        (
            json!({"logSizeMax": "8192"}),
            "invalid LogSizeMax \"8192\", cannot be less than 8kB",
        ),
        (
            json!({"overlaySize": "-1G"}),
            "invalid overlaySize \"-1G\", cannot be less than 0",
        ),
        (
            json!({"overlaySize": "big"}),
            "overlaySize: \"big\" is not a quantity",
        ),
        (
            json!({"defaultRuntime": "kata"}),
            "invalid DefaultRuntime \"kata\", must be one of crun, runc",
        ),
        (
            json!({"additionalLayerStores": [{"path": ""}]}),
            "invalid AdditionalLayerStores: path must not be empty",
        ),
        (
            json!({"additionalLayerStores": [{"path": "/x:ref"}]}),
            "invalid AdditionalLayerStores path \"/x:ref\": must be an absolute path",
        ),
        (
            json!({"additionalImageStores": [{"path": "/a//b"}]}),
            "must not contain consecutive forward slashes",
        ),
    ];
    for (spec, expected) in cases {
        let error = assemble(&[runtime_config(&spec)], None).unwrap_err();
        assert!(error.contains(expected), "{spec}: {error}");
        assert!(
            error.starts_with("ContainerRuntimeConfig \"runtime\": "),
            "{error}"
        );
    }
    let error = assemble(&[runtime_config(&json!({"pidsLimit": 1, "logLevel": "x"}))], None).unwrap_err();
    assert_eq!(error.lines().count(), 2, "all problems at once: {error}");
}

/// The entries of registries.conf in short: scope, flags, mirrors.
fn entries(cluster: &Cluster) -> Vec<String> {
    let text = file(cluster, REGISTRIES, "/etc/containers/registries.conf").unwrap_or_default();
    let mut entries: Vec<String> = Vec::new();
    let mut in_mirror = false;
    for line in text.lines().map(str::trim) {
        let value = || line.split('"').nth(1).unwrap_or_default().to_owned();
        let mut last = |text: String| entries.last_mut().unwrap().push_str(&text);
        match line.split(' ').next().unwrap_or_default() {
            "[[registry]]" => {
                in_mirror = false;
                entries.push(String::new());
            }
            "[[registry.mirror]]" => {
                in_mirror = true;
                last(" >".to_owned());
            }
            "prefix" | "location" if !value().is_empty() => last(value()),
            "insecure" => last("!".to_owned()),
            "blocked" => last("#".to_owned()),
            "pull-from-mirror" if in_mirror => last(format!("({})", &value()[..1])),
            _ => {}
        }
    }
    entries
}

#[test]
fn registries_follow_mirrors_blocked_and_insecure_lists() {
    let digest = |list: Value| mirrors("ImageDigestMirrorSet", "idms", &list);
    let icsp = |list: Value| mirrors("ImageContentSourcePolicy", "icsp", &list);
    let tag = |list: Value| mirrors("ImageTagMirrorSet", "itms", &list);
    let cases: Vec<(&str, Vec<Value>, Vec<&str>)> = vec![
        (
            "everything at once",
            vec![
                digest(json!([{"source": "q.io/a", "mirrors": ["m1/a", "m2/a"]}])),
                icsp(json!([{"source": "q.io/a", "mirrors": ["m2/a", "m3/a"]}])),
                tag(json!([{"source": "q.io/a", "mirrors": ["t/a"]}])),
                image(&json!({"blockedRegistries": ["q.io"], "insecureRegistries": ["m1"]})),
            ],
            vec!["q.io/a# >m1/a!(d) >m2/a(d) >m3/a(d) >t/a(t)", "q.io#", "m1!"],
        ),
        (
            "an entry inside a mirrored source inherits its mirrors",
            vec![
                digest(json!([{"source": "q.io", "mirrors": ["m"]}])),
                image(&json!({"blockedRegistries": ["q.io/x"]})),
            ],
            vec!["q.io >m(d)", "q.io/x# >m/x(d)"],
        ),
        (
            "also inside a mirrored wildcard",
            vec![
                digest(json!([{"source": "*.q.io", "mirrors": ["m"]}])),
                image(&json!({"blockedRegistries": ["a.q.io/x"]})),
            ],
            vec!["*.q.io >m(d)", "a.q.io/x# >m/x(d)"],
        ),
        (
            "the order of lists",
            vec![image(
                &json!({"insecureRegistries": ["r.io", "i.io", "c.io"], "blockedRegistries": ["b.io", "c.io", "d.io"]}),
            )],
            vec!["b.io#", "c.io!#", "d.io#", "r.io!", "i.io!"],
        ),
        (
            "wildcards within wildcards",
            vec![image(
                &json!({"insecureRegistries": ["*.insecure-example.com"], "blockedRegistries": ["*.blocked.insecure-example.com"]}),
            )],
            vec!["*.blocked.insecure-example.com!#", "*.insecure-example.com!"],
        ),
        (
            "a mirror in a blocked scope is not blocked",
            vec![
                digest(json!([{"source": "q.io", "mirrors": ["b.io/q"]}])),
                image(&json!({"blockedRegistries": ["b.io"]})),
            ],
            vec!["q.io >b.io/q(d)", "b.io#"],
        ),
        (
            "never contact the source",
            vec![digest(
                json!([{"source": "q.io", "mirrors": ["m"], "mirrorSourcePolicy": "NeverContactSource"}]),
            )],
            vec!["q.io# >m(d)"],
        ),
        (
            "a source mirrored to itself alone says nothing",
            vec![digest(json!([{"source": "q.io", "mirrors": ["q.io"]}]))],
            vec![],
        ),
    ];
    for (name, objects, expected) in cases {
        let cluster = assemble(&objects, None).unwrap();
        assert_eq!(entries(&cluster), expected, "{name}");
    }
}

#[test]
fn the_release_stays_reachable() {
    let release = format!("rel.io/ocp/release@sha256:{}", "a".repeat(64));
    let blocked = |list: &[&str]| image(&json!({ "blockedRegistries": list }));
    let mirror = mirrors(
        "ImageDigestMirrorSet",
        "idms",
        &json!([{"source": "rel.io/ocp", "mirrors": ["m.io/ocp"]}]),
    );
    let cases: Vec<(&str, Vec<Value>, Vec<&str>, Option<Vec<&str>>, usize)> = vec![
        (
            "no mirror: not blocked",
            vec![blocked(&["rel.io", "x.io"])],
            vec!["x.io#"],
            Some(vec!["x.io"]),
            1,
        ),
        (
            "a mirror that is blocked too",
            vec![mirror.clone(), blocked(&["rel.io", "m.io"])],
            vec!["rel.io/ocp >m.io/ocp(d)", "m.io#"],
            Some(vec!["m.io"]),
            1,
        ),
        (
            "a free mirror: blocked, and the release's repository is accepted",
            vec![mirror.clone(), blocked(&["rel.io"])],
            vec!["rel.io/ocp# >m.io/ocp(d)", "rel.io#"],
            Some(vec!["rel.io", "rel.io/ocp/release"]),
            0,
        ),
        (
            "the release's repository alone: no policy, or everything else would be refused",
            vec![mirror, blocked(&["rel.io/ocp/release"])],
            vec![
                "rel.io/ocp >m.io/ocp(d)",
                "rel.io/ocp/release# >m.io/ocp/release(d)",
            ],
            None,
            0,
        ),
    ];
    for (name, mut objects, expected, policy, warnings) in cases {
        objects.push(controller_config(&release));
        let cluster = assemble(&objects, None).unwrap();
        assert_eq!(entries(&cluster), expected, "{name}");
        let found = file(&cluster, REGISTRIES, "/etc/containers/policy.json");
        let scopes = found.map(|text| {
            let policy: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(policy["default"][0]["type"], "insecureAcceptAnything", "{name}");
            policy["transports"]["docker"]
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect::<Vec<_>>()
        });
        assert_eq!(
            scopes.as_deref(),
            policy
                .map(|list| list.into_iter().map(str::to_owned).collect::<Vec<_>>())
                .as_deref(),
            "{name}"
        );
        assert_eq!(cluster.warnings.len(), warnings, "{name}: {:?}", cluster.warnings);
    }
}

#[test]
fn registry_settings_are_refused_in_known_words() {
    let digest = |list: Value| mirrors("ImageDigestMirrorSet", "idms", &list);
    let cases: Vec<(Vec<Value>, &str)> = vec![
        (
            vec![image(&json!({"insecureRegistries": ["*bad"]}))],
            "invalid entry for insecure registries \"*bad\"",
        ),
        (
            vec![image(&json!({"blockedRegistries": [""]}))],
            "invalid entry for blocked registries \"\"",
        ),
        (
            vec![image(&json!({"allowedRegistries": ["*.x/y"]}))],
            "invalid entry for allowed registries \"*.x/y\"",
        ),
        (
            vec![image(
                &json!({"allowedRegistries": ["allow.io"], "blockedRegistries": ["b"]}),
            )],
            "invalid images config: only one of AllowedRegistries or BlockedRegistries may be specified",
        ),
        (
            vec![mirrors(
                "ImageContentSourcePolicy",
                "icsp",
                &json!([{"source": "*.x.com/ns", "mirrors": ["y/ns"]}]),
            )],
            "ImageContentSourcePolicy \"icsp\": invalid format for source \"*.x.com/ns\"",
        ),
        (
            vec![mirrors(
                "ImageContentSourcePolicy",
                "icsp",
                &json!([{"source": "x.com", "mirrors": ["other.com/ns-o1  "]}]),
            )],
            "invalid format for mirror \"other.com/ns-o1  \"",
        ),
        (
            vec![
                digest(
                    json!([{"source": "q.io", "mirrors": ["m"], "mirrorSourcePolicy": "NeverContactSource"}]),
                ),
                mirrors(
                    "ImageContentSourcePolicy",
                    "icsp",
                    &json!([{"source": "q.io", "mirrors": ["n"]}]),
                ),
            ],
            "ImageDigestMirrorSet \"idms\" and ImageContentSourcePolicy \"icsp\": conflicting mirrorSourcePolicy is set for the same source \"q.io\" in imagedigestmirrorsets, imagetagmirrorsets, or imagecontentsourcepolicies",
        ),
        (
            vec![digest(
                json!([{"source": "q.io", "mirrors": ["m", "q.io"], "mirrorSourcePolicy": "NeverContactSource"}]),
            )],
            "cannot set mirrorSourcePolicy: NeverContactSource if the source \"q.io\" is one of the mirrors",
        ),
        (
            vec![
                controller_config("not an image"),
                image(&json!({"blockedRegistries": ["b"]})),
            ],
            "error parsing reference of release image",
        ),
    ];
    for (objects, expected) in cases {
        let error = assemble(&objects, None).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn search_lists_and_allowed_lists_have_files_of_their_own() {
    let search = image(&json!({"containerRuntimeSearchRegistries": ["b.io", "a.io"]}));
    let cluster = assemble(&[search], None).unwrap();
    assert_eq!(
        files(&cluster, REGISTRIES),
        [(
            "/etc/containers/registries.conf.d/01-image-searchRegistries.conf".to_owned(),
            "unqualified-search-registries = [\"b.io\", \"a.io\"]\nshort-name-mode = \"\"\nadditional-layer-store-auth-helper = \"\"\n".to_owned()
        )]
    );
    let cluster = assemble(&[image(&json!({"allowedRegistries": ["a/b/c/d", "a.io"]}))], None).unwrap();
    let policy: Value =
        serde_json::from_str(&file(&cluster, REGISTRIES, "/etc/containers/policy.json").unwrap()).unwrap();
    assert_eq!(policy["default"][0]["type"], "reject");
    assert!(policy["transports"]["docker"].get("a/b/c/d").is_some());
    assert!(policy["transports"]["atomic"].get("a/b/c/d").is_none());
    assert!(policy["transports"]["docker-daemon"].is_object());
}

#[test]
fn image_policies_ask_for_signatures() {
    let policy = |kind: &str, name: &str, namespace: Option<&str>, scopes: &[&str]| {
        json!({
            "apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace},
            "spec": {"scopes": scopes, "policy": {"rootOfTrust": {"policyType": "PublicKey", "publicKey": {"keyData": "a2V5"}}}},
        })
    };
    let objects = |gate: &str| {
        vec![
            gates(&[gate]),
            policy("ClusterImagePolicy", "cip", None, &["q.io/p", "test0"]),
            policy("ImagePolicy", "ip", Some("n"), &["r.io/x", "test0"]),
            mirrors(
                "ImageDigestMirrorSet",
                "idms",
                &json!([{"source": "q.io", "mirrors": ["m.io/q"]}]),
            ),
        ]
    };
    let cluster = assemble(&objects("Other"), None).unwrap();
    assert_eq!(
        files(&cluster, REGISTRIES).len(),
        1,
        "without the gate there are only mirrors"
    );
    let cluster = assemble(&objects("SigstoreImageVerification"), None).unwrap();
    let found: BTreeMap<String, String> = files(&cluster, REGISTRIES).into_iter().collect();
    let policy: Value = serde_json::from_str(&found["/etc/containers/policy.json"]).unwrap();
    let requirement = json!([{"type": "sigstoreSigned", "keyData": "a2V5", "signedIdentity": {"type": "matchRepoDigestOrExact"}}]);
    assert_eq!(
        policy["transports"]["docker"],
        json!({"q.io/p": requirement, "test0": requirement})
    );
    let namespace: Value = serde_json::from_str(&found["/etc/crio/policies/n.json"]).unwrap();
    assert_eq!(namespace["transports"]["atomic"]["r.io/x"], requirement);
    assert_eq!(namespace["transports"]["atomic"]["q.io/p"], requirement);
    let lookups =
        mco_core::manifest::value(&found["/etc/containers/registries.d/sigstore-registries.yaml"]).unwrap();
    let places: Vec<&String> = lookups["docker"].as_object().unwrap().keys().collect();
    assert_eq!(places, ["m.io/q/p", "q.io/p", "r.io/x", "test0"]);
    assert!(
        cluster
            .warnings
            .iter()
            .any(|w| w.contains("ImagePolicy \"n/ip\": has conflicting scope(s) [\"test0\"]")),
        "{:?}",
        cluster.warnings
    );
    let mut refused = objects("SigstoreImageVerification");
    refused.push(image(&json!({"blockedRegistries": ["q.io"]})));
    let error = assemble(&refused, None).unwrap_err();
    assert!(
        error.contains(
            "clusterimagePolicy configured for the scope q.io/p is nested inside blockedRegistries"
        ),
        "{error}"
    );
}

#[test]
fn a_directory_without_a_base_is_rendered_alone_and_with_one_in_full() {
    let user = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "50-user", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"kernelArguments": ["quiet"]},
    });
    let alone = assemble(&[user.clone()], None).unwrap();
    assert_eq!(alone.inventory.configs.len(), 1);
    assert!(alone.controller_config.is_none());
    let embedded = TemplateTree::embedded();
    let full = assemble(&[user], Some(&embedded)).unwrap();
    let identity = Identity {
        controller_version: "test",
        release_version: "",
    };
    for outcome in full.render(identity) {
        let rendered = outcome.result.unwrap();
        let kubelet = mco_ignition::Item::Unit("kubelet.service".to_owned());
        let by = rendered.provenance.contributors(&kubelet);
        assert_eq!(by.len(), 1, "{}", outcome.pool.metadata.name.unwrap());
        let origin = full.origins.of_item(by[0], &kubelet).unwrap();
        assert!(
            origin.starts_with("template ") && origin.ends_with("kubelet.service.yaml"),
            "{origin}"
        );
    }
    assert_eq!(full.controller_config.unwrap().spec.cluster_dns_ip, "10.96.0.10");
}

#[test]
fn pools_that_come_twice_and_pre_built_images() {
    let mut built_in = pool("worker");
    built_in["spec"] = json!({
        "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}},
        "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
    });
    // The user's own pool (from the list of every test) stays, although the product's comes later.
    let cluster = assemble(&[built_in], None).unwrap();
    let worker = cluster
        .inventory
        .pools
        .iter()
        .find(|pool| pool.metadata.name.as_deref() == Some("worker"))
        .unwrap();
    assert!(
        worker
            .spec
            .machine_config_selector
            .as_ref()
            .unwrap()
            .match_expressions
            .is_some()
    );

    let os_config = |image: &str, pool: &str| {
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig",
               "metadata": {"name": "layered", "annotations": {"machineconfiguration.openshift.io/pre-built-image": image}},
               "spec": {"machineConfigPool": {"name": pool}}})
    };
    let digest = "a".repeat(64);
    let good = format!("q.io/os@sha256:{digest}");
    let cluster = assemble(&[os_config(&good, "worker")], None).unwrap();
    let outcomes = cluster.render(Identity {
        controller_version: "test",
        release_version: "",
    });
    let worker = outcomes
        .iter()
        .find(|outcome| outcome.name() == "worker")
        .unwrap();
    assert_eq!(worker.result.as_ref().unwrap().config.spec.os_image_url, good);
    for image in [
        "q.io/os:latest".to_owned(),
        "q.io/os@sha256:abc".to_owned(),
        format!("q.io/os@sha256:{}", digest.to_uppercase()),
        format!("q.io/os@md5:{digest}"),
    ] {
        let error = assemble(&[os_config(&image, "worker")], None).unwrap_err();
        assert!(
            error.contains("MachineOSConfig \"layered\"") && error.contains("by digest"),
            "{error}"
        );
    }
    let error = assemble(&[os_config(&good, "nobody")], None).unwrap_err();
    assert!(
        error.contains("there is no MachineConfigPool \"nobody\""),
        "{error}"
    );
}
