//! A fleet in one thread: the controllers, the API server and the daemons of simulated nodes, with a simulated clock and
//! connections that fail. Everything follows from a seed, so that a failure can be repeated.

mod attempt;
mod convergence;
mod determinism;
mod link;
mod search;
mod simulate;
mod story;
mod world;

use std::collections::BTreeSet;
use std::process::ExitCode;

use anstream::{eprintln, println};
use clap::Parser;
use story::{Fault, MASTERS, Plant, Story};

/// Simulates clusters and checks invariants after every write.
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  simulation --seed 7                  plays the story of one seed; if it fails, looks for the shortest one
  simulation --seed 0 --count 200      plays 200 stories
  simulation --seed 7 --log            also prints the writes of a story that succeeds
  simulation --seed 7 --nodes 50       plays the story with 47 workers

Exit code 0 if every story succeeds, 1 if one fails.")]
pub struct Arguments {
    /// The seed, or the first of several.
    #[arg(long)]
    seed: u64,
    /// The number of seeds.
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// The number of nodes, three of them in the control plane.
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u16).range(4..=1_000))]
    nodes: u16,
    /// Leaves out incidents, by number.
    #[arg(long, value_delimiter = ',')]
    without: Vec<usize>,
    /// Leaves out kinds of failures.
    #[arg(long, value_delimiter = ',')]
    without_faults: Vec<Fault>,
    /// Brings about a violation, to show that it is found.
    #[arg(long)]
    plant: Option<Plant>,
    /// Seconds until a story that has not ended counts as failed.
    #[arg(long, default_value_t = 600)]
    timeout: u64,
    /// Prints the last writes.
    #[arg(long)]
    log: bool,
    /// Plays one story in this process, and nothing else.
    #[arg(long, hide = true)]
    only: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = if arguments.only {
        play(&arguments)
    } else {
        search::run(&arguments)
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

impl Arguments {
    fn story(&self, seed: u64, without: &[usize], without_faults: &[Fault]) -> Story {
        let without: BTreeSet<usize> = without.iter().copied().collect();
        let workers = usize::from(self.nodes).saturating_sub(MASTERS);
        Story {
            plant: self.plant,
            ..Story::new(seed, workers, &without, without_faults)
        }
    }
}

fn play(arguments: &Arguments) -> anyhow::Result<bool> {
    if std::env::var_os("SIMULATION_LOG").is_some() {
        let level = tracing_subscriber::filter::LevelFilter::DEBUG;
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .init();
    }
    let story = arguments.story(arguments.seed, &arguments.without, &arguments.without_faults);
    let report = simulate::play(story)?;
    if arguments.log || report.violation.is_some() {
        for line in &report.lines {
            println!("{line}");
        }
    }
    println!(
        "seed {}: {} requests, {} failures, {} writes and incidents, digest {:016x}: {}",
        arguments.seed,
        report.requests,
        report.failures,
        report.writes,
        report.digest,
        report.violation.as_deref().unwrap_or("ok")
    );
    Ok(report.violation.is_none())
}
