//! Enumerates the states of a disk that a power failure may leave at one moment of a trace.

use std::collections::BTreeSet;

use super::disk::{Disk, Image};
use super::trace::{Effect, Torn, Trace, Window, apply};

/// A small seeded generator, so that every sample can be repeated.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).unwrap()
    }
}

/// What became of each effect: `None` if it was lost.
type Choice = Vec<Option<Torn>>;

/// One state, with what was lost or torn.
#[derive(Debug)]
pub struct State {
    pub disk: Disk,
    pub image: Image,
    choice: Choice,
}

impl State {
    /// Describes what the power failure has left of the effects that were not durable.
    pub fn story(&self, trace: &Trace, window: &Window) -> String {
        let mut lines = Vec::new();
        for index in (0..window.issued).filter(|index| !window.durable[*index]) {
            let fate = match self.choice[index] {
                None => "lost",
                Some(Torn::All) => "on disk",
                Some(Torn::Half) => "half on disk",
                Some(Torn::Zeros) => "zeros on disk",
            };
            lines.push(format!("  {fate:13} {}", trace.atoms[index].label));
        }
        lines.join("\n")
    }
}

/// Calls `visit` with states of one moment: with all of them if there are at most `limit`, and with a seeded sample of
/// that size otherwise. Returns whether there were all.
pub fn each_state(
    trace: &Trace,
    window: &Window,
    limit: usize,
    random: &mut Random,
    visit: &mut dyn FnMut(State),
) -> bool {
    let pending: Vec<usize> = (0..window.issued)
        .filter(|index| !window.durable[*index])
        .collect();
    let start: Choice = (0..trace.atoms.len())
        .map(|index| (index < window.issued && window.durable[index]).then_some(Torn::All))
        .collect();
    let mut seen = BTreeSet::new();
    let mut emit = |choice: &Choice| {
        let disk = disk_of(trace, choice);
        let image = disk.image();
        if seen.insert(disk.fingerprint(&image)) {
            visit(State {
                disk,
                image,
                choice: choice.clone(),
            });
        }
    };
    let mut all = Vec::new();
    if enumerate(trace, &pending, start.clone(), limit, &mut all) {
        all.iter().for_each(&mut emit);
        return true;
    }
    boundaries(trace, &pending, &start, limit, &mut emit);
    for _ in 0..limit {
        emit(&sample(trace, &pending, start.clone(), random));
    }
    false
}

/// Collects all choices that respect the dependencies. Returns false if there are more than `limit`.
fn enumerate(
    trace: &Trace,
    pending: &[usize],
    choice: Choice,
    limit: usize,
    found: &mut Vec<Choice>,
) -> bool {
    let Some((index, rest)) = pending.split_first() else {
        found.push(choice);
        return found.len() <= limit;
    };
    for option in options(trace, *index, &choice) {
        let mut next = choice.clone();
        next[*index] = option;
        if !enumerate(trace, rest, next, limit, found) {
            return false;
        }
    }
    true
}

fn options(trace: &Trace, index: usize, choice: &Choice) -> Vec<Option<Torn>> {
    let atom = &trace.atoms[index];
    let is_possible = atom.needs.iter().all(|need| choice[*need].is_some());
    match &atom.effect {
        _ if !is_possible => vec![None],
        Effect::Entries { .. } | Effect::Attributes { .. } => vec![None, Some(Torn::All)],
        // An inode without a name is not seen, whatever it contains.
        Effect::Contents { inode, .. } if !is_linked(trace, choice, *inode) => vec![None],
        Effect::Contents { .. } => vec![None, Some(Torn::Half), Some(Torn::Zeros), Some(Torn::All)],
    }
}

/// Returns whether the effect that creates an inode was chosen; those of the base always exist.
fn is_linked(trace: &Trace, choice: &Choice, inode: u64) -> bool {
    let creation = trace.atoms.iter().position(
        |atom| matches!(&atom.effect, Effect::Entries { creates: Some((created, _)), .. } if *created == inode),
    );
    creation.is_none_or(|index| choice[index].is_some())
}

/// In the order of a log: everything up to each effect, with the last one whole or torn; and everything but one.
fn boundaries(trace: &Trace, pending: &[usize], start: &Choice, limit: usize, emit: &mut dyn FnMut(&Choice)) {
    let every = pending.len().div_ceil(limit.max(1)).max(1);
    let mut choice = start.clone();
    emit(&choice);
    for (count, index) in pending.iter().enumerate() {
        for option in options(trace, *index, &choice) {
            choice[*index] = option;
            if count % every == 0 {
                emit(&choice);
            }
        }
    }
    let full = choice;
    for index in pending.iter().step_by(every) {
        let mut without = full.clone();
        without[*index] = None;
        // Effects that need the lost one are lost with it.
        for later in pending.iter().filter(|later| *later > index) {
            if trace.atoms[*later]
                .needs
                .iter()
                .any(|need| without[*need].is_none())
            {
                without[*later] = None;
            }
        }
        emit(&without);
    }
}

fn sample(trace: &Trace, pending: &[usize], mut choice: Choice, random: &mut Random) -> Choice {
    // Different densities: mostly lost, even, mostly on disk.
    let lost = [1, 2, 4, 7][random.below(4)];
    for index in pending {
        let options = options(trace, *index, &choice);
        choice[*index] = match options.as_slice() {
            [only] => *only,
            _ if random.below(8) < lost => None,
            [_, rest @ ..] => rest[random.below(rest.len())],
            [] => None,
        };
    }
    choice
}

fn disk_of(trace: &Trace, choice: &Choice) -> Disk {
    let mut disk = trace.base.clone();
    for (atom, fate) in trace.atoms.iter().zip(choice) {
        if let Some(torn) = fate {
            apply(&mut disk, &atom.effect, *torn);
        }
    }
    disk
}
