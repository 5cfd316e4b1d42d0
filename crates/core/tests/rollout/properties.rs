//! Properties that hold for every fleet and every order of events.

use std::collections::BTreeMap;

use mco_api::vocabulary::annotations::node::DRAIN_RECORD;
use mco_core::rollout::{Because, NodeAction, RolloutPlan, RolloutView, plan, waves};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fixtures::*;
use crate::simulator::{BAD, BAD_LATE, Fleet, Machine};

const POOLS: [&str; 3] = ["worker", "infra", "master"];

#[derive(Debug, Clone)]
enum Event {
    Rollout,
    Drain(usize),
    Daemon(usize),
    Round,
    Cordon(usize),
    Uncordon(usize),
    Kubelet(usize, bool),
    Drift(usize),
    Target(usize, String),
    Pause(usize, bool),
    Limit(usize, Value),
    Join(usize),
    Vanish(usize),
    Move(usize, usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let node = 0..12_usize;
    let pool = 0..POOLS.len();
    let target = prop_oneof![
        4 => (1..5_u8).prop_map(|number| format!("v{number}")),
        1 => (1..3_u8).prop_map(|number| format!("{BAD}{number}")),
        1 => (1..3_u8).prop_map(|number| format!("{BAD_LATE}{number}")),
    ];
    let limit = prop_oneof![
        (0..4_u8).prop_map(|limit| json!(limit)),
        prop::sample::select(vec![0, 10, 34, 50, 100]).prop_map(|percent| json!(format!("{percent}%"))),
    ];
    let event = prop_oneof![
        8 => Just(Event::Rollout),
        6 => node.clone().prop_map(Event::Drain),
        8 => node.clone().prop_map(Event::Daemon),
        6 => Just(Event::Round),
        1 => node.clone().prop_map(Event::Cordon),
        1 => node.clone().prop_map(Event::Uncordon),
        1 => (node.clone(), any::<bool>()).prop_map(|(node, dead)| Event::Kubelet(node, dead)),
        2 => node.clone().prop_map(Event::Drift),
        2 => (pool.clone(), target).prop_map(|(pool, target)| Event::Target(pool, target)),
        1 => (pool.clone(), any::<bool>()).prop_map(|(pool, paused)| Event::Pause(pool, paused)),
        1 => (pool.clone(), limit).prop_map(|(pool, limit)| Event::Limit(pool, limit)),
        1 => pool.clone().prop_map(Event::Join),
        1 => node.clone().prop_map(Event::Vanish),
        1 => (node, pool).prop_map(|(node, pool)| Event::Move(node, pool)),
    ];
    prop::collection::vec(event, 1..120)
}

fn fleet(size: usize, limit: u8) -> Fleet {
    let pools = POOLS.map(|name| pool(name, "v1", json!({"maxUnavailable": limit})));
    let nodes = (0..size).map(|index| {
        let (pool, zone) = (POOLS[index % POOLS.len()], index % 2);
        node(&format!("n{index} v0/v0 zone=z{zone} age={index} role={pool}"))
    });
    Fleet::new(pools.into(), nodes.collect())
}

fn name_of(fleet: &Fleet, index: usize) -> Option<String> {
    let names: Vec<&String> = fleet.machines.keys().collect();
    names.get(index % names.len().max(1)).map(|name| (*name).clone())
}

/// Checks the invariants of the rollout controller around one of its reconciles.
fn controlled_turn(fleet: &mut Fleet) -> Result<RolloutPlan, TestCaseError> {
    let before = fleet.clone();
    let plan = fleet.rollout_controller();
    let nodes_before = before.nodes();
    let view = RolloutView::new(&before.pools, &nodes_before);
    let homes: BTreeMap<&str, &str> = view
        .pools
        .iter()
        .flat_map(|pool| pool.members.iter().map(|member| (member.name, pool.name)))
        .collect();
    for pool in &view.pools {
        let target = pool.pool.target_name();
        let limit = pool.max_unavailable().unwrap();
        let after = || {
            pool.members
                .iter()
                .map(|member| fleet.machines[member.name].view())
        };
        let disturbed = |fleet: &Fleet| {
            let members = pool.members.iter();
            members
                .filter(|member| fleet.machines[member.name].is_disturbed())
                .count()
        };
        let (disturbed_before, disturbed_after) = (disturbed(&before), disturbed(fleet));
        prop_assert!(
            disturbed_after <= disturbed_before.max(usize::try_from(limit).unwrap()),
            "{disturbed_after} disturbed with a limit of {limit}, {disturbed_before} before\n{plan}"
        );
        let (held_before, held_after) = (
            pool.members.iter().filter(|node| node.holds_a_slot()).count(),
            after().filter(mco_core::rollout::NodeView::holds_a_slot).count(),
        );
        prop_assert!(
            held_after <= held_before.max(usize::try_from(limit).unwrap()),
            "{held_after} away with a limit of {limit}, {held_before} before\n{plan}"
        );
        for (old, new) in pool.members.iter().zip(after()) {
            if pool.is_paused() {
                let mut left_alone = old.node.clone();
                if old.is_done() && old.desired_config == target {
                    let spec = left_alone.spec.get_or_insert_default();
                    spec.taints.clone_from(&new.node.spec.as_ref().unwrap().taints);
                    prop_assert!(!new.has_update_taint(), "what is over is cleaned up");
                }
                prop_assert_eq!(&left_alone, new.node, "a paused pool is not touched");
            } else {
                prop_assert!(
                    !new.is_in_flight() || new.desired_config == target,
                    "every node being updated or failed is retargeted\n{plan}"
                );
            }
            prop_assert_eq!(
                old.is_unschedulable(),
                new.is_unschedulable(),
                "a rollout neither cordons nor uncordons"
            );
        }
    }
    for (pool, action) in plan.pools.iter().flat_map(|plan| {
        plan.actions
            .iter()
            .map(move |action| (plan.pool.as_str(), action))
    }) {
        prop_assert_eq!(homes.get(action.node()), Some(&pool), "a node of another pool");
        if let NodeAction::SetDesired {
            node,
            because: Because::Turn,
            ..
        } = action
        {
            prop_assert!(
                before.machines[node].view().is_ready(),
                "{node} was started though it takes no work"
            );
        }
    }
    Ok(plan)
}

/// Checks that only a person removes a person's cordon.
fn with_cordons_kept(fleet: &mut Fleet, what: impl FnOnce(&mut Fleet)) -> Result<(), TestCaseError> {
    let cordoned: Vec<String> = fleet
        .machines
        .iter()
        .filter(|(_, machine)| machine.cordoned_by_a_person)
        .map(|(name, _)| name.clone())
        .collect();
    what(fleet);
    for name in cordoned {
        prop_assert!(
            fleet.machines[&name].view().is_unschedulable(),
            "the cordon of {name} was lifted"
        );
    }
    Ok(())
}

fn live_through(fleet: &mut Fleet, event: Event, joined: &mut usize) -> Result<(), TestCaseError> {
    let machine = |fleet: &Fleet, index| name_of(fleet, index);
    match event {
        Event::Rollout => {
            controlled_turn(fleet)?;
        }
        Event::Round => {
            controlled_turn(fleet)?;
            with_cordons_kept(fleet, |fleet| {
                fleet.round();
            })?;
        }
        Event::Drain(index) => {
            if let Some(name) = machine(fleet, index) {
                with_cordons_kept(fleet, |fleet| fleet.drain_controller(&name))?;
            }
        }
        Event::Daemon(index) => {
            if let Some(name) = machine(fleet, index) {
                with_cordons_kept(fleet, |fleet| fleet.daemon(&name))?;
            }
        }
        Event::Cordon(index) => {
            if let Some(machine) = machine(fleet, index).and_then(|name| fleet.machines.get_mut(&name)) {
                machine.cordon();
            }
        }
        Event::Uncordon(index) => {
            if let Some(name) = machine(fleet, index) {
                fleet.machines.get_mut(&name).unwrap().uncordon();
                // The controller watches for exactly this, so no second cordon can precede it.
                fleet.drain_controller(&name);
            }
        }
        Event::Kubelet(index, dead) => {
            if let Some(machine) = machine(fleet, index).and_then(|name| fleet.machines.get_mut(&name)) {
                machine.set_kubelet(dead);
            }
        }
        Event::Drift(index) => {
            if let Some(machine) = machine(fleet, index).and_then(|name| fleet.machines.get_mut(&name)) {
                machine.drift();
            }
        }
        Event::Target(index, target) => {
            fleet.pool_mut(POOLS[index]).spec.configuration.reference.name = Some(target);
        }
        Event::Pause(index, paused) => fleet.pool_mut(POOLS[index]).spec.paused = paused,
        Event::Limit(index, limit) => {
            fleet.pool_mut(POOLS[index]).spec.max_unavailable = Some(from(limit));
        }
        Event::Join(index) => {
            *joined += 1;
            let text = format!("j{joined} new role={} age=99", POOLS[index]);
            let newcomer = Fleet::new(vec![], vec![node(&text)]);
            fleet.machines.extend(newcomer.machines);
        }
        Event::Vanish(index) => {
            if let Some(name) = machine(fleet, index).filter(|_| fleet.machines.len() > 2) {
                fleet.machines.remove(&name);
            }
        }
        Event::Move(index, pool) => {
            if let Some(machine) = machine(fleet, index).and_then(|name| fleet.machines.get_mut(&name)) {
                let roles = POOLS.map(|name| {
                    (
                        format!("node-role.kubernetes.io/{name}"),
                        (name == POOLS[pool]).then_some(""),
                    )
                });
                machine
                    .patch(&json!({"metadata": {"labels": roles.into_iter().collect::<BTreeMap<_, _>>()}}));
            }
        }
    }
    Ok(())
}

/// Repairs everything and stops interfering.
fn calm_down(fleet: &mut Fleet) {
    for name in POOLS {
        let pool = fleet.pool_mut(name);
        pool.spec.paused = false;
        pool.spec.configuration.reference.name = Some("final".to_owned());
    }
    for machine in fleet.machines.values_mut() {
        machine.set_kubelet(false);
        if machine.cordoned_by_a_person {
            machine.uncordon();
        }
    }
}

/// The number of cases: enough for common failures; `PROPTEST_CASES` runs more. A failure found becomes a named test.
fn effort() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok();
    ProptestConfig {
        cases: asked.and_then(|cases| cases.parse().ok()).unwrap_or(64),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn is_at_rest(machine: &Machine) -> bool {
    let node = machine.view();
    node.is_done() && node.current_config == "final" && !node.has_update_taint()
}

proptest! {
    #![proptest_config(effort())]

    #[test]
    fn promises_hold_through_any_events_and_the_fleet_arrives(
        size in 1..12_usize,
        limit in 1..4_u8,
        events in events(),
    ) {
        let mut fleet = fleet(size, limit);
        let mut joined = 0;
        for event in events {
            live_through(&mut fleet, event, &mut joined)?;
        }
        calm_down(&mut fleet);
        // An update of a node takes about eight rounds; one node at a time is the worst case.
        for _ in 0..(fleet.machines.len() + 2) * 16 {
            controlled_turn(&mut fleet)?;
            fleet.round();
            if fleet.machines.values().all(is_at_rest) {
                break;
            }
        }
        for machine in fleet.machines.values() {
            let node = machine.view();
            prop_assert_eq!((node.current_config, node.desired_config, node.state), ("final", "final", "Done"), "{}", node.name);
            prop_assert!(node.is_ready(), "{} was left cordoned", node.name);
            prop_assert!(!node.has_update_taint(), "{} was left tainted", node.name);
            prop_assert!(node.annotation(DRAIN_RECORD).is_none(), "{} was left with a record", node.name);
        }
        let nodes = fleet.nodes();
        prop_assert_eq!(plan(&RolloutView::new(&fleet.pools, &nodes)).actions_by_node().len(), 0, "nothing is left to do");
    }

    #[test]
    fn the_plan_does_not_depend_on_the_order_of_the_lists(
        size in 1..12_usize,
        events in events(),
        seed in any::<u64>(),
    ) {
        let mut fleet = fleet(size, 2);
        let mut joined = 0;
        for event in events {
            live_through(&mut fleet, event, &mut joined)?;
        }
        let nodes = fleet.nodes();
        let mut shuffled = nodes.clone();
        shuffled.sort_by_key(|node| {
            let name = node.metadata.name.clone().unwrap();
            name.bytes().fold(seed, |hash, byte| hash.rotate_left(7) ^ u64::from(byte).wrapping_mul(0x9E37_79B9))
        });
        let pools: Vec<_> = fleet.pools.iter().rev().cloned().collect();
        prop_assert_eq!(plan(&RolloutView::new(&fleet.pools, &nodes)), plan(&RolloutView::new(&pools, &shuffled)));
    }

    #[test]
    fn an_undisturbed_rollout_matches_its_forecast(size in 1..30_usize, limit in 1..5_u8, cordoned in 0..3_usize) {
        let mut fleet = fleet(size, limit);
        for machine in fleet.machines.values_mut().take(cordoned) {
            machine.cordon();
        }
        let nodes = fleet.nodes();
        let foretold = waves(&RolloutView::new(&fleet.pools, &nodes));
        let mut happened: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
        for _ in 0..=size {
            let plan = fleet.rollout_controller();
            for pool in &plan.pools {
                let wave: Vec<String> = pool.sent().map(str::to_owned).collect();
                if !wave.is_empty() {
                    happened.entry(pool.pool.clone()).or_default().push(wave);
                }
            }
            // Every targeted node completes before the next reconcile.
            for machine in fleet.machines.values_mut() {
                let desired = machine.view().desired_config.to_owned();
                machine.patch(&json!({"metadata": {"annotations": {key("currentConfig"): desired}}}));
            }
        }
        for pool in foretold {
            prop_assert_eq!(&pool.waves, happened.entry(pool.pool.clone()).or_default());
        }
    }
}

#[test]
fn a_config_replaced_before_the_reboot_costs_one_reboot() {
    let mut fleet = Fleet::new(vec![pool("worker", "v1", json!({}))], nodes("n v0/v0"));
    fleet.rollout_controller();
    fleet.daemon("n");
    fleet.pool_mut("worker").spec.configuration.reference.name = Some("v2".to_owned());
    for _ in 0..20 {
        fleet.round();
    }
    let machine = &fleet.machines["n"];
    assert_eq!(machine.view().current_config, "v2");
    assert_eq!(machine.reboots, 1);
}

#[test]
fn a_config_taken_back_before_the_daemon_saw_it_costs_nothing() {
    let mut fleet = Fleet::new(vec![pool("worker", "v1", json!({}))], nodes("n v0/v0"));
    fleet.rollout_controller();
    fleet.pool_mut("worker").spec.configuration.reference.name = Some("v0".to_owned());
    for _ in 0..20 {
        fleet.round();
    }
    let machine = &fleet.machines["n"];
    assert_eq!((machine.view().state, machine.reboots), ("Done", 0));
}

#[test]
fn a_node_that_failed_after_its_drain_is_repaired_at_once_and_given_back() {
    let mut fleet = Fleet::new(
        vec![pool("worker", &format!("{BAD_LATE}1"), json!({}))],
        nodes("a v0/v0; b v0/v0; c v0/v0"),
    );
    for _ in 0..20 {
        fleet.round();
    }
    let broken = fleet.machines["a"].view();
    assert!(
        broken.is_degraded() && broken.is_unschedulable(),
        "the dead end of others"
    );
    assert_eq!(
        fleet.machines["b"].view().desired_config,
        "v0",
        "one bad node is enough"
    );
    fleet.pool_mut("worker").spec.configuration.reference.name = Some("v0".to_owned());
    for _ in 0..20 {
        fleet.round();
    }
    let repaired = &fleet.machines["a"];
    assert!(repaired.view().is_done() && repaired.view().is_ready());
    assert_eq!(repaired.reboots, 0);
}

#[test]
fn a_drain_called_off_half_way_does_not_leave_the_node_cordoned() {
    let mut fleet = Fleet::new(vec![pool("worker", "v1", json!({}))], nodes("n v0/v0"));
    for _ in 0..20 {
        fleet.round();
    }
    fleet.pool_mut("worker").spec.configuration.reference.name = Some("v2".to_owned());
    fleet.round();
    assert!(
        fleet.machines["n"].view().is_unschedulable(),
        "the drain has begun"
    );
    fleet.pool_mut("worker").spec.configuration.reference.name = Some("v1".to_owned());
    for _ in 0..20 {
        fleet.round();
    }
    let machine = &fleet.machines["n"];
    assert!(machine.view().is_done() && machine.view().is_ready());
    assert_eq!(machine.reboots, 1, "only for the first config");
}
