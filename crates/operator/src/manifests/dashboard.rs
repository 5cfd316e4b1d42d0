//! What people can look at: pools, nodes and what looks after them, as a dashboard in OpenShift's own console, which
//! reads the JSON of Grafana's older versions.

use mco_api::vocabulary::labels;
use mco_api::vocabulary::names::component;
use serde_json::{Value, json};

/// Where the console looks for dashboards. Clusters without that console do not have it.
const NAMESPACE: &str = "openshift-config-managed";
const NAME: &str = "dashboard-machine-config";
const LABEL: &str = "console.openshift.io/dashboard";
const FILE: &str = "machine-config.json";
/// A row is twelve of these wide.
const HALF: u32 = 6;

/// For clusters with OpenShift's console.
pub fn dashboard() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "labels": {LABEL: "true", labels::APP: component::OPERATOR},
        },
        "data": {FILE: format!("{:#}", document())},
    })
}

/// One graph: what it shows, and for each line the expression and its name.
type Panel = (&'static str, &'static [(&'static str, &'static str)]);

const POOLS: [Panel; 4] = [
    (
        "Machines that have their configuration",
        &[
            ("mco_updated_machine_count", "{{pool}}: updated"),
            ("mco_machine_count", "{{pool}}: all"),
        ],
    ),
    (
        "Machines that are away or fail",
        &[
            ("mco_unavailable_machine_count", "{{pool}}: unavailable"),
            ("mco_degraded_machine_count", "{{pool}}: degraded"),
        ],
    ),
    ("Paused", &[("mco_pool_paused", "{{pool}}")]),
    (
        "Operating system images of one's own",
        &[("os_image_url_override", "{{pool}}")],
    ),
];

const NODES: [Panel; 6] = [
    (
        "Pods that keep a node from being drained",
        &[("mcc_drain_blocking_pods > 0", "{{node}}")],
    ),
    ("Drains that take too long", &[("mcc_drain_err > 0", "{{node}}")]),
    (
        "Checks in a row at which the kubelet was not well",
        &[("mcd_kubelet_state", "{{node}}")],
    ),
    (
        "Minutes since files were found changed",
        &[("(time() - (mcd_config_drift > 0)) / 60", "{{node}}")],
    ),
    (
        "Reboots that could not be asked for",
        &[("mcd_reboots_failed_total", "{{node}}")],
    ),
    (
        "Operating systems that could not be put in place",
        &[("mcd_pivot_errors_total", "{{node}}")],
    ),
];

const COMPONENTS: [Panel; 4] = [
    ("Operator", &[("mco_operator_condition", "{{condition}}")]),
    (
        "Renders within five minutes",
        &[("increase(mcc_renders_total[5m])", "{{pool}}")],
    ),
    (
        "Servers with something to serve",
        &[("sum(mco_server_ready)", "ready")],
    ),
    (
        "Requests without a valid token, per second",
        &[("sum(rate(mco_server_token_failures_total[5m]))", "refused")],
    ),
];

fn document() -> Value {
    let mut panels = 1..;
    let mut row = |title: &str, shown: &[Panel]| {
        let shown = shown.iter().zip(&mut panels);
        let graphs: Vec<Value> = shown.map(|(panel, id)| graph(id, panel)).collect();
        json!({"title": title, "showTitle": true, "panels": graphs})
    };
    json!({
        "title": "Machine configuration",
        "uid": NAME,
        "tags": ["machine-config"],
        "editable": false,
        "refresh": "30s",
        "schemaVersion": 14,
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": []},
        "rows": [
            row("Pools", &POOLS),
            row("Nodes", &NODES),
            row("What looks after them", &COMPONENTS),
        ],
    })
}

fn graph(id: u32, (title, lines): &Panel) -> Value {
    let target = |(index, (expression, legend)): (usize, &(&str, &str))| json!({"refId": format!("{index}"), "expr": expression, "legendFormat": legend, "format": "time_series"});
    json!({
        "id": id,
        "type": "graph",
        "title": title,
        "span": HALF,
        "datasource": "prometheus",
        "lines": true,
        "nullPointMode": "null as zero",
        "legend": {"show": true},
        "targets": lines.iter().enumerate().map(target).collect::<Value>(),
        "yaxes": [{"format": "short", "min": 0, "show": true}, {"format": "short", "show": false}],
    })
}
