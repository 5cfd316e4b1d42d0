//! Authenticated metrics of an installation: served over TLS to clients that the cluster authorizes. There is no proxy;
//! our processes serve with certificates that the operator issues, and have the cluster review the scraper's token.

use mco_api::vocabulary::names::{self, component};
use mco_core::generators::tls_profile::TlsSettings;
use serde_json::{Value, json};

use super::access::{RBAC, READ, role_ref, rule};
use super::metadata;
use super::workloads::tls_arguments;
use crate::steps::serving::BUNDLE_KEY;

/// The CA of all metrics certificates: a Secret, and a ConfigMap with the bundle for scrapers.
pub(crate) const METRICS_AUTHORITY: &str = "machine-config-metrics-ca";
/// The ClusterRole for scrapers; any other that allows to get `/metrics` works too.
const READER: &str = "machine-config-metrics-reader";
/// OpenShift's own scraper, whose Role has the same name in every namespace.
const PROMETHEUS: &str = "prometheus-k8s";
const PROMETHEUS_NAMESPACE: &str = "openshift-monitoring";
const VOLUME: &str = "metrics-certificate";
const DIRECTORY: &str = "/etc/metrics-certificate";
/// The path of the pod's own token.
const SCRAPERS_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// A kind of process with authenticated metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scraped {
    pub component: &'static str,
    /// The Secret with its certificate and key; each kind has its own, because daemons run on every machine.
    pub certificate: &'static str,
}

pub(crate) const SCRAPED: [Scraped; 5] = [
    Scraped {
        component: component::OPERATOR,
        certificate: "machine-config-operator-metrics-tls",
    },
    CONTROLLER,
    DAEMON,
    SERVER,
    BUILDER,
];
pub(super) const BUILDER: Scraped = Scraped {
    component: component::OS_BUILDER,
    certificate: "machine-os-builder-metrics-tls",
};
pub(super) const CONTROLLER: Scraped = Scraped {
    component: component::CONTROLLER,
    certificate: "machine-config-controller-metrics-tls",
};
pub(super) const DAEMON: Scraped = Scraped {
    component: component::DAEMON,
    certificate: "machine-config-daemon-metrics-tls",
};
pub(super) const SERVER: Scraped = Scraped {
    component: component::SERVER,
    certificate: "machine-config-server-metrics-tls",
};

impl Scraped {
    /// Returns the host name in its certificate.
    pub fn host(self) -> String {
        format!("{}.{}.svc", self.component, names::NAMESPACE)
    }

    /// Mounts its certificate into its pod, which also starts without it.
    pub(super) fn equip(self, pod: &mut Value) {
        let volume = json!({
            "name": VOLUME,
            "secret": {"secretName": self.certificate, "optional": true},
        });
        push(&mut pod["volumes"], volume);
        let mount = json!({"name": VOLUME, "mountPath": DIRECTORY, "readOnly": true});
        push(&mut pod["containers"][0]["volumeMounts"], mount);
    }
}

/// Returns the arguments of a process with a mounted certificate.
pub(super) fn arguments(port: u16, tls: Option<&TlsSettings>) -> Vec<String> {
    let mut arguments = vec![
        format!("--metrics-listen=[::]:{port}"),
        format!("--metrics-cert={DIRECTORY}/tls.crt"),
        format!("--metrics-key={DIRECTORY}/tls.key"),
    ];
    arguments.extend(tls_arguments("metrics-", tls));
    arguments
}

/// Returns the rules with which a process reviews a scraper's token.
pub(super) fn reviews() -> Vec<Value> {
    const CREATE: &[&str] = &["create"];
    vec![
        rule("authentication.k8s.io", &["tokenreviews"], &[CREATE]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &[CREATE]),
    ]
}

/// Returns the ClusterRole for scrapers that may not get `/metrics` otherwise.
pub(super) fn reader() -> Value {
    json!({
        "apiVersion": RBAC,
        "kind": "ClusterRole",
        "metadata": {"name": READER},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    })
}

/// Returns the Role with which a Prometheus discovers its targets in our namespace. It is bound to OpenShift's, as in
/// every namespace that it scrapes.
pub(super) fn discovery() -> Vec<Value> {
    let services = rule("", &["services", "endpoints", "pods"], &[READ]);
    let slices = rule("discovery.k8s.io", &["endpointslices"], &[READ]);
    let metadata = metadata(component::OPERATOR, PROMETHEUS);
    vec![
        json!({
            "apiVersion": RBAC,
            "kind": "Role",
            "metadata": metadata,
            "rules": [services, slices],
        }),
        json!({
            "apiVersion": RBAC,
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": role_ref("Role", PROMETHEUS),
            "subjects": [{"kind": "ServiceAccount", "name": PROMETHEUS, "namespace": PROMETHEUS_NAMESPACE}],
        }),
    ]
}

/// Adds the scraper's settings for a component: TLS, server name and bearer token.
pub(super) fn tell_scraper(component: &str, endpoint: &mut Value) {
    let Some(scraped) = SCRAPED.into_iter().find(|one| one.component == component) else {
        return;
    };
    endpoint["scheme"] = json!("https");
    endpoint["bearerTokenFile"] = json!(SCRAPERS_TOKEN);
    endpoint["tlsConfig"] = json!({
        "ca": {"configMap": {"name": METRICS_AUTHORITY, "key": BUNDLE_KEY}},
        "serverName": scraped.host(),
    });
}

pub(super) fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        other => *other = json!([item]),
    }
}
