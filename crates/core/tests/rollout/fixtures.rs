//! Nodes and pools from one line of text, so that a table of cases can be read.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use mco_api::MachineConfigPool;
use mco_api::vocabulary::annotations::node::DRAIN_RECORD;
use mco_core::rollout::drain::{CordonOrigin, DrainMarks, DrainRecord};
use mco_core::rollout::{NodeAction, PoolPlan, RolloutView};
use serde_json::{Value, json};

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

pub fn time(second: i64) -> Time {
    Time(at(second))
}

pub fn key(name: &str) -> String {
    format!("machineconfiguration.openshift.io/{name}")
}

/// Nodes described like `n1 v0/v1 Degraded NotReady; n2 v0/v0 zone=a`. Words: `c/d` current and desired config, a
/// state (default Done), `image=c/d` (`-` is absent), `NotReady`, `cordoned` (by another client), `cordoned-by-us`,
/// `tainted`, `new` (no daemon yet), `zone=`, `age=` (seconds of creation), `role=` (default worker), `first=` (the
/// config it was provisioned with), `why=` (the daemon's reason).
pub fn nodes(text: &str) -> Vec<Node> {
    text.split(';')
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(node)
        .collect()
}

pub fn node(line: &str) -> Node {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap();
    let mut annotations = json!({key("state"): "Done"});
    let mut labels = json!({});
    let mut metadata = json!({"name": name, "resourceVersion": "1"});
    let mut spec = json!({});
    let mut ready = "True";
    for word in words {
        match word.split_once('=') {
            Some(("zone", zone)) => labels["topology.kubernetes.io/zone"] = json!(zone),
            Some(("age", second)) => {
                metadata["creationTimestamp"] = json!(time(second.parse().unwrap()));
            }
            Some(("role", role)) => labels[format!("node-role.kubernetes.io/{role}")] = json!(""),
            Some(("first", config)) => annotations[key("firstPivotConfig")] = json!(config),
            Some(("why", reason)) => annotations[key("reason")] = json!(reason),
            Some(("image", images)) => {
                let (current, desired) = images.split_once('/').unwrap();
                for (name, image) in [("currentImage", current), ("desiredImage", desired)] {
                    if image != "-" {
                        annotations[key(name)] = json!(image);
                    }
                }
            }
            Some(_) => panic!("{word:?} in {line:?}"),
            None => match word {
                "NotReady" => ready = "False",
                "cordoned" => spec["unschedulable"] = json!(true),
                "cordoned-by-us" => {
                    spec["unschedulable"] = json!(true);
                    let record = DrainRecord {
                        request: "drain-v1".to_owned(),
                        since: at(0),
                        cordon: CordonOrigin::Made,
                        waiting_for: None,
                        marks: DrainMarks::default(),
                        evict_after: None,
                    };
                    annotations[DRAIN_RECORD] = json!(record.to_annotation());
                }
                "tainted" => {
                    spec["taints"] = json!([
                        {"key": "theirs", "effect": "NoSchedule"},
                        {"key": "UpdateInProgress", "effect": "PreferNoSchedule"},
                    ]);
                }
                "new" => annotations = json!({}),
                "Done" | "Working" | "Degraded" | "Unreconcilable" => {
                    annotations[key("state")] = json!(word);
                }
                configs => {
                    let (current, desired) = configs
                        .split_once('/')
                        .unwrap_or_else(|| panic!("{word:?} in {line:?}"));
                    annotations[key("currentConfig")] = json!(current);
                    annotations[key("desiredConfig")] = json!(desired);
                }
            },
        }
    }
    let has_role = labels
        .as_object()
        .unwrap()
        .keys()
        .any(|key| key.starts_with("node-role"));
    if !has_role {
        labels["node-role.kubernetes.io/worker"] = json!("");
    }
    metadata["annotations"] = annotations;
    metadata["labels"] = labels;
    let conditions = json!([{"type": "Ready", "status": ready}]);
    from(json!({"metadata": metadata, "spec": spec, "status": {"conditions": conditions}}))
}

/// A pool that selects its role, with a target; `more` is merged into its spec.
pub fn pool(name: &str, target: &str, more: Value) -> MachineConfigPool {
    let mut spec = json!({
        "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}},
        "configuration": {"name": target},
    });
    let Value::Object(more) = more else {
        panic!("not an object: {more}")
    };
    spec.as_object_mut().unwrap().extend(more);
    from(json!({"metadata": {"name": name, "generation": 7}, "spec": spec}))
}

pub fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The plan for the one pool `worker`.
pub fn plan_worker(pool: &MachineConfigPool, nodes: &[Node]) -> PoolPlan {
    let view = RolloutView::new([pool], nodes);
    mco_core::rollout::plan(&view).pool("worker").unwrap().clone()
}

pub fn sent(plan: &PoolPlan) -> String {
    plan.sent().collect::<Vec<_>>().join(" ")
}

/// The actions of the plan other than new targets, one word each.
pub fn chores(plan: &PoolPlan) -> String {
    let chore = |action: &NodeAction| match action {
        NodeAction::SetDesired { .. } => None,
        NodeAction::AddUpdateTaint { node } => Some(format!("taint:{node}")),
        NodeAction::RemoveUpdateTaint { node } => Some(format!("untaint:{node}")),
        NodeAction::SetControlPlaneTopology { node, topology } => Some(format!("{topology}:{node}")),
        NodeAction::GrantReboot { node } => Some(format!("reboot:{node}")),
        NodeAction::SetConfirmDeadline { node, deadline } => {
            let deadline = deadline.as_deref().unwrap_or("none");
            Some(format!("confirm-{deadline}:{node}"))
        }
        NodeAction::JoinPool { node, pool, labels } => {
            let labels: Vec<String> = labels
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            Some(format!("join-{pool}[{}]:{node}", labels.join(",")))
        }
    };
    plan.actions
        .iter()
        .filter_map(chore)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Why each node is held, by the short name of the reason.
pub fn held(plan: &PoolPlan) -> String {
    let reason = |held: &mco_core::rollout::Held| {
        let value = serde_json::to_value(held).unwrap();
        format!("{}:{}", held.node, value["reason"].as_str().unwrap())
    };
    plan.held.iter().map(reason).collect::<Vec<_>>().join(" ")
}
