//! When an updated node counts as updated, and what nodes that are not adopted mean to a policy.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use mco_api::rollout_policy::RolloutPhase;
use mco_api::{MachineConfigPool, RolloutPolicy};
use mco_core::rollout::policy::next_status;
use mco_core::rollout::{PoolPlan, RolloutView, plan};
use serde_json::{Value, json};

use crate::fixtures::*;

const NOW: &str = "2026-11-18T12:00:00Z";

fn policy(name: &str, pool: &str, mut spec: Value) -> RolloutPolicy {
    spec["poolSelector"] = json!({"matchLabels": {"pool": pool}});
    from(json!({"metadata": {"name": name, "generation": 1}, "spec": spec}))
}

fn labelled(name: &str, more: Value) -> MachineConfigPool {
    let mut pool = pool(name, "v2", more);
    pool.metadata.labels = Some([("pool".to_owned(), name.to_owned())].into());
    pool
}

fn worker() -> MachineConfigPool {
    labelled("worker", json!({"maxUnavailable": 2}))
}

fn with_taint(line: &str) -> Node {
    let mut node = node(line);
    let taints = json!([{"key": "readiness.k8s.io/network", "effect": "NoSchedule"}]);
    node.spec.get_or_insert_default().taints = from(taints);
    node
}

fn labels(mut node: Node, key: &str) -> Node {
    let labels = node.metadata.labels.get_or_insert_default();
    labels.insert(key.to_owned(), "true".to_owned());
    node
}

fn decided(pools: &[MachineConfigPool], nodes: &[Node], policies: &[RolloutPolicy]) -> PoolPlan {
    let now: Timestamp = NOW.parse().unwrap();
    let view = RolloutView::new(pools, nodes).with_policies(policies, now, None);
    plan(&view).pool("worker").unwrap().clone()
}

/// The phase and sentence of the first policy.
fn status(pools: &[MachineConfigPool], nodes: &[Node], policies: &[RolloutPolicy]) -> (RolloutPhase, String) {
    let now: Timestamp = NOW.parse().unwrap();
    let view = RolloutView::new(pools, nodes).with_policies(policies, now, None);
    let status = next_status(&view, &policies[0]).status;
    (status.phase, status.message)
}

#[test]
fn a_node_counts_as_updated_once_its_readiness_taints_are_gone() {
    let nodes = |canary: Node| {
        let others = (1..4).map(|index| node(&format!("n{index} v1/v1 age={index}")));
        std::iter::once(labels(canary, "canary"))
            .chain(others)
            .collect::<Vec<_>>()
    };
    let waves = json!({"waves": [{"selector": {"matchLabels": {"canary": "true"}}}]});
    let in_waves = [policy("p", "worker", waves)];
    let pools = [worker()];
    let tainted = nodes(with_taint("n0 v2/v2"));
    assert_eq!(
        sent(&decided(&pools, &tainted, &in_waves)),
        "",
        "the wave is not complete"
    );
    assert_eq!(
        status(&pools, &tainted, &in_waves),
        (
            RolloutPhase::Progressing,
            "pool worker: waits because node n0 still has the taint readiness.k8s.io/network".to_owned()
        )
    );
    let ready = nodes(node("n0 v2/v2"));
    assert_eq!(
        status(&pools, &ready, &in_waves).1,
        "pool worker: updating the nodes of the last wave"
    );
    // Without waves it holds its place in the budget of the pool and in those of the policy.
    let plain = [policy("p", "worker", json!({}))];
    assert_eq!(sent(&decided(&pools, &tainted, &plain)), "n1");
    assert_eq!(sent(&decided(&pools, &ready, &plain)), "n1 n2");
    let budget = [policy("p", "worker", json!({"budgets": [{"maxUnavailable": 1}]}))];
    assert_eq!(sent(&decided(&pools, &tainted, &budget)), "");
    assert_eq!(sent(&decided(&pools, &ready, &budget)), "n1");
    // Unless the policy checks something else, and never without a policy.
    let unchecked = json!({"confirm": {"deadline": "15m", "checks": ["NodeReady"]}});
    assert_eq!(
        sent(&decided(&pools, &tainted, &[policy("p", "worker", unchecked)])),
        "n1 n2"
    );
    assert_eq!(sent(&decided(&pools, &tainted, &[])), "n1 n2");
}

#[test]
fn a_wave_with_a_node_that_is_not_ready_is_not_complete_but_a_rollout_that_was_done_stays_done() {
    let waves = json!({"waves": [{"selector": {"matchLabels": {"canary": "true"}}}]});
    let mut policies = [policy("p", "worker", waves)];
    let pools = [worker()];
    let mut nodes = vec![labels(node("n0 v2/v2 NotReady"), "canary"), node("n1 v1/v1")];
    assert_eq!(sent(&decided(&pools, &nodes, &policies)), "");
    assert_eq!(
        status(&pools, &nodes, &policies).1,
        "pool worker: waits because node n0 is reporting NotReady=False"
    );
    let mut failed = nodes.clone();
    failed[0] = labels(node("n0 v1/v2 Degraded why=full"), "canary");
    assert_eq!(
        status(&pools, &failed, &policies).1,
        "pool worker: waits because node n0 failed: full",
        "it was updating the nodes for ever"
    );
    nodes[1] = node("n1 v2/v2");
    assert_eq!(status(&pools, &nodes, &policies).0, RolloutPhase::Progressing);
    let done = json!({"pools": [{"name": "worker", "target": "v2", "phase": "Done",
        "completedWaves": [{"nodes": 1, "at": NOW}]}]});
    policies[0].status = from(done);
    assert_eq!(status(&pools, &nodes, &policies).0, RolloutPhase::Done);
}

#[test]
fn the_deadline_is_passed_to_a_node_together_with_its_target() {
    let nodes = [node("n0 v1/v1"), node("n1 v2/v2")];
    let by_policy = [policy("p", "worker", json!({"confirm": {"deadline": "15m"}}))];
    assert_eq!(
        chores(&decided(&[worker()], &nodes, &by_policy)),
        "taint:n0 confirm-15m:n0"
    );
    let mut annotated = worker();
    let annotation = ("mco.dev/confirm-deadline".to_owned(), "5m".to_owned());
    annotated.metadata.annotations = Some([annotation.clone()].into());
    let pools = [annotated];
    assert_eq!(chores(&decided(&pools, &nodes, &[])), "taint:n0 confirm-5m:n0");
    assert_eq!(
        chores(&decided(&pools, &nodes, &by_policy)),
        "taint:n0 confirm-15m:n0"
    );
    // What a former policy has set is removed with the next target, and a deadline that is the same is not written.
    let mut known = nodes.clone();
    let annotations = known[0].metadata.annotations.get_or_insert_default();
    annotations.insert(annotation.0, annotation.1);
    assert_eq!(chores(&decided(&pools, &known, &[])), "taint:n0");
    assert_eq!(
        chores(&decided(&[worker()], &known, &[])),
        "taint:n0 confirm-none:n0"
    );
}

#[test]
fn a_canary_that_is_not_adopted_is_waited_for() {
    let mut pool = worker();
    pool.metadata.annotations = Some([("mco.dev/adopt".to_owned(), "never".to_owned())].into());
    let waves = json!({"waves": [{"name": "canary", "selector": {"matchLabels": {"canary": "true"}}}]});
    let mut policies = [policy("p", "worker", waves)];
    let unadopted = labels(node("n0 new"), "canary");
    let nodes = [unadopted, node("n1 v1/v1")];
    let pools = [pool];
    assert_eq!(sent(&decided(&pools, &nodes, &policies)), "");
    assert_eq!(
        status(&pools, &nodes, &policies).1,
        "pool worker: waits for wave 1 (canary), of which no node is adopted: n0"
    );
    // An administrator who wants to go on without it promotes the wave.
    let control = json!({"worker": {"target": "v2", "promoted": 1}}).to_string();
    let annotation = ("mco.dev/rollout-control".to_owned(), control);
    policies[0].metadata.annotations = Some([annotation].into());
    assert_eq!(sent(&decided(&pools, &nodes, &policies)), "n1");
    let done = [nodes[0].clone(), node("n1 v2/v2")];
    assert_eq!(
        status(&pools, &done, &policies),
        (
            RolloutPhase::Done,
            "pool worker: 1 node up to date, 1 not adopted".to_owned()
        )
    );
}

#[test]
fn pools_that_come_first_are_complete_with_their_adoption() {
    let mut first = labelled("infra", json!({}));
    first.metadata.annotations = Some([("mco.dev/adopt".to_owned(), "never".to_owned())].into());
    let pools = [first, worker()];
    let policies = [
        policy("workers", "worker", json!({"after": ["first"]})),
        policy("first", "infra", json!({})),
    ];
    let request = |value: &str| {
        let mut node = node("i1 new role=infra");
        let annotations = node.metadata.annotations.get_or_insert_default();
        annotations.insert("mco.dev/adoption-request".to_owned(), value.to_owned());
        node
    };
    let adopted = node("i0 v2/v2 role=infra");
    for (name, infra, waits) in [
        (
            "nothing is adopted",
            vec![node("i0 new role=infra")],
            Some("of which no node is adopted"),
        ),
        ("it is adopted", vec![adopted.clone()], None),
        (
            "one stays unmanaged",
            vec![adopted.clone(), node("i1 new role=infra")],
            None,
        ),
        (
            "one is being adopted",
            vec![adopted.clone(), request("adopt")],
            Some("whose node i1 is being adopted"),
        ),
        ("one is only compared", vec![adopted, request("compare")], None),
        (
            "one is not ready",
            vec![node("i0 v2/v2 NotReady role=infra")],
            Some(""),
        ),
        (
            "one has a readiness taint",
            vec![with_taint("i0 v2/v2 role=infra")],
            Some(""),
        ),
    ] {
        let nodes: Vec<Node> = infra.into_iter().chain([node("n1 v1/v1")]).collect();
        let expected = if waits.is_some() { "" } else { "n1" };
        assert_eq!(sent(&decided(&pools, &nodes, &policies)), expected, "{name}");
        if let Some(why) = waits {
            let message = status(&pools, &nodes, &policies).1;
            let start = "pool worker: waits for pool infra of RolloutPolicy first";
            assert!(
                message.starts_with(start) && message.ends_with(why),
                "{name}: {message}"
            );
        }
    }
}

#[test]
fn a_policy_that_loses_its_waves_in_the_middle_updates_all_other_nodes() {
    let mut policies = [policy("p", "worker", json!({}))];
    let completed = json!([{"nodes": 1, "at": NOW}]);
    policies[0].status =
        from(json!({"pools": [{"name": "worker", "target": "v2", "completedWaves": completed}]}));
    let nodes = [node("n0 v2/v2"), node("n1 v1/v1 age=1"), node("n2 v1/v1 age=2")];
    assert_eq!(
        sent(&decided(&[worker()], &nodes, &policies)),
        "n1 n2",
        "they waited for ever"
    );
}
