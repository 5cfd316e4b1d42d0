//! Plays many stories, and shortens those that fail.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;
use std::time::Instant;

use anstream::println;

use crate::Arguments;
use crate::attempt::Attempt;
use crate::story::Fault;

/// At most so many failures are shortened.
const SHORTENED: usize = 3;

/// What all stories have in common.
#[derive(Default)]
struct Results {
    failed: BTreeMap<u64, Attempt>,
    requests: u64,
    failures: u64,
    /// Why a story could not be played at all.
    problem: Option<anyhow::Error>,
}

impl Results {
    fn add(&mut self, arguments: &Arguments, seed: u64, played: anyhow::Result<Attempt>) {
        match played {
            Ok(attempt) => {
                self.requests += attempt.count("requests");
                self.failures += attempt.count("failures");
                if attempt.failure.is_some() {
                    self.failed.insert(seed, attempt);
                } else if arguments.count == 1 {
                    anstream::print!("{}", attempt.text);
                }
            }
            Err(error) => self.problem = Some(error),
        }
    }
}

/// Plays all seeds. Returns whether every story succeeds.
pub fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let start = Instant::now();
    let next = AtomicU64::new(0);
    let results: Mutex<Results> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= arguments.count {
                        return;
                    }
                    let seed = arguments.seed + number;
                    let played =
                        Attempt::play(arguments, seed, &arguments.without, &arguments.without_faults);
                    let mut results = results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    results.add(arguments, seed, played);
                }
            });
        }
    });
    let results = results
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let seeds: Vec<u64> = results.failed.keys().copied().collect();
    for (number, (seed, attempt)) in results.failed.into_iter().enumerate() {
        // Each attempt to shorten a story that hangs would take as long as the timeout.
        if number < SHORTENED && !attempt.is_timed_out {
            shorten(arguments, seed, attempt)?;
        } else {
            print_failure(&attempt, seed);
            print_command(arguments, seed, &arguments.without, &arguments.without_faults);
        }
    }
    println!(
        "{} stories, {} failed {seeds:?}, {} requests, {} failures of requests and watches, {:.0?}",
        arguments.count,
        seeds.len(),
        results.requests,
        results.failures,
        start.elapsed()
    );
    match results.problem {
        Some(error) => Err(error),
        None => Ok(seeds.is_empty()),
    }
}

/// Leaves out incidents and kinds of failures as long as the story fails in the same way, and prints what is left.
fn shorten(arguments: &Arguments, seed: u64, mut shortest: Attempt) -> anyhow::Result<()> {
    let mut without = arguments.without.clone();
    let mut faults = arguments.without_faults.clone();
    let kind = shortest.kind();
    let play = |without: &[usize], faults: &[Fault]| Attempt::play(arguments, seed, without, faults);
    for fault in arguments.story(seed, &without, &faults).faults {
        faults.push(fault);
        let attempt = play(&without, &faults)?;
        if attempt.kind() == kind {
            shortest = attempt;
        } else {
            faults.pop();
        }
    }
    for (number, ..) in arguments.story(seed, &without, &faults).incidents {
        without.push(number);
        let attempt = play(&without, &faults)?;
        if attempt.kind() == kind {
            shortest = attempt;
        } else {
            without.pop();
        }
    }
    let story = arguments.story(seed, &without, &faults);
    print_failure(&shortest, seed);
    let kinds: Vec<String> = story.faults.iter().map(ToString::to_string).collect();
    println!("  failures of requests: {}", kinds.join(", "));
    for (number, at, incident) in &story.incidents {
        println!("  {:>9.3} incident {number}: {incident}", at.as_secs_f64());
    }
    println!("  the last writes:");
    for line in shortest.text.lines() {
        println!("    {line}");
    }
    print_command(arguments, seed, &without, &faults);
    Ok(())
}

fn print_failure(attempt: &Attempt, seed: u64) {
    println!(
        "seed {seed} fails: {}",
        attempt.failure.as_deref().unwrap_or_default()
    );
}

/// Prints the command that repeats a story, for a shell in the repository.
fn print_command(arguments: &Arguments, seed: u64, without: &[usize], faults: &[Fault]) {
    let profile = if cfg!(debug_assertions) { "" } else { "--release " };
    let story = arguments.of(seed, without, faults).join(" ");
    println!("  again: cargo run {profile}-p mco-simulation -- {story}");
}
