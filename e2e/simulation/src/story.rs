//! What happens in a simulation: the failures of requests, and a list of incidents. All of it follows from the seed.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use clap::ValueEnum;

use crate::determinism::Random;

/// How long incidents and failures happen.
pub const CHAOS: Duration = Duration::from_mins(30);
/// The nodes of the control plane.
pub const MASTERS: usize = 3;
/// The number of incidents.
const FEWEST: u64 = 8;
const MOST: u64 = 20;
/// No client is cut off for longer. A controller with an old view of the cluster may act on it for a moment.
const LONGEST_PARTITION: Duration = Duration::from_secs(45);

/// A failure of a request or of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    /// The request arrives late.
    Delay,
    /// The response arrives late.
    LateResponse,
    /// The request is processed, and the response is lost.
    LostResponse,
    /// 409, and nothing is processed.
    Conflict,
    /// 429, and nothing is processed.
    TooMany,
    /// 500, and nothing is processed.
    ServerError,
    /// The request is processed twice.
    Duplicate,
    /// A watch is refused with 410.
    Gone,
    /// A watch ends.
    WatchEnds,
    /// Events of a watch arrive late.
    StaleWatch,
    /// An event of a watch arrives twice.
    DuplicateEvent,
}

impl Fault {
    pub const ALL: [Self; 11] = [
        Self::Delay,
        Self::LateResponse,
        Self::LostResponse,
        Self::Conflict,
        Self::TooMany,
        Self::ServerError,
        Self::Duplicate,
        Self::Gone,
        Self::WatchEnds,
        Self::StaleWatch,
        Self::DuplicateEvent,
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_value(self, f)
    }
}

/// Writes a value as it is an argument.
fn write_value(value: &impl ValueEnum, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let name = value.to_possible_value();
    f.write_str(name.as_ref().map_or("", |value| value.get_name()))
}

/// A violation that the simulation brings about itself, to show that it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Plant {
    /// Another client uncordons a node that the administrator has cordoned.
    ForeignUncordon,
    /// Another client sends two more nodes to the new config than the budget allows.
    OverBudget,
    /// The daemon of a node ends and never starts again.
    NeverDone,
    /// Another client releases the lease of the leader.
    TwoLeaders,
    /// The controllers end when the cluster is at rest, and a MachineConfig is written.
    StuckRender,
    /// The simulation panics.
    Panic,
    /// The simulation does not end.
    Hang,
}

impl fmt::Display for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_value(self, f)
    }
}

/// Something that happens at a certain time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incident {
    /// The administrator writes a MachineConfig of this number.
    WriteConfig { number: u64, role: &'static str },
    /// The administrator deletes it.
    DeleteConfig { number: u64, role: &'static str },
    /// The administrator cordons a node, for a time.
    Cordon { node: String, time: Duration },
    /// The administrator pauses a pool, for a time.
    Pause { pool: &'static str, time: Duration },
    /// A replica of the controllers is killed, and restarted after a time.
    KillController { replica: usize, time: Duration },
    /// The daemon of a node is killed, and restarted after a time.
    KillDaemon { node: String, time: Duration },
    /// A client cannot reach the API server.
    Partition { client: String, time: Duration },
    /// A new node joins.
    Join { node: String },
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WriteConfig { number, role } => write!(f, "MachineConfig {role}-{number} is written"),
            Self::DeleteConfig { number, role } => write!(f, "MachineConfig {role}-{number} is deleted"),
            Self::Cordon { node, time } => write!(f, "node {node} is cordoned for {time:?}"),
            Self::Pause { pool, time } => write!(f, "pool {pool} is paused for {time:?}"),
            Self::KillController { replica, time } => {
                write!(f, "controller-{replica} is killed for {time:?}")
            }
            Self::KillDaemon { node, time } => write!(f, "the daemon of {node} is killed for {time:?}"),
            Self::Partition { client, time } => write!(f, "{client} is cut off for {time:?}"),
            Self::Join { node } => write!(f, "node {node} joins"),
        }
    }
}

/// A story: everything that a simulation does is decided by it.
#[derive(Debug, Clone)]
pub struct Story {
    pub seed: u64,
    pub masters: usize,
    pub workers: usize,
    /// Of the pool of workers.
    pub max_unavailable: usize,
    /// Incidents with their numbers, in the order of their times.
    pub incidents: Vec<(usize, Duration, Incident)>,
    pub faults: BTreeSet<Fault>,
    pub plant: Option<Plant>,
}

impl Story {
    /// Returns the story of a seed. Incidents and faults that are left out do not change the others.
    pub fn new(seed: u64, workers: usize, without: &BTreeSet<usize>, without_faults: &[Fault]) -> Self {
        let mut random = Random::new(seed, "story");
        let max_unavailable = usize::try_from(1 + random.below(3)).unwrap_or(1);
        let count = FEWEST + random.below(MOST - FEWEST);
        let mut incidents: Vec<(Duration, Incident)> = (0..count)
            .map(|number| {
                let at = random.between(Duration::ZERO, CHAOS);
                (at, incident(&mut random, number, workers))
            })
            .collect();
        // Without a change there is no rollout.
        let at = Duration::from_secs(5);
        let role = "worker";
        incidents.push((at, Incident::WriteConfig { number: count, role }));
        incidents.sort_by_key(|(at, _)| *at);
        let incidents = incidents.into_iter().enumerate();
        let mut faults = BTreeSet::from(Fault::ALL);
        // Of each kind in half of the stories, so that their combinations differ.
        faults.retain(|_| random.below(2) == 0);
        faults.retain(|fault| !without_faults.contains(fault));
        Self {
            seed,
            masters: MASTERS,
            workers,
            max_unavailable,
            incidents: incidents
                .filter(|(number, _)| !without.contains(number))
                .map(|(number, (at, incident))| (number, at, incident))
                .collect(),
            faults,
            plant: None,
        }
    }
}

fn incident(random: &mut Random, number: u64, workers: usize) -> Incident {
    let workers = u64::try_from(workers).unwrap_or(1);
    let role = if random.below(4) == 0 { "master" } else { "worker" };
    let node = match random.below(6) {
        0 => format!("master-{}", random.below(3)),
        _ => format!("worker-{}", random.below(workers)),
    };
    let replica = usize::try_from(random.below(2)).unwrap_or_default();
    let short = random.between(Duration::from_millis(500), Duration::from_mins(1));
    let long = random.between(Duration::from_secs(10), Duration::from_mins(8));
    match random.below(16) {
        0..=3 => Incident::WriteConfig { number, role },
        4 => Incident::DeleteConfig {
            number: random.below(number + 1),
            role,
        },
        5..=6 => Incident::Cordon { node, time: long },
        7 => Incident::Pause {
            pool: role,
            time: long,
        },
        8..=10 => Incident::KillController { replica, time: short },
        11..=12 => Incident::KillDaemon { node, time: short },
        13..=14 => {
            let controller = format!("controller-{replica}");
            let client = if random.below(3) == 0 { node } else { controller };
            let time = short.min(LONGEST_PARTITION);
            Incident::Partition { client, time }
        }
        _ => Incident::Join {
            node: format!("joined-{number}"),
        },
    }
}
