//! The dashboard *Node Cluster* of OpenShift's console: kubelets, container runtimes and reserved resources of all nodes.
//!
//! It has the name and the panels of the dashboard in OpenShift's releases, so that links to it keep working. Its metrics
//! are those of the kubelet, CRI-O, cAdvisor and kube-state-metrics.

use serde_json::{Value, json};

use super::dashboard::{config_map, graph, named_row, page};

const NAME: &str = "node-cluster";
const FILE: &str = "node-cluster-rsrc-use.json";
const QUARTER: u32 = 3;
const THIRD: u32 = 4;

/// A histogram of the kubelet: the title of its panels, its name, and the labels by which its operations differ.
type Histogram = (&'static str, &'static str, &'static [&'static str]);

const HISTOGRAMS: [Histogram; 8] = [
    ("Pod Start Duration", "kubelet_pod_start_duration_seconds", &[]),
    (
        "Pod Start SLI Duration",
        "kubelet_pod_start_sli_duration_seconds",
        &[],
    ),
    (
        "Runtime Operations Duration",
        "kubelet_runtime_operations_duration_seconds",
        &["operation_type"],
    ),
    (
        "Pod Status Sync Duration",
        "kubelet_pod_status_sync_duration_seconds",
        &[],
    ),
    (
        "Cgroup Operation Duration",
        "kubelet_cgroup_manager_duration_seconds",
        &["operation_type"],
    ),
    (
        "Pleg Relist Duration",
        "kubelet_pleg_relist_duration_seconds",
        &[],
    ),
    (
        "Pod Worker Duration",
        "kubelet_pod_worker_duration_seconds",
        &["operation_type"],
    ),
    (
        "Storage Op. Duration",
        "storage_operation_duration_seconds",
        &["operation_name", "volume_plugin"],
    ),
];

/// Returns what a cgroup uses of a resource, per node.
type UsedBy = fn(&str) -> String;

/// The cgroups whose share of the reserved resources is shown: title, cgroup, and the percentage from which on.
const RESERVED: [(&str, &str, u32); 3] = [
    ("System Reserved", "/system.slice", 80),
    ("Kubelet System Reserved", "/system.slice/kubelet.service", 50),
    ("CRI-O System Reserved", "/system.slice/crio.service", 50),
];

pub(super) fn dashboard() -> Value {
    let mut ids = 1..;
    let mut next = || ids.next().unwrap_or_default();
    let critical = critical(&mut next);
    let mut durations = |title: &str, expression: fn(&Histogram) -> String| {
        let panels = HISTOGRAMS.iter().map(|histogram| {
            let title = format!("(Kubelet) {}", histogram.0);
            graph(
                next(),
                &title,
                THIRD,
                "none",
                &[(expression(histogram), legend(histogram))],
            )
        });
        named_row(title, &panels.collect::<Vec<_>>())
    };
    let rows = [
        named_row("Critical", &critical),
        durations("Outliers", outliers),
        durations("Average Durations", averages),
        durations("Number of Operations", operations),
    ];
    config_map(NAME, FILE, &page("Node Cluster", NAME, &rows))
}

fn critical(next: &mut impl FnMut() -> u32) -> Vec<Value> {
    let not_ready = r#"sum(kube_node_status_condition{condition="Ready",status!="true"})"#;
    let mut panels = vec![json!({
        "id": next(),
        "type": "singlestat",
        "title": "Not Ready Nodes Count",
        "span": QUARTER,
        "datasource": "prometheus",
        "format": "none",
        "valueName": "current",
        "targets": [{"refId": "0", "expr": not_ready, "legendFormat": "", "instant": true}],
    })];
    let killed = "topk(3, sum by (name) (increase(container_runtime_crio_containers_oom_count_total[1d])))";
    panels.push(graph(
        next(),
        "Top 3 Containers With the Most OOM Kills in the Last Day",
        THIRD,
        "short",
        &[(killed, "{{name}}")],
    ));
    let pulls = |result: &str| format!("rate(container_runtime_crio_image_pulls_{result}_total[1h])");
    let (failed, succeeded) = (pulls("failure"), pulls("success"));
    panels.push(graph(
        next(),
        "Failure Rate for Image Pulls in the Last Hour",
        THIRD,
        "short",
        &[(
            format!("{failed} / ({failed} + {succeeded})"),
            "{{instance}}".to_owned(),
        )],
    ));
    let shares: [(&str, UsedBy); 2] = [("Memory", memory), ("CPU", cpu)];
    for (resource, used) in shares {
        for (what, cgroup, from) in RESERVED {
            let share = format!(
                "100 * {} / {} >= {from}",
                used(cgroup),
                reserved(&resource.to_lowercase())
            );
            let title = format!("Nodes with {what} {resource} Utilization > {from}%");
            panels.push(graph(
                next(),
                &title,
                THIRD,
                "percent",
                &[(share, "{{node}}".to_owned())],
            ));
        }
    }
    panels
}

fn memory(cgroup: &str) -> String {
    format!(r#"sum by (node) (container_memory_rss{{id="{cgroup}"}})"#)
}

fn cpu(cgroup: &str) -> String {
    format!(r#"sum by (node) (rate(container_cpu_usage_seconds_total{{id="{cgroup}"}}[5m]))"#)
}

/// What a node keeps for itself.
fn reserved(resource: &str) -> String {
    let of = |metric: &str| format!(r#"kube_node_status_{metric}{{resource="{resource}"}}"#);
    format!("sum by (node) ({} - {})", of("capacity"), of("allocatable"))
}

fn legend((_, _, labels): &Histogram) -> String {
    let labels = labels.iter().map(|label| format!(" {{{{{label}}}}}"));
    format!("{{{{instance}}}}{}", labels.collect::<String>())
}

fn grouping((_, _, labels): &Histogram) -> String {
    let labels = labels.iter().map(|label| format!(", {label}"));
    format!("instance{}", labels.collect::<String>())
}

/// The 95th percentile.
fn outliers(histogram: &Histogram) -> String {
    let (by, name) = (grouping(histogram), histogram.1);
    format!("histogram_quantile(0.95, sum by ({by}, le) (rate({name}_bucket[5m]))) >= 0")
}

fn averages(histogram: &Histogram) -> String {
    let (by, name) = (grouping(histogram), histogram.1);
    format!("sum by ({by}) (rate({name}_sum[5m])) / sum by ({by}) (rate({name}_count[5m]))")
}

fn operations(histogram: &Histogram) -> String {
    format!(
        "sum by ({}) (increase({}_count[5m]))",
        grouping(histogram),
        histogram.1
    )
}
