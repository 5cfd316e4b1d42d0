//! The Job of a build: one pod that builds and pushes the image, then publishes its digest.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use mco_api::vocabulary::labels;
use mco_api::vocabulary::names::{self, build, component, config_map, secret};
use serde_json::{Value, json};

use super::architecture::Architecture;
use super::objects::BuildInputs;

/// The command of the container that builds and pushes the image.
pub const BUILD_COMMAND: [&str; 3] = ["/usr/bin/mco", "builder", "build"];
/// The command of the container that publishes the digest.
pub const DIGEST_COMMAND: [&str; 3] = ["/usr/bin/mco", "builder", "create-digest-configmap"];

/// Attempts after the first one.
const RETRIES: u32 = 3;

/// Where a build finds its inputs and leaves its result, below `root`: a directory per volume of the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputPaths {
    pub machine_config: String,
    pub containerfile: String,
    pub trust_bundle: String,
    /// Certificates of image registries, one file per host.
    pub registry_certificates: String,
    pub base_credentials: String,
    pub push_credentials: String,
    /// Where the digest is written.
    pub done: String,
    pub policy: String,
    pub registries: String,
    pub entitlement: String,
    pub yum_repos: String,
    pub rpm_keys: String,
}

impl InputPaths {
    /// The paths in the pod.
    pub fn in_pod() -> Self {
        Self {
            machine_config: "/tmp/machineconfig".to_owned(),
            containerfile: "/tmp/containerfile".to_owned(),
            trust_bundle: "/etc/pki/ca-trust/source/anchors".to_owned(),
            registry_certificates: "/tmp/registry-certificates".to_owned(),
            base_credentials: "/tmp/base-image-pull-creds".to_owned(),
            push_credentials: "/tmp/final-image-push-creds".to_owned(),
            done: "/tmp/done".to_owned(),
            policy: "/etc/containers/policy.json".to_owned(),
            registries: "/etc/containers/registries.conf".to_owned(),
            entitlement: "/etc/pki/entitlement".to_owned(),
            yum_repos: "/etc/yum.repos.d".to_owned(),
            rpm_keys: "/etc/pki/rpm-gpg".to_owned(),
        }
    }

    /// The paths of a build that runs as a process of the host, all below one directory.
    pub fn below(root: &str) -> Self {
        let path = |name: &str| format!("{root}/{name}");
        Self {
            machine_config: path("machineconfig"),
            containerfile: path("containerfile"),
            trust_bundle: path("trust-bundle"),
            registry_certificates: path("registry-certificates"),
            base_credentials: path("base-image-pull-creds"),
            push_credentials: path("final-image-push-creds"),
            done: path("done"),
            policy: path("policy.json"),
            registries: path("registries.conf"),
            entitlement: path("etc-pki-entitlement"),
            yum_repos: path("etc-yum-repos-d"),
            rpm_keys: path("etc-pki-rpm-gpg"),
        }
    }
}

/// The optional directories of subscriptions, repositories and keys that a build mounts.
struct Entitlement {
    volume: &'static str,
    variable: &'static str,
    path: String,
    source: Value,
}

fn entitlements(inputs: &BuildInputs<'_>, paths: &InputPaths) -> Vec<Entitlement> {
    let from_secret = |name: &str| json!({"secret": {"secretName": name, "defaultMode": 0o755}});
    let all = [
        (
            inputs.has_entitlement,
            Entitlement {
                volume: "etc-pki-entitlement",
                variable: "ETC_PKI_ENTITLEMENT_MOUNTPOINT",
                path: paths.entitlement.clone(),
                source: from_secret(&secret::entitlement_of(inputs.pool)),
            },
        ),
        (
            inputs.has_yum_repos,
            Entitlement {
                volume: "etc-yum-repos-d",
                variable: "ETC_YUM_REPOS_D_MOUNTPOINT",
                path: paths.yum_repos.clone(),
                source: json!({"configMap": {"name": config_map::YUM_REPOS, "defaultMode": 0o755}}),
            },
        ),
        (
            inputs.has_rpm_keys,
            Entitlement {
                volume: "etc-pki-rpm-gpg",
                variable: "ETC_PKI_RPM_GPG_MOUNTPOINT",
                path: paths.rpm_keys.clone(),
                source: from_secret(secret::RPM_KEYS),
            },
        ),
    ];
    all.into_iter()
        .filter_map(|(is_present, entitlement)| is_present.then_some(entitlement))
        .collect()
}

/// Returns the Job. `selected` is the architecture that the Containerfile is specific to.
pub(super) fn job(
    inputs: &BuildInputs<'_>,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
    selected: Option<Architecture>,
) -> Result<Job, serde_json::Error> {
    let name = inputs.build.metadata.name.as_deref().unwrap_or_default();
    let paths = InputPaths::in_pod();
    let entitlements = entitlements(inputs, &paths);
    let variables = variables(inputs, name, labels, &entitlements);
    let (volumes, mounts) = volumes(name, &paths, &entitlements);
    let mut build_mounts = mounts.clone();
    build_mounts.push(json!({"name": "buildah-cache", "mountPath": "/home/build/.local/share/containers"}));
    // An image that was only loaded onto the nodes cannot be pulled.
    let pull_policy = if inputs.builder_image.starts_with("localhost/") {
        "IfNotPresent"
    } else {
        "Always"
    };
    let container = |name: &str, command: [&str; 3], mounts: &[Value]| {
        json!({
            "name": name,
            "image": inputs.builder_image,
            "imagePullPolicy": pull_policy,
            "command": command,
            "env": variables,
            "securityContext": {},
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": mounts,
        })
    };
    let mut pod = json!({
        "serviceAccountName": component::OS_BUILDER,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 10,
        "initContainers": [container("image-build", BUILD_COMMAND, &build_mounts)],
        "containers": [container("create-digest-configmap", DIGEST_COMMAND, &mounts)],
        "volumes": volumes,
    });
    if let Some(architecture) = selected {
        pod["nodeSelector"] = json!({"kubernetes.io/arch": architecture.node_name()});
    }
    serde_json::from_value(json!({
        "metadata": {
            "name": build::job(name),
            "namespace": names::NAMESPACE,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": "machineconfiguration.openshift.io/v1",
                "kind": "MachineOSBuild",
                "name": name,
                "uid": inputs.build.metadata.uid.clone().unwrap_or_default(),
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "backoffLimit": RETRIES,
            "completions": 1,
            "template": {"spec": pod},
        },
    }))
}

fn variables(
    inputs: &BuildInputs<'_>,
    name: &str,
    labels: &BTreeMap<String, String>,
    entitlements: &[Entitlement],
) -> Vec<Value> {
    let proxy = inputs.controller_config.spec.proxy.as_ref();
    let digest_labels: Vec<String> = labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let text = |value: Option<&String>| value.cloned().unwrap_or_default();
    let fixed = [
        ("MAX_RETRIES", RETRIES.to_string()),
        ("DIGEST_CONFIGMAP_NAME", build::digest(name)),
        ("DIGEST_CONFIGMAP_LABELS", digest_labels.join(",")),
        ("HOME", "/home/build".to_owned()),
        ("TAG", inputs.build.spec.rendered_image_push_spec.clone()),
        (
            "BASE_IMAGE_PULL_CREDS",
            "/tmp/base-image-pull-creds/config.json".to_owned(),
        ),
        (
            "FINAL_IMAGE_PUSH_CREDS",
            "/tmp/final-image-push-creds/config.json".to_owned(),
        ),
        ("BUILDAH_ISOLATION", "chroot".to_owned()),
        ("HTTP_PROXY", text(proxy.map(|proxy| &proxy.http_proxy))),
        ("HTTPS_PROXY", text(proxy.map(|proxy| &proxy.https_proxy))),
        ("NO_PROXY", text(proxy.map(|proxy| &proxy.no_proxy))),
        (
            "BASE_OS_IMAGE_PULLSPEC",
            inputs.rendered.spec.os_image_url.clone(),
        ),
    ];
    let mounted = entitlements
        .iter()
        .map(|entitlement| (entitlement.variable, entitlement.path.clone()));
    fixed
        .into_iter()
        .chain(mounted)
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect()
}

fn volumes(name: &str, paths: &InputPaths, entitlements: &[Entitlement]) -> (Vec<Value>, Vec<Value>) {
    let config_map = |volume: &str, source: String| json!({"name": volume, "configMap": {"name": source}});
    let optional = |volume: &str, source: String| json!({"name": volume, "configMap": {"name": source, "optional": true}});
    let credentials = |volume: &str, source: String| {
        json!({"name": volume, "secret": {
            "secretName": source,
            "items": [{"key": ".dockerconfigjson", "path": "config.json"}],
        }})
    };
    let mut volumes = vec![
        config_map("machineconfig", build::machine_config(name)),
        config_map("containerfile", build::containerfile(name)),
        optional("etc-policy", build::policy(name)),
        optional("etc-registries", build::registries(name)),
        config_map("additional-trust-bundle", build::trust_bundle(name)),
        optional(
            "registry-certificates",
            config_map::MERGED_TRUSTED_IMAGE_REGISTRY_CA.to_owned(),
        ),
        credentials("base-image-pull-creds", build::base_secret(name)),
        credentials("final-image-push-creds", build::final_secret(name)),
        json!({"name": "done", "emptyDir": {"medium": "Memory"}}),
        json!({"name": "buildah-cache", "emptyDir": {}}),
    ];
    let mount = |volume: &str, path: &str| json!({"name": volume, "mountPath": path});
    let file =
        |volume: &str, path: &str, key: &str| json!({"name": volume, "mountPath": path, "subPath": key});
    let mut mounts = vec![
        mount("machineconfig", &paths.machine_config),
        mount("containerfile", &paths.containerfile),
        file("etc-policy", &paths.policy, "policy.json"),
        file("etc-registries", &paths.registries, "registries.conf"),
        mount("additional-trust-bundle", &paths.trust_bundle),
        mount("registry-certificates", &paths.registry_certificates),
        mount("base-image-pull-creds", &paths.base_credentials),
        mount("final-image-push-creds", &paths.push_credentials),
        mount("done", &paths.done),
    ];
    for entitlement in entitlements {
        let mut volume = entitlement.source.clone();
        volume["name"] = entitlement.volume.into();
        volumes.push(volume);
        mounts.push(mount(entitlement.volume, &entitlement.path));
    }
    (volumes, mounts)
}

/// The labels of a Job, its ConfigMaps and its Secrets.
pub(super) fn object_labels(inputs: &BuildInputs<'_>) -> BTreeMap<String, String> {
    let build = inputs.build.metadata.name.clone().unwrap_or_default();
    BTreeMap::from([
        (labels::build::EPHEMERAL.to_owned(), String::new()),
        (labels::build::ON_CLUSTER_LAYERING.to_owned(), String::new()),
        (
            labels::build::RENDERED_CONFIG.to_owned(),
            inputs.build.spec.machine_config.name.clone(),
        ),
        (labels::build::POOL.to_owned(), inputs.pool.to_owned()),
        (
            labels::build::MACHINE_OS_CONFIG.to_owned(),
            inputs.build.spec.machine_os_config.name.clone(),
        ),
        (labels::build::MACHINE_OS_BUILD.to_owned(), build),
    ])
}
