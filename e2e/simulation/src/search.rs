//! Plays stories in processes of their own, and shortens those that fail.

use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;
use std::time::Instant;

use anstream::println;
use anyhow::Context as _;

use crate::Arguments;
use crate::story::{Fault, Story};

/// Plays all seeds. Returns whether every story succeeds.
pub fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let start = Instant::now();
    let next = AtomicU64::new(0);
    let failed: Mutex<Vec<u64>> = Mutex::default();
    let problem: Mutex<Option<anyhow::Error>> = Mutex::default();
    let (requests, failures) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= arguments.count {
                        return;
                    }
                    let seed = arguments.seed + number;
                    match Attempt::play(arguments, seed, &arguments.without, &arguments.without_faults) {
                        Ok(attempt) => {
                            requests.fetch_add(attempt.count("requests"), Ordering::Relaxed);
                            failures.fetch_add(attempt.count("failures"), Ordering::Relaxed);
                            if arguments.count == 1 && attempt.violation().is_none() {
                                anstream::print!("{}", attempt.text);
                            }
                            if attempt.violation().is_some() {
                                lock(&failed).push(seed);
                            }
                        }
                        Err(error) => *lock(&problem) = Some(error),
                    }
                }
            });
        }
    });
    if let Some(error) = lock(&problem).take() {
        return Err(error);
    }
    let mut failed = std::mem::take(&mut *lock(&failed));
    failed.sort_unstable();
    for seed in failed.iter().take(SHORTENED) {
        shorten(arguments, *seed)?;
    }
    println!(
        "{} stories, {} failed {failed:?}, {} requests, {} failures of requests and watches, {:.0?}",
        arguments.count,
        failed.len(),
        requests.load(Ordering::Relaxed),
        failures.load(Ordering::Relaxed),
        start.elapsed()
    );
    Ok(failed.is_empty())
}

/// At most so many failures are shortened.
const SHORTENED: usize = 3;

/// The result of one process.
struct Attempt {
    text: String,
}

impl Attempt {
    fn play(arguments: &Arguments, seed: u64, without: &[usize], faults: &[Fault]) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--only", "--seed", &seed.to_string()]);
        command.args(["--workers", &arguments.workers.to_string()]);
        if arguments.log {
            command.arg("--log");
        }
        if let Some(plant) = arguments.plant {
            let value = clap::ValueEnum::to_possible_value(&plant);
            command.args(["--plant", value.as_ref().map_or("", |value| value.get_name())]);
        }
        if !without.is_empty() {
            let numbers: Vec<String> = without.iter().map(ToString::to_string).collect();
            command.args(["--without", &numbers.join(",")]);
        }
        if !faults.is_empty() {
            let names: Vec<String> = faults.iter().map(ToString::to_string).collect();
            command.args(["--without-faults", &names.join(",")]);
        }
        let Output {
            status,
            stdout,
            stderr,
        } = command.output().context("starting the simulation")?;
        let text = String::from_utf8_lossy(&stdout).into_owned();
        let errors = String::from_utf8_lossy(&stderr);
        anyhow::ensure!(
            matches!(status.code(), Some(0 | 1)) && text.contains("digest"),
            "the simulation of seed {seed} ended with {status}: {text}{errors}"
        );
        Ok(Self { text })
    }

    fn last(&self) -> &str {
        self.text.lines().last().unwrap_or_default()
    }

    fn violation(&self) -> Option<&str> {
        let (_, violation) = self.last().split_once(" digest ")?;
        let (_, violation) = violation.split_once(": ")?;
        (violation != "ok").then_some(violation)
    }

    /// The kind of the violation, without names.
    fn kind(&self) -> Option<String> {
        let kept = |word: &&str| !word.contains(|letter: char| letter.is_ascii_digit());
        let violation = self.violation()?.split(" (after").next()?;
        Some(violation.split(' ').filter(kept).collect::<Vec<_>>().join(" "))
    }

    /// Returns the number before a word of the last line.
    fn count(&self, word: &str) -> u64 {
        let words: Vec<&str> = self.last().split([' ', ',']).collect();
        let index = words.iter().position(|found| *found == word);
        let number = index.and_then(|index| words.get(index.checked_sub(1)?));
        number.and_then(|number| number.parse().ok()).unwrap_or_default()
    }
}

/// Leaves out incidents and kinds of failures as long as the story fails in the same way, and prints what is left.
fn shorten(arguments: &Arguments, seed: u64) -> anyhow::Result<()> {
    let mut without = arguments.without.clone();
    let mut faults = arguments.without_faults.clone();
    let play = |without: &[usize], faults: &[Fault]| Attempt::play(arguments, seed, without, faults);
    let mut shortest = play(&without, &faults)?;
    let kind = shortest.kind();
    let of = |without: &[usize], faults: &[Fault]| {
        Story::new(
            seed,
            arguments.workers,
            &without.iter().copied().collect(),
            faults,
        )
    };
    for fault in of(&without, &faults).faults {
        faults.push(fault);
        let attempt = play(&without, &faults)?;
        if attempt.kind() == kind {
            shortest = attempt;
        } else {
            faults.pop();
        }
    }
    for (number, ..) in of(&without, &faults).incidents {
        without.push(number);
        let attempt = play(&without, &faults)?;
        if attempt.kind() == kind {
            shortest = attempt;
        } else {
            without.pop();
        }
    }
    let story = of(&without, &faults);
    println!("seed {seed} fails: {}", shortest.violation().unwrap_or_default());
    let kinds: Vec<String> = story.faults.iter().map(ToString::to_string).collect();
    println!("  failures of requests: {}", kinds.join(", "));
    for (number, at, incident) in &story.incidents {
        println!("  {:>9.3} incident {number}: {incident}", at.as_secs_f64());
    }
    println!("  the last writes:");
    for line in shortest.text.lines() {
        println!("    {line}");
    }
    let mut command = format!("simulation --seed {seed} --workers {}", arguments.workers);
    if !without.is_empty() {
        let numbers: Vec<String> = without.iter().map(ToString::to_string).collect();
        command.push_str(" --without ");
        command.push_str(&numbers.join(","));
    }
    if !faults.is_empty() {
        let names: Vec<String> = faults.iter().map(ToString::to_string).collect();
        command.push_str(" --without-faults ");
        command.push_str(&names.join(","));
    }
    println!("  again: {command}");
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
