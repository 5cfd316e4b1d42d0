//! The Machine Config Operator in one binary: argument parsing, wiring and printing. Decisions live elsewhere.

mod cli;
mod commands;
mod connection;
mod input;
mod leader;
mod log;
mod output;
mod remote;
mod rotating_file;
mod runtime;
mod screen;
mod table;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = cli::Cli::parse_from(cli::translate(std::env::args_os()));
    match commands::run(arguments) {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            output::failure(&error);
            ExitCode::FAILURE
        }
    }
}
