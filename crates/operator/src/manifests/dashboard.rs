//! The dashboard of pools, nodes and components for OpenShift's console, which reads the JSON of older Grafana
//! versions.

use mco_api::vocabulary::labels;
use mco_api::vocabulary::names::component;
use serde_json::{Value, json};

/// The namespace in which the console looks for dashboards. Clusters without that console do not have it.
const NAMESPACE: &str = "openshift-config-managed";
const NAME: &str = "dashboard-machine-config";
const LABEL: &str = "console.openshift.io/dashboard";
const FILE: &str = "machine-config.json";
/// Half the width of a row.
const HALF: u32 = 6;

/// Returns the dashboard, for clusters with OpenShift's console.
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
            row("Components", &COMPONENTS),
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
