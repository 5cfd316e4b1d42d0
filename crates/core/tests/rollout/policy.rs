//! Single decisions under a RolloutPolicy.

use jiff::{SignedDuration, Timestamp};
use mco_api::RolloutPolicy;
use mco_api::rollout_policy::{NotificationEvent, RolloutPhase};
use mco_core::config::disruption::DisruptionLevel;
use mco_core::rollout::policy::{ChangeCosts, admit_policy, next_status, overviews};
use mco_core::rollout::{HeldReason, NodeAction, PoolPlan, RolloutView, plan};
use serde_json::{Value, json};

use crate::fixtures::*;
use crate::simulator::Fleet;

fn policy(name: &str, spec: Value) -> RolloutPolicy {
    let mut spec = spec;
    if spec.get("poolSelector").is_none() {
        spec["poolSelector"] = json!({});
    }
    from(json!({"metadata": {"name": name, "generation": 1}, "spec": spec}))
}

fn instant(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A fleet of ten workers, the first of which is a canary, at 12:00 UTC of a Wednesday.
fn fleet(spec: Value) -> Fleet {
    let nodes = (0..10).map(|index| {
        let mut node = node(&format!("n{index} v1/v1 age={index} zone=z{}", index % 2));
        if index == 4 {
            node.metadata
                .labels
                .get_or_insert_default()
                .insert("canary".to_owned(), "true".to_owned());
        }
        node
    });
    let mut worker = pool("worker", "v1", json!({"maxUnavailable": 10}));
    worker.status = Some(from(json!({"configuration": {"name": "v1"}})));
    let mut fleet = Fleet::new(vec![worker], nodes.collect());
    fleet.start = instant("2026-11-18T12:00:00Z");
    fleet.policies = vec![policy("workers", spec)];
    fleet
}

#[allow(clippy::unnecessary_wraps, reason = "the type of a gate's answer")]
fn pass(_: &str, _: Timestamp) -> Result<bool, String> {
    Ok(true)
}

fn retarget(fleet: &mut Fleet, target: &str) {
    fleet.pool_mut("worker").spec.configuration.reference.name = Some(target.to_owned());
}

fn rounds(fleet: &mut Fleet, count: usize) {
    for _ in 0..count {
        fleet.policy_controller(pass);
        fleet.round();
    }
    fleet.policy_controller(pass);
}

fn planned(fleet: &Fleet) -> PoolPlan {
    let nodes = fleet.nodes();
    let view = RolloutView::new(&fleet.pools, &nodes).with_policies(&fleet.policies, fleet.now(), None);
    plan(&view).pool("worker").unwrap().clone()
}

fn status(fleet: &Fleet) -> (RolloutPhase, String) {
    let status = fleet.policies[0].status.clone().unwrap();
    (status.phase, status.message)
}

fn updated(fleet: &Fleet, target: &str) -> usize {
    let machines = fleet.machines.values();
    machines
        .filter(|machine| machine.view().is_done() && machine.view().desired_config == target)
        .count()
}

fn advance(fleet: &mut Fleet, minutes: i64) {
    fleet.clock += minutes * 60;
}

#[test]
fn a_canary_goes_first_and_soaks() {
    let mut fleet = fleet(json!({"waves": [
        {"name": "canary", "selector": {"matchLabels": {"canary": "true"}}, "limit": 1, "soak": "30m"},
        {"limit": "30%"},
    ]}));
    retarget(&mut fleet, "v2");
    fleet.policy_controller(pass);
    assert_eq!(sent(&planned(&fleet)), "n4");
    rounds(&mut fleet, 8);
    assert_eq!(updated(&fleet, "v2"), 1);
    let (phase, message) = status(&fleet);
    assert_eq!(phase, RolloutPhase::Soaking, "{message}");
    assert!(
        message.starts_with("pool worker: soaks after wave 1 (canary), ends at 2026-11-18T12:3"),
        "{message}"
    );
    let held = planned(&fleet).held;
    let HeldReason::Policy(hold) = &held[1].reason else {
        panic!("{held:?}")
    };
    assert_eq!(
        hold.at(hold.until.unwrap() - SignedDuration::from_mins(12)),
        "soaks after wave 1 (canary), ends in 12 min"
    );
    advance(&mut fleet, 31);
    fleet.policy_controller(pass);
    assert_eq!(
        sent(&planned(&fleet)),
        "n0 n2 n6",
        "30% of ten, in the order of zones"
    );
    rounds(&mut fleet, 30);
    assert_eq!(updated(&fleet, "v2"), 10);
    assert_eq!(
        status(&fleet),
        (RolloutPhase::Done, "pool worker: 10 nodes up to date".to_owned())
    );
}

#[test]
fn a_wave_without_a_node_that_can_be_updated_waits_and_names_it() {
    let mut fleet = fleet(json!({"waves": [{"selector": {"matchLabels": {"canary": "true"}}}]}));
    retarget(&mut fleet, "v2");
    fleet.machines.get_mut("n4").unwrap().cordon();
    fleet.policy_controller(pass);
    assert_eq!(sent(&planned(&fleet)), "");
    assert_eq!(
        status(&fleet).1,
        "pool worker: waits for wave 1, of which no node can be updated: n4"
    );
    fleet.machines.get_mut("n4").unwrap().uncordon();
    rounds(&mut fleet, 30);
    assert_eq!(updated(&fleet, "v2"), 10);
}

#[test]
fn a_rollout_halts_at_the_allowed_failures_and_goes_on_with_a_new_config() {
    let mut fleet = fleet(json!({"maxFailures": {"count": 2}}));
    retarget(&mut fleet, "bad-2");
    rounds(&mut fleet, 20);
    let broken = fleet
        .machines
        .values()
        .filter(|machine| machine.view().is_degraded());
    assert_eq!(broken.count(), 2, "though ten may be unavailable");
    let (phase, message) = status(&fleet);
    assert_eq!(phase, RolloutPhase::Halted);
    assert_eq!(
        message,
        "pool worker: halted: 2 of 2 allowed failures, n0 and n2: cannot read"
    );
    let stalled = planned(&fleet).stalled().unwrap();
    assert!(stalled.contains("halted: 2 of 2 allowed failures"), "{stalled}");
    retarget(&mut fleet, "v3");
    rounds(&mut fleet, 60);
    assert_eq!(updated(&fleet, "v3"), 10);
}

#[test]
fn resume_ignores_the_failed_nodes_and_abort_starts_no_other() {
    let mut fleet = fleet(json!({"maxFailures": {"count": 1}}));
    retarget(&mut fleet, "bad-2");
    rounds(&mut fleet, 10);
    let control = |value: Value| Some([("mco.dev/rollout-control".to_owned(), value.to_string())].into());
    fleet.policies[0].metadata.annotations =
        control(json!({"worker": {"target": "bad-2", "acknowledged": ["n0"]}}));
    rounds(&mut fleet, 10);
    let broken = fleet
        .machines
        .values()
        .filter(|machine| machine.view().is_degraded());
    assert_eq!(broken.count(), 2, "one that was acknowledged, and one more");
    retarget(&mut fleet, "v3");
    fleet.policies[0].metadata.annotations = control(json!({"worker": {"target": "v3", "aborted": true}}));
    rounds(&mut fleet, 20);
    assert_eq!(
        updated(&fleet, "v3"),
        2,
        "what failed is repaired, and no other node is started"
    );
    assert_eq!(status(&fleet).0, RolloutPhase::Aborted);
}

#[test]
fn failures_revert_all_nodes_to_the_config_before() {
    let mut fleet = fleet(json!({
        "waves": [{"limit": 3}],
        "maxFailures": {"count": 1, "action": "Revert"},
    }));
    retarget(&mut fleet, "v2");
    rounds(&mut fleet, 4);
    // One node gets a config on which it fails; the others of the wave have it already.
    fleet.machines.get_mut("n0").unwrap().drift();
    retarget(&mut fleet, "late-2");
    rounds(&mut fleet, 60);
    assert_eq!(status(&fleet).0, RolloutPhase::Reverted);
    assert_eq!(updated(&fleet, "v1"), 10, "{}", planned(&fleet));
    let message = status(&fleet).1;
    assert!(
        message.starts_with("pool worker: reverted to v1: 1 of 1 allowed failure, n"),
        "{message}"
    );
    retarget(&mut fleet, "v3");
    rounds(&mut fleet, 80);
    assert_eq!(updated(&fleet, "v3"), 10, "a new config is a new rollout");
}

#[test]
fn nothing_starts_outside_of_a_window_and_free_changes_pass() {
    let spec = json!({"windows": [{"at": "0 22 * * 1-5", "for": "6h", "timeZone": "Europe/Madrid"}]});
    let mut fleet = fleet(spec);
    retarget(&mut fleet, "v2");
    rounds(&mut fleet, 5);
    assert_eq!(updated(&fleet, "v2"), 0);
    let plan_now = planned(&fleet);
    let HeldReason::Policy(hold) = &plan_now.held[0].reason else {
        panic!("{plan_now}")
    };
    assert_eq!(
        hold.at(instant("2026-11-18T17:48:00Z")),
        "waits for window 22:00-04:00 Europe/Madrid, opens in 3 h 12 min"
    );
    assert_eq!(
        status(&fleet).1,
        "pool worker: waits for window 22:00-04:00 Europe/Madrid, opens at 2026-11-18T21:00:00Z"
    );
    let costs: ChangeCosts = [(("v1".to_owned(), "v2".to_owned()), DisruptionLevel::None)].into();
    let nodes = fleet.nodes();
    let view =
        RolloutView::new(&fleet.pools, &nodes).with_policies(&fleet.policies, fleet.now(), Some(&costs));
    assert_eq!(plan(&view).pool("worker").unwrap().sent().count(), 10);
    advance(&mut fleet, 9 * 60);
    rounds(&mut fleet, 20);
    assert_eq!(updated(&fleet, "v2"), 10);
}

#[test]
fn free_changes_were_shown_as_waiting_for_a_window_while_they_rolled_out() {
    let spec = json!({"windows": [{"at": "0 22 * * 1-5", "for": "6h", "timeZone": "Europe/Madrid"}]});
    let mut fleet = fleet(spec);
    retarget(&mut fleet, "v2");
    let change = |level| ChangeCosts::from([(("v1".to_owned(), "v2".to_owned()), level)]);
    let reconcile = |fleet: &mut Fleet, costs: &ChangeCosts| {
        let nodes = fleet.nodes();
        let view =
            RolloutView::new(&fleet.pools, &nodes).with_policies(&fleet.policies, fleet.now(), Some(costs));
        let report = next_status(&view, &fleet.policies[0]);
        fleet.policies[0].status = Some(from(serde_json::to_value(report.status).unwrap()));
    };
    // Commands and pages do not compute what changes interrupt.
    let shown = |fleet: &Fleet| {
        let nodes = fleet.nodes();
        let view = RolloutView::new(&fleet.pools, &nodes).with_policies(&fleet.policies, fleet.now(), None);
        (overviews(&view)[0].pools[0].message.clone(), planned(fleet))
    };
    reconcile(&mut fleet, &change(DisruptionLevel::Reload));
    let (message, plan) = shown(&fleet);
    assert!(
        message.starts_with("waits for window 22:00-04:00 Europe/Madrid"),
        "{message}"
    );
    assert_eq!((plan.sent().count(), plan.held.len()), (0, 10));

    let free = change(DisruptionLevel::None);
    reconcile(&mut fleet, &free);
    let (message, plan) = shown(&fleet);
    assert_eq!(message, "updating the nodes");
    assert_eq!(
        status(&fleet),
        (
            RolloutPhase::Progressing,
            "pool worker: updating the nodes".to_owned()
        )
    );
    assert_eq!((plan.sent().count(), plan.held.len()), (10, 0));
    fleet.round();
    reconcile(&mut fleet, &free);
    assert_eq!(shown(&fleet).0, "updating the nodes", "all are under way");
    for _ in 0..20 {
        fleet.round();
        reconcile(&mut fleet, &free);
    }
    assert_eq!(
        status(&fleet),
        (RolloutPhase::Done, "pool worker: 10 nodes up to date".to_owned())
    );
}

#[test]
fn the_strictest_budget_wins_also_across_pools() {
    let mut fleet = fleet(json!({"budgets": [
        {"maxUnavailable": 3},
        {"maxUnavailable": 1, "groupBy": "topology.kubernetes.io/zone"},
    ]}));
    for index in 0..4 {
        let line = format!("i{index} v1/v1 age={index} zone=z{} role=infra", index % 4);
        let mut more = Fleet::new(Vec::new(), vec![node(&line)]);
        fleet.machines.append(&mut more.machines);
    }
    fleet
        .pools
        .push(pool("infra", "v2", json!({"maxUnavailable": 10})));
    retarget(&mut fleet, "v2");
    let nodes = fleet.nodes();
    let view = RolloutView::new(&fleet.pools, &nodes).with_policies(&fleet.policies, fleet.now(), None);
    let plan = plan(&view);
    let all: Vec<&str> = plan.pools.iter().flat_map(PoolPlan::sent).collect();
    assert_eq!(all, ["i0", "i1", "i2"], "three in all, one of each zone");
    let waits = plan.pool("worker").unwrap().held[0].to_string();
    assert_eq!(
        waits,
        "node n0 waits for the budget: 3 of 3 nodes are unavailable (RolloutPolicy workers)"
    );
}

#[test]
fn gates_are_asked_again_after_every_node() {
    let mut fleet = fleet(json!({
        "budgets": [{"maxUnavailable": 1}],
        "gates": [{"name": "etcd", "interval": "1m", "controlPlane": {}}],
    }));
    retarget(&mut fleet, "v2");
    fleet.policy_controller(pass);
    fleet.round();
    for _ in 0..20 {
        fleet.policy_controller(|_, _| Ok(false));
        fleet.round();
    }
    assert_eq!(
        updated(&fleet, "v2"),
        1,
        "the check before the node does not count after it"
    );
    advance(&mut fleet, 2);
    fleet.policy_controller(|_, _| Err("connection refused".to_owned()));
    fleet.policy_controller(pass);
    assert_eq!(
        status(&fleet).1,
        "pool worker: waits for gate etcd, which cannot be checked: connection refused"
    );
    for _ in 0..200 {
        advance(&mut fleet, 1);
        fleet.policy_controller(pass);
        fleet.round();
    }
    assert_eq!(updated(&fleet, "v2"), 10);
}

#[test]
fn policies_are_applied_in_order_and_cycles_are_refused() {
    let mut fleet = fleet(json!({"poolSelector": {"matchLabels": {"tier": "last"}}, "after": ["first"]}));
    let labelled = |pool: &mut mco_api::MachineConfigPool, tier: &str| {
        pool.metadata.labels = Some([("tier".to_owned(), tier.to_owned())].into());
    };
    labelled(fleet.pool_mut("worker"), "last");
    let mut infra = pool("infra", "v2", json!({}));
    labelled(&mut infra, "first");
    fleet.pools.push(infra);
    let mut more = Fleet::new(Vec::new(), vec![node("i0 v1/v1 role=infra")]);
    fleet.machines.append(&mut more.machines);
    retarget(&mut fleet, "v2");
    fleet.policy_controller(pass);
    assert_eq!(
        status(&fleet).1,
        "pool worker: waits for RolloutPolicy first, which does not exist"
    );
    fleet.policies.push(policy(
        "first",
        json!({"poolSelector": {"matchLabels": {"tier": "first"}}}),
    ));
    fleet.policy_controller(pass);
    assert_eq!(
        status(&fleet).1,
        "pool worker: waits for pool infra of RolloutPolicy first"
    );
    rounds(&mut fleet, 40);
    assert_eq!(updated(&fleet, "v2"), 11);

    let first = policy("first", json!({"after": ["workers"]}));
    let workers = policy("workers", json!({"after": ["first"]}));
    let refused = admit_policy(&workers, [&first]).unwrap_err();
    assert_eq!(refused.problems[0].path, "spec.after");
    assert!(
        refused.problems[0]
            .message
            .contains("workers waits for first, first waits for workers"),
        "{refused}"
    );
    assert!(admit_policy(&policy("a", json!({"after": ["a"]})), []).is_err());
}

#[test]
fn two_policies_for_one_pool_hold_it() {
    let mut fleet = fleet(json!({}));
    fleet.policies.push(policy("other", json!({})));
    retarget(&mut fleet, "v2");
    fleet.policy_controller(pass);
    assert_eq!(sent(&planned(&fleet)), "");
    let accepted = &fleet.policies[0].status.as_ref().unwrap().conditions[0];
    assert_eq!(
        (accepted.status.as_str(), accepted.reason.as_str()),
        ("False", "Conflict")
    );
}

#[test]
fn a_drain_that_takes_too_long_is_skipped_or_quarantined() {
    for (action, expected) in [("Wait", "n0"), ("Skip", "n0"), ("Quarantine", "n0 n2")] {
        let mut fleet = fleet(json!({
            "budgets": [{"maxUnavailable": 1}],
            "drain": {"timeout": "30m", "onTimeout": action},
        }));
        retarget(&mut fleet, "v2");
        fleet.policy_controller(pass);
        fleet.rollout_controller();
        fleet.daemon("n0");
        let request = key("desiredDrain");
        let record = json!({"request": "drain-v2", "since": fleet.now(), "cordon": "made"}).to_string();
        fleet.machines.get_mut("n0").unwrap().patch(&json!({
            "metadata": {"annotations": {request: "drain-v2", "machineconfiguration.openshift.io/lastAppliedDrain": "",
                mco_api::vocabulary::annotations::node::DRAIN_RECORD: record}},
            "spec": {"unschedulable": true},
        }));
        advance(&mut fleet, 31);
        fleet.policy_controller(pass);
        fleet.rollout_controller();
        let mut moving: Vec<&str> = fleet
            .machines
            .values()
            .map(mco_core_view)
            .filter(|node| node.desired_config == "v2")
            .map(|node| node.name)
            .collect();
        moving.sort_unstable();
        let expected = if action == "Skip" { "" } else { expected };
        assert_eq!(moving.join(" "), expected, "{action}");
    }
}

fn mco_core_view(machine: &crate::simulator::Machine) -> mco_core::rollout::NodeView<'_> {
    machine.view()
}

#[test]
fn a_hold_on_a_node_holds_only_its_update() {
    let mut fleet = fleet(json!({}));
    fleet.policies.clear();
    retarget(&mut fleet, "v2");
    fleet.machines.get_mut("n3").unwrap().patch(&json!({"metadata": {
        "annotations": {"mco.dev/hold.storage": "rebalancing"},
        "managedFields": [{"manager": "kubectl", "time": "2026-11-18T09:00:00Z",
            "fieldsV1": {"f:metadata": {"f:annotations": {"f:mco.dev/hold.storage": {}}}}}],
    }}));
    for _ in 0..20 {
        fleet.round();
    }
    assert_eq!(updated(&fleet, "v2"), 9);
    let plan = planned(&fleet);
    let held = plan.held.iter().find(|held| held.node == "n3").unwrap();
    assert_eq!(
        held.reason.at(instant("2026-11-18T12:12:00Z")),
        "is held by mco.dev/hold.storage for 3 h 12 min: rebalancing"
    );
}

#[test]
fn changes_are_announced_once() {
    use NotificationEvent::{Done, Halted, Started, WaveCompleted};
    let mut fleet = fleet(json!({"waves": [{"limit": 1}], "maxFailures": {"count": 1}}));
    let mut seen = Vec::new();
    let observe = |fleet: &mut Fleet, seen: &mut Vec<NotificationEvent>| {
        let nodes = fleet.nodes();
        let view = RolloutView::new(&fleet.pools, &nodes).with_policies(&fleet.policies, fleet.now(), None);
        let report = next_status(&view, &fleet.policies[0]);
        seen.extend(report.changes.iter().map(|change| change.event));
        fleet.policies[0].status = Some(report.status);
    };
    observe(&mut fleet, &mut seen);
    for target in ["bad-2", "v3"] {
        retarget(&mut fleet, target);
        for _ in 0..80 {
            observe(&mut fleet, &mut seen);
            fleet.round();
        }
    }
    assert_eq!(seen, [Started, Halted, Started, WaveCompleted, Done]);
}

#[test]
fn what_can_never_proceed_is_refused_with_field_and_remedy() {
    let gate = |more: Value| {
        let mut gate = json!({"name": "g"});
        gate.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({ "gates": [gate] })
    };
    for (spec, path) in [
        (
            json!({"windows": [{"at": "0 0 31 2 *", "for": "1h"}]}),
            "spec.windows[0].at",
        ),
        (json!({"windows": [{"at": "0 0 * * *"}]}), "spec.windows[0].for"),
        (
            gate(json!({"prometheus": {"expr": "up"}})),
            "spec.gates[0].prometheus.url",
        ),
        (
            gate(json!({"prometheus": {"url": "https://p"}})),
            "spec.gates[0].prometheus.expr",
        ),
        (
            gate(json!({"webhook": {"url": "https:///path"}})),
            "spec.gates[0].webhook.url",
        ),
        (gate(json!({})), "spec.gates[0]"),
        (
            gate(json!({"controlPlane": {}, "webhook": {"url": "https://h"}})),
            "spec.gates[0]",
        ),
        (
            gate(json!({"controlPlane": {}, "interval": "0s"})),
            "spec.gates[0].interval",
        ),
        (
            json!({"budgets": [{"maxUnavailable": 0}]}),
            "spec.budgets[0].maxUnavailable",
        ),
        (
            json!({"budgets": [{"maxUnavailable": "0%"}]}),
            "spec.budgets[0].maxUnavailable",
        ),
        (json!({"budgets": [{}]}), "spec.budgets[0].maxUnavailable"),
        (json!({"maxFailures": {"count": 0}}), "spec.maxFailures.count"),
        (json!({"waves": [{"limit": "x"}]}), "spec.waves[0].limit"),
        (json!({"waves": [{}, {"limit": 1}]}), "spec.waves[0].limit"),
        (
            json!({"waves": [{"limit": 1, "soak": "soon"}]}),
            "spec.waves[0].soak",
        ),
        (json!({"confirm": {"deadline": ""}}), "spec.confirm.deadline"),
        (json!({"confirm": {"deadline": "30s"}}), "spec.confirm.deadline"),
        (json!({"drain": {"timeout": "x"}}), "spec.drain.timeout"),
        (json!({"drain": {"onTimeout": "Skip"}}), "spec.drain.timeout"),
        (
            json!({"drain": {"excludeFromLoadBalancers": "2h"}}),
            "spec.drain.excludeFromLoadBalancers",
        ),
        (json!({"notify": [{}]}), "spec.notify[0].secretRef.name"),
        (json!({"poolSelector": null}), "spec.poolSelector"),
    ] {
        let mut object = policy("p", json!({}));
        let mut full = json!({"poolSelector": {}});
        full.as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        object.spec = from(full);
        let refused = admit_policy(&object, []).expect_err(&spec.to_string());
        assert_eq!(refused.problems[0].path, path, "{refused}");
    }
}

#[test]
fn a_deadline_that_no_machine_can_keep_is_refused_with_the_least() {
    let admitted =
        |deadline: &str| admit_policy(&policy("p", json!({"confirm": {"deadline": deadline}})), []);
    let refused = admitted("30s").unwrap_err();
    let [problem] = refused.problems.as_slice() else {
        panic!("{refused}")
    };
    assert_eq!(problem.path, "spec.confirm.deadline");
    assert_eq!(
        problem.message,
        "\"30s\" is not a duration of at least one minute"
    );
    assert!(
        problem.hint.as_ref().unwrap().contains("at least 1m"),
        "{refused}"
    );
    assert!(admitted("59s").is_err());
    assert!(admitted("1m").is_ok());
}

#[test]
fn nodes_get_the_deadline_of_the_policy_else_of_the_pool() {
    let deadlines = |fleet: &Fleet| -> Vec<Option<String>> {
        let plan = planned(fleet);
        let actions = plan.actions.iter().filter_map(|action| match action {
            NodeAction::SetDesired { confirm_deadline, .. } => Some(confirm_deadline.clone()),
            _ => None,
        });
        actions.collect()
    };
    for (spec, annotation, expected) in [
        (json!({"confirm": {"deadline": "7m"}}), Some("9m"), Some("7m")),
        (json!({}), Some("9m"), Some("9m")),
        (json!({}), Some("soon"), None),
        (json!({}), None, None),
    ] {
        let mut fleet = fleet(spec);
        if let Some(annotation) = annotation {
            let annotations = &mut fleet.pool_mut("worker").metadata.annotations;
            let key = "mco.dev/confirm-deadline".to_owned();
            annotations
                .get_or_insert_default()
                .insert(key, annotation.to_owned());
        }
        retarget(&mut fleet, "v2");
        fleet.policy_controller(pass);
        let found = deadlines(&fleet);
        assert!(!found.is_empty());
        assert!(
            found.iter().all(|found| found.as_deref() == expected),
            "{found:?}"
        );
    }
}
