//! One module per command: reads the input, calls the library, prints the result.

mod adopt;
mod apply;
mod builder;
mod console;
mod controller;
mod crds;
mod daemon;
mod diff;
mod drift;
mod gather;
mod get;
mod hosted;
mod install;
mod join;
mod man;
mod node;
mod operator;
mod plan;
mod pointer;
mod render;
mod rollout;
mod server;
mod status;
mod switch;
mod uninstall;
pub mod up;
mod validate;
mod version;
mod watcher;
mod why;

use std::ffi::OsString;

use crate::cli::{self, Cli, Command};
use crate::output::{self, CommandOutcome};

/// The version that is recorded in the objects that we render.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Prints the completions that kubectl asks a plugin for.
pub fn complete_for_kubectl(arguments: Vec<OsString>) -> anyhow::Result<CommandOutcome> {
    let words = arguments.into_iter().skip(1).collect();
    output::print(&cli::complete_for_kubectl(words)?)?;
    Ok(CommandOutcome::Done)
}

pub fn run(cli: Cli) -> anyhow::Result<CommandOutcome> {
    match cli.command {
        Command::Up(arguments) => up::run(arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Token(arguments) => up::token(&arguments),
        Command::Apply(arguments) => apply::run(&arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Wait(arguments) => status::wait::wait(&arguments),
        Command::Node(arguments) => node::run(&arguments),
        Command::Drift(arguments) => drift::run(&arguments),
        Command::Adopt(arguments) => adopt::adopt(&arguments),
        Command::Release(arguments) => adopt::release(&arguments),
        Command::Rollout(arguments) => rollout::run(arguments),
        Command::Gather(arguments) => gather::run(&arguments),
        Command::Console(arguments) => console::run(arguments),
        Command::Render(arguments) => render::run(&arguments),
        Command::Validate(arguments) => validate::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Why(arguments) => why::run(&arguments),
        Command::Get(arguments) => get::run(&arguments),
        Command::Daemon(arguments) => daemon::run(&arguments),
        Command::Operator(arguments) => operator::run(*arguments),
        Command::Controller(arguments) => controller::run(arguments),
        Command::Builder(arguments) => builder::run(*arguments),
        Command::Install(arguments) => install::run(&arguments),
        Command::Uninstall(arguments) => uninstall::run(&arguments),
        Command::Switch(arguments) => switch::run(&arguments),
        Command::Crds(arguments) => crds::run(&arguments),
        Command::Server(arguments) => server::run(*arguments),
        Command::Pointer(arguments) => pointer::run(&arguments),
        Command::ApiserverWatcher(arguments) => watcher::watch(&arguments),
        Command::Flock(arguments) => watcher::lock(&arguments),
        Command::Version(arguments) => version::run(&arguments),
        Command::Completions(arguments) => completions(arguments.shell),
        Command::Man(arguments) => man::run(&arguments),
    }
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<CommandOutcome> {
    let script = cli::registration(&shell.to_string())?;
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(CommandOutcome::Done)
}
