//! The choice of the next nodes in one pool.

use mco_core::rollout::{Because, HeldReason, PlannedEventKind, RolloutView, TakenBy, plan};
use serde_json::json;

use crate::fixtures::*;

/// The target is v1.
#[test]
fn who_goes_and_how_much_room_there_was() {
    let cases = [
        ("all are there", "n0 v1/v1; n1 v1/v1", 1, "", 1),
        (
            "all are there and one is not ready",
            "n0 v1/v1 NotReady; n1 v1/v1",
            1,
            "",
            0,
        ),
        (
            "a node that is not ready takes room and does not go",
            "n0 v0/v0 NotReady; n1 v0/v0; n2 v0/v0",
            2,
            "n1",
            1,
        ),
        (
            "nodes that are away for two reasons",
            "n1 v1/v1 NotReady; n2 v0/v1; n3 v0/v0; n4 v0/v0",
            3,
            "n3",
            1,
        ),
        (
            "one under way leaves no room",
            "n1 v0/v0; n2 v0/v1; n3 v0/v0",
            1,
            "",
            0,
        ),
        (
            "two of three under way",
            "n1 v0/v1 Working; n2 v0/v1; n3 v0/v0; n4 v0/v0",
            3,
            "n3",
            1,
        ),
        (
            "a node that failed on an older target goes first",
            "n1 v0.1/v0.2 Degraded; n2 v0/v0",
            1,
            "n1",
            0,
        ),
        (
            "a node that failed on the target takes room",
            "n1 v0/v1 Degraded; n2 v0/v0",
            1,
            "",
            0,
        ),
        (
            "a degraded node at the target takes room",
            "n1 v1/v1 Degraded; n2 v0/v0",
            1,
            "",
            0,
        ),
        ("back to what it was", "n1 v1/v1; n2 v1/v2 Degraded", 1, "n2", 0),
        (
            "back to what it was before its daemon saw anything",
            "n1 v1/v1; n2 v1/v2",
            1,
            "n2",
            0,
        ),
        (
            "failed and cordoned counts once",
            "n1 v0/v1 Degraded cordoned; n2 v0/v0",
            2,
            "n2",
            1,
        ),
        (
            "failed and not ready counts once",
            "n1 v0/v1 Degraded NotReady; n2 v0/v0",
            2,
            "n2",
            1,
        ),
        (
            "failed on an older target after the cordon",
            "n1 v0/v0.5 Degraded cordoned-by-us; n2 v0/v0",
            1,
            "n1",
            0,
        ),
        (
            "failed on an older target and cordoned by another client",
            "n1 v0/v0.5 Degraded cordoned; n2 v0/v0",
            1,
            "n1",
            0,
        ),
        (
            "failed on an older target and not ready",
            "n1 v0/v0.5 Unreconcilable NotReady; n2 v0/v0",
            1,
            "n1",
            0,
        ),
        (
            "working on an older target",
            "n1 v0/v0.5 Working cordoned-by-us; n2 v0/v0",
            1,
            "n1",
            0,
        ),
        (
            "rebooting into an older target",
            "n1 v0/v0.5 Working NotReady; n2 v0/v0",
            1,
            "n1",
            0,
        ),
        (
            "more failed than may be away",
            "n1 v0/v0.5 Degraded; n2 v0/v0.5 Degraded; n3 v0/v0",
            1,
            "n1 n2",
            0,
        ),
        (
            "a foreign cordon takes budget and the node is held",
            "n1 v0/v0 cordoned; n2 v0/v0",
            1,
            "",
            0,
        ),
        ("no daemon has reported yet", "n1 new; n2 v1/v1", 1, "n1", 0),
        (
            "no daemon has reported yet and others wait",
            "n1 new; n2 v0/v0",
            1,
            "n1",
            0,
        ),
        (
            "degraded at an older config",
            "n1 v0/v0 Degraded; n2 v0/v0",
            1,
            "n1",
            0,
        ),
        (
            "two degraded at an older config and room for one",
            "n1 v0/v0 Degraded; n2 v0/v0 Degraded; n3 v0/v0",
            1,
            "n1",
            0,
        ),
        (
            "a degraded node waits for the one that is on its way",
            "n1 v0/v1 Working; n2 v0/v0 Degraded",
            1,
            "",
            0,
        ),
        (
            "a degraded node waits while a foreign cordon takes the budget",
            "n1 v0/v0 cordoned; n2 v0/v0 Degraded",
            1,
            "",
            0,
        ),
        (
            "three degraded at an older config and room for two",
            "n1 v0/v0 Degraded; n2 v0/v0 Degraded; n3 v0/v0 Degraded; n4 v0/v0",
            2,
            "n1 n2",
            0,
        ),
        (
            "leaving layering, image never arrived",
            "n1 v1/v1 image=-/i; n2 v0/v0",
            1,
            "n1",
            0,
        ),
        (
            "leaving layering, image never arrived, working",
            "n1 v1/v1 image=-/i Working; n2 v0/v0",
            1,
            "n1",
            0,
        ),
        (
            "leaving layering under way",
            "n1 v1/v1 image=i/-; n2 v0/v0",
            1,
            "",
            0,
        ),
        (
            "leaving layering under way, working",
            "n1 v1/v1 image=i/- Working; n2 v0/v0",
            1,
            "",
            0,
        ),
        (
            "leaving layering starts",
            "n1 v1/v1 image=i/i; n2 v1/v1",
            1,
            "n1",
            1,
        ),
        (
            "no node is ever updated with a negative limit",
            "n1 v0/v0; n2 v0/v0",
            -1,
            "",
            0,
        ),
        ("more room than nodes", "n1 v0/v0; n2 v0/v0", 9, "n1 n2", 9),
        ("an empty pool", "", 1, "", 1),
    ];
    for (name, fleet, max, expected, free) in cases {
        let plan = plan_worker(
            &pool("worker", "v1", json!({"maxUnavailable": max})),
            &nodes(fleet),
        );
        assert_eq!(sent(&plan), expected, "{name}\n{plan}");
        assert_eq!(plan.budget.free(), free, "{name}\n{plan}");
        assert_eq!(
            plan.held.len() + plan.sent().count(),
            nodes(fleet).len(),
            "every node is sent or held: {name}\n{plan}"
        );
    }
}

#[test]
fn every_held_node_has_a_reason() {
    let fleet = "n1 v1/v1; n2 v0/v1 Working; n3 v0/v1 Degraded why=no-space; n4 v0/v0 cordoned; \
                 n5 v0/v0 NotReady; n6 v0/v0";
    let plan = plan_worker(&pool("worker", "v1", json!({})), &nodes(fleet));
    assert_eq!(
        held(&plan),
        "n1:upToDate n2:inProgress n3:failingOnTarget n4:cordoned n5:notReady n6:budget"
    );
    let taken: Vec<_> = plan
        .budget
        .taken
        .iter()
        .map(|taken| (taken.node.as_str(), taken.by))
        .collect();
    assert_eq!(
        taken,
        [
            ("n2", TakenBy::Update),
            ("n3", TakenBy::FailedUpdate),
            ("n4", TakenBy::Other),
            ("n5", TakenBy::Other)
        ]
    );
    let text = plan.to_string();
    for line in [
        "pool worker: MachineConfig v1",
        "node n3 fails on this config: no-space",
        "node n4 waits because it is cordoned",
        "node n5 waits until it is ready: node n5 is reporting NotReady=False",
        "node n6 waits for its turn",
    ] {
        assert!(text.contains(line), "{line:?} is missing in\n{text}");
    }
}

#[test]
fn why_a_node_is_sent() {
    let plan = plan_worker(
        &pool("worker", "v1", json!({"maxUnavailable": 3})),
        &nodes("n1 v0/v0.5 Degraded; n2 v0/v0.5 Working; n3 v0/v0"),
    );
    let because: Vec<Because> = plan
        .actions
        .iter()
        .filter_map(|action| match action {
            mco_core::rollout::NodeAction::SetDesired { because, .. } => Some(*because),
            _ => None,
        })
        .collect();
    assert_eq!(because, [Because::Repair, Because::Superseded, Because::Turn]);
}

#[test]
fn zone_by_zone_the_oldest_first_and_those_without_a_zone_last() {
    let fleet = "a v0/v0 age=1; b v0/v0 zone=ZZZ age=2; c v0/v0 zone=QQQ age=9; d v0/v0 zone=RRR age=4; \
                 e v0/v0 zone=QQQ age=3; f v0/v0 age=0; g v0/v0 zone=RRR age=4";
    let everyone = plan_worker(
        &pool("worker", "v1", json!({"maxUnavailable": "100%"})),
        &nodes(fleet),
    );
    assert_eq!(sent(&everyone), "e c d g b f a");
    let two = plan_worker(&pool("worker", "v1", json!({"maxUnavailable": 2})), &nodes(fleet));
    assert_eq!(sent(&two), "e c");
}

#[test]
fn pools_that_are_not_rolled_out() {
    let fleet = nodes("n1 v0/v0; n2 v0/v0.5 Degraded; n3 v1/v1 tainted; n4 v0/v1 Working");
    let mut deleted = pool("worker", "v1", json!({}));
    deleted.metadata.deletion_timestamp = Some(time(1));
    let cases = [
        (
            "paused",
            pool("worker", "v1", json!({"paused": true})),
            "n1:paused n2:paused n3:upToDate n4:inProgress",
            None,
        ),
        (
            "being deleted",
            deleted,
            "n1:poolIsBeingDeleted n2:poolIsBeingDeleted n3:upToDate n4:inProgress",
            None,
        ),
        (
            "nothing rendered",
            pool("worker", "", json!({})),
            "n1:noTarget n2:noTarget n3:noTarget n4:noTarget",
            None,
        ),
        (
            "a limit that cannot be read",
            pool("worker", "v1", json!({"maxUnavailable": "50 percent"})),
            "n1:problem n2:problem n3:upToDate n4:inProgress",
            Some(
                "MachineConfigPool worker: maxUnavailable: \"50 percent\" is neither a number nor a percentage like \"50%\"",
            ),
        ),
    ];
    for (name, pool, expected, problem) in cases {
        let plan = plan_worker(&pool, &fleet);
        assert_eq!(plan.sent().count(), 0, "{name}");
        let over = if name == "nothing rendered" {
            ""
        } else {
            "untaint:n3"
        };
        assert_eq!(chores(&plan), over, "{name}: only what is over is cleaned up");
        assert_eq!(held(&plan), expected, "{name}");
        assert_eq!(plan.problem.as_deref(), problem, "{name}");
        let observed: Vec<(&str, &str)> = plan
            .events
            .iter()
            .map(|event| (event.reason.as_str(), event.message.as_str()))
            .collect();
        let expected: Vec<_> = problem
            .map(|problem| ("FailedRollout", problem))
            .into_iter()
            .collect();
        assert_eq!(observed, expected, "{name}");
    }
}

#[test]
fn a_pool_that_selects_everything_selects_nothing_and_says_so() {
    let pool = pool("worker", "v1", json!({"nodeSelector": {}}));
    let plan = plan_worker(&pool, &nodes("n1 v0/v0"));
    assert_eq!(
        (plan.actions.as_slice(), plan.held.as_slice()),
        (&[][..], &[][..])
    );
    assert_eq!(plan.events[0].kind, PlannedEventKind::Warning);
    assert_eq!(plan.events[0].reason, "SelectingAll");
}

#[test]
fn a_broken_pool_and_a_contested_node_leave_the_others_alone() {
    let pools = [
        pool("worker", "v1", json!({"maxUnavailable": 5})),
        pool("infra", "v1", json!({})),
        pool("gpu", "v1", json!({})),
        pool(
            "odd",
            "v1",
            json!({"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}),
        ),
    ];
    let nodes =
        nodes("n1 v0/v0; n2 v0/v0 role=infra role=gpu; n3 v0/v0 role=worker role=infra; n4 v0/v0 role=other");
    let plan = plan(&RolloutView::new(&pools, &nodes));
    let sent_in = |pool: &str| sent(plan.pool(pool).unwrap());
    assert_eq!(
        ["worker", "infra", "gpu", "odd"].map(sent_in),
        ["n1", "n3", "", ""]
    );
    assert_eq!(
        plan.contested[0].to_string(),
        "node n2 belongs to 2 custom roles, cannot proceed with this Node"
    );
    assert_eq!(RolloutView::new(&pools, &nodes).unreadable_selectors().len(), 1);
}

#[test]
fn the_soft_taint_stays_from_the_first_wait_until_the_node_is_done() {
    let cases = [
        ("waits", "n1 v0/v0", -1, "taint:n1"),
        ("waits and has it", "n1 v0/v0 tainted", -1, ""),
        ("goes now", "n1 v0/v0", 1, "taint:n1"),
        ("works", "n1 v0/v1 Working tainted", 1, ""),
        ("fails", "n1 v0/v1 Degraded tainted", 1, ""),
        (
            "being updated and the taint was removed",
            "n1 v0/v1 Working",
            1,
            "",
        ),
        ("is done", "n1 v1/v1 tainted", 1, "untaint:n1"),
        ("is done and clean", "n1 v1/v1", 1, ""),
    ];
    for (name, fleet, max, expected) in cases {
        let plan = plan_worker(
            &pool("worker", "v1", json!({"maxUnavailable": max})),
            &nodes(fleet),
        );
        assert_eq!(chores(&plan), expected, "{name}");
    }
}

#[test]
fn events_name_the_targeted_nodes() {
    let message = |fleet: &str| {
        let plan = plan_worker(&pool("worker", "v1", json!({"maxUnavailable": 2})), &nodes(fleet));
        let events: Vec<_> = plan
            .events
            .iter()
            .map(|event| (event.reason.clone(), event.message.clone()))
            .collect();
        events
    };
    let event = |text: &str| vec![("SetDesiredConfig".to_owned(), text.to_owned())];
    assert_eq!(message("n1 v1/v1"), []);
    assert_eq!(
        message("n1 v0/v0"),
        event("Targeted node n1 to MachineConfig: v1")
    );
    assert_eq!(
        message("n1 v0/v0; n2 v0/v0; n3 v0/v0"),
        event("Set target for 2 nodes to MachineConfig: v1")
    );
}

#[test]
fn a_node_that_could_not_be_written_has_no_event() {
    let plan = plan_worker(
        &pool("worker", "v1", json!({"maxUnavailable": 2})),
        &nodes("n1 v0/v0; n2 v0/v0"),
    );
    let observed = |written: &[&str]| -> Vec<String> {
        let events = plan.events_after(|node| written.contains(&node));
        events.into_iter().map(|event| event.message).collect()
    };
    assert_eq!(
        observed(&["n1", "n2"]),
        ["Set target for 2 nodes to MachineConfig: v1"]
    );
    assert_eq!(observed(&["n2"]), ["Targeted node n2 to MachineConfig: v1"]);
    assert_eq!(observed(&[]), [""; 0]);
}

#[test]
fn a_plan_survives_being_written_down() {
    let pools = [pool("worker", "v1", json!({}))];
    let nodes = nodes("n1 v0/v0 cordoned; n2 v0/v0.5 Degraded; n3 v0/v0 role=infra; n4 v1/v1 tainted");
    let plan = plan(&RolloutView::new(&pools, &nodes).with_topology(Some("HighlyAvailable")));
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(
        serde_json::from_str::<mco_core::rollout::RolloutPlan>(&text).unwrap(),
        plan
    );
}

#[test]
fn a_node_installed_for_a_custom_pool_gets_its_labels_once() {
    let labels = json!({"matchLabels": {"node-role.kubernetes.io/infra": ""}});
    let one_value = json!({"matchExpressions": [
        {"key": "node-role.kubernetes.io/infra", "operator": "Exists"},
        {"key": "tier", "operator": "In", "values": ["a"]},
    ]});
    let two_values = json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}]});
    let cases = [
        (
            "from labels",
            labels.clone(),
            "n1 r/r first=r",
            "join-infra[node-role.kubernetes.io/infra=]:n1",
            "",
            "n1:joiningPool",
        ),
        (
            "from expressions",
            one_value,
            "n1 r/r first=r",
            "join-infra[node-role.kubernetes.io/infra=,tier=a]:n1",
            "",
            "n1:joiningPool",
        ),
        (
            "a selector that names no single value",
            two_values,
            "n1 r/r first=r",
            "",
            "n1",
            "",
        ),
        (
            "installed as something else",
            labels.clone(),
            "n1 r/r first=other",
            "",
            "n1",
            "",
        ),
        (
            "installed by an older version",
            labels.clone(),
            "n1 r/r",
            "",
            "n1",
            "",
        ),
        (
            "installed for a pool that is gone",
            labels.clone(),
            "n1 g/g first=g",
            "",
            "n1",
            "",
        ),
        (
            "another custom pool has it",
            labels.clone(),
            "n1 r/r first=r role=gpu",
            "",
            "",
            "",
        ),
        (
            "not ready yet",
            labels.clone(),
            "n1 r/r first=r NotReady",
            "",
            "",
            "n1:notReady",
        ),
    ];
    for (name, selector, fleet, chores_expected, sent_expected, held_expected) in cases {
        let pools = [
            pool("worker", "v1", json!({})),
            pool("gpu", "v1", json!({})),
            pool("infra", "v1", json!({"nodeSelector": selector})),
        ];
        let nodes = nodes(fleet);
        let view = RolloutView::new(&pools, &nodes).with_first_pivots([
            ("r", "infra"),
            ("other", "worker"),
            ("g", "gone"),
        ]);
        let plan = plan(&view);
        let worker = plan.pool("worker").unwrap();
        let joins: Vec<String> = chores(worker)
            .split(' ')
            .filter(|chore| chore.starts_with("join"))
            .map(str::to_owned)
            .collect();
        assert_eq!(joins.join(" "), chores_expected, "{name}");
        assert_eq!(sent(worker), sent_expected, "{name}");
        assert_eq!(held(worker), held_expected, "{name}");
    }
}

#[test]
fn a_node_whose_kubelet_sets_no_role_was_in_no_pool() {
    let pools = [
        pool("worker", "v1", json!({})),
        pool("master", "v1", json!({})),
        pool("gpu", "v1", json!({})),
        pool("infra", "v1", json!({})),
    ];
    for (name, fleet, expected) in [
        (
            "for a custom pool",
            "n1 r/r first=r role=other",
            "infra: join-infra[node-role.kubernetes.io/infra=]:n1",
        ),
        (
            "for the worker pool",
            "n1 w/w first=w role=other",
            "worker: join-worker[node-role.kubernetes.io/worker=]:n1",
        ),
        (
            "for the control plane, which an annotation must not give",
            "n1 m/m first=m role=other",
            "",
        ),
        ("by another version", "n1 r/r role=other", ""),
        ("for a pool that is gone", "n1 g/g first=g role=other", ""),
    ] {
        let nodes = nodes(fleet);
        let first = [("r", "infra"), ("w", "worker"), ("m", "master"), ("g", "gone")];
        let plan = plan(&RolloutView::new(&pools, &nodes).with_first_pivots(first));
        let joins: Vec<String> = plan
            .pools
            .iter()
            .filter(|pool| !pool.actions.is_empty())
            .map(|pool| format!("{}: {}", pool.pool, chores(pool)))
            .collect();
        assert_eq!(joins.join(" "), expected, "{name}");
    }
    let mut marked = nodes("n1 r/r first=r role=other");
    let annotations = marked[0].metadata.annotations.as_mut().unwrap();
    annotations.insert(key("customPoolLabelsApplied"), String::new());
    let plan = plan(&RolloutView::new(&pools, &marked).with_first_pivots([("r", "infra")]));
    assert!(
        plan.pools.iter().all(|pool| pool.actions.is_empty()),
        "its labels were removed since"
    );
}

#[test]
fn a_node_that_joined_or_was_marked_is_the_users_own() {
    let pools = [pool("worker", "v1", json!({})), pool("infra", "v1", json!({}))];
    let mut marked = nodes("n1 r/r first=r; n2 v1/v1 role=infra first=r");
    marked[0]
        .metadata
        .annotations
        .as_mut()
        .unwrap()
        .insert(key("customPoolLabelsApplied"), String::new());
    let plan = plan(&RolloutView::new(&pools, &marked).with_first_pivots([("r", "infra")]));
    assert_eq!(
        sent(plan.pool("worker").unwrap()),
        "n1",
        "marked: an ordinary member"
    );
    assert_eq!(
        chores(plan.pool("infra").unwrap()),
        "join-infra[]:n2",
        "there: only the mark is missing"
    );
}

#[test]
fn nothing_moves_and_the_plan_says_why() {
    let stalled = |fleet: &str| plan_worker(&pool("worker", "v1", json!({})), &nodes(fleet)).stalled();
    let cases = [
        ("all done", "n1 v1/v1", None),
        ("one moves", "n1 v0/v1 Working; n2 v0/v0", None),
        ("one goes", "n1 v0/v0", None),
        (
            "a cordon",
            "n1 v0/v0 cordoned; n2 v0/v0",
            Some("node n1 waits because it is cordoned"),
        ),
        (
            "a dead kubelet",
            "n1 v0/v0 NotReady; n2 v0/v0",
            Some("node n1 is reporting NotReady=False"),
        ),
        (
            "a failure",
            "n1 v0/v1 Degraded why=disk; n2 v0/v0",
            Some("node n1 fails on this config: disk"),
        ),
        (
            "an updated node that is away",
            "n1 v1/v1 NotReady; n2 v0/v0",
            Some("node n1 is reporting NotReady=False, though it is updated"),
        ),
        (
            "an updated cordoned node, and no node waits",
            "n1 v1/v1 cordoned; n2 v1/v1",
            Some("node n1 is reporting Unschedulable, though it is updated"),
        ),
        (
            "nodes that wait and hold a place are named after what they wait for",
            "n1 v0/v0 Degraded; n2 v0/v1 Degraded why=disk",
            Some("node n2 fails on this config: disk; node n1 waits for its turn and counts as unavailable"),
        ),
        (
            "many",
            "n1 v0/v0 cordoned; n2 v0/v0 cordoned; n3 v0/v0 cordoned; n4 v0/v0 cordoned; n5 v0/v0 cordoned",
            Some(
                "node n1 waits because it is cordoned; node n2 waits because it is cordoned; \
                 node n3 waits because it is cordoned; and 2 more",
            ),
        ),
    ];
    for (name, fleet, expected) in cases {
        assert_eq!(stalled(fleet).as_deref(), expected, "{name}");
    }
}

#[test]
fn a_held_node_reads_as_a_sentence() {
    for reason in [
        HeldReason::Paused,
        HeldReason::OperatorNode,
        HeldReason::AfterControlPlane,
    ] {
        let text = reason.to_string();
        assert!(
            text.starts_with(char::is_lowercase) && !text.ends_with('.'),
            "{text}"
        );
    }
}
