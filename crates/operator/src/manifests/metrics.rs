//! How the metrics of an installation are seen: over TLS, by whom the cluster lets. Nothing runs beside our processes for it;
//! they show certificates that the operator makes, and ask the cluster about the scraper's token.

use mco_api::vocabulary::names::{self, component};
use serde_json::{Value, json};

use super::access::{RBAC, READ, role_ref, rule};
use super::metadata;
use crate::steps::serving::BUNDLE_KEY;

/// The authority of all certificates for metrics: a Secret, and a ConfigMap with what scrapers check them by.
pub(crate) const METRICS_AUTHORITY: &str = "machine-config-metrics-ca";
/// Those who may see metrics have this ClusterRole, or any other that lets them get `/metrics`.
const READER: &str = "machine-config-metrics-reader";
/// OpenShift's own scraper, by whose name it has the same Role everywhere.
const PROMETHEUS: &str = "prometheus-k8s";
const PROMETHEUS_NAMESPACE: &str = "openshift-monitoring";
const VOLUME: &str = "metrics-certificate";
const DIRECTORY: &str = "/etc/metrics-certificate";
/// Where every pod finds its own token.
const SCRAPERS_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// A kind of process whose metrics are guarded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scraped {
    pub component: &'static str,
    /// The Secret with its certificate and key; each kind has its own, because daemons run on every machine.
    pub certificate: &'static str,
}

pub(crate) const SCRAPED: [Scraped; 3] = [
    Scraped {
        component: component::OPERATOR,
        certificate: "machine-config-operator-metrics-tls",
    },
    CONTROLLER,
    DAEMON,
];
pub(super) const CONTROLLER: Scraped = Scraped {
    component: component::CONTROLLER,
    certificate: "machine-config-controller-metrics-tls",
};
pub(super) const DAEMON: Scraped = Scraped {
    component: component::DAEMON,
    certificate: "machine-config-daemon-metrics-tls",
};

impl Scraped {
    /// What its certificate is good for.
    pub fn host(self) -> String {
        format!("{}.{}.svc", self.component, names::NAMESPACE)
    }

    /// Brings its certificate into its pod, which starts without it too.
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

/// What a process is told that finds its certificate in its pod.
pub(super) fn arguments(port: u16) -> [String; 3] {
    [
        format!("--metrics-listen=[::]:{port}"),
        format!("--metrics-cert={DIRECTORY}/tls.crt"),
        format!("--metrics-key={DIRECTORY}/tls.key"),
    ]
}

/// What a process needs to find out who asks for its metrics.
pub(super) fn reviews() -> Vec<Value> {
    const CREATE: &[&str] = &["create"];
    vec![
        rule("authentication.k8s.io", &["tokenreviews"], &[CREATE]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &[CREATE]),
    ]
}

/// For scrapers that may not get `/metrics` anyway.
pub(super) fn reader() -> Value {
    json!({
        "apiVersion": RBAC,
        "kind": "ClusterRole",
        "metadata": {"name": READER},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    })
}

/// With this a Prometheus finds what it is to scrape in our namespace. OpenShift's has it, as in every namespace that it looks into.
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

/// What a scraper has to know of a component: that it must speak TLS, whom it will meet, and by what it is known itself.
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

fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        other => *other = json!([item]),
    }
}
