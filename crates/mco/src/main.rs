//! The Machine Config Operator in one binary: argument parsing, wiring and printing. Decisions live elsewhere.

mod cli;
mod commands;
mod connection;
mod input;
mod jsonpath;
mod leader;
mod log;
mod output;
mod remote;
mod request_log;
mod rotating_file;
mod runtime;
mod screen;
mod style;
mod table;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches as _;
use cli::ProgramName;

fn main() -> ExitCode {
    // Prints completions and ends if a shell's script requests them.
    clap_complete::CompleteEnv::with_factory(cli::command).complete();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let command = match ProgramName::of(arguments.first()) {
        ProgramName::KubectlCompletion => return output::finish(commands::complete_for_kubectl(arguments)),
        ProgramName::KubectlPlugin => cli::plugin_command(),
        ProgramName::Mco => cli::command(),
    };
    let matches = command.get_matches_from(cli::translate(arguments));
    let arguments = cli::Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    log::set_options(arguments.log);
    output::finish(commands::run(arguments))
}
