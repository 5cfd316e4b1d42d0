//! A large fleet: latency and number of writes of a rollout, and its duration relative to the lower bound.
//!
//! The embedded control plane and the simulated machines run here; the controllers run in a process of their own, so
//! that their memory and their writes are theirs. Exits with 1 when a budget is exceeded. `FLEET_NODES`,
//! `FLEET_POOLS`,
//! `FLEET_CONFIGS` and `FLEET_SECONDS` (the time a machine takes) change the scale.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark talks to the person who runs it"
)]

mod child;
mod measure;
mod scene;
mod timeline;

use std::process::ExitCode;

use measure::{Budget, Measured};
use scene::Scale;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(kubeconfig) = child::kubeconfig_of(&arguments) {
        runtime.block_on(child::run(kubeconfig));
        return ExitCode::SUCCESS;
    }
    let scale = Scale::from_environment();
    let measured = runtime.block_on(scene::play(&scale));
    verdict(&scale, &measured)
}

fn verdict(scale: &Scale, measured: &Measured) -> ExitCode {
    println!(
        "{} nodes in {} pools, {} configs, {} at once in each pool, {:?} each",
        scale.nodes,
        scale.pools,
        scale.configs,
        scale.at_once(),
        scale.each
    );
    let mut failed = false;
    for Budget {
        what,
        found,
        allowed,
        unit,
    } in measured.budgets(scale)
    {
        let kept = found <= allowed;
        failed |= !kept;
        let mark = if kept { "ok  " } else { "OVER" };
        println!("{mark} {what}: {found:.2} {unit} (budget {allowed:.2})");
    }
    for (what, count) in &measured.writes {
        println!("     {count:>7} {what}");
    }
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
