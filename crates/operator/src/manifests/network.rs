//! The network policies of the components. All other connections are denied by the last one.

use mco_api::vocabulary::labels;
use mco_api::vocabulary::names::{self, component};
use serde_json::{Value, json};

use super::workloads::{METRICS_PORT, WEBHOOK_PORT};

pub fn network_policies() -> Vec<Value> {
    let to = |name: &str, component: &str, ports: &[u16]| {
        let ports: Vec<Value> = ports
            .iter()
            .map(|port| json!({"port": port, "protocol": "TCP"}))
            .collect();
        policy(
            name,
            &json!({
                "podSelector": {"matchLabels": {labels::APP: component}},
                "policyTypes": ["Ingress"],
                "ingress": [{"ports": ports}],
            }),
        )
    };
    vec![
        policy(
            "allow-all-egress",
            &json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]}),
        ),
        to(
            "allow-machine-config-operator",
            component::OPERATOR,
            &[METRICS_PORT, WEBHOOK_PORT],
        ),
        to(
            "allow-machine-config-controller",
            component::CONTROLLER,
            &[METRICS_PORT],
        ),
        // Exists before the builder, which runs on demand.
        to("allow-machine-os-builder", component::OS_BUILDER, &[METRICS_PORT]),
        // The lists are explicitly empty, so that an apply removes added entries.
        policy(
            "default-deny",
            &json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [], "egress": []}),
        ),
    ]
}

fn policy(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": names::NAMESPACE},
        "spec": spec,
    })
}
