//! Tables of the built-in kinds.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::age::since;
use super::pod::{self, items, number, text};
use super::workloads;
use super::{TableColumn, TableRow};
use crate::kinds::BuiltIn;
use crate::selector::LabelSelector;

/// Turns an object into a row.
pub(super) type RowFunction = fn(&Value, Timestamp) -> TableRow;

pub(super) const NONE: &str = "<none>";

/// `name` and `type`, separated by a colon when the type is not `string`; a `+` marks columns of `-o wide`.
type Layout = &'static [&'static str];

const PODS: Layout = &[
    "Ready",
    "Status",
    "Restarts",
    "Age",
    "+IP",
    "+Node",
    "+Nominated Node",
    "+Readiness Gates",
];
const NODES: Layout = &[
    "Status",
    "Roles",
    "Age",
    "Version",
    "+Internal-IP",
    "+External-IP",
    "+OS-Image",
    "+Kernel-Version",
    "+Container-Runtime",
];
const DEPLOYMENTS: Layout = &[
    "Ready",
    "Up-to-date",
    "Available",
    "Age",
    "+Containers",
    "+Images",
    "+Selector",
];
const DAEMON_SETS: Layout = &[
    "Desired:integer",
    "Current:integer",
    "Ready:integer",
    "Up-to-date:integer",
    "Available:integer",
    "Node Selector",
    "Age",
    "+Containers",
    "+Images",
    "+Selector",
];
const REPLICA_SETS: Layout = &[
    "Desired:integer",
    "Current:integer",
    "Ready:integer",
    "Age",
    "+Containers",
    "+Images",
    "+Selector",
];
const JOBS: Layout = &[
    "Status",
    "Completions",
    "Duration",
    "Age",
    "+Containers",
    "+Images",
    "+Selector",
];
const SERVICES: Layout = &["Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "+Selector"];
const BUDGETS: Layout = &[
    "Min Available",
    "Max Unavailable",
    "Allowed Disruptions:integer",
    "Age",
];
const BINDINGS: Layout = &["Role", "Age", "+Users", "+Groups", "+ServiceAccounts"];
const PRIORITIES: Layout = &[
    "Value:integer",
    "Global-Default:boolean",
    "Age",
    "PreemptionPolicy",
];

/// The columns of a kind and the function for its rows.
pub(super) fn layout(kind: &BuiltIn) -> (Vec<TableColumn>, RowFunction) {
    let (columns, cells): (Layout, RowFunction) = match kind.kind {
        "Pod" => (PODS, pod::row),
        "Node" => (NODES, node),
        "Namespace" => (&["Status", "Age"], namespace),
        "Event" => return (event_columns(), event),
        "ConfigMap" => (&["Data", "Age"], config_map),
        "Secret" => (&["Type", "Data", "Age"], secret),
        "Service" => (SERVICES, service),
        "Endpoints" => (&["Endpoints", "Age"], endpoints),
        "ServiceAccount" => (&["Age"], service_account),
        "Deployment" => (DEPLOYMENTS, workloads::deployment),
        "DaemonSet" => (DAEMON_SETS, workloads::daemon_set),
        "ReplicaSet" => (REPLICA_SETS, workloads::replica_set),
        "StatefulSet" => (
            &["Ready", "Age", "+Containers", "+Images"],
            workloads::stateful_set,
        ),
        "ControllerRevision" => (&["Controller", "Revision", "Age"], workloads::controller_revision),
        "Job" => (JOBS, workloads::job),
        "PodDisruptionBudget" => (BUDGETS, budget),
        "Lease" => (&["Holder", "Age"], lease),
        "PriorityClass" => (PRIORITIES, priority_class),
        "RoleBinding" | "ClusterRoleBinding" => (BINDINGS, binding),
        "ValidatingAdmissionPolicy" => (&["Validations:integer", "ParamKind", "Age"], admission_policy),
        "ValidatingAdmissionPolicyBinding" => (&["PolicyName", "ParamRef", "Age"], admission_policy_binding),
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            (&["Webhooks:integer", "Age"], webhooks)
        }
        _ => (&["Created At:date"], creation),
    };
    let mut all = vec![super::custom::name_column()];
    all.extend(columns.iter().map(|column| self::column(column)));
    (all, cells)
}

fn column(text: &str) -> TableColumn {
    let (priority, text) = text.strip_prefix('+').map_or((0, text), |text| (1, text));
    let (name, kind) = text.split_once(':').unwrap_or((text, "string"));
    TableColumn {
        name: name.to_owned(),
        kind: kind.to_owned(),
        format: String::new(),
        description: String::new(),
        priority,
    }
}

/// The columns of events, whose name comes last.
fn event_columns() -> Vec<TableColumn> {
    let mut columns: Vec<TableColumn> = [
        "Last Seen",
        "Type",
        "Reason",
        "Object",
        "+Subobject",
        "+Source",
        "Message",
        "+First Seen",
        "+Count",
    ]
    .into_iter()
    .map(column)
    .collect();
    columns.push(TableColumn {
        priority: 1,
        ..super::custom::name_column()
    });
    columns
}

pub(super) fn name(object: &Value) -> Value {
    Value::from(text(object, "/metadata/name"))
}

pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    Value::from(since(object.pointer("/metadata/creationTimestamp"), now))
}

fn creation(object: &Value, _: Timestamp) -> TableRow {
    TableRow::of(vec![
        name(object),
        object
            .pointer("/metadata/creationTimestamp")
            .cloned()
            .unwrap_or_default(),
    ])
}

fn node(object: &Value, now: Timestamp) -> TableRow {
    let ready = items(object, "/status/conditions")
        .iter()
        .find(|condition| text(condition, "/type") == "Ready");
    let mut status = match ready.map(|condition| text(condition, "/status")) {
        None => "Unknown".to_owned(),
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
    };
    if object.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let roles: BTreeSet<&str> = labels
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) => Some(role),
                None if key == "kubernetes.io/role" => value.as_str(),
                None => None,
            },
        )
        .filter(|role| !role.is_empty())
        .collect();
    let address = |kind: &str| {
        let found = items(object, "/status/addresses")
            .iter()
            .find(|address| text(address, "/type") == kind);
        found.map_or(NONE, |address| text(address, "/address")).to_owned()
    };
    let info = |field: &str| match text(object, &format!("/status/nodeInfo/{field}")) {
        "" => "<unknown>".to_owned(),
        known => known.to_owned(),
    };
    let mut kernel = info("kernelVersion");
    let architecture = text(object, "/status/nodeInfo/architecture");
    if !architecture.is_empty() {
        kernel = format!("{kernel} ({architecture})");
    }
    TableRow::of(vec![
        name(object),
        Value::from(status),
        Value::from(joined_or_none(roles.into_iter().collect::<Vec<_>>().join(","))),
        age(object, now),
        Value::from(text(object, "/status/nodeInfo/kubeletVersion")),
        Value::from(address("InternalIP")),
        Value::from(address("ExternalIP")),
        Value::from(info("osImage")),
        Value::from(kernel),
        Value::from(info("containerRuntimeVersion")),
    ])
}

fn namespace(object: &Value, now: Timestamp) -> TableRow {
    TableRow::of(vec![
        name(object),
        Value::from(text(object, "/status/phase")),
        age(object, now),
    ])
}

fn event(object: &Value, now: Timestamp) -> TableRow {
    let moment = |pointer: &str| object.pointer(pointer).filter(|moment| !moment.is_null());
    let first = since(moment("/firstTimestamp").or_else(|| moment("/eventTime")), now);
    let mut last = moment("/lastTimestamp").map_or_else(|| first.clone(), |moment| since(Some(moment), now));
    let mut count = number(object, "/count").max(1);
    if let Some(series) = moment("/series") {
        last = since(series.get("lastObservedTime"), now);
        count = number(series, "/count");
    }
    let kind = text(object, "/involvedObject/kind").to_lowercase();
    let target = match text(object, "/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let either = |first: &'static str, second: &'static str| match text(object, first) {
        "" => text(object, second),
        found => found,
    };
    let component = either("/source/component", "/reportingComponent");
    let instance = either("/source/host", "/reportingInstance");
    let source = if instance.is_empty() {
        component.to_owned()
    } else {
        format!("{component}, {instance}")
    };
    TableRow::of(vec![
        Value::from(last),
        Value::from(text(object, "/type")),
        Value::from(text(object, "/reason")),
        Value::from(target),
        Value::from(text(object, "/involvedObject/fieldPath")),
        Value::from(source),
        Value::from(text(object, "/message").trim()),
        Value::from(first),
        Value::from(count),
        name(object),
    ])
}

fn config_map(object: &Value, now: Timestamp) -> TableRow {
    let entries = members(object, "/data") + members(object, "/binaryData");
    TableRow::of(vec![name(object), Value::from(entries), age(object, now)])
}

fn secret(object: &Value, now: Timestamp) -> TableRow {
    TableRow::of(vec![
        name(object),
        Value::from(text(object, "/type")),
        Value::from(members(object, "/data")),
        age(object, now),
    ])
}

fn service(object: &Value, now: Timestamp) -> TableRow {
    let cluster_ip = match text(object, "/spec/clusterIPs/0") {
        "" => NONE,
        address => address,
    };
    let ports: Vec<String> = items(object, "/spec/ports")
        .iter()
        .map(|port| {
            let node_port = number(port, "/nodePort");
            let exposed = if node_port > 0 {
                format!(":{node_port}")
            } else {
                String::new()
            };
            format!("{}{exposed}/{}", number(port, "/port"), text(port, "/protocol"))
        })
        .collect();
    TableRow::of(vec![
        name(object),
        Value::from(text(object, "/spec/type")),
        Value::from(cluster_ip),
        Value::from(external_ip(object)),
        Value::from(joined_or_none(ports.join(","))),
        age(object, now),
        Value::from(labels(object.pointer("/spec/selector"))),
    ])
}

fn external_ip(service: &Value) -> String {
    let given: Vec<&str> = items(service, "/spec/externalIPs")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    match text(service, "/spec/type") {
        "ClusterIP" | "NodePort" => joined_or_none(given.join(",")),
        "LoadBalancer" => {
            let mut addresses: Vec<&str> = items(service, "/status/loadBalancer/ingress")
                .iter()
                .map(|ingress| match text(ingress, "/ip") {
                    "" => text(ingress, "/hostname"),
                    address => address,
                })
                .filter(|address| !address.is_empty())
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect();
            addresses.extend(given);
            if addresses.is_empty() {
                "<pending>".to_owned()
            } else {
                addresses.join(",")
            }
        }
        "ExternalName" => text(service, "/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

fn endpoints(object: &Value, now: Timestamp) -> TableRow {
    /// More roles would push the other columns off the screen.
    const SHOWN: usize = 3;
    let mut addresses: Vec<String> = Vec::new();
    for subset in items(object, "/subsets") {
        let hosts = items(subset, "/addresses")
            .iter()
            .map(|address| text(address, "/ip"));
        let ports = items(subset, "/ports");
        if ports.is_empty() {
            addresses.extend(hosts.map(str::to_owned));
            continue;
        }
        for port in ports {
            addresses.extend(hosts.clone().map(|host| {
                let host = if host.contains(':') {
                    format!("[{host}]")
                } else {
                    host.to_owned()
                };
                format!("{host}:{}", number(port, "/port"))
            }));
        }
    }
    let mut shown = addresses
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join(",");
    if addresses.len() > SHOWN {
        shown = format!("{shown} + {} more...", addresses.len() - SHOWN);
    }
    if items(object, "/subsets").is_empty() {
        NONE.clone_into(&mut shown);
    }
    TableRow::of(vec![name(object), Value::from(shown), age(object, now)])
}

fn service_account(object: &Value, now: Timestamp) -> TableRow {
    TableRow::of(vec![name(object), age(object, now)])
}

fn budget(object: &Value, now: Timestamp) -> TableRow {
    let amount = |pointer: &str| match object.pointer(pointer) {
        None | Some(Value::Null) => "N/A".to_owned(),
        Some(value) => crate::go_text::plain(value),
    };
    TableRow::of(vec![
        name(object),
        Value::from(amount("/spec/minAvailable")),
        Value::from(amount("/spec/maxUnavailable")),
        Value::from(number(object, "/status/disruptionsAllowed")),
        age(object, now),
    ])
}

fn lease(object: &Value, now: Timestamp) -> TableRow {
    TableRow::of(vec![
        name(object),
        Value::from(text(object, "/spec/holderIdentity")),
        age(object, now),
    ])
}

fn priority_class(object: &Value, now: Timestamp) -> TableRow {
    TableRow::of(vec![
        name(object),
        Value::from(number(object, "/value")),
        Value::from(object.get("globalDefault") == Some(&Value::Bool(true))),
        age(object, now),
        Value::from(text(object, "/preemptionPolicy")),
    ])
}

fn binding(object: &Value, now: Timestamp) -> TableRow {
    let subjects = |kind: &str| {
        let named: Vec<String> = items(object, "/subjects")
            .iter()
            .filter(|subject| text(subject, "/kind") == kind)
            .map(|subject| match text(subject, "/namespace") {
                namespace if kind == "ServiceAccount" && !namespace.is_empty() => {
                    format!("{namespace}/{}", text(subject, "/name"))
                }
                _ => text(subject, "/name").to_owned(),
            })
            .collect();
        Value::from(named.join(", "))
    };
    TableRow::of(vec![
        name(object),
        Value::from(format!(
            "{}/{}",
            text(object, "/roleRef/kind"),
            text(object, "/roleRef/name")
        )),
        age(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ])
}

fn admission_policy(object: &Value, now: Timestamp) -> TableRow {
    let kind = match object.pointer("/spec/paramKind") {
        None | Some(Value::Null) => "<unset>".to_owned(),
        Some(kind) => format!("{}/{}", text(kind, "/apiVersion"), text(kind, "/kind")),
    };
    let validations = items(object, "/spec/validations").len();
    TableRow::of(vec![
        name(object),
        Value::from(validations),
        Value::from(kind),
        age(object, now),
    ])
}

fn admission_policy_binding(object: &Value, now: Timestamp) -> TableRow {
    let parameter = match (
        text(object, "/spec/paramRef/name"),
        text(object, "/spec/paramRef/namespace"),
    ) {
        ("", _) => "<unset>".to_owned(),
        (name, "") => format!("*/{name}"),
        (name, namespace) => format!("{namespace}/{name}"),
    };
    let policy = Value::from(text(object, "/spec/policyName"));
    TableRow::of(vec![
        name(object),
        policy,
        Value::from(parameter),
        age(object, now),
    ])
}

fn webhooks(object: &Value, now: Timestamp) -> TableRow {
    TableRow::of(vec![
        name(object),
        Value::from(items(object, "/webhooks").len()),
        age(object, now),
    ])
}

pub(super) fn selector(object: &Value) -> String {
    match LabelSelector::from_object(object.pointer("/spec/selector")) {
        Ok(selector) => joined_or_none(selector.to_string()),
        Err(_) => "<error>".to_owned(),
    }
}

pub(super) fn labels(labels: Option<&Value>) -> String {
    let pairs: Vec<String> = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    joined_or_none(pairs.join(","))
}

fn joined_or_none(text: String) -> String {
    if text.is_empty() { NONE.to_owned() } else { text }
}

fn members(object: &Value, pointer: &str) -> usize {
    object
        .pointer(pointer)
        .and_then(Value::as_object)
        .map_or(0, Map::len)
}
