//! KubeletConfigs, node settings and feature gates.

use mco_api::{KubeletConfig, MachineConfigPool};
use mco_core::generators::kubelet;
use mco_core::pipeline::bootstrap::BootstrapCluster;
use serde_json::{Value, json};

use crate::fixture::{assemble, file, files, gates, kubelet_config, pool, runtime_config};

fn kubelet_conf(cluster: &BootstrapCluster, config: &str) -> Value {
    let text = file(cluster, config, "/etc/kubernetes/kubelet.conf").unwrap();
    mco_core::config::manifest::value(&text).unwrap()
}

const KUBELET: &str = "99-worker-generated-kubelet";
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
fn a_pool_does_not_follow_the_workers_while_the_selector_of_its_own_object_cannot_be_read() {
    let mut asking = pool("infra");
    asking["metadata"]["annotations"] =
        json!({"machineconfiguration.openshift.io/inherit-worker-kubelet": "true"});
    let asking: MachineConfigPool = serde_json::from_value(asking).unwrap();
    let follows = |finalizers: Value| {
        let mut own = kubelet_config("infra", &json!({}));
        own["metadata"]["finalizers"] = finalizers;
        own["spec"]["machineConfigPoolSelector"] =
            json!({"matchExpressions": [{"key": "a", "operator": "Is"}]});
        let own: KubeletConfig = serde_json::from_value(own).unwrap();
        !kubelet::inheriting([&asking], &[&own]).is_empty()
    };
    assert!(!follows(json!(["99-infra-generated-kubelet"])));
    assert!(!follows(json!([
        "99-worker-generated-kubelet",
        "99-infra-generated-kubelet-2"
    ])));
    assert!(
        follows(json!(["99-worker-generated-kubelet"])),
        "it was never for this pool"
    );
    assert!(follows(json!([])));
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
        error.contains("error found multiple ContainerConfig targeting MachineConfigPool worker"),
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
