//! Alerts, and the ServiceMonitors that they need.

use mco_api::vocabulary::labels;
use mco_api::vocabulary::names::{self, component};
use serde_json::{Value, json};

use super::{metadata, metrics};

/// Returns the alerts and ServiceMonitors, for clusters with the Prometheus operator.
pub fn alerts() -> Vec<Value> {
    let scraped = [
        component::OPERATOR,
        component::CONTROLLER,
        component::DAEMON,
        component::SERVER,
        component::OS_BUILDER,
    ];
    let mut all: Vec<Value> = scraped.map(monitor).into();
    all.extend(metrics::discovery());
    all.push(json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata(component::OPERATOR, component::OPERATOR),
        "spec": {"groups": [
            {"name": "machine-config-pools", "rules": pools()},
            {"name": "machine-config-operator", "rules": operator()},
            {"name": "machine-config-controller", "rules": controller()},
            {"name": "machine-config-daemon", "rules": daemon()},
            {"name": "machine-config-server", "rules": server()},
            {"name": "os-image-builds", "rules": builds()},
            {"name": "machines", "rules": machines()},
        ]},
    }));
    all
}

fn monitor(name: &str) -> Value {
    // The node label of a scraped pod differs from that of the metric.
    let mut endpoint = json!({"port": "metrics", "interval": "30s", "honorLabels": true});
    if name == component::DAEMON {
        // The metrics of a daemon have no node label.
        endpoint["relabelings"] =
            json!([{"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}]);
    }
    metrics::tell_scraper(name, &mut endpoint);
    json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": metadata(name, name),
        "spec": {
            "namespaceSelector": {"matchNames": [names::NAMESPACE]},
            "selector": {"matchLabels": {labels::APP: name}},
            "endpoints": [endpoint],
        },
    })
}

struct Alert {
    name: &'static str,
    expression: &'static str,
    lasts: &'static str,
    severity: &'static str,
    summary: &'static str,
    description: &'static str,
}

impl From<Alert> for Value {
    fn from(alert: Alert) -> Self {
        json!({
            "alert": alert.name,
            "expr": alert.expression,
            "for": alert.lasts,
            "labels": {"namespace": names::NAMESPACE, "severity": alert.severity},
            "annotations": {"summary": alert.summary, "description": alert.description},
        })
    }
}

fn builds() -> Vec<Value> {
    let runbook = |name: &str| {
        format!("https://github.com/openshift/runbooks/blob/master/alerts/machine-config-operator/{name}.md")
    };
    let alerts = [
        Alert {
            name: "OCLBuildFailed",
            expression: "increase(ocl_build_total{state=\"failed\"}[5m]) > 0",
            lasts: "1m",
            severity: "warning",
            summary: "An OS image build failed.",
            description: "The OS image build of pool {{ $labels.pool }} failed. Inspect its MachineOSBuild and the log of \
                          its Job.",
        },
        Alert {
            name: "OCLBuildDegraded",
            expression: "ocl_build_state{state=\"failed\"} == 1",
            lasts: "10m",
            severity: "warning",
            summary: "A pool has had no OS image for 10 minutes because its build failed.",
            description: "The latest OS image build of pool {{ $labels.pool }} failed, so its nodes are not updated. Fix \
                          the MachineOSConfig, or annotate it to build again.",
        },
        Alert {
            name: "OCLImagePushFailed",
            expression: "increase(ocl_image_push_total{state=\"failed\"}[5m]) > 0",
            lasts: "10m",
            severity: "warning",
            summary: "A built OS image could not be pushed.",
            description: "The OS image of pool {{ $labels.pool }} was not pushed. Check the registry and the push Secret \
                          of its MachineOSConfig.",
        },
    ];
    let mut rules: Vec<Value> = alerts
        .into_iter()
        .map(|alert| {
            let url = runbook(alert.name);
            let mut rule = Value::from(alert);
            rule["annotations"]["runbook_url"] = url.into();
            rule
        })
        .collect();
    rules.push(json!({"record": "mco_mosc_count:sum", "expr": "sum(mco_mosc_count)"}));
    rules
}

fn pools() -> Vec<Value> {
    vec![
        Alert {
            name: "MachineConfigPoolDegraded",
            expression: "mco_degraded_machine_count > 0",
            lasts: "15m",
            severity: "warning",
            summary: "Machines of a pool fail to apply their configuration.",
            description: "{{ $value }} machines of pool {{ $labels.pool }} report a failure. See `kubectl describe machineconfigpool {{ $labels.pool }}` for which and why.",
        }
        .into(),
        Alert {
            name: "MachineConfigPoolStuck",
            expression: "mco_updated_machine_count < mco_machine_count and changes(mco_updated_machine_count[2h]) == 0 and mco_pool_paused == 0",
            // The expression itself covers two hours.
            lasts: "5m",
            severity: "warning",
            summary: "A rollout makes no progress.",
            description: "No machine of pool {{ $labels.pool }} has been updated for two hours although some are outdated. Run `mco status` to see what it waits for.",
        }
        .into(),
        Alert {
            name: "MachineConfigPoolPausedLong",
            expression: "mco_updated_machine_count < mco_machine_count and mco_pool_paused == 1",
            lasts: "24h",
            severity: "info",
            summary: "A paused pool misses changes.",
            description: "Pool {{ $labels.pool }} has been paused for a day with pending changes, which may include renewed certificates.",
        }
        .into(),
    ]
}

fn operator() -> Vec<Value> {
    vec![
        Alert {
            name: "MachineConfigOperatorDegraded",
            expression: "mco_operator_condition{condition=\"Degraded\"} == 1",
            lasts: "30m",
            severity: "warning",
            summary: "The machine config operator is degraded.",
            description: "The ClusterOperator machine-config has been degraded for half an hour. See its message: `kubectl describe clusteroperator machine-config`.",
        }
        .into(),
        Alert {
            name: "MachineConfigComponentPanics",
            expression: "increase(mco_panics_total[1h]) > 0",
            lasts: "0s",
            severity: "warning",
            summary: "A component has panicked.",
            description: "{{ $labels.component }} of {{ $labels.pod }} has panicked {{ $value }} times in the last hour. Each panic ended one reconcile or request, which is retried with backoff. The log of the pod names the object and the place in the source; please report it.",
        }
        .into(),
        Alert {
            name: "MachineConfigUnreadableObject",
            expression: "mco_unreadable_objects > 0",
            lasts: "15m",
            severity: "warning",
            summary: "An object of the cluster cannot be read.",
            description: "{{ $value }} objects of kind {{ $labels.kind }} cannot be decoded. A Node is left out of rollouts, a user config is not applied, and of other objects the last version that could be read is used. The log of {{ $labels.pod }} names the object and the field.",
        }
        .into(),
    ]
}

fn controller() -> Vec<Value> {
    vec![
        Alert {
            name: "MCCDrainError",
            expression: "mcc_drain_err > 0",
            lasts: "0s",
            severity: "warning",
            summary: "A node cannot be drained.",
            description: "Draining node {{ $labels.node }} has taken more than an hour. Which pods and budgets block it: `mco node {{ $labels.node }}`, or the condition Drained of MachineConfigNode {{ $labels.node }}, the events DrainBlocked and DrainFailed about the node, and the Updating message of its pool.",
        }
        .into(),
        Alert {
            name: "MCCPoolAlert",
            expression: "mcc_pool_alert > 0",
            lasts: "0s",
            severity: "warning",
            summary: "A control-plane node is selected by a custom pool.",
            description: "Node {{ $labels.node }} belongs to the master pool; the config of the custom pool is ignored.",
        }
        .into(),
        Alert {
            name: "MCCBootImageSkewEnforcementNone",
            expression: "mcc_boot_image_skew_enforcement_none == 1",
            lasts: "0s",
            severity: "info",
            summary: "The age of boot images is not enforced.",
            description: "Boot image skew enforcement is off, so new machines may boot from images that are too old to reach this cluster's release. See spec.bootImageSkewEnforcement of MachineConfiguration cluster.",
        }
        .into(),
        json!({"record": "os_image_url_override:sum", "expr": "sum(os_image_url_override)"}),
    ]
}

fn daemon() -> Vec<Value> {
    vec![
        Alert {
            name: "MCDRebootError",
            expression: "mcd_reboots_failed_total > 0",
            lasts: "5m",
            severity: "critical",
            summary: "A node fails to reboot.",
            description: "Reboots of node {{ $labels.node }} have failed; its update cannot complete.",
        }
        .into(),
        Alert {
            name: "MCDPivotError",
            expression: "mcd_pivot_errors_total > 0",
            lasts: "2m",
            severity: "warning",
            summary: "An operating system image cannot be applied.",
            description: "Node {{ $labels.node }} cannot switch to its new operating system image.",
        }
        .into(),
        Alert {
            name: "KubeletHealthState",
            expression: "mcd_kubelet_state > 2",
            lasts: "0s",
            severity: "warning",
            summary: "A kubelet is unhealthy.",
            description: "The kubelet of node {{ $labels.node }} has failed {{ $value }} consecutive health checks, half a minute apart. See `journalctl -u kubelet` there.",
        }
        .into(),
        Alert {
            name: "MachineConfigDrift",
            expression: "mcd_config_drift > 0",
            lasts: "0s",
            severity: "warning",
            summary: "Files on a node have drifted.",
            description: "Files of node {{ $labels.node }} differ from its configuration. The node's reason annotation names them.",
        }
        .into(),
    ]
}

fn server() -> Vec<Value> {
    vec![
        Alert {
            name: "MachineConfigServerNotReady",
            expression: "max(mco_server_ready) == 0",
            lasts: "10m",
            severity: "warning",
            summary: "New machines cannot fetch their configuration.",
            description: "No config server has had anything to serve for ten minutes. Machines that boot for the first time wait.",
        }
        .into(),
        Alert {
            name: "MachineConfigServerTokenFailures",
            expression: "sum(increase(mco_server_token_failures_total[10m])) > 20",
            lasts: "0s",
            severity: "warning",
            summary: "Configurations are requested without a valid token.",
            description: "{{ $value }} requests within ten minutes had a missing, wrong or expired token.",
        }
        .into(),
    ]
}

/// Alerts about the machines, from metrics of kubelets, container runtimes and exporters.
fn machines() -> Vec<Value> {
    vec![
        Alert {
            name: "SystemMemoryExceedsReservation",
            expression: "sum by (node) (container_memory_rss{id=\"/system.slice\"}) > 0.95 * sum by (node) (kube_node_status_capacity{resource=\"memory\"} - kube_node_status_allocatable{resource=\"memory\"})",
            lasts: "15m",
            severity: "warning",
            summary: "System services use the memory that is reserved for them, and more.",
            description: "System services of node {{ $labels.node }} use more than 95% of the memory that is reserved for them. Reserve more with a KubeletConfig (systemReserved, or autoSizingReserved), or pods will be evicted too late.",
        }
        .into(),
        Alert {
            name: "HighOverallControlPlaneMemory",
            expression: concat!(
                "(1 - sum(node_memory_MemAvailable_bytes and on (instance) label_replace(kube_node_role{role=\"master\"}, \"instance\", \"$1\", \"node\", \"(.+)\"))",
                " / sum(node_memory_MemTotal_bytes and on (instance) label_replace(kube_node_role{role=\"master\"}, \"instance\", \"$1\", \"node\", \"(.+)\"))) * 100 > 60",
            ),
            lasts: "1h",
            severity: "warning",
            summary: "The control plane lacks the memory to lose one of its nodes.",
            description: "The control-plane nodes use {{ $value | humanize }}% of their memory together. While one of them is updated, the others may run out of it.",
        }
        .into(),
        Alert {
            name: "ExtremelyHighIndividualControlPlaneMemory",
            expression: "(1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes) * 100 > 90 and on (instance) label_replace(kube_node_role{role=\"master\"}, \"instance\", \"$1\", \"node\", \"(.+)\")",
            lasts: "45m",
            severity: "critical",
            summary: "A control-plane node is about to run out of memory.",
            description: "Control-plane node {{ $labels.instance }} uses {{ $value | humanize }}% of its memory.",
        }
        .into(),
        Alert {
            name: "RuncDeprecated",
            expression: "container_runtime_crio_default_runtime{runtime=\"runc\"} > 0",
            lasts: "10m",
            severity: "info",
            summary: "A machine runs containers with runc, which is deprecated.",
            description: "The default runtime of {{ $labels.node }} is runc. Choose crun with spec.containerRuntimeConfig.defaultRuntime of a ContainerRuntimeConfig.",
        }
        .into(),
    ]
}
