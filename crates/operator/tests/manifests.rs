//! The generated `install.yaml`, `alerts.yaml` and `dashboard.yaml` in `manifests` are up to date.
//! `MCO_UPDATE_MANIFESTS=1 cargo test -p mco-operator` regenerates them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::{env, fs};

use mco_api::ClusterBase;
use mco_api::crd;
use mco_api::machine_configuration::LogLevel;
use mco_core::generators::tls_profile;
use mco_operator::IgnitionTokens;
use mco_operator::manifests::{self, ManifestSettings, ParameterKinds};
use mco_operator::profile::{ClusterProfile, ProfileOptions};
use serde_json::{Value, json};

fn settings() -> ManifestSettings {
    ManifestSettings {
        image: format!("localhost/mco:{}", env!("CARGO_PKG_VERSION")),
        api_server_url: String::new(),
        templates_image: String::new(),
        builder_image: String::new(),
        keep_builds: None,
        ignition_tokens: IgnitionTokens::Required,
        log_level: LogLevel::default(),
        profile: ClusterProfile::default(),
        chosen_base: None,
        tls: None,
    }
}

fn plain_settings(options: &ProfileOptions) -> ManifestSettings {
    ManifestSettings {
        profile: ClusterProfile::new(options.base.unwrap_or(ClusterBase::None), options),
        chosen_base: options.base,
        ..settings()
    }
}

#[test]
fn generated_manifests_are_current() {
    let remedy = "regenerate with MCO_UPDATE_MANIFESTS=1 cargo test -p mco-operator";
    let head = "# Generated; ";
    for (file, objects, command) in [
        (
            "install.yaml",
            manifests::operator_installation(&plain_settings(&ProfileOptions::default())),
            "mco install --without-crds",
        ),
        (
            "install-with-operands.yaml",
            manifests::installation(&plain_settings(&ProfileOptions::default())),
            "mco install --without-crds --with-operands",
        ),
        (
            "install-openshift.yaml",
            manifests::installation(&ManifestSettings {
                chosen_base: Some(ClusterBase::OpenShift),
                ..settings()
            }),
            "mco install --without-crds --with-operands --base openshift",
        ),
        ("alerts.yaml", manifests::alerts(), "part of mco install --alerts"),
        (
            "dashboard.yaml",
            manifests::dashboards(),
            "part of mco install --dashboard",
        ),
    ] {
        let text = format!("{head}{command}\n{}", manifests::to_yaml(&objects).unwrap());
        let path = mco_testkit::repository_root().join("manifests").join(file);
        if env::var_os("MCO_UPDATE_MANIFESTS").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let on_disk = fs::read_to_string(&path).unwrap_or_default();
        assert!(on_disk == text, "manifests/{file} is stale; {remedy}");
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

#[test]
fn an_uninstall_deletes_our_objects_in_an_order_in_which_none_is_recreated() {
    let described = |object: &Value| format!("{} {}", text(object, "/kind"), text(object, "/metadata/name"));
    let installed: BTreeSet<String> = manifests::installation(&settings())
        .iter()
        .map(described)
        .collect();
    let removed: Vec<String> = manifests::removal(&settings()).iter().map(described).collect();
    let left: Vec<&String> = installed
        .iter()
        .filter(|object| !removed.contains(object))
        .collect();
    assert_eq!(left, ["Namespace openshift-machine-api"], "others live there too");
    let at = |object: &str| removed.iter().position(|one| one.starts_with(object)).unwrap();
    let order = [
        "Deployment machine-config-operator",
        "ValidatingWebhookConfiguration machine-config-operator",
        "ValidatingAdmissionPolicy networkpolicy-prevent-deletion",
        "DaemonSet machine-config-daemon",
        "NetworkPolicy",
        "Namespace openshift-machine-config-operator",
    ];
    assert!(order.map(at).is_sorted(), "{removed:#?}");
    let binding = at("ValidatingAdmissionPolicyBinding networkpolicy-prevent-deletion");
    assert!(binding < at("ValidatingAdmissionPolicy networkpolicy-prevent-deletion"));
}

#[test]
fn the_installed_ignition_server_served_credentials_to_every_client() {
    for (policy, is_required) in [
        (IgnitionTokens::Required, true),
        (IgnitionTokens::Optional, false),
    ] {
        let settings = ManifestSettings {
            ignition_tokens: policy,
            ..settings()
        };
        let server = manifests::server(&settings).remove(0);
        let pod = &server["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let contains = |list: &Value, wanted: &Value| list.as_array().unwrap().contains(wanted);
        let argument = json!("--tokens=/etc/mcs/tokens/tokens.json");
        assert_eq!(contains(&container["args"], &argument), is_required, "{policy:?}");
        let secret = json!({"secretName": "machine-config-server-tokens"});
        let volume = json!({"name": "ignition-tokens", "secret": secret});
        assert_eq!(contains(&pod["volumes"], &volume), is_required, "{policy:?}");
        let mount = json!({"name": "ignition-tokens", "mountPath": "/etc/mcs/tokens", "readOnly": true});
        assert_eq!(
            contains(&container["volumeMounts"], &mount),
            is_required,
            "{policy:?}"
        );

        let operator = manifests::operator(&settings).remove(0);
        let arguments = &operator["spec"]["template"]["spec"]["containers"][0]["args"];
        let opt_out = json!("--ignition-tokens=optional");
        assert_eq!(contains(arguments, &opt_out), !is_required, "{policy:?}");
    }
}

#[test]
fn the_metrics_of_the_ignition_server_were_open() {
    let server = manifests::server(&settings()).remove(0);
    let arguments = server["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    for argument in ["--metrics-cert=", "--metrics-key="] {
        assert!(arguments.contains(argument), "{arguments}");
    }
}

#[test]
fn the_controller_renders_with_the_templates_it_is_given() {
    let settings = ManifestSettings {
        templates_image: "registry.example.com/release:4".to_owned(),
        ..settings()
    };
    let deployment = |objects: Vec<Value>| objects.into_iter().find(|object| object["kind"] == "Deployment");
    let controller = deployment(manifests::controller(&settings)).unwrap();
    let pod = &controller["spec"]["template"]["spec"];
    let arguments = pod["containers"][0]["args"].as_array().unwrap();
    assert!(
        arguments.contains(&json!("--templates=/templates")),
        "{arguments:?}"
    );
    let copier = &pod["initContainers"][0];
    assert_eq!(copier["image"], "registry.example.com/release:4");
    let shared = &copier["volumeMounts"][0];
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    assert!(mounts.contains(shared), "{mounts:?}");
    assert_eq!(pod["volumes"][0]["name"], shared["name"]);
    // The operator, which reconciles the controller, gets it too.
    let operator = deployment(manifests::operator(&settings)).unwrap();
    let arguments = operator["spec"]["template"]["spec"]["containers"][0]["args"]
        .as_array()
        .unwrap();
    assert!(arguments.contains(&json!("--templates-image=registry.example.com/release:4")));
}

#[test]
fn an_installation_could_not_choose_how_many_builds_are_kept() {
    let with = |keep_builds| ManifestSettings {
        builder_image: "registry.example.com/mco-builder:1".to_owned(),
        keep_builds,
        ..settings()
    };
    let arguments = |objects: Vec<Value>| {
        let deployment = objects.into_iter().find(|object| object["kind"] == "Deployment");
        let container = &deployment.unwrap()["spec"]["template"]["spec"]["containers"][0];
        container["args"].to_string()
    };
    // The operator passes on what it is given.
    for objects in [
        manifests::operator(&with(Some(9))),
        manifests::builder(&with(Some(9))),
    ] {
        let arguments = arguments(objects);
        assert!(arguments.contains("\"--keep-builds=9\""), "{arguments}");
        assert!(arguments.contains("\"--builder-image=registry.example.com/mco-builder:1\""));
    }
    let default = arguments(manifests::builder(&with(None)));
    assert!(!default.contains("--keep-builds"), "{default}");
}

#[test]
fn an_administrator_applies_nothing_that_the_operator_applies_too() {
    let described = |object: &Value| {
        let namespace = text(object, "/metadata/namespace");
        format!(
            "{} {namespace}/{}",
            text(object, "/kind"),
            text(object, "/metadata/name")
        )
    };
    let printed: BTreeSet<String> = manifests::operator_installation(&settings())
        .iter()
        .map(described)
        .collect();
    let applied = [
        manifests::operands_access(&ClusterProfile::default()),
        manifests::guards(&ClusterProfile::default(), ParameterKinds::default()),
        manifests::network_policies(),
        manifests::controller(&settings()),
        manifests::daemon(&settings()),
        manifests::server(&settings()),
    ];
    let both: Vec<String> = applied
        .iter()
        .flatten()
        .map(described)
        .filter(|one| printed.contains(one))
        .collect();
    assert_eq!(both, [""; 0]);
}

#[test]
fn everything_has_its_own_name_and_lives_where_it_should() {
    let objects = manifests::installation(&settings());
    let mut seen = BTreeSet::new();
    for object in &objects {
        let key = (
            text(object, "/kind"),
            text(object, "/metadata/namespace"),
            text(object, "/metadata/name"),
        );
        assert!(seen.insert(key), "{key:?} appears twice");
    }
    for kind in [
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "NetworkPolicy",
        "ValidatingAdmissionPolicy",
        "Deployment",
        "DaemonSet",
        "Service",
        "PodDisruptionBudget",
    ] {
        assert!(seen.iter().any(|(other, ..)| *other == kind), "{kind}");
    }
}

#[test]
fn nobody_may_do_everything() {
    for role in manifests::access(&ClusterProfile::default()) {
        for rule in role["rules"].as_array().into_iter().flatten() {
            for field in ["apiGroups", "resources", "verbs"] {
                let values = rule[field].as_array().into_iter().flatten();
                let wildcard = values.into_iter().any(|value| value == "*");
                assert!(
                    !wildcard,
                    "{} {}: {field}",
                    text(&role, "/kind"),
                    text(&role, "/metadata/name")
                );
            }
        }
    }
}

#[test]
fn components_could_overwrite_events_of_others() {
    for role in manifests::access(&ClusterProfile::default()) {
        for rule in role["rules"].as_array().into_iter().flatten() {
            let resources = rule["resources"].as_array().into_iter().flatten();
            if resources.into_iter().any(|resource| resource == "events") {
                assert_eq!(
                    rule["verbs"],
                    json!(["create"]),
                    "{}",
                    text(&role, "/metadata/name")
                );
            }
        }
    }
}

#[test]
fn only_the_daemon_is_privileged() {
    for object in manifests::installation(&settings()) {
        for container in object
            .pointer("/spec/template/spec/containers")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let privileged = container.pointer("/securityContext/privileged") == Some(&Value::Bool(true));
            assert_eq!(privileged, text(container, "/name") == "machine-config-daemon");
            if !privileged {
                assert_eq!(container["securityContext"]["runAsNonRoot"], true);
            }
        }
    }
}

#[test]
fn containers_run_the_program_where_the_image_has_it() {
    let image = fs::read_to_string(mco_testkit::repository_root().join("Containerfile")).unwrap();
    let mut seen = 0;
    for object in manifests::installation(&settings()) {
        let containers = object.pointer("/spec/template/spec/containers");
        for container in containers.and_then(Value::as_array).into_iter().flatten() {
            seen += 1;
            let command = container["command"].to_string();
            assert!(image.contains(&format!("ENTRYPOINT {command}")), "{command}");
        }
    }
    assert_eq!(seen, 4);
}

#[test]
fn the_operands_get_the_log_level_unless_it_is_the_default() {
    let variable = |level: LogLevel| -> BTreeSet<(String, String)> {
        let settings = ManifestSettings {
            log_level: level,
            ..settings()
        };
        let operands = [
            manifests::controller(&settings),
            manifests::daemon(&settings),
            manifests::server(&settings),
        ];
        let mut reported = BTreeSet::new();
        for object in operands.concat() {
            let containers = object.pointer("/spec/template/spec/containers");
            for container in containers.and_then(Value::as_array).into_iter().flatten() {
                for variable in container["env"].as_array().into_iter().flatten() {
                    if text(variable, "/name") == manifests::LOG_LEVEL_VARIABLE {
                        reported.insert((
                            text(container, "/name").to_owned(),
                            text(variable, "/value").to_owned(),
                        ));
                    }
                }
            }
        }
        reported
    };
    assert_eq!(variable(LogLevel::Normal), BTreeSet::new());
    let expected = [
        "machine-config-controller",
        "machine-config-daemon",
        "machine-config-server",
    ];
    let expected = expected.map(|name| (name.to_owned(), "Trace".to_owned()));
    assert_eq!(variable(LogLevel::Trace), BTreeSet::from(expected));
}

#[test]
fn pods_without_ipv4_are_reached_too() {
    let mut listening = 0;
    for object in manifests::installation(&settings()) {
        let arguments = object.pointer("/spec/template/spec/containers/0/args");
        for argument in arguments.and_then(Value::as_array).into_iter().flatten() {
            if let Some((_, address)) = argument.as_str().unwrap().split_once("-listen=") {
                assert!(address.starts_with("[::]:"), "{argument}");
                listening += 1;
            }
        }
    }
    assert_eq!(listening, 5);
}

/// Returns all metrics that components export, which is tested in each component, and the series of histograms.
fn told_metrics() -> BTreeSet<String> {
    let components = ["all", "builder", "controller", "daemon", "operator", "server"];
    let mut all = BTreeSet::new();
    for name in components
        .map(mco_testkit::metrics::documented)
        .into_iter()
        .flatten()
    {
        if name.ends_with("_seconds") {
            all.extend(["bucket", "count", "sum"].map(|part| format!("{name}_{part}")));
        } else {
            all.insert(name);
        }
    }
    all
}

/// Foreign metrics in alerts about machines: of kubelets, kube-state-metrics, node-exporter and CRI-O.
const FOREIGN: [&str; 7] = [
    "container_memory_rss",
    "kube_node_status_capacity",
    "kube_node_status_allocatable",
    "kube_node_role",
    "node_memory_MemAvailable_bytes",
    "node_memory_MemTotal_bytes",
    "container_runtime_crio_default_runtime",
];

/// Returns the metrics in an expression: words that are neither functions, nor operators, nor labels.
fn metrics_of(expression: &str) -> Vec<String> {
    let words = expression.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words
        .filter(|word| word.contains('_') && !word.starts_with(|first: char| first.is_ascii_digit()))
        .filter(|word| *word != "label_replace")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_alert_refers_to_metrics_that_exist() {
    let reported = told_metrics();
    let objects = manifests::alerts();
    let rules = objects
        .iter()
        .find(|object| object["kind"] == "PrometheusRule")
        .unwrap();
    let groups = rules["spec"]["groups"].as_array().unwrap();
    let rules: Vec<&Value> = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap())
        .collect();
    assert!(rules.len() >= 17);
    for name in [
        "MCCDrainError",
        "MCCPoolAlert",
        "MCCBootImageSkewEnforcementNone",
        "MCDRebootError",
        "MCDPivotError",
        "KubeletHealthState",
        "SystemMemoryExceedsReservation",
        "HighOverallControlPlaneMemory",
        "ExtremelyHighIndividualControlPlaneMemory",
        "RuncDeprecated",
    ] {
        assert!(rules.iter().any(|rule| rule["alert"] == name), "{name}");
    }
    for rule in rules {
        let expression = rule["expr"].as_str().unwrap();
        let metrics = metrics_of(expression);
        assert!(!metrics.is_empty(), "{expression}");
        for metric in metrics {
            let exists = reported.contains(&metric) || FOREIGN.contains(&metric.as_str());
            assert!(exists, "{metric} in {expression}");
        }
    }
}

#[test]
fn the_alert_about_a_blocked_drain_names_where_to_look() {
    let rules = manifests::alerts();
    let text = serde_json::to_string(&rules).unwrap();
    let alert = text.split("\"MCCDrainError\"").nth(1).unwrap();
    let alert = alert.split("\"expr\"").next().unwrap();
    for place in [
        "mco node {{ $labels.node }}",
        "Drained",
        "DrainBlocked",
        "Updating",
    ] {
        assert!(alert.contains(place), "{place} in {alert}");
    }
}

/// Returns the panels of a dashboard: title, and the expressions of its lines.
fn panels_of(object: &Value, file: &str) -> Vec<(String, Vec<String>)> {
    assert_eq!(text(object, "/metadata/namespace"), "openshift-config-managed");
    assert_eq!(
        object["metadata"]["labels"]["console.openshift.io/dashboard"],
        "true"
    );
    let files = object["data"].as_object().unwrap();
    assert_eq!(files.keys().collect::<Vec<_>>(), [file]);
    let dashboard: Value = serde_json::from_str(files[file].as_str().unwrap()).unwrap();
    let mut ids = BTreeSet::new();
    let rows = dashboard["rows"].as_array().unwrap().iter();
    let panels = rows.flat_map(|row| row["panels"].as_array().unwrap());
    panels
        .map(|panel| {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
            assert!(!text(panel, "/title").is_empty(), "{panel}");
            let targets = panel["targets"].as_array().unwrap().iter();
            let lines: Vec<String> = targets.map(|target| text(target, "/expr").to_owned()).collect();
            assert!(!lines.is_empty(), "{panel}");
            (text(panel, "/title").to_owned(), lines)
        })
        .collect()
}

#[test]
fn the_consoles_dashboard_shows_metrics_that_exist() {
    let reported = told_metrics();
    let panels = panels_of(&manifests::dashboards()[0], "machine-config.json");
    let lines = panels.iter().flat_map(|(_, lines)| lines);
    let shown: BTreeSet<String> = lines.flat_map(|line| metrics_of(line)).collect();
    assert!(shown.len() > 10, "{shown:?}");
    for metric in &shown {
        assert!(reported.contains(metric), "{metric}");
    }
    for metric in [
        "mcd_kubelet_state",
        "mcd_config_drift",
        "mco_degraded_machine_count",
    ] {
        assert!(shown.contains(metric), "{metric}");
    }
}

/// The metrics on the dashboard of OpenShift's releases, none of which is of a machine config operator: the kubelet's,
/// cAdvisor's, CRI-O's and those of kube-state-metrics.
const NODE_METRICS: [&str; 16] = [
    "container_cpu_usage_seconds_total",
    "container_memory_rss",
    "container_runtime_crio_containers_oom_count_total",
    "container_runtime_crio_image_pulls_failure_total",
    "container_runtime_crio_image_pulls_success_total",
    "kube_node_status_allocatable",
    "kube_node_status_capacity",
    "kube_node_status_condition",
    "kubelet_cgroup_manager_duration_seconds",
    "kubelet_pleg_relist_duration_seconds",
    "kubelet_pod_start_duration_seconds",
    "kubelet_pod_start_sli_duration_seconds",
    "kubelet_pod_status_sync_duration_seconds",
    "kubelet_pod_worker_duration_seconds",
    "kubelet_runtime_operations_duration_seconds",
    "storage_operation_duration_seconds",
];

/// A link to the dashboard must not be lost, nor a panel.
#[test]
fn the_dashboard_of_openshifts_releases_has_its_name_and_its_panels() {
    let object = &manifests::dashboards()[1];
    assert_eq!(text(object, "/metadata/name"), "node-cluster");
    let panels = panels_of(object, "node-cluster-rsrc-use.json");
    assert_eq!(panels.len(), 9 + 3 * 8);
    for title in [
        "Not Ready Nodes Count",
        "Failure Rate for Image Pulls in the Last Hour",
        "Nodes with System Reserved Memory Utilization > 80%",
        "Nodes with CRI-O System Reserved CPU Utilization > 50%",
        "(Kubelet) Pod Start SLI Duration",
    ] {
        assert!(panels.iter().any(|(known, _)| known == title), "{title}");
    }
    let mut shown = BTreeSet::new();
    for (title, lines) in &panels {
        for line in lines {
            assert_eq!(
                line.matches('(').count(),
                line.matches(')').count(),
                "{title}: {line}"
            );
            let labels = [
                "histogram_quantile",
                "operation_type",
                "operation_name",
                "volume_plugin",
            ];
            for word in metrics_of(line)
                .into_iter()
                .filter(|word| !labels.contains(&word.as_str()))
            {
                let name = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| {
                    word.strip_suffix(suffix)
                        .filter(|name| name.ends_with("_seconds"))
                });
                shown.insert(name.unwrap_or(&word).to_owned());
            }
        }
    }
    assert_eq!(shown.iter().map(String::as_str).collect::<Vec<_>>(), NODE_METRICS);
}

/// Returns the pod specs of an installation, by the name of the workload.
fn pods(settings: &ManifestSettings) -> Vec<(String, Value)> {
    let objects = manifests::installation(settings);
    let workloads = objects
        .iter()
        .filter(|object| object.pointer("/spec/template/spec").is_some());
    workloads
        .map(|object| {
            let name = text(object, "/metadata/name").to_owned();
            (name, object["spec"]["template"]["spec"].clone())
        })
        .collect()
}

#[test]
fn a_plain_cluster_got_groups_and_objects_of_openshift() {
    let settings = plain_settings(&ProfileOptions::default());
    let objects = manifests::installation(&settings);
    let described = |object: &Value| format!("{} {}", text(object, "/kind"), text(object, "/metadata/name"));
    let names: Vec<String> = objects.iter().map(described).collect();
    for absent in [
        "Namespace openshift-machine-api",
        "DaemonSet machine-config-server",
        "Secret node-bootstrapper-token",
        "ClusterRoleBinding system-bootstrap-node-bootstrapper",
        "ValidatingAdmissionPolicy networkpolicy-prevent-update",
        "NetworkPolicy default-deny",
    ] {
        assert!(!names.iter().any(|name| name == absent), "{absent}");
    }
    assert!(names.iter().any(|name| name == "DaemonSet machine-config-daemon"));
    let groups: BTreeSet<String> = crd::crds_with(settings.profile.kinds)
        .iter()
        .map(|definition| definition.spec.group.clone())
        .collect();
    assert_eq!(
        groups.iter().map(String::as_str).collect::<Vec<_>>(),
        ["machineconfiguration.openshift.io", "mco.dev"]
    );
    let with_all = plain_settings(&ProfileOptions {
        base: Some(ClusterBase::Machine),
        openshift_kinds: true,
        server: true,
        network_policies: true,
        ..ProfileOptions::default()
    });
    let names: Vec<String> = manifests::installation(&with_all).iter().map(described).collect();
    let server = names.iter().any(|name| name == "DaemonSet machine-config-server");
    assert!(server && names.iter().any(|name| name == "NetworkPolicy default-deny"));
    let operator = manifests::operator(&with_all).remove(0);
    let arguments = &operator["spec"]["template"]["spec"]["containers"][0]["args"];
    for argument in [
        "--base=machine",
        "--with-openshift-kinds",
        "--with-server",
        "--with-network-policies",
    ] {
        assert!(
            arguments.as_array().unwrap().contains(&json!(argument)),
            "{argument}"
        );
    }
}

#[test]
fn operator_and_controller_were_pending_where_no_node_is_a_control_plane() {
    let options = ProfileOptions {
        placement: mco_operator::profile::Placement {
            node_selector: [("pool".to_owned(), "infra".to_owned())].into(),
            tolerations: vec!["dedicated=infra:NoSchedule".parse().unwrap()],
        },
        ..ProfileOptions::default()
    };
    let required = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    for (name, pod) in pods(&plain_settings(&options)) {
        assert!(pod.pointer(required).is_none(), "{name}");
        if name != "machine-config-daemon" {
            assert_eq!(pod["nodeSelector"]["pool"], "infra", "{name}");
            let toleration =
                json!({"key": "dedicated", "operator": "Equal", "value": "infra", "effect": "NoSchedule"});
            assert!(
                pod["tolerations"].as_array().unwrap().contains(&toleration),
                "{name}"
            );
        }
    }
    let controller = manifests::controller(&settings()).remove(0);
    assert!(
        controller["spec"]["template"]["spec"].pointer(required).is_some(),
        "OpenShift's has such nodes"
    );
}

/// Everything that the PodSecurity level `restricted` requires of a pod.
#[test]
fn only_the_daemon_needs_a_privileged_namespace() {
    let pods = pods(&plain_settings(&ProfileOptions::default()));
    assert_eq!(pods.len(), 3);
    for (name, pod) in pods {
        let host = ["hostNetwork", "hostPID", "hostIPC"]
            .iter()
            .any(|field| pod[field] == true);
        let container = &pod["containers"][0];
        let security = &container["securityContext"];
        let volumes = pod["volumes"].as_array().cloned().unwrap_or_default();
        let is_restricted = !host
            && security["allowPrivilegeEscalation"] == false
            && security["runAsNonRoot"] == true
            && security["capabilities"]["drop"] == json!(["ALL"])
            && security["seccompProfile"]["type"] == "RuntimeDefault"
            && volumes.iter().all(|volume| volume["hostPath"].is_null());
        assert_eq!(is_restricted, name != "machine-config-daemon", "{name}");
    }
}

#[test]
fn the_config_server_and_all_metrics_follow_the_tls_profile_of_the_api_server() {
    let profile = serde_json::from_value(json!({"type": "Modern", "modern": {}})).unwrap();
    let with = ManifestSettings {
        tls: Some(tls_profile::settings(Some(&profile))),
        ..settings()
    };
    let suites = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256";
    let arguments = |objects: Vec<Value>| {
        let containers = objects.into_iter().filter_map(|object| {
            let arguments = object
                .pointer("/spec/template/spec/containers/0/args")?
                .as_array()?
                .clone();
            Some(
                arguments
                    .into_iter()
                    .filter_map(|one| Some(one.as_str()?.to_owned()))
                    .collect::<Vec<_>>(),
            )
        });
        containers.flatten().collect::<Vec<String>>()
    };
    for (name, objects, prefixes) in [
        ("server", manifests::server(&with), &["", "metrics-"][..]),
        ("daemon", manifests::daemon(&with), &["metrics-"]),
        ("controller", manifests::controller(&with), &["metrics-"]),
        ("builder", manifests::builder(&with), &["metrics-"]),
    ] {
        let found = arguments(objects);
        for prefix in prefixes {
            for expected in [
                format!("--{prefix}tls-min-version=VersionTLS13"),
                format!("--{prefix}tls-cipher-suites={suites}"),
            ] {
                assert!(
                    found.contains(&expected),
                    "{name}: {expected} is not in {found:?}"
                );
            }
        }
    }
    let without = arguments(manifests::installation(&settings()));
    assert!(
        !without
            .iter()
            .any(|argument| argument.contains("tls-min-version")),
        "{without:?}"
    );
}
