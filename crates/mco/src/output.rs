//! What a person or a program gets to see.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
pub use mco_client::words::harmless;
use mco_core::config::goyaml;
use serde::Serialize;

use crate::cli::Format;

/// How a command ended, when it did not fail to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The command did its work and found something wrong, which it has reported.
    Refused,
    /// There are differences.
    Changes,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::SUCCESS,
            Outcome::Refused => Self::FAILURE,
            Outcome::Changes => Self::from(3),
        }
    }
}

/// Prints to standard output. A reader that has gone away, as in `mco crds | head`, is not an error.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Prints a value for programs.
pub fn print_as(format: Format, value: &impl Serialize) -> anyhow::Result<()> {
    print(&text_as(format, value)?)
}

/// A value as programs read it.
pub fn text_as(format: Format, value: &impl Serialize) -> anyhow::Result<String> {
    let value = serde_json::to_value(value).context("cannot represent the result")?;
    Ok(match format {
        Format::Json => format!("{value:#}\n"),
        Format::Yaml => goyaml::to_string(&value),
    })
}

/// Prints for a program if that was asked for, and for a person else.
pub fn show(
    format: Option<Format>,
    value: &impl Serialize,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    match format {
        Some(format) => print_as(format, value),
        None => print(&text()),
    }
}

/// Words for people beside an output that programs may use.
pub fn aside(text: impl fmt::Display) {
    let _ = writeln!(anstream::stderr(), "{}", harmless(&text.to_string()));
}

/// Something the user should know, which stops nothing.
pub fn warning(text: impl fmt::Display) {
    note("warning", &text.to_string());
}

/// Something that is wrong, reported without ending the command.
pub fn problem(text: impl fmt::Display) {
    note("error", &text.to_string());
}

/// Why the command could not do its work.
pub fn failure(error: &anyhow::Error) {
    note("error", &format!("{error:#}"));
}

/// Nothing useful can be done when standard error itself is gone.
fn note(kind: &str, text: &str) {
    let _ = writeln!(anstream::stderr(), "{kind}: {}", harmless(text));
}
