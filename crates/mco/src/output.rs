//! Output for people and programs.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
pub use mco_client::text::escape_control_chars;
use mco_core::config::goyaml;
use serde::Serialize;

use crate::cli::{ListFormat, OutputFormat};

/// The result of a command that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandOutcome {
    Done,
    /// The command completed and reported a problem.
    Refused,
    /// There are differences.
    Changes,
}

impl From<CommandOutcome> for ExitCode {
    fn from(outcome: CommandOutcome) -> Self {
        match outcome {
            CommandOutcome::Done => Self::SUCCESS,
            CommandOutcome::Refused => Self::FAILURE,
            CommandOutcome::Changes => Self::from(3),
        }
    }
}

/// Prints the error of a command, and returns its exit code.
pub fn finish(result: anyhow::Result<CommandOutcome>) -> ExitCode {
    match result {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            failure(&error);
            ExitCode::FAILURE
        }
    }
}

/// Prints to standard output. A closed pipe, as in `mco crds | head`, is not an error.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Prints a value in a format for programs.
pub fn print_as(format: &OutputFormat, value: &impl Serialize) -> anyhow::Result<()> {
    print(&text_as(format, value)?)
}

/// Returns a value in a format for programs.
pub fn text_as(format: &OutputFormat, value: &impl Serialize) -> anyhow::Result<String> {
    let value = serde_json::to_value(value).context("cannot represent the result")?;
    Ok(match format {
        OutputFormat::Json => format!("{value:#}\n"),
        OutputFormat::Yaml => goyaml::to_string(&value),
        OutputFormat::JsonPath(template) => template.fill(&value),
    })
}

/// Prints in the format for programs if one was requested, else as text.
pub fn show(
    format: Option<&OutputFormat>,
    value: &impl Serialize,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    match format {
        Some(format) => print_as(format, value),
        None => print(&text()),
    }
}

/// How many columns a table has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    Ordinary,
    Wide,
}

/// Prints a list: as text, as names, or in a format for programs.
pub fn show_list(
    format: Option<&ListFormat>,
    value: &impl Serialize,
    names: impl FnOnce() -> Vec<String>,
    text: impl FnOnce(Columns) -> String,
) -> anyhow::Result<()> {
    match format {
        None => print(&text(Columns::Ordinary)),
        Some(ListFormat::Wide) => print(&text(Columns::Wide)),
        Some(ListFormat::Name) => print(&names().iter().fold(String::new(), |all, name| all + name + "\n")),
        Some(ListFormat::Program(format)) => print_as(format, value),
    }
}

/// Prints text on standard error, beside an output that programs may parse.
pub fn aside(text: impl fmt::Display) {
    let _ = writeln!(anstream::stderr(), "{}", escape_control_chars(&text.to_string()));
}

/// Prints a warning.
pub fn warning(text: impl fmt::Display) {
    note("warning", &text.to_string());
}

/// Prints an error without ending the command.
pub fn problem(text: impl fmt::Display) {
    note("error", &text.to_string());
}

/// Prints the error that ended the command.
pub fn failure(error: &anyhow::Error) {
    note("error", &format!("{error:#}"));
}

/// Writes to standard error and ignores failures, which could not be reported anywhere.
fn note(kind: &str, text: &str) {
    let _ = writeln!(anstream::stderr(), "{kind}: {}", escape_control_chars(text));
}
