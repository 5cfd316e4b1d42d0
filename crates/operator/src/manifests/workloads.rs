//! The workloads: the operator, the controller and the servers on the control plane, a daemon on every node.

use mco_api::crd::CompanionKinds;
use mco_api::machine_configuration::LogLevel;
use mco_api::vocabulary::labels;
use mco_api::vocabulary::names::{self, component};
use mco_core::generators::tls_profile::TlsSettings;
use serde_json::{Value, json};

use super::metrics::push;
use super::{ManifestSettings, metadata, metrics};
use crate::options::IgnitionTokens;
use crate::profile::ClusterProfile;
use crate::secret_files::AUDIENCE;
use crate::steps::serving::BUNDLE_KEY;
use crate::steps::workloads::WEBHOOK_CA;

/// The metrics port. No other component of the cluster uses 9001.
pub(super) const METRICS_PORT: u16 = 9001;
pub(super) const WEBHOOK_PORT: u16 = 9443;
const SERVER_PORT: u16 = 22623;
/// Ports of the daemons and servers, which share their host's network.
const DAEMON_METRICS_PORT: u16 = 9101;
const SERVER_METRICS_PORT: u16 = 22627;
/// The environment variable with a component's log level.
pub const LOG_LEVEL_VARIABLE: &str = "MCO_LOG_LEVEL";
/// The key of the token records in their Secret, and where the Secret is mounted.
pub(crate) const SERVER_TOKENS_KEY: &str = "tokens.json";
const SERVER_TOKENS_DIRECTORY: &str = "/etc/mcs/tokens";
/// The path of the program in the image.
const PROGRAM: &str = "/usr/bin/mco";
/// Longer than any graceful shutdown of ours.
const GRACE_SECONDS: u32 = 10;
/// The path of another implementation's templates in the controller's pod, and in that implementation's image.
const TEMPLATES: &str = "/templates";
const TEMPLATES_IN_IMAGE: &str = "/etc/mcc/templates";
/// The daemon's credentials for values of Secrets.
const SECRET_FILES_DIRECTORY: &str = "/var/run/secrets/mco.dev/secret-files";
/// A daemon completes the step in progress before it exits.
const DAEMON_GRACE_SECONDS: u32 = 600;

/// Returns the operator's Deployment, with its Service for admission and metrics.
pub fn operator(settings: &ManifestSettings) -> Vec<Value> {
    let mut arguments = vec![
        "operator".to_owned(),
        "--deploy".to_owned(),
        format!("--image={}", settings.image),
        format!("--webhook-listen=[::]:{WEBHOOK_PORT}"),
        format!("--metrics-listen=[::]:{METRICS_PORT}"),
        "--guard-metrics".to_owned(),
    ];
    if !settings.api_server_url.is_empty() {
        arguments.push(format!("--apiserver-url={}", settings.api_server_url));
    }
    if !settings.templates_image.is_empty() {
        arguments.push(format!("--templates-image={}", settings.templates_image));
    }
    arguments.extend(builder_arguments(settings));
    if settings.ignition_tokens == IgnitionTokens::Optional {
        arguments.push("--ignition-tokens=optional".to_owned());
    }
    arguments.extend(profile_arguments(settings));
    let container = container(
        component::OPERATOR,
        settings,
        &arguments,
        &json!([
            {"name": "webhook", "containerPort": WEBHOOK_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ]),
    );
    let mut pod = placed_pod(component::OPERATOR, &container, &settings.profile);
    // The operator repairs the cluster, so it has to leave a failed node early.
    for condition in ["unreachable", "not-ready"] {
        let key = format!("node.kubernetes.io/{condition}");
        let early =
            json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 120});
        push(&mut pod["tolerations"], early);
    }
    vec![
        deployment(component::OPERATOR, 1, &json!({"type": "Recreate"}), &pod),
        service(
            component::OPERATOR,
            &json!([
                {"name": "webhook", "port": 443, "targetPort": "webhook", "protocol": "TCP"},
                {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"},
            ]),
        ),
    ]
}

/// Returns the arguments of the builder, which the operator passes on.
fn builder_arguments(settings: &ManifestSettings) -> Vec<String> {
    let image = Some(&settings.builder_image).filter(|image| !image.is_empty());
    let image = image.map(|image| format!("--builder-image={image}"));
    let kept = settings.keep_builds.map(|kept| format!("--keep-builds={kept}"));
    image.into_iter().chain(kept).collect()
}

/// Returns the image builder's Deployment, which exists only while a pool has a MachineOSConfig.
pub fn builder(settings: &ManifestSettings) -> Vec<Value> {
    let mut arguments = vec!["builder".to_owned()];
    arguments.extend(builder_arguments(settings));
    arguments.extend(metrics::arguments(METRICS_PORT, settings.tls.as_ref()));
    let mut container = container(
        component::OS_BUILDER,
        settings,
        &arguments,
        &json!([{"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}]),
    );
    container["livenessProbe"] =
        json!({"httpGet": {"path": "/healthz", "port": "metrics"}, "periodSeconds": 30});
    let mut pod = control_plane_pod(component::OS_BUILDER, &container);
    // A stop completes the cleanup of deleted MachineOSConfigs first.
    pod["terminationGracePeriodSeconds"] = json!(2 * GRACE_SECONDS);
    metrics::BUILDER.equip(&mut pod);
    vec![
        deployment(component::OS_BUILDER, 1, &json!({"type": "Recreate"}), &pod),
        service(
            component::OS_BUILDER,
            &json!([{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"}]),
        ),
    ]
}

/// Returns the controller's objects for a control plane of one node: one replica, and no PodDisruptionBudget, because
/// the replacement of an evicted pod could not be scheduled and a drain of the node would never end.
pub fn single_node_controller(settings: &ManifestSettings) -> Vec<Value> {
    let mut objects = controller(settings);
    objects.retain(|object| object["kind"] != "PodDisruptionBudget");
    for object in &mut objects {
        if object["kind"] == "Deployment" {
            object["spec"]["replicas"] = json!(1);
        }
    }
    objects
}

/// Returns the controller's Deployment: two replicas with leader election, so that a failed node costs seconds and not
/// minutes.
pub fn controller(settings: &ManifestSettings) -> Vec<Value> {
    let mut arguments = vec!["controller".to_owned()];
    arguments.extend(metrics::arguments(METRICS_PORT, settings.tls.as_ref()));
    if !settings.templates_image.is_empty() {
        arguments.push(format!("--templates={TEMPLATES}"));
    }
    let mut container = container(
        component::CONTROLLER,
        settings,
        &arguments,
        &json!([{"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}]),
    );
    container["livenessProbe"] =
        json!({"httpGet": {"path": "/healthz", "port": "metrics"}, "periodSeconds": 30});
    let copies_templates = (!settings.templates_image.is_empty()).then(|| {
        container["volumeMounts"] = templates_mount();
        templates_copier(&settings.templates_image)
    });
    let mut pod = placed_pod(component::CONTROLLER, &container, &settings.profile);
    if let Some(copier) = copies_templates {
        pod["initContainers"] = json!([copier]);
        pod["volumes"] = json!([{"name": "templates", "emptyDir": {"sizeLimit": "16Mi"}}]);
    }
    metrics::CONTROLLER.equip(&mut pod);
    pod["affinity"]["podAntiAffinity"] = json!({"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 100,
        "podAffinityTerm": {
            "labelSelector": {"matchLabels": {labels::APP: component::CONTROLLER}},
            "topologyKey": "kubernetes.io/hostname",
        },
    }]});
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}});
    vec![
        deployment(component::CONTROLLER, 2, &rolling, &pod),
        service(
            component::CONTROLLER,
            &json!([{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"}]),
        ),
        json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata(component::CONTROLLER, component::CONTROLLER),
            "spec": {
                "maxUnavailable": 1,
                "selector": {"matchLabels": {labels::APP: component::CONTROLLER}},
                // An unhealthy pod does not block the drain of its node.
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
        }),
    ]
}

fn templates_mount() -> Value {
    json!([{"name": "templates", "mountPath": TEMPLATES}])
}

/// Returns the init container that copies the templates from another implementation's image.
fn templates_copier(image: &str) -> Value {
    json!({
        "name": "templates",
        "image": image,
        "command": ["cp", "-r", format!("{TEMPLATES_IN_IMAGE}/."), TEMPLATES],
        "volumeMounts": templates_mount(),
        "securityContext": unprivileged(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "10m", "memory": "20Mi"}},
    })
}

/// Returns the daemons' DaemonSet, which is privileged because it changes its hosts.
pub fn daemon(settings: &ManifestSettings) -> Vec<Value> {
    let mut arguments = ["daemon", "start", "--root=/rootfs"].map(str::to_owned).to_vec();
    arguments.extend(metrics::arguments(DAEMON_METRICS_PORT, settings.tls.as_ref()));
    arguments.extend([
        format!(
            "--secret-files-url=https://{}.{}.svc",
            component::OPERATOR,
            names::NAMESPACE
        ),
        format!("--secret-files-credentials={SECRET_FILES_DIRECTORY}"),
    ]);
    let mut container = container(
        component::DAEMON,
        settings,
        &arguments,
        &json!([{"name": "metrics", "containerPort": DAEMON_METRICS_PORT, "protocol": "TCP"}]),
    );
    container["securityContext"] = json!({"privileged": true, "runAsUser": 0});
    let node = json!({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}});
    container["env"] = std::iter::once(node).chain(log_level(settings)).collect();
    container["volumeMounts"] =
        json!([{"name": "rootfs", "mountPath": "/rootfs", "mountPropagation": "HostToContainer"}]);
    container["livenessProbe"] = json!({"httpGet": {"path": "/livez", "port": "metrics"}, "periodSeconds": 30, "failureThreshold": 10});
    let mut pod = json!({
        "serviceAccountName": component::DAEMON,
        "hostNetwork": true,
        "hostPID": true,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": DAEMON_GRACE_SECONDS,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": "rootfs", "hostPath": {"path": "/"}}],
    });
    metrics::DAEMON.equip(&mut pod);
    // A token of its own, which names the node and authenticates for nothing else.
    push(
        &mut pod["volumes"],
        json!({"name": "secret-files", "projected": {"sources": [
            {"serviceAccountToken": {"audience": AUDIENCE, "expirationSeconds": 3600, "path": "token"}},
            {"configMap": {
                "name": WEBHOOK_CA,
                "items": [{"key": BUNDLE_KEY, "path": "ca.crt"}],
                "optional": true,
            }},
        ]}}),
    );
    push(
        &mut pod["containers"][0]["volumeMounts"],
        json!({"name": "secret-files", "mountPath": SECRET_FILES_DIRECTORY, "readOnly": true}),
    );
    vec![
        daemon_set(component::DAEMON, "10%", &pod),
        service(
            component::DAEMON,
            &json!([{"name": "metrics", "port": DAEMON_METRICS_PORT, "protocol": "TCP"}]),
        ),
    ]
}

/// Returns the config servers' DaemonSet, on the control plane's own addresses.
pub fn server(settings: &ManifestSettings) -> Vec<Value> {
    let mut arguments = vec![
        "server".to_owned(),
        format!("--secure-port={SERVER_PORT}"),
        "--cert=/etc/ssl/mcs/tls.crt".to_owned(),
        "--key=/etc/ssl/mcs/tls.key".to_owned(),
        "--bootstrap-token-dir=/etc/mcs/bootstrap-token".to_owned(),
    ];
    arguments.extend(tls_arguments("", settings.tls.as_ref()));
    arguments.extend(metrics::arguments(SERVER_METRICS_PORT, settings.tls.as_ref()));
    let requires_tokens = settings.ignition_tokens == IgnitionTokens::Required;
    if requires_tokens {
        arguments.push(format!("--tokens={SERVER_TOKENS_DIRECTORY}/{SERVER_TOKENS_KEY}"));
    }
    if !settings.api_server_url.is_empty() {
        arguments.push(format!("--apiserver-url={}", settings.api_server_url));
    }
    let mut container = container(
        component::SERVER,
        settings,
        &arguments,
        &json!([
            {"name": "ignition", "containerPort": SERVER_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": SERVER_METRICS_PORT, "protocol": "TCP"},
        ]),
    );
    container["volumeMounts"] = json!([
        {"name": "certs", "mountPath": "/etc/ssl/mcs", "readOnly": true},
        {"name": "node-bootstrap-token", "mountPath": "/etc/mcs/bootstrap-token", "readOnly": true},
    ]);
    // Where the host's network requires a user of the namespace's range, a fixed user would be rejected. Elsewhere the
    // image's user would be used, who is root.
    if settings.profile.assigns_users
        && let Some(security) = container["securityContext"].as_object_mut()
    {
        security.remove("runAsUser");
    }
    container["readinessProbe"] = json!({
        "httpGet": {"path": "/readyz", "port": "metrics"},
        "periodSeconds": 5,
    });
    let mut pod = control_plane_pod(component::SERVER, &container);
    pod["hostNetwork"] = json!(true);
    pod["dnsPolicy"] = json!("ClusterFirstWithHostNet");
    pod["terminationGracePeriodSeconds"] = json!(60);
    pod["volumes"] = json!([
        {"name": "certs", "secret": {"secretName": names::secret::SERVER_TLS}},
        {"name": "node-bootstrap-token", "secret": {"secretName": names::secret::NODE_BOOTSTRAPPER_TOKEN}},
    ]);
    if requires_tokens {
        mount_secret(
            &mut pod,
            "ignition-tokens",
            names::secret::SERVER_TOKENS,
            SERVER_TOKENS_DIRECTORY,
        );
    }
    metrics::SERVER.equip(&mut pod);
    vec![
        daemon_set(component::SERVER, "1", &pod),
        service(
            component::SERVER,
            &json!([
                {"name": "ignition", "port": SERVER_PORT, "protocol": "TCP"},
                {"name": "metrics", "port": SERVER_METRICS_PORT, "protocol": "TCP"},
            ]),
        ),
    ]
}

/// Mounts a Secret into the pod's container, which does not start without it.
fn mount_secret(pod: &mut Value, volume: &str, secret: &str, path: &str) {
    push(
        &mut pod["volumes"],
        json!({"name": volume, "secret": {"secretName": secret}}),
    );
    let mount = json!({"name": volume, "mountPath": path, "readOnly": true});
    push(&mut pod["containers"][0]["volumeMounts"], mount);
}

fn container(name: &str, settings: &ManifestSettings, arguments: &[String], ports: &Value) -> Value {
    let mut container = json!({
        "name": name,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        // Explicit although it is the image's entrypoint, because it has to replace another implementation's command.
        "command": [PROGRAM],
        "args": arguments,
        "ports": ports,
        "resources": {"requests": {"cpu": "20m", "memory": "50Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": unprivileged(),
    });
    if let Some(variable) = log_level(settings) {
        container["env"] = json!([variable]);
    }
    container
}

fn unprivileged() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
        "runAsUser": 65534,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// The default level is omitted, so that existing pods are not replaced.
fn log_level(settings: &ManifestSettings) -> Option<Value> {
    match settings.log_level {
        LogLevel::Normal => None,
        level => Some(json!({"name": LOG_LEVEL_VARIABLE, "value": level.name()})),
    }
}

/// Returns the options for the TLS versions and cipher suites of an endpoint, whose options have this prefix.
pub(crate) fn tls_arguments(prefix: &str, tls: Option<&TlsSettings>) -> Vec<String> {
    let Some(tls) = tls else {
        return Vec::new();
    };
    let mut arguments = vec![format!("--{prefix}tls-min-version={}", tls.min_version)];
    if !tls.cipher_suites.is_empty() {
        arguments.push(format!(
            "--{prefix}tls-cipher-suites={}",
            tls.cipher_suites.join(",")
        ));
    }
    arguments
}

/// Returns the operator's arguments about what is installed.
fn profile_arguments(settings: &ManifestSettings) -> Vec<String> {
    let profile = &settings.profile;
    let base = settings.chosen_base.map(|base| format!("--base={base}"));
    let mut arguments: Vec<String> = base.into_iter().collect();
    if profile.base.is_openshift() {
        return arguments;
    }
    let switches = [
        (
            "--with-openshift-kinds",
            profile.kinds == CompanionKinds::OpenShift,
        ),
        ("--with-server", profile.server),
        ("--with-network-policies", profile.network_policies),
    ];
    let chosen = switches.iter().filter(|(_, chosen)| *chosen);
    arguments.extend(chosen.map(|(argument, _)| (*argument).to_owned()));
    let placement = &profile.placement;
    let selectors = placement.node_selector.iter();
    arguments.extend(selectors.map(|(key, value)| format!("--node-selector={key}={value}")));
    let tolerations = placement.tolerations.iter();
    arguments.extend(tolerations.map(|toleration| format!("--toleration={toleration}")));
    arguments
}

/// Returns a pod on the control plane, if the cluster shows its nodes: that of a managed cluster has none.
fn placed_pod(name: &str, container: &Value, profile: &ClusterProfile) -> Value {
    let mut pod = control_plane_pod(name, container);
    if profile.base.is_openshift() {
        return pod;
    }
    let control_plane = |label: &str| json!({"weight": 100, "preference": {"matchExpressions": [{"key": label, "operator": "Exists"}]}});
    pod["affinity"] = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        control_plane(labels::node::ROLE_CONTROL_PLANE),
        control_plane(labels::node::ROLE_MASTER),
    ]}});
    pod["nodeSelector"] = json!({labels::node::OS: "linux"});
    let placement = &profile.placement;
    for (key, value) in &placement.node_selector {
        pod["nodeSelector"][key] = json!(value);
    }
    for toleration in &placement.tolerations {
        let mut wanted = json!({"key": toleration.key, "operator": "Exists"});
        if let Some(value) = &toleration.value {
            wanted["operator"] = json!("Equal");
            wanted["value"] = json!(value);
        }
        if let Some(effect) = &toleration.effect {
            wanted["effect"] = json!(effect);
        }
        push(&mut pod["tolerations"], wanted);
    }
    pod
}

/// Returns a pod on the control plane.
fn control_plane_pod(name: &str, container: &Value) -> Value {
    json!({
        "serviceAccountName": name,
        "priorityClassName": "system-cluster-critical",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": labels::node::ROLE_CONTROL_PLANE, "operator": "Exists"}]},
        ]}}},
        "tolerations": [
            {"key": labels::node::ROLE_MASTER, "operator": "Exists", "effect": "NoSchedule"},
            {"key": labels::node::ROLE_CONTROL_PLANE, "operator": "Exists", "effect": "NoSchedule"},
        ],
        "containers": [container],
    })
}

fn deployment(name: &str, replicas: u32, strategy: &Value, pod: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(name, name),
        "spec": {
            "replicas": replicas,
            "strategy": strategy,
            "selector": {"matchLabels": {labels::APP: name}},
            "template": template(name, pod),
        },
    })
}

fn daemon_set(name: &str, max_unavailable: &str, pod: &Value) -> Value {
    let max_unavailable = max_unavailable
        .parse::<u32>()
        .map_or_else(|_| json!(max_unavailable), |count| json!(count));
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(name, name),
        "spec": {
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": max_unavailable}},
            "selector": {"matchLabels": {labels::APP: name}},
            "template": template(name, pod),
        },
    })
}

fn template(name: &str, pod: &Value) -> Value {
    json!({
        "metadata": {
            "labels": {labels::APP: name},
            "annotations": {"kubectl.kubernetes.io/default-container": name},
        },
        "spec": pod,
    })
}

fn service(name: &str, ports: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(name, name),
        "spec": {"selector": {labels::APP: name}, "ports": ports},
    })
}
