//! The status of a pool.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Node;
use mco_api::machine_config_pool::MachineConfigPoolStatus;
use mco_api::vocabulary::conditions::pool as condition;
use mco_api::{MachineConfigNode, MachineConfigPool};
use mco_core::rollout::image_mode_status::{ImageModeStatus, desired_image, is_updated_to};
use mco_core::rollout::pool_status::{PoolStatusInputs, PoolStatusReport, RenderOutcome, report};
use mco_core::rollout::{RolloutTarget, RolloutView, TargetState, plan};
use serde_json::{Value, json};

use crate::fixtures::*;
use crate::layered::{build, config};

fn report_with(pool: &MachineConfigPool, nodes: &[Node], inputs: &PoolStatusInputs<'_>) -> PoolStatusReport {
    report(
        RolloutView::new([pool], nodes).pool("worker").unwrap(),
        inputs,
        &time(1),
    )
}

fn status_of(pool: &MachineConfigPool, nodes: &[Node]) -> MachineConfigPoolStatus {
    report_with(pool, nodes, &PoolStatusInputs::default()).status
}

fn said(status: &MachineConfigPoolStatus, type_: &str) -> String {
    let condition =
        condition::find(&status.conditions, type_).unwrap_or_else(|| panic!("{type_} is missing"));
    format!("{} {}", condition.status, condition.message)
        .trim_end()
        .to_owned()
}

#[test]
fn counts_and_progress_of_three_machines() {
    // machines: total, updated, ready, unavailable, degraded; then Updated, Updating, Degraded
    let updating = "True All nodes are updating to MachineConfig v1";
    let cases = [
        (
            "none has begun",
            "a v0/v0; b v0/v0; c v0/v0",
            false,
            [3, 0, 0, 0, 0],
            "False",
            updating,
        ),
        (
            "one is under way",
            "a v0/v1; b v0/v0; c v0/v0",
            false,
            [3, 0, 0, 1, 0],
            "False",
            updating,
        ),
        (
            "one has arrived",
            "a v1/v1; b v0/v0; c v0/v0",
            false,
            [3, 1, 1, 0, 0],
            "False",
            updating,
        ),
        (
            "all have arrived",
            "a v1/v1; b v1/v1; c v1/v1",
            false,
            [3, 3, 3, 0, 0],
            "True All nodes are updated with MachineConfig v1",
            "False",
        ),
        (
            "one has arrived and is not ready",
            "a v1/v1 NotReady; b v0/v0; c v0/v0",
            false,
            [3, 1, 0, 1, 0],
            "False",
            updating,
        ),
        (
            "paused",
            "a v0/v0; b v0/v0; c v0/v0",
            true,
            [3, 0, 0, 0, 0],
            "False",
            "False Pool is paused; will not update to MachineConfig v1",
        ),
        (
            "paused and done",
            "a v1/v1; b v1/v1; c v1/v1",
            true,
            [3, 3, 3, 0, 0],
            "True All nodes are updated with MachineConfig v1",
            "False",
        ),
        (
            "one failed on the way",
            "a v0/v1 Degraded; b v0/v0; c v0/v0",
            false,
            [3, 0, 0, 0, 1],
            "False",
            updating,
        ),
        (
            "one cannot get there",
            "a v0/v1 Unreconcilable; b v0/v0; c v0/v0",
            false,
            [3, 0, 0, 0, 1],
            "False",
            updating,
        ),
        (
            "one drifted",
            "a v1/v1 Degraded; b v1/v1; c v1/v1",
            false,
            [3, 2, 2, 1, 1],
            "False",
            updating,
        ),
        (
            "all have an image they should not",
            "a v1/v1 image=i/i; b v1/v1; c v1/v1",
            false,
            [3, 2, 2, 0, 0],
            "False",
            updating,
        ),
        (
            "no machines",
            "",
            false,
            [0, 0, 0, 0, 0],
            "True All nodes are updated with MachineConfig v1",
            "False",
        ),
    ];
    for (name, fleet, paused, counts, updated, is_updating) in cases {
        let status = status_of(&pool("worker", "v1", json!({"paused": paused})), &nodes(fleet));
        let actual = [
            status.machine_count,
            status.updated_machine_count,
            status.ready_machine_count,
            status.unavailable_machine_count,
            status.degraded_machine_count,
        ];
        assert_eq!(actual, counts, "{name}");
        assert_eq!(said(&status, "Updated"), updated, "{name}");
        assert_eq!(said(&status, "Updating"), is_updating, "{name}");
        assert_eq!(
            said(&status, "Degraded").starts_with("True"),
            counts[4] > 0,
            "{name}"
        );
        assert_eq!(status.observed_generation, 7, "{name}");
    }
}

#[test]
fn the_configuration_is_the_last_one_that_every_node_reached() {
    let mut pool = pool("worker", "v1", json!({}));
    pool.status = Some(from(json!({"configuration": {"name": "v0"}})));
    let name = |report: &PoolStatusReport| report.status.configuration.reference.name.clone().unwrap();
    let under_way = report_with(&pool, &nodes("a v1/v1; b v0/v0"), &PoolStatusInputs::default());
    assert_eq!(name(&under_way), "v0");
    let done = report_with(&pool, &nodes("a v1/v1; b v1/v1"), &PoolStatusInputs::default());
    assert_eq!(name(&done), "v1");
    assert_eq!(done.events[0].reason, "Completed");
    assert_eq!(
        done.events[0].message,
        "Pool worker has completed update to MachineConfig v1"
    );
    pool.status = Some(done.status);
    let again = report_with(&pool, &nodes("a v1/v1; b v1/v1"), &PoolStatusInputs::default());
    assert!(!again.changed, "nothing new, nothing to write");
    assert_eq!(again.events, []);
}

#[test]
fn the_blocker_of_a_drain_is_also_reported_after_its_timeout() {
    let pool = pool("worker", "v1", json!({}));
    let timeout = "failed to drain node: a after 1 hour. Please see machine-config-controller logs for more information";
    let obstacle = "pod shop/db-0 (budget shop/db allows 0 disruptions)";
    let updating = |reason: &str| {
        let mut nodes = nodes("a v0/v1 cordoned-by-us Degraded; b v1/v1");
        let record =
            json!({"request": "drain-v1", "since": time(1), "cordon": "made", "waitingFor": obstacle});
        let annotations = nodes[0].metadata.annotations.get_or_insert_default();
        annotations.insert(key("reason"), reason.to_owned());
        annotations.insert(key("desiredDrain"), "drain-v1".to_owned());
        annotations.insert(key("drain-record"), record.to_string());
        let view = RolloutView::new([&pool], &nodes);
        let plans = plan(&view);
        let inputs = PoolStatusInputs {
            plan: plans.pools.first(),
            ..PoolStatusInputs::default()
        };
        said(
            &report(view.pool("worker").unwrap(), &inputs, &time(1)).status,
            "Updating",
        )
    };
    let observed = format!(
        "True All nodes are updating to MachineConfig v1. Nothing moves: node a fails on this config: {timeout}; the drain \
         waits for {obstacle}"
    );
    assert_eq!(updating(timeout), observed, "by a daemon that does not say");
    assert_eq!(
        updating(&format!("{timeout}; the drain waits for {obstacle}")),
        observed
    );
}

#[test]
fn a_new_target_is_reported_once() {
    let mut pool = pool("worker", "v1", json!({}));
    pool.status = Some(from(json!({"configuration": {"name": "v0"}})));
    let observed = |pool: &MachineConfigPool, machines: &str| {
        let report = report_with(pool, &nodes(machines), &PoolStatusInputs::default());
        let observed: Vec<String> = report
            .events
            .iter()
            .map(|event| format!("{} {}", event.reason, event.message))
            .collect();
        (report.status, observed.join("; "))
    };
    let targeting = |target: &str| format!("Updating Pool worker now targeting MachineConfig {target}");
    let (status, news) = observed(&pool, "a v0/v0; b v0/v0");
    assert_eq!(news, targeting("v1"));
    pool.status = Some(status);
    for machines in ["a v0/v0; b v0/v0", "a v0/v1; b v0/v0", "a v1/v1; b v0/v1"] {
        let (status, news) = observed(&pool, machines);
        assert_eq!(news, "", "{machines}");
        pool.status = Some(status);
    }
    pool.spec.configuration.reference.name = Some("v2".to_owned());
    let (status, news) = observed(&pool, "a v1/v1; b v0/v1");
    assert_eq!(news, targeting("v2"), "another target on the way");
    pool.status = Some(status);
    let (status, news) = observed(&pool, "a v2/v2; b v2/v2");
    assert_eq!(
        news,
        "Completed Pool worker has completed update to MachineConfig v2"
    );
    pool.status = Some(status);
    let (_, news) = observed(&pool, "a v2/v2; b v2/v2 NotReady");
    assert_eq!(news, "", "a machine that is not well is no new target");

    let mut paused = pool.clone();
    paused.spec.paused = true;
    paused.spec.configuration.reference.name = Some("v3".to_owned());
    assert_eq!(
        observed(&paused, "a v2/v2").1,
        "",
        "nothing moves in a paused pool"
    );
    paused.spec.paused = false;
    assert_eq!(observed(&paused, "a v2/v2").1, targeting("v3"));
}

#[test]
fn a_pool_without_a_target_or_that_selects_everything_keeps_its_status() {
    for pool in [
        pool("worker", "", json!({})),
        pool("worker", "v1", json!({"nodeSelector": {}})),
    ] {
        assert!(!report_with(&pool, &nodes("a v0/v0"), &PoolStatusInputs::default()).changed);
    }
}

#[test]
fn a_failed_render_degrades_the_pool_even_before_its_first_target_and_a_good_one_heals_it() {
    let failed = PoolStatusInputs {
        render: Some(RenderOutcome::Failed("MachineConfig \"x\": bad")),
        ..PoolStatusInputs::default()
    };
    let why = "True Failed to render configuration for pool worker: MachineConfig \"x\": bad";
    for target in ["", "v1"] {
        let mut pool = pool("worker", target, json!({}));
        let first = report_with(&pool, &nodes("a v1/v1"), &failed);
        assert!(first.changed);
        assert_eq!(said(&first.status, "RenderDegraded"), why);
        assert_eq!(said(&first.status, "Degraded"), why);
        pool.status = Some(first.status);
        assert!(
            !report_with(&pool, &nodes("a v1/v1"), &failed).changed,
            "said once"
        );
        let silent = report_with(&pool, &nodes("a v1/v1"), &PoolStatusInputs::default());
        assert_eq!(
            said(&silent.status, "RenderDegraded"),
            why,
            "an undetermined outcome changes nothing"
        );
        let healed = PoolStatusInputs {
            render: Some(RenderOutcome::Rendered),
            ..PoolStatusInputs::default()
        };
        let second = report_with(&pool, &nodes("a v1/v1"), &healed);
        assert!(second.changed);
        assert_eq!(said(&second.status, "RenderDegraded"), "False");
        assert_eq!(said(&second.status, "Degraded"), "False");
    }
}

#[test]
fn degraded_nodes_are_counted_and_quoted_from_one_list() {
    let shown = |node: &str, message: &str| -> MachineConfigNode {
        let condition = json!({"type": "NodeDegraded", "status": "True", "reason": "r", "message": message, "lastTransitionTime": time(0)});
        from(json!({"metadata": {"name": node}, "status": {"conditions": [condition]}}))
    };
    let (of_a, silent, of_e): (_, MachineConfigNode, _) = (
        shown("a", "Node a upgrade failure. disk"),
        from(json!({"metadata": {"name": "b"}})),
        shown("e", "full"),
    );
    let inputs = PoolStatusInputs {
        machine_config_nodes: HashMap::from([("a", &of_a), ("b", &silent), ("e", &of_e)]),
        ..PoolStatusInputs::default()
    };
    let fleet = nodes(
        "a v0/v1 Degraded why=disk; b v0/v1 Degraded why=\"quoted\"; c v0/v1 Unreconcilable; d v1/v1; e v0/v1 Degraded why=full",
    );
    let status = report_with(&pool("worker", "v1", json!({})), &fleet, &inputs).status;
    let degraded = condition::find(&status.conditions, condition::NODE_DEGRADED).unwrap();
    assert_eq!(degraded.reason, "4 nodes are reporting degraded status on sync");
    let expected = r#"Node a is reporting: "Node a upgrade failure. disk", Node e is reporting: "full", Node a is reporting: "disk", Node b is reporting: "\"quoted\"", Node c is reporting: "Unreconcilable""#;
    assert_eq!(degraded.message, expected);
    assert_eq!(said(&status, "Degraded"), format!("True {expected}"));
}

/// Four hundred times two thousand characters, twice, exceed the size limit of the API server.
#[test]
fn however_many_nodes_fail_a_status_stays_small() {
    let why = "x".repeat(2_000);
    let fleet: Vec<String> = (100..520)
        .map(|index| format!("n{index} v0/v1 Degraded why={why}"))
        .collect();
    let status = report_with(
        &pool("worker", "v1", json!({})),
        &nodes(&fleet.join("; ")),
        &PoolStatusInputs::default(),
    )
    .status;
    let degraded = condition::find(&status.conditions, condition::NODE_DEGRADED).unwrap();
    assert_eq!(degraded.reason, "420 nodes are reporting degraded status on sync");
    assert!(degraded.message.starts_with("Node n100 is reporting: \"xxx"));
    assert!(degraded.message.ends_with(", and 410 more nodes"));
    assert!(degraded.message.len() < 30_000);
}

#[test]
fn a_pool_is_degraded_when_any_part_of_it_is_and_says_which() {
    let cases = [
        ("nothing", json!([]), "v1/v1", "False"),
        (
            "rendering",
            json!([(
                "RenderDegraded",
                "Failed to render configuration for pool worker: x"
            )]),
            "v1/v1",
            "True Failed to render configuration for pool worker: x",
        ),
        (
            "images",
            json!([("ImageBuildDegraded", "m")]),
            "v1/v1",
            "True Custom OS image build failed",
        ),
        (
            "pinned images are not a part of it",
            json!([("PinnedImageSetsDegraded", "m")]),
            "v1/v1",
            "False",
        ),
        (
            "a node comes first",
            json!([("RenderDegraded", "m")]),
            "v0/v1 Degraded why=disk",
            "True Node a is reporting: \"disk\"",
        ),
    ];
    for (name, conditions, node, expected) in cases {
        let mut pool = pool("worker", "v1", json!({}));
        let conditions: Vec<Value> = conditions
            .as_array()
            .unwrap()
            .iter()
            .map(|condition| json!({"type": condition[0], "status": "True", "message": condition[1], "reason": ""}))
            .collect();
        pool.status = Some(from(json!({"conditions": conditions})));
        let (configs, builds) = ([config("i", None)], [build("b", "v1", "Failed", "")]);
        let nodes = nodes(&format!("a {node}"));
        let mut view = RolloutView::new([&pool], &nodes);
        if name == "images" {
            // Without a failed build the failure would be outdated.
            view = view.with_images(&configs, &builds);
        }
        let report = report(
            view.pool("worker").unwrap(),
            &PoolStatusInputs::default(),
            &time(1),
        );
        assert_eq!(said(&report.status, "Degraded"), expected, "{name}");
    }
}

#[test]
fn when_nothing_moves_updating_says_why() {
    let pool = pool("worker", "v1", json!({}));
    let fleet = nodes("a v0/v0 cordoned; b v0/v0");
    let view = RolloutView::new([&pool], &fleet);
    let plan = plan(&view);
    let inputs = PoolStatusInputs {
        plan: plan.pool("worker"),
        ..PoolStatusInputs::default()
    };
    let status = report(view.pool("worker").unwrap(), &inputs, &time(1)).status;
    assert_eq!(
        said(&status, "Updating"),
        "True All nodes are updating to MachineConfig v1. Nothing moves: node a waits because it is cordoned"
    );
}

/// The operator degraded the cluster ten minutes per node after the first of several configs had been rendered, although
/// a hold had kept the nodes back or another config had followed.
#[test]
fn the_time_of_an_update_counted_holds_and_earlier_configs() {
    let mut pool = pool("worker", "v1", json!({}));
    let hold = |line: &str| {
        let mut node = node(line);
        let annotations = node.metadata.annotations.get_or_insert_default();
        annotations.insert("mco.dev/hold.storage".to_owned(), "rebalancing".to_owned());
        node
    };
    let mut observed = |target: &str, fleet: &[Node], now: i64| {
        pool.spec.configuration.reference.name = Some(target.to_owned());
        let view = RolloutView::new([&pool], fleet);
        let plan = plan(&view);
        let inputs = PoolStatusInputs {
            plan: plan.pool("worker"),
            ..PoolStatusInputs::default()
        };
        let status = report(view.pool("worker").unwrap(), &inputs, &time(now)).status;
        let updating = condition::find(&status.conditions, condition::UPDATING).unwrap();
        let found = (
            updating.reason.clone(),
            updating.last_transition_time.clone().unwrap(),
        );
        pool.status = Some(status);
        (found.0, found.1.0.as_second() - at(0).as_second())
    };
    let held = |since| ("RolloutHeld".to_owned(), since);
    let free = |since| (String::new(), since);
    let both = [hold("a v0/v0"), hold("b v0/v0")];
    assert_eq!(observed("v1", &both, 1), held(1));
    assert_eq!(observed("v1", &both, 50), held(1), "nothing has changed");
    let one = [node("a v0/v1 Working"), hold("b v0/v0")];
    assert_eq!(
        observed("v1", &one, 100),
        free(100),
        "the hold of one node has ended"
    );
    assert_eq!(observed("v1", &one, 150), free(100));
    let failed = [node("a v0/v1 Degraded"), hold("b v0/v0")];
    assert_eq!(
        observed("v1", &failed, 160),
        free(100),
        "a hold excuses no failure"
    );
    assert_eq!(observed("v2", &one, 200), free(200), "a second config");
    let last = [node("a v2/v2"), hold("b v0/v0")];
    assert_eq!(observed("v2", &last, 300), held(200));
    let cordoned = [node("a v2/v2"), node("b v0/v0 cordoned")];
    assert_eq!(observed("v2", &cordoned, 400), free(400), "a cordon is no hold");
}

#[test]
fn an_updated_unschedulable_node_is_named_though_no_node_waits() {
    let pool = pool("worker", "v1", json!({}));
    let fleet = nodes("a v1/v1 cordoned; b v1/v1");
    let view = RolloutView::new([&pool], &fleet);
    let plan = plan(&view);
    let inputs = PoolStatusInputs {
        plan: plan.pool("worker"),
        ..PoolStatusInputs::default()
    };
    let status = report(view.pool("worker").unwrap(), &inputs, &time(1)).status;
    assert_eq!(said(&status, "Updated"), "False");
    assert_eq!(
        said(&status, "Updating"),
        "True All nodes are updating to MachineConfig v1. Nothing moves: node a is reporting Unschedulable, though it is \
         updated"
    );
}

#[test]
fn a_limit_that_allows_no_update_is_named() {
    for (limit, complaint) in [
        (
            json!("abc"),
            "\"abc\" is neither a number nor a percentage like \"50%\"",
        ),
        (json!(-1), "-1 is negative, so no node is ever updated"),
        (json!("-50%"), "\"-50%\" is negative, so no node is ever updated"),
    ] {
        let pool = pool("worker", "v1", json!({"maxUnavailable": limit}));
        let fleet = nodes("a v0/v0; b v0/v0");
        let view = RolloutView::new([&pool], &fleet);
        let plan = plan(&view);
        let inputs = PoolStatusInputs {
            plan: plan.pool("worker"),
            ..PoolStatusInputs::default()
        };
        let status = report(view.pool("worker").unwrap(), &inputs, &time(1)).status;
        assert_eq!(
            said(&status, "Updating"),
            format!(
                "True All nodes are updating to MachineConfig v1. Nothing moves: MachineConfigPool worker: \
                 maxUnavailable: {complaint}"
            )
        );
    }
}

#[test]
fn a_blocked_drain_is_named_until_it_is_over() {
    let pool = pool("worker", "v1", json!({}));
    let mut fleet = nodes("a v0/v1 cordoned; b v0/v0");
    let record = json!({"request": "drain-v1", "since": at(0), "cordon": "made",
        "waitingFor": "pod shop/db-0 (budget shop/db allows 0 disruptions)"});
    let annotations = fleet[0].metadata.annotations.get_or_insert_default();
    annotations.insert(key("drain-record"), record.to_string());
    annotations.insert(key("desiredDrain"), "drain-v1".to_owned());
    let updating = |fleet: &[Node]| {
        let view = RolloutView::new([&pool], fleet);
        let plan = plan(&view);
        let inputs = PoolStatusInputs {
            plan: plan.pool("worker"),
            ..PoolStatusInputs::default()
        };
        said(
            &report(view.pool("worker").unwrap(), &inputs, &time(1)).status,
            "Updating",
        )
    };
    assert_eq!(
        updating(&fleet),
        "True All nodes are updating to MachineConfig v1. Nothing moves: node a waits for pod shop/db-0 (budget shop/db \
         allows 0 disruptions)"
    );
    let annotations = fleet[0].metadata.annotations.get_or_insert_default();
    annotations.insert(key("lastAppliedDrain"), "drain-v1".to_owned());
    assert_eq!(
        updating(&fleet),
        "True All nodes are updating to MachineConfig v1"
    );
}

#[test]
fn conditions_keep_their_time_until_they_turn() {
    let mut pool = pool("worker", "v1", json!({}));
    pool.status = Some(status_of(&pool, &nodes("a v0/v0")));
    let view_nodes = nodes("a v1/v1");
    let view = RolloutView::new([&pool], &view_nodes);
    let later = report(
        view.pool("worker").unwrap(),
        &PoolStatusInputs::default(),
        &time(9),
    )
    .status;
    let since = |type_| {
        condition::find(&later.conditions, type_)
            .unwrap()
            .last_transition_time
            .clone()
            .unwrap()
    };
    assert_eq!(since("Updated"), time(9));
    assert_eq!(since("Degraded"), time(1));
}

#[test]
fn certificates_and_pinned_images_are_shown() {
    let certificates: Vec<_> = [("KubeAPIServerServingCAData", "CN=a"), ("RootCAData", "CN=b")]
        .map(|(bundle, subject)| {
            from(json!({"bundleFile": bundle, "subject": subject, "signer": "s", "notAfter": time(5)}))
        })
        .into();
    let set = |desired: Option<i32>, current: Option<i32>| json!({"name": "s", "desiredGeneration": desired, "currentGeneration": current});
    let pinned = |name: &str, sets: Value| -> MachineConfigNode {
        from(json!({"metadata": {"name": name}, "status": {"pinnedImageSets": sets}}))
    };
    let keepers = [
        pinned("a", json!([set(Some(2), Some(2))])),
        pinned("b", json!([set(Some(2), Some(1))])),
        pinned("c", json!([])),
        pinned("elsewhere", json!([])),
    ];
    let inputs = PoolStatusInputs {
        certificates: &certificates,
        machine_config_nodes: keepers
            .iter()
            .map(|node| (node.metadata.name.as_deref().unwrap(), node))
            .collect(),
        os_image_stream: Some("rhel-9"),
        ..PoolStatusInputs::default()
    };
    let status = report_with(
        &pool("worker", "v1", json!({})),
        &nodes("a v1/v1; b v1/v1; c v1/v1 NotReady"),
        &inputs,
    )
    .status;
    assert_eq!(
        serde_json::to_value(&status.cert_expirys).unwrap(),
        json!([{"bundle": "KubeAPIServerServingCAData", "subject": "CN=a", "expiry": time(5)}])
    );
    let pins = &status.pool_synchronizers_status;
    assert_eq!(pins.len(), 1);
    assert_eq!(
        [
            pins[0].machine_count,
            pins[0].updated_machine_count,
            pins[0].ready_machine_count,
            pins[0].unavailable_machine_count,
            pins[0].available_machine_count
        ],
        [3, 2, 2, 1, 2]
    );
    assert_eq!(status.os_image_stream, None, "not before all have arrived");
    let done = report_with(&pool("worker", "v1", json!({})), &nodes("a v1/v1"), &inputs).status;
    assert_eq!(done.os_image_stream.unwrap().name, "rhel-9");
}

#[test]
fn undetermined_pinned_image_sets_are_reported_and_do_not_degrade_the_pool() {
    let fleet = nodes("a v1/v1");
    let report_after = |before: &MachineConfigPool, outcome| {
        let inputs = PoolStatusInputs {
            pinned_images: outcome,
            ..PoolStatusInputs::default()
        };
        report_with(before, &fleet, &inputs).status
    };
    let shown = |status: &MachineConfigPoolStatus| {
        let pinned = condition::find(&status.conditions, "PinnedImageSetsDegraded")?;
        Some((pinned.status.clone(), pinned.message.clone()))
    };
    let mut pool = pool("worker", "v1", json!({}));
    let silent = report_after(&pool, None);
    assert_eq!(shown(&silent), None);
    let failed = report_after(&pool, Some(Err("too many")));
    let observed = "Failed to populate pinned image sets for pool worker: too many";
    assert_eq!(shown(&failed), Some(("True".to_owned(), observed.to_owned())));
    assert!(!condition::holds(&failed.conditions, "Degraded"));
    pool.status = Some(failed);
    assert_eq!(
        shown(&report_after(&pool, None)),
        Some(("True".to_owned(), observed.to_owned())),
        "it stays until another outcome is reported"
    );
    let well = report_after(&pool, Some(Ok(())));
    assert_eq!(shown(&well), Some(("False".to_owned(), String::new())));
    pool.spec.configuration.reference.name = None;
    pool.status = None;
    let early = report_after(&pool, Some(Err("too many")));
    assert_eq!(
        shown(&early),
        Some(("True".to_owned(), observed.to_owned())),
        "before the first render too"
    );
}

#[test]
fn an_interrupted_build_is_reported_until_another_one_starts() {
    let mut pool = pool("worker", "v1", json!({}));
    let (configs, nodes) = ([config("i", None)], nodes("a v0/v0 image=h/h"));
    let mut after = |state: &str| {
        let builds = [build("b", "v1", state, "i")];
        let view = RolloutView::new([&pool], &nodes).with_images(&configs, &builds);
        let status = report(
            view.pool("worker").unwrap(),
            &PoolStatusInputs::default(),
            &time(1),
        )
        .status;
        pool.status = Some(status.clone());
        let observed = condition::find(&status.conditions, "BuildInterrupted");
        observed.map(|observed| format!("{} {} {}", observed.status, observed.reason, observed.message))
    };
    assert_eq!(after("Building"), None, "nothing to report");
    let interrupted = Some("True BuildInterrupted OS image build b was interrupted".to_owned());
    assert_eq!(after("Interrupted"), interrupted);
    assert_eq!(after("Building"), Some("False  ".to_owned()));
}

#[test]
fn in_a_layered_pool_the_image_says_how_far_it_is() {
    let cases = [
        (
            "None",
            "True Pool is waiting for a new OS image build to start (mosc: worker)",
            "True Pool is paused; waiting for a new OS image build to start (mosc: worker)",
        ),
        (
            "Prepared",
            "True Pool is waiting for OS image build to start (mosb: b)",
            "True Pool is paused; OS image build has been prepared but will not rollout (mosb: b)",
        ),
        (
            "Building",
            "True Pool is waiting for OS image build to complete (mosb: b)",
            "True Pool is paused; OS image build in progress (mosb: b)",
        ),
        (
            "Succeeded",
            "True Pool is waiting for nodes to apply OS image (mosb: b)",
            "False Pool is paused; OS image build completed successfully (mosb: b)",
        ),
        (
            "Failed",
            "False Pool update stopped due to OS image build failure (mosb: b)",
            "False Pool is paused; OS image build failed (mosb: b)",
        ),
        (
            "Interrupted",
            "False Pool update stopped due to OS image build being interrupted (mosb: b)",
            "False Pool is paused; OS image build was interrupted (mosb: b)",
        ),
        (
            "New",
            "True Pool is waiting for OS image build to start (mosb: b)",
            "True Pool is paused; OS image build has been created but not yet started (mosb: b)",
        ),
    ];
    let said_with = |state: &str, paused: bool, fleet: &str, before: Value| {
        let mut pool = pool("worker", "v1", json!({"paused": paused}));
        pool.status = Some(from(json!({"conditions": before})));
        let (configs, nodes) = ([config("i", None)], nodes(fleet));
        let builds: Vec<_> = (state != "None")
            .then(|| build("b", "v1", state, "i"))
            .into_iter()
            .collect();
        let view = RolloutView::new([&pool], &nodes).with_images(&configs, &builds);
        let status = report(
            view.pool("worker").unwrap(),
            &PoolStatusInputs::default(),
            &time(1),
        )
        .status;
        (said(&status, "Updating"), said(&status, "Updated"))
    };
    for (state, running, paused) in cases {
        assert_eq!(
            said_with(state, false, "a v0/v0 image=h/h", json!([])).0,
            running,
            "{state}"
        );
        assert_eq!(
            said_with(state, true, "a v0/v0 image=h/h", json!([])).0,
            paused,
            "{state} and paused"
        );
    }
    assert_eq!(
        said_with("Succeeded", false, "a v1/v1 image=i/i", json!([])),
        (
            "False".to_owned(),
            "True All nodes are updated with MachineConfig v1 / Image i".to_owned()
        )
    );
    assert_eq!(
        said_with("Building", false, "a v1/v1 image=i/i", json!([])).1,
        "False",
        "built again"
    );
    let broken = json!([{"type": "RenderDegraded", "status": "True"}]);
    assert_eq!(
        said_with("Building", false, "a v0/v0", broken).0,
        "False Pool update paused due to degraded condition (mosb: b)"
    );
}

#[test]
fn a_build_failure_that_is_history_is_cleared() {
    let cases = [
        ("Building", true, "False Building New build started"),
        ("Prepared", true, "False Building New build started"),
        (
            "Succeeded",
            true,
            "False BuildSuccess Build completed successfully",
        ),
        ("Failed", true, "True BuildFailed m"),
        (
            "None",
            true,
            "False BuildPending MachineOSConfig updated/created, waiting for MachineOSBuild",
        ),
        (
            "None",
            false,
            "False NoLayeredObjects No layered pool objects found, clearing stale build degraded condition",
        ),
    ];
    for (state, layered, expected) in cases {
        let mut pool = pool("worker", "v1", json!({}));
        let failed =
            json!({"type": "ImageBuildDegraded", "status": "True", "reason": "BuildFailed", "message": "m"});
        pool.status = Some(from(json!({"conditions": [failed]})));
        let configs: Vec<_> = layered.then(|| config("i", None)).into_iter().collect();
        let builds: Vec<_> = (state != "None")
            .then(|| build("b", "v1", state, "i"))
            .into_iter()
            .collect();
        let view = RolloutView::new([&pool], &[]).with_images(&configs, &builds);
        let status = report(
            view.pool("worker").unwrap(),
            &PoolStatusInputs::default(),
            &time(1),
        )
        .status;
        let found = condition::find(&status.conditions, condition::IMAGE_BUILD_DEGRADED).unwrap();
        assert_eq!(
            format!("{} {} {}", found.status, found.reason, found.message),
            expected,
            "{state} {layered}"
        );
    }
}

#[test]
fn a_failed_build_degrades_its_pool() {
    let pool = pool("worker", "v1", json!({}));
    let (configs, builds) = ([config("i", None)], [build("b", "v1", "Failed", "i")]);
    let view = RolloutView::new([&pool], &[]).with_images(&configs, &builds);
    let status = report(
        view.pool("worker").unwrap(),
        &PoolStatusInputs::default(),
        &time(1),
    )
    .status;
    let found = condition::find(&status.conditions, condition::IMAGE_BUILD_DEGRADED).unwrap();
    assert_eq!(
        format!("{} {} {}", found.status, found.reason, found.message),
        "True BuildFailed Failed to build OS image for pool worker (MachineOSBuild: b): Failed: Build Failed"
    );
    assert!(condition::holds(&status.conditions, condition::DEGRADED));
}

#[test]
fn a_pool_with_a_foreign_target_updates_no_node_and_counts_only_once_rendering_has_failed() {
    let pool = pool("worker", "rendered-other", json!({}));
    let nodes = nodes("a v0/v0; b v0/rendered-other Working tainted");
    let view = RolloutView::new([&pool], &nodes).with_target_state("worker", TargetState::NotOurs);
    let plan = plan(&view);
    let plan = plan.pool("worker").unwrap();
    assert_eq!(plan.actions, []);
    assert_eq!(held(plan), "a:foreignTarget b:foreignTarget");
    let report_of = |render| {
        let inputs = PoolStatusInputs {
            plan: Some(plan),
            render,
            ..PoolStatusInputs::default()
        };
        report(view.pool("worker").unwrap(), &inputs, &time(1))
    };
    assert!(!report_of(None).changed, "it is about to be rendered");
    let counted = report_of(Some(RenderOutcome::Failed("99-bad"))).status;
    assert_eq!(
        said(&counted, condition::RENDER_DEGRADED),
        "True Failed to render configuration for pool worker: 99-bad"
    );
    assert_eq!(
        said(&counted, condition::DEGRADED),
        said(&counted, condition::RENDER_DEGRADED)
    );
    assert_eq!((counted.machine_count, counted.updated_machine_count), (2, 0));
    assert_eq!(counted.observed_generation, 7);
    assert_eq!(condition::find(&counted.conditions, condition::UPDATED), None);
}

/// The feature gate `ImageModeStatusReporting`.
#[test]
fn with_the_gate_nodes_are_counted_by_what_their_machine_config_nodes_report() {
    let digest = "a".repeat(64);
    let image = format!("registry.example.com/os@sha256:{digest}");
    let object = |name: &str,
                  updated: &str,
                  degraded: &str,
                  config: &str,
                  image: Option<&str>|
     -> MachineConfigNode {
        let condition = |type_: &str, status: &str| {
            json!({"type": type_, "status": status, "reason": "x", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"node": {"name": name}, "pool": {"name": "worker"}, "configVersion": {"desired": config}},
            "status": {
                "conditions": [condition("Updated", updated), condition("NodeDegraded", degraded)],
                "configVersion": {"current": config, "desired": config},
                "configImage": image.map(|image| json!({"desiredImage": image})),
            },
        }))
        .unwrap()
    };
    let pool = pool("worker", "v1", json!({}));
    let nodes = nodes("a v1/v1; b v1/v1; c v1/v1");
    let counted = |objects: &[MachineConfigNode], mode| {
        let by_name = objects
            .iter()
            .map(|object| (object.metadata.name.as_deref().unwrap(), object));
        let inputs = PoolStatusInputs {
            machine_config_nodes: by_name.collect(),
            image_mode_status: mode,
            ..PoolStatusInputs::default()
        };
        let status = report_with(&pool, &nodes, &inputs).status;
        [status.updated_machine_count, status.degraded_machine_count]
    };
    let all = [
        object("a", "True", "False", "v1", None),
        object("b", "False", "True", "v1", None),
        object("c", "True", "False", "v0", None),
    ];
    assert_eq!(counted(&all, ImageModeStatus::Off), [3, 0]);
    assert_eq!(counted(&all, ImageModeStatus::On), [1, 1]);
    assert_eq!(
        counted(&all[..1], ImageModeStatus::On),
        [1, 0],
        "without a report a node is not updated"
    );
    let left = [object("a", "True", "False", "v1", Some(&image))];
    assert_eq!(
        counted(&left, ImageModeStatus::On),
        [0, 0],
        "it still goes to an image"
    );

    let target = |image: Option<&str>| RolloutTarget {
        config: "v1".to_owned(),
        image: image.map(str::to_owned),
    };
    let layered = object("a", "True", "False", "v1", Some(&image));
    assert!(is_updated_to(&layered, &target(Some(&image))));
    assert!(!is_updated_to(&layered, &target(None)));
    let without = object("a", "True", "False", "v1", None);
    assert!(!is_updated_to(&without, &target(Some(&image))));
    assert!(
        is_updated_to(&without, &target(Some("registry/os:tag"))),
        "the API accepts no such image in a MachineConfigNode"
    );
    for rejected in [
        "registry/os:tag",
        "",
        "localhost:5000/os@sha256:aa",
        &format!("host/os@sha256:{digest}"),
    ] {
        assert_eq!(
            desired_image(ImageModeStatus::On, Some(rejected)),
            None,
            "{rejected}"
        );
    }
    assert_eq!(desired_image(ImageModeStatus::Off, Some(&image)), None);
    assert_eq!(
        desired_image(ImageModeStatus::On, Some(&image))
            .unwrap()
            .desired_image,
        image
    );
}
