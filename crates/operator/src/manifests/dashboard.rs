//! The dashboard of pools, nodes and components for OpenShift's console, which reads the JSON of older Grafana
//! versions.

use mco_api::vocabulary::labels;
use mco_api::vocabulary::names::component;
use serde_json::{Value, json};

use super::node_dashboard;

/// The namespace in which the console looks for dashboards. Clusters without that console do not have it.
const NAMESPACE: &str = "openshift-config-managed";
const NAME: &str = "dashboard-machine-config";
const LABEL: &str = "console.openshift.io/dashboard";
const FILE: &str = "machine-config.json";
/// Half the width of a row.
const HALF: u32 = 6;

/// Returns the dashboards for clusters with OpenShift's console.
pub fn dashboards() -> Vec<Value> {
    vec![config_map(NAME, FILE, &document()), node_dashboard::dashboard()]
}

/// One graph: its title, and the expression and legend of each line.
type Panel = (&'static str, &'static [(&'static str, &'static str)]);

const POOLS: [Panel; 4] = [
    (
        "Updated machines",
        &[
            ("mco_updated_machine_count", "{{pool}}: updated"),
            ("mco_machine_count", "{{pool}}: all"),
        ],
    ),
    (
        "Unavailable or degraded machines",
        &[
            ("mco_unavailable_machine_count", "{{pool}}: unavailable"),
            ("mco_degraded_machine_count", "{{pool}}: degraded"),
        ],
    ),
    ("Paused", &[("mco_pool_paused", "{{pool}}")]),
    (
        "Custom operating system images",
        &[("os_image_url_override", "{{pool}}")],
    ),
];

const NODES: [Panel; 6] = [
    (
        "Pods that block a drain",
        &[("mcc_drain_blocking_pods > 0", "{{node}}")],
    ),
    ("Slow drains", &[("mcc_drain_err > 0", "{{node}}")]),
    (
        "Consecutive failed kubelet health checks",
        &[("mcd_kubelet_state", "{{node}}")],
    ),
    (
        "Minutes since drift was detected",
        &[("(time() - (mcd_config_drift > 0)) / 60", "{{node}}")],
    ),
    ("Failed reboots", &[("mcd_reboots_failed_total", "{{node}}")]),
    (
        "Failed operating system updates",
        &[("mcd_pivot_errors_total", "{{node}}")],
    ),
];

const COMPONENTS: [Panel; 4] = [
    ("Operator", &[("mco_operator_condition", "{{condition}}")]),
    (
        "Renders within five minutes",
        &[("increase(mcc_renders_total[5m])", "{{pool}}")],
    ),
    ("Ready servers", &[("sum(mco_server_ready)", "ready")]),
    (
        "Requests without a valid token, per second",
        &[("sum(rate(mco_server_token_failures_total[5m]))", "refused")],
    ),
];

fn document() -> Value {
    let mut panels = 1..;
    let mut row = |title: &str, shown: &[Panel]| {
        let shown = shown.iter().zip(&mut panels);
        let graphs: Vec<Value> = shown
            .map(|((title, lines), id)| graph(id, title, HALF, "short", lines))
            .collect();
        named_row(title, &graphs)
    };
    let rows = [
        row("Pools", &POOLS),
        row("Nodes", &NODES),
        row("Components", &COMPONENTS),
    ];
    page("Machine configuration", NAME, &rows)
}

/// Returns a ConfigMap that the console shows.
pub(super) fn config_map(name: &str, file: &str, document: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {LABEL: "true", labels::APP: component::OPERATOR},
        },
        "data": {file: format!("{document:#}")},
    })
}

pub(super) fn page(title: &str, uid: &str, rows: &[Value]) -> Value {
    json!({
        "title": title,
        "uid": uid,
        "tags": ["machine-config"],
        "editable": false,
        "refresh": "30s",
        "schemaVersion": 14,
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": []},
        "rows": rows,
    })
}

pub(super) fn named_row(title: &str, panels: &[Value]) -> Value {
    json!({"title": title, "showTitle": true, "panels": panels})
}

/// Returns a graph of some lines, each with its expression and legend.
pub(super) fn graph<S: AsRef<str>>(id: u32, title: &str, width: u32, unit: &str, lines: &[(S, S)]) -> Value {
    let target = |(index, (expression, legend)): (usize, &(S, S))| {
        json!({
            "refId": format!("{index}"),
            "expr": expression.as_ref(),
            "legendFormat": legend.as_ref(),
            "format": "time_series",
        })
    };
    json!({
        "id": id,
        "type": "graph",
        "title": title,
        "span": width,
        "datasource": "prometheus",
        "lines": true,
        "nullPointMode": "null as zero",
        "legend": {"show": true},
        "targets": lines.iter().enumerate().map(target).collect::<Value>(),
        "yaxes": [{"format": unit, "min": 0, "show": true}, {"format": "short", "show": false}],
    })
}
