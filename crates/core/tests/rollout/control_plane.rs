//! Control-plane and arbiter nodes: one voter at a time, the operator's node last, and schedulability for user
//! workloads.

use k8s_openapi::api::core::v1::Node;
use mco_core::rollout::control_plane::{ControlPlaneWorkloads, role_change};
use mco_core::rollout::{RolloutPlan, RolloutView, TargetState, plan, waves};
use serde_json::{Value, json};

use crate::fixtures::*;

fn masters(text: &str) -> Vec<Node> {
    nodes(
        &text
            .replace(';', " role=master;")
            .replace("role=arbiter role=master", "role=arbiter"),
    )
}

#[test]
fn one_at_a_time_and_the_operators_node_last() {
    let cases = [
        ("all wait", "a v0/v0; b v0/v0; c v0/v0;", Some("a"), "b", true),
        (
            "the operator's node is not determined",
            "a v0/v0; b v0/v0; c v0/v0;",
            None,
            "a",
            false,
        ),
        (
            "it would not have been its turn",
            "a v0/v0; b v0/v0; c v0/v0;",
            Some("c"),
            "a",
            false,
        ),
        (
            "only its node waits",
            "a v0/v0; b v1/v1; c v1/v1;",
            Some("a"),
            "a",
            false,
        ),
        (
            "another is under way",
            "a v0/v0; b v0/v1 Working; c v0/v0;",
            Some("a"),
            "",
            false,
        ),
        (
            "the others cannot go",
            "a v0/v0; b v1/v1; c v1/v1 ;",
            Some("a"),
            "a",
            false,
        ),
    ];
    for (name, fleet, operator, expected, event) in cases {
        let pools = [pool("master", "v1", json!({"maxUnavailable": 3}))];
        let nodes = masters(fleet);
        let view = RolloutView::new(&pools, &nodes).with_operator_node(operator);
        let plan = plan(&view);
        let master = plan.pool("master").unwrap();
        assert_eq!(sent(master), expected, "{name}");
        let deferred = master
            .events
            .iter()
            .any(|event| event.reason == "DeferringOperatorNodeUpdate");
        assert_eq!(deferred, event, "{name}");
    }
}

#[test]
fn control_plane_and_arbiter_never_go_together() {
    let arbiter_plan = |fleet: &str, master: Value, arbiter: Value| -> RolloutPlan {
        let pools = [pool("master", "v1", master), pool("arbiter", "v1", arbiter)];
        let nodes = masters(fleet);
        plan(&RolloutView::new(&pools, &nodes).with_topology(Some("HighlyAvailableArbiter")))
    };
    let paused = || json!({"paused": true});
    let cases = [
        (
            "masters first",
            "a v0/v0; b v0/v0; x v0/v0 role=arbiter;",
            json!({}),
            "a",
            "",
            "x:afterControlPlane",
        ),
        (
            "a master is under way",
            "a v0/v1 Working; b v1/v1; x v0/v0 role=arbiter;",
            json!({}),
            "",
            "",
            "x:afterControlPlane",
        ),
        (
            "masters are done",
            "a v1/v1; b v1/v1; x v0/v0 role=arbiter;",
            json!({}),
            "",
            "x",
            "",
        ),
        (
            "an arbiter is away",
            "a v0/v0; b v0/v0; x v1/v1 NotReady role=arbiter;",
            json!({}),
            "",
            "",
            "x:upToDate",
        ),
        (
            "an arbiter is under way",
            "a v0/v0; b v1/v1; x v0/v1 Working role=arbiter;",
            json!({}),
            "",
            "",
            "x:inProgress",
        ),
        (
            "masters are paused and well",
            "a v0/v0; b v0/v0; x v0/v0 role=arbiter;",
            paused(),
            "",
            "x",
            "",
        ),
        (
            "masters are paused and one is away",
            "a v0/v0 NotReady; b v0/v0; x v0/v0 role=arbiter;",
            paused(),
            "",
            "",
            "x:afterControlPlane",
        ),
    ];
    for (name, fleet, master, masters_sent, arbiters_sent, arbiters_held) in cases {
        let plan = arbiter_plan(fleet, master, json!({}));
        assert_eq!(sent(plan.pool("master").unwrap()), masters_sent, "{name}");
        assert_eq!(sent(plan.pool("arbiter").unwrap()), arbiters_sent, "{name}");
        assert_eq!(held(plan.pool("arbiter").unwrap()), arbiters_held, "{name}");
        if name == "masters first" {
            assert_eq!(
                chores(plan.pool("arbiter").unwrap()),
                "HighlyAvailableArbiter:x taint:x",
                "what every member gets does not wait"
            );
        }
    }
}

#[test]
fn an_arbiter_waits_for_a_control_plane_that_is_about_to_get_another_target() {
    let nodes = masters("a v1/v1; b v1/v1; x v0/v0 role=arbiter;");
    let sent_while = |target_state, master: Value| {
        let pools = [pool("master", "v1", master), pool("arbiter", "v1", json!({}))];
        let view = RolloutView::new(&pools, &nodes)
            .with_topology(Some("HighlyAvailableArbiter"))
            .with_target_state("master", target_state);
        let plan = plan(&view);
        let arbiter = plan.pool("arbiter").unwrap();
        (sent(arbiter), held(arbiter))
    };
    let waits = (String::new(), "x:afterControlPlane".to_owned());
    let goes = ("x".to_owned(), String::new());
    assert_eq!(sent_while(TargetState::Settled, json!({})), goes);
    assert_eq!(sent_while(TargetState::Rendering, json!({})), waits);
    let paused = json!({"paused": true});
    assert_eq!(
        sent_while(TargetState::Rendering, paused),
        goes,
        "it goes nowhere for now"
    );
}

#[test]
fn without_masters_an_arbiter_waits_and_elsewhere_it_is_an_ordinary_pool() {
    let pools = [pool("arbiter", "v1", json!({}))];
    let nodes = masters("x v0/v0 role=arbiter; y v0/v0 role=arbiter;");
    let sent_in = |topology| {
        let plan = plan(&RolloutView::new(&pools, &nodes).with_topology(Some(topology)));
        sent(plan.pool("arbiter").unwrap())
    };
    assert_eq!(sent_in("HighlyAvailableArbiter"), "");
    assert_eq!(sent_in("HighlyAvailable"), "x");
}

#[test]
fn control_plane_nodes_say_whether_they_take_users_work() {
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    let master = |labels: &[&str], taints: Value| -> Node {
        let labels: serde_json::Map<String, Value> = labels
            .iter()
            .map(|role| (format!("node-role.kubernetes.io/{role}"), json!("")))
            .collect();
        from(json!({"metadata": {"name": "m", "labels": labels}, "spec": {"taints": taints}}))
    };
    let (role_master, role_control_plane) = (
        "node-role.kubernetes.io/master",
        "node-role.kubernetes.io/control-plane",
    );
    let worker = "node-role.kubernetes.io/worker";
    let all = json!([taint("theirs"), taint(role_master), taint(role_control_plane)]);
    let cases = [
        (
            "a worker is none of it",
            master(&["worker"], json!([])),
            ControlPlaneWorkloads::KeptAway,
            json!(null),
        ),
        (
            "nothing is said",
            master(&["master"], json!([])),
            ControlPlaneWorkloads::Unspecified,
            json!({"labels": {role_control_plane: ""}}),
        ),
        (
            "welcome",
            master(&["master", "control-plane"], all.clone()),
            ControlPlaneWorkloads::Welcome,
            json!({"labels": {worker: ""}, "taints": [taint("theirs")]}),
        ),
        (
            "welcome already",
            master(&["master", "control-plane", "worker"], json!([taint("theirs")])),
            ControlPlaneWorkloads::Welcome,
            json!(null),
        ),
        (
            "unschedulable",
            master(&["master", "control-plane", "worker"], json!([taint("theirs")])),
            ControlPlaneWorkloads::KeptAway,
            json!({"labels": {worker: null}, "taints": [taint("theirs"), taint(role_master)]}),
        ),
        (
            "unschedulable already",
            master(&["master", "control-plane"], all),
            ControlPlaneWorkloads::KeptAway,
            json!(null),
        ),
    ];
    for (name, node, workloads, expected) in cases {
        assert_eq!(json!(role_change(&node, workloads)), expected, "{name}");
    }
}

#[test]
fn two_etcd_members_were_taken_at_once_from_a_pool_that_is_not_named_master() {
    let three = json!({"maxUnavailable": 3});
    let fleet = "a v0/v0 role=control-plane; b v0/v0 role=control-plane; c v0/v0 role=control-plane;";
    let pools = [pool("control-plane", "v1", three.clone())];
    let nodes = nodes(fleet);
    let view = RolloutView::new(&pools, &nodes);
    let plan = plan(&view);
    let planned = plan.pool("control-plane").unwrap();
    assert_eq!(sent(planned), "a");
    assert_eq!(planned.budget.limit, 1);
    let [forecast] = waves(&view).try_into().unwrap();
    assert_eq!(forecast.waves, [["a"], ["b"], ["c"]]);

    let workers = [pool("worker", "v1", three)];
    let fleet = crate::fixtures::nodes("a v0/v0; b v0/v0; c v0/v0;");
    let view = RolloutView::new(&workers, &fleet);
    assert_eq!(
        sent(mco_core::rollout::plan(&view).pool("worker").unwrap()),
        "a b c",
        "other pools keep their limit"
    );
}

#[test]
fn two_control_plane_pools_never_take_one_node_each() {
    let a = |state: &str| {
        format!("a {state} role=cp-a role=control-plane; b v1/v1 role=cp-b role=control-plane;")
    };
    let cases = [
        (
            "both wait",
            "v0/v0",
            "a",
            "c:controlPlaneNodeAway d:controlPlaneNodeAway",
        ),
        (
            "it is under way",
            "v0/v1 Working",
            "",
            "c:controlPlaneNodeAway d:controlPlaneNodeAway",
        ),
        (
            "it fails",
            "v0/v1 Degraded",
            "",
            "c:controlPlaneNodeAway d:controlPlaneNodeAway",
        ),
        (
            "it is down",
            "v1/v1 NotReady",
            "",
            "c:controlPlaneNodeAway d:controlPlaneNodeAway",
        ),
        (
            "it is cordoned",
            "v1/v1 cordoned",
            "",
            "c:controlPlaneNodeAway d:controlPlaneNodeAway",
        ),
        ("it is updated", "v1/v1", "", "d:budget"),
        (
            "it is available, although its disk has drifted",
            "v1/v1 Degraded",
            "",
            "d:budget",
        ),
    ];
    let pools = ["cp-a", "cp-b"].map(|name| pool(name, "v1", json!({"maxUnavailable": 2})));
    for (name, state, of_a, expected) in cases {
        let fleet = nodes(&format!(
            "{} c v0/v0 role=cp-b role=control-plane; d v0/v0 role=cp-b role=control-plane;",
            a(state)
        ));
        let plan = plan(&RolloutView::new(&pools, &fleet));
        assert_eq!(sent(plan.pool("cp-a").unwrap()), of_a, "{name}");
        let b = plan.pool("cp-b").unwrap();
        let held: String = held(b).replace("b:upToDate", "").trim().to_owned();
        assert_eq!(held, expected, "{name}");
        let goes = if expected == "d:budget" { "c" } else { "" };
        assert_eq!(sent(b), goes, "{name}");
    }
}

#[test]
fn pools_of_idle_control_plane_nodes_do_not_wait_for_each_other() {
    let pools = ["cp-a", "cp-b"].map(|name| pool(name, "v1", json!({})));
    let fleet = nodes(
        "a v0/v0 Degraded role=cp-a role=control-plane; b v0/v0 Degraded role=cp-b role=control-plane;",
    );
    let plan = plan(&RolloutView::new(&pools, &fleet));
    assert_eq!(sent(plan.pool("cp-a").unwrap()), "a");
    assert_eq!(sent(plan.pool("cp-b").unwrap()), "");
}

#[test]
fn the_forecast_names_the_pools_that_share_the_control_plane() {
    let pools = ["cp-a", "cp-b", "worker"].map(|name| pool(name, "v1", json!({"maxUnavailable": 2})));
    let fleet = nodes(
        "a v0/v0 role=cp-a role=control-plane; b v0/v0 role=cp-b role=control-plane; \
         c v0/v0 role=cp-b role=control-plane; w v0/v0; x v0/v0",
    );
    let text: Vec<String> = waves(&RolloutView::new(&pools, &fleet))
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        text,
        [
            "pool cp-a: MachineConfig v1\n  one control-plane node at a time, together with pool cp-b\n  wave 1: a\n",
            "pool cp-b: MachineConfig v1\n  one control-plane node at a time, together with pool cp-a\n  wave 1: b\n  \
             wave 2: c\n",
            "pool worker: MachineConfig v1\n  wave 1: w, x\n",
        ]
    );
    let down = nodes("a v1/v1 NotReady role=cp-a role=control-plane; b v0/v0 role=cp-b role=control-plane");
    let stuck = waves(&RolloutView::new(&pools, &down))
        .iter()
        .map(ToString::to_string)
        .collect::<String>();
    assert!(
        stuck.contains("node b waits for control-plane node a, which is being updated or not available"),
        "{stuck}"
    );
}
