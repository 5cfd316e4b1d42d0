//! Whether a cluster meets the requirements of an installation, and which fields of its objects the installation would
//! change.
//!
//! Pure; `mco install --check` reads the cluster and asks the API server for dry runs.

use k8s_openapi::api::core::v1::Node;
use mco_api::vocabulary::labels::node as label;
use mco_core::rollout::NodeView;
use serde::Serialize;
use serde_json::Value;

/// The oldest Kubernetes whose API has ValidatingAdmissionPolicies and match conditions of webhooks in version v1.
pub const OLDEST_KUBERNETES: KubernetesVersion = KubernetesVersion { major: 1, minor: 30 };
/// How many minor versions a kubelet may be older than its API server.
const KUBELET_SKEW: u32 = 3;
/// The first containerd with the CRI version that supported kubelets use.
const OLDEST_CONTAINERD: KubernetesVersion = KubernetesVersion { major: 1, minor: 6 };

/// Major and minor version; later parts do not affect compatibility.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubernetesVersion {
    pub major: u32,
    pub minor: u32,
}

impl KubernetesVersion {
    /// Parses a version such as `v1.36.3`, `1.31.2+k3s1` or `v1.30.0-rc.1`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix('v').unwrap_or(text).split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?;
        let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
        let minor = minor.get(..digits)?.parse().ok()?;
        Some(Self { major, minor })
    }
}

impl std::fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The result of one requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RequirementStatus {
    Met,
    /// The installation works, but not for everything.
    Warning,
    NotMet,
}

/// One requirement of an installation, and whether the cluster meets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RequirementCheck {
    /// For example `Kubernetes` or `node worker-1`.
    pub subject: String,
    pub status: RequirementStatus,
    pub message: String,
}

impl RequirementCheck {
    pub fn new(subject: impl Into<String>, status: RequirementStatus, message: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            status,
            message: message.into(),
        }
    }
}

/// Checks the version that the API server reports.
pub fn check_server_version(reported: &str) -> RequirementCheck {
    let (status, message) = match KubernetesVersion::parse(reported) {
        Some(version) if version >= OLDEST_KUBERNETES => (RequirementStatus::Met, reported.to_owned()),
        Some(_) => (
            RequirementStatus::NotMet,
            format!("{reported} is older than {OLDEST_KUBERNETES}; upgrade the cluster first"),
        ),
        None => (
            RequirementStatus::Warning,
            format!("{reported:?} is not a version; {OLDEST_KUBERNETES} or newer is required"),
        ),
    };
    RequirementCheck::new("Kubernetes", status, message)
}

/// Checks one node: its role, kubelet, container runtime and readiness.
pub fn check_node(node: &Node, server: Option<KubernetesVersion>) -> RequirementCheck {
    let view = NodeView::new(node);
    let subject = format!("node {}", view.name);
    let labels = node.metadata.labels.as_ref();
    let has = |key: &str| labels.is_some_and(|labels| labels.contains_key(key));
    let system = labels.and_then(|labels| labels.get(label::OS));
    if system.is_some_and(|system| system == label::OS_WINDOWS) {
        return RequirementCheck::new(subject, RequirementStatus::Met, "runs Windows and is not managed");
    }
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let kubelet = info.map_or("", |info| &info.kubelet_version);
    let runtime = info.map_or("", |info| &info.container_runtime_version);
    let mut findings = Vec::new();
    findings.extend(check_kubelet(kubelet, server));
    findings.extend(check_runtime(runtime));
    if !view.is_kubelet_healthy() {
        findings.push((
            RequirementStatus::Warning,
            "is not Ready: its daemon starts when its kubelet is back".to_owned(),
        ));
    }
    if ![label::ROLE_MASTER, label::ROLE_CONTROL_PLANE, label::ROLE_WORKER]
        .iter()
        .any(|role| has(role))
    {
        findings.push((
            RequirementStatus::Warning,
            format!(
                "has no role and is in no built-in pool; label it with {}=, or select it with a pool of your own",
                label::ROLE_WORKER
            ),
        ));
    }
    if findings.is_empty() {
        return RequirementCheck::new(
            subject,
            RequirementStatus::Met,
            format!("kubelet {kubelet}, {runtime}"),
        );
    }
    let fails = findings
        .iter()
        .any(|(status, _)| *status == RequirementStatus::NotMet);
    let messages: Vec<String> = findings.into_iter().map(|(_, message)| message).collect();
    let status = if fails {
        RequirementStatus::NotMet
    } else {
        RequirementStatus::Warning
    };
    RequirementCheck::new(subject, status, messages.join("; "))
}

type Finding = (RequirementStatus, String);

fn check_kubelet(reported: &str, server: Option<KubernetesVersion>) -> Option<Finding> {
    let Some(version) = KubernetesVersion::parse(reported) else {
        return Some((
            RequirementStatus::Warning,
            format!("its kubelet reports no version of Kubernetes ({reported:?})"),
        ));
    };
    let server = server?;
    if version > server {
        return Some((
            RequirementStatus::NotMet,
            format!(
                "its kubelet {reported} is newer than the API server {server}, which Kubernetes does not support"
            ),
        ));
    }
    let is_old = version.major < server.major || version.minor + KUBELET_SKEW < server.minor;
    is_old.then(|| {
        (
            RequirementStatus::NotMet,
            format!(
                "its kubelet {reported} is more than {KUBELET_SKEW} minor versions older than the API server {server}"
            ),
        )
    })
}

fn check_runtime(reported: &str) -> Option<Finding> {
    let (name, version) = reported.split_once("://").unwrap_or((reported, ""));
    match name {
        "cri-o" => None,
        "containerd" => {
            let is_old = KubernetesVersion::parse(version).is_some_and(|version| version < OLDEST_CONTAINERD);
            is_old.then(|| {
                (
                    RequirementStatus::NotMet,
                    format!("containerd {version} is older than {OLDEST_CONTAINERD}"),
                )
            })
        }
        _ => Some((
            RequirementStatus::Warning,
            format!(
                "its container runtime {reported:?} is neither containerd nor CRI-O: settings of the runtime and pinned \
                 images have no effect"
            ),
        )),
    }
}

/// Returns the paths of the fields that differ between the stored object and the result of a dry run, without the fields
/// that the API server maintains.
pub fn changed_fields(before: &Value, after: &Value) -> Vec<String> {
    let mut changed = Vec::new();
    compare(before, after, "", &mut changed);
    changed
}

/// Fields that every write changes, or that are not part of an object's settings.
const MAINTAINED: [&str; 4] = [
    "metadata.managedFields",
    "metadata.resourceVersion",
    "metadata.generation",
    "status",
];

fn compare(before: &Value, after: &Value, path: &str, changed: &mut Vec<String>) {
    if before == after || MAINTAINED.contains(&path) {
        return;
    }
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            let added = new.keys().filter(|key| !old.contains_key(*key));
            for key in old.keys().chain(added) {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                compare(&before[key.as_str()], &after[key.as_str()], &path, changed);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                compare(old, new, &format!("{path}[{index}]"), changed);
            }
        }
        _ => changed.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_of_distributions() {
        let version = |major, minor| Some(KubernetesVersion { major, minor });
        for (text, expected) in [
            ("v1.36.3", version(1, 36)),
            ("1.31.2+k3s1", version(1, 31)),
            ("v1.30.0-rc.1", version(1, 30)),
            ("v1.29+", version(1, 29)),
            ("mco-0.1.0", None),
            ("v1", None),
            ("", None),
        ] {
            assert_eq!(KubernetesVersion::parse(text), expected, "{text}");
        }
        assert_eq!(check_server_version("v1.30.0").status, RequirementStatus::Met);
        assert_eq!(check_server_version("v1.29.9").status, RequirementStatus::NotMet);
        assert_eq!(check_server_version("dev").status, RequirementStatus::Warning);
    }

    fn node(kubelet: &str, runtime: &str, role: &str, ready: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {format!("node-role.kubernetes.io/{role}"): ""}},
            "status": {
                "conditions": [{"type": "Ready", "status": ready}],
                "nodeInfo": {"architecture": "amd64", "bootID": "", "containerRuntimeVersion": runtime,
                    "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": kubelet, "machineID": "",
                    "operatingSystem": "linux", "osImage": "", "systemUUID": ""},
            },
        }))
        .unwrap()
    }

    #[test]
    fn nodes_that_cannot_be_managed_as_they_are() {
        use RequirementStatus::{Met, NotMet, Warning};
        let server = KubernetesVersion::parse("v1.36.3");
        for (kubelet, runtime, role, ready, expected, text) in [
            (
                "v1.36.3",
                "containerd://1.6.20",
                "worker",
                "True",
                Met,
                "containerd://1.6.20",
            ),
            (
                "v1.33.0",
                "cri-o://1.33.1",
                "control-plane",
                "True",
                Met,
                "kubelet v1.33.0",
            ),
            (
                "v1.37.0",
                "containerd://2.0.0",
                "worker",
                "True",
                NotMet,
                "newer than the API server",
            ),
            (
                "v1.32.9",
                "containerd://2.0.0",
                "worker",
                "True",
                NotMet,
                "more than 3 minor",
            ),
            (
                "v1.36.0",
                "containerd://1.5.18",
                "worker",
                "True",
                NotMet,
                "older than 1.6",
            ),
            (
                "v1.36.0",
                "docker://27",
                "worker",
                "True",
                Warning,
                "neither containerd nor CRI-O",
            ),
            (
                "v1.36.0",
                "containerd://2.0.0",
                "worker",
                "Unknown",
                Warning,
                "not Ready",
            ),
            (
                "v1.36.0",
                "containerd://2.0.0",
                "other",
                "True",
                Warning,
                "has no role",
            ),
        ] {
            let found = check_node(&node(kubelet, runtime, role, ready), server);
            assert_eq!(found.status, expected, "{found:?}");
            assert!(found.message.contains(text), "{found:?}");
        }
        let mut windows = node("v1.20.0", "docker://27", "worker", "True");
        let labels = windows.metadata.labels.get_or_insert_default();
        labels.insert(label::OS.to_owned(), label::OS_WINDOWS.to_owned());
        assert_eq!(check_node(&windows, server).status, Met);
    }

    #[test]
    fn only_settings_count_as_changes() {
        let before = json!({"metadata": {"resourceVersion": "1", "labels": {"a": "1"}},
            "spec": {"containers": [{"image": "one", "args": ["x"]}], "old": true}, "status": {"ready": 1}});
        let after = json!({"metadata": {"resourceVersion": "2", "managedFields": [{}], "labels": {"a": "1", "b": "2"}},
            "spec": {"containers": [{"image": "two", "args": ["x", "y"]}]}});
        assert_eq!(
            changed_fields(&before, &after),
            [
                "metadata.labels.b",
                "spec.containers[0].args",
                "spec.containers[0].image",
                "spec.old"
            ]
        );
        assert_eq!(changed_fields(&before, &before), Vec::<String>::new());
    }
}
