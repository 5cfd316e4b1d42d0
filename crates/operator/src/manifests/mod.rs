//! The objects of an installation, in the order they are applied: one description for `mco install` and for the
//! operator, which reverts changes.

mod access;
mod alerts;
mod dashboard;
mod guards;
mod metrics;
mod network;
mod node_dashboard;
mod object_guards;
mod workloads;

use std::fmt::Write as _;

use mco_api::ClusterBase;
use mco_api::machine_configuration::LogLevel;
use mco_api::vocabulary::{labels, names};
use mco_core::generators::tls_profile::TlsSettings;
use serde_json::{Value, json};
use thiserror::Error;

use crate::options::IgnitionTokens;
use crate::profile::ClusterProfile;

pub use access::{access, bootstrapper_binding, operands_access, operator_access};
pub use alerts::alerts;
pub use dashboard::dashboards;
pub use guards::{WebhookEndpoint, guards, webhook_configuration};
pub(crate) use metrics::{METRICS_AUTHORITY, SCRAPED, Scraped};
pub use network::network_policies;
pub use object_guards::ParameterKinds;
pub use workloads::{
    LOG_LEVEL_VARIABLE, builder, controller, daemon, operator, server, single_node_controller,
};
pub(crate) use workloads::{SERVER_TOKENS_KEY, tls_arguments};

/// The settings of an installation.
#[derive(Clone, Debug)]
pub struct ManifestSettings {
    /// The image with the `mco` binary.
    pub image: String,
    /// The API server's address for new machines; if empty, detected by the operator.
    pub api_server_url: String,
    /// The image of another implementation, whose templates the controller uses instead of its own; empty for none.
    pub templates_image: String,
    /// The image in which OS images are built; empty if none are.
    pub builder_image: String,
    /// How many unused OS images are kept per MachineOSConfig; by default as many as the builder keeps.
    pub keep_builds: Option<usize>,
    /// Whether machines need a token for their first configuration.
    pub ignition_tokens: IgnitionTokens,
    /// The log level of the components that the operator runs.
    pub log_level: LogLevel,
    /// What is installed.
    pub profile: ClusterProfile,
    /// The base that the administrator has chosen; `None` leaves it to the operator, which keeps the stored one.
    pub chosen_base: Option<ClusterBase>,
    /// The TLS versions and cipher suites of the API server, which the components follow; `None` for their defaults.
    pub tls: Option<TlsSettings>,
}

#[derive(Debug, Error)]
#[error("cannot write {object} as YAML: {source}")]
pub struct ManifestPrintError {
    pub object: String,
    #[source]
    pub source: serde_saphyr::SerializeError,
}

/// Returns the objects that an administrator applies: the operator and its permissions. The operator applies the rest, so
/// that each object has one field manager and the same manifests can be applied again, also with other settings.
pub fn operator_installation(settings: &ManifestSettings) -> Vec<Value> {
    let mut all = vec![namespace()];
    all.extend(operator_access(&settings.profile));
    all.extend(operator(settings));
    all
}

/// Returns all objects except CRDs, alerts and the dashboard: [`operator_installation`], then those that the operator
/// applies.
pub fn installation(settings: &ManifestSettings) -> Vec<Value> {
    let mut all = operator_installation(settings);
    let profile = &settings.profile;
    all.extend(operands_access(profile));
    all.extend(guards(profile, ParameterKinds::of(profile)));
    if profile.network_policies {
        all.extend(network_policies());
    }
    all.extend(controller(settings));
    all.extend(daemon(settings));
    if profile.server {
        all.extend(server(settings));
    }
    all
}

/// Returns the objects of an installation in the order of an uninstall: first the operator, which would recreate the
/// rest, then the webhook and the policies that could reject the next steps, then the other components. CRDs are kept, because deleting them deletes the users' objects, and so is
/// the namespace of the machines, which others use too.
pub fn removal(settings: &ManifestSettings) -> Vec<Value> {
    let rank = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        match object["kind"].as_str().unwrap_or_default() {
            "Deployment" if name == names::component::OPERATOR => 0,
            "ValidatingWebhookConfiguration" | "ValidatingAdmissionPolicyBinding" => 1,
            "ValidatingAdmissionPolicy" => 2,
            "Deployment" | "DaemonSet" => 3,
            "Namespace" => 5,
            _ => 4,
        }
    };
    let is_foreign = |object: &Value| {
        object["kind"] == "Namespace" && object["metadata"]["name"] == names::MACHINE_API_NAMESPACE
    };
    let mut all = installation(settings);
    // Runs on demand.
    all.extend(builder(settings));
    // The operator creates it once it has a certificate.
    all.push(json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": guards::WEBHOOK},
    }));
    all.retain(|object| !is_foreign(object));
    all.sort_by_key(rank);
    all
}

/// Returns the objects as a stream of YAML documents.
pub fn to_yaml(objects: &[Value]) -> Result<String, ManifestPrintError> {
    let mut text = String::new();
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            text.push_str("---\n");
        }
        let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
        let document = serde_saphyr::to_string_with_options(object, options);
        let document = document.map_err(|source| ManifestPrintError {
            object: described(object),
            source,
        })?;
        let _ = write!(text, "{document}");
    }
    Ok(text)
}

fn described(object: &Value) -> String {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    format!("{} {}", text("/kind"), text("/metadata/name"))
}

/// Returns the namespace of all components.
pub fn namespace() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": names::NAMESPACE,
            "labels": {
                "name": names::NAMESPACE,
                "openshift.io/run-level": "",
                "openshift.io/cluster-monitoring": "true",
                // The daemon changes its host, which requires privileged pods. The level applies to a namespace, and
                // the other components, whose pods are restricted by their own settings, have to be in the same one.
                "pod-security.kubernetes.io/enforce": "privileged",
                "pod-security.kubernetes.io/audit": "privileged",
                "pod-security.kubernetes.io/warn": "privileged",
            },
            "annotations": {"openshift.io/node-selector": ""},
        },
    })
}

/// Returns the metadata of an object of a component.
fn metadata(component: &str, name: &str) -> Value {
    json!({"name": name, "namespace": names::NAMESPACE, "labels": {labels::APP: component}})
}

/// Returns the user name of a component's service account.
pub(crate) fn user(component: &str) -> String {
    format!("system:serviceaccount:{}:{component}", names::NAMESPACE)
}
