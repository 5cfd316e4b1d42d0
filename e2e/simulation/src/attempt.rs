//! One story in a process of its own.

use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;

use crate::Arguments;
use crate::story::Fault;

/// The result of one process.
pub struct Attempt {
    /// What it printed, as far as it is worth repeating.
    pub text: String,
    /// What went wrong.
    pub failure: Option<String>,
    pub is_timed_out: bool,
}

impl Attempt {
    /// Plays a story. A process that panics, fails or hangs is a story that fails.
    pub fn play(
        arguments: &Arguments,
        seed: u64,
        without: &[usize],
        faults: &[Fault],
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--only").args(arguments.of(seed, without, faults));
        if arguments.log {
            command.arg("--log");
        }
        let timeout = Duration::from_secs(arguments.timeout);
        let ended = ended(command, timeout).context("starting the simulation")?;
        let Some((status, text, errors)) = ended else {
            return Ok(Self {
                text: String::new(),
                failure: Some(format!("it has not ended after {timeout:?}")),
                is_timed_out: true,
            });
        };
        let crash = panic_of(&errors).or_else(|| {
            let is_complete = matches!(status.code(), Some(0 | 1)) && text.contains(" digest ");
            let last = errors.lines().last().unwrap_or_default();
            (!is_complete).then(|| format!("it ended with {status}: {last}"))
        });
        let failure = violation(&text).or_else(|| crash.clone());
        let errors = if crash.is_some() { errors } else { String::new() };
        Ok(Self {
            text: text + &errors,
            failure,
            is_timed_out: false,
        })
    }

    /// The kind of the failure, without names.
    pub fn kind(&self) -> Option<String> {
        let kept = |word: &&str| !word.contains(|letter: char| letter.is_ascii_digit());
        let failure = self.failure.as_deref()?.split(" (after").next()?;
        Some(failure.split(' ').filter(kept).collect::<Vec<_>>().join(" "))
    }

    /// Returns the number before a word of the last line.
    pub fn count(&self, word: &str) -> u64 {
        let last = self.text.lines().last().unwrap_or_default();
        let words: Vec<&str> = last.split([' ', ',']).collect();
        let index = words.iter().position(|found| *found == word);
        let number = index.and_then(|index| words.get(index.checked_sub(1)?));
        number.and_then(|number| number.parse().ok()).unwrap_or_default()
    }
}

impl Arguments {
    /// Returns the arguments that play a story.
    pub fn of(&self, seed: u64, without: &[usize], faults: &[Fault]) -> Vec<String> {
        let mut arguments = vec!["--seed".to_owned(), seed.to_string()];
        arguments.extend(["--nodes".to_owned(), self.nodes.to_string()]);
        if let Some(plant) = &self.plant {
            arguments.extend(["--plant".to_owned(), plant.to_string()]);
        }
        for (option, values) in [
            ("--without", joined(without)),
            ("--without-faults", joined(faults)),
        ] {
            if !values.is_empty() {
                arguments.extend([option.to_owned(), values]);
            }
        }
        arguments
    }
}

fn joined(values: &[impl ToString]) -> String {
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    values.join(",")
}

/// Runs a command and returns its status, output and errors; nothing if it had to be killed.
fn ended(mut command: Command, timeout: Duration) -> std::io::Result<Option<(ExitStatus, String, String)>> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    // The pipes are closed when the process ends, and the channel with them.
    let (open, closed) = mpsc::channel();
    let output = child.stdout.take().map(|pipe| reader(pipe, open.clone()));
    let errors = child.stderr.take().map(|pipe| reader(pipe, open));
    let is_timed_out = closed.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout);
    if is_timed_out {
        child.kill()?;
    }
    let status = child.wait()?;
    let text = |reader: Option<thread::JoinHandle<String>>| {
        reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
    };
    let (output, errors) = (text(output), text(errors));
    Ok((!is_timed_out).then_some((status, output, errors)))
}

fn reader(mut pipe: impl Read + Send + 'static, open: mpsc::Sender<()>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // Without an end the output is incomplete, which counts as a failure.
        let _ = pipe.read_to_end(&mut bytes);
        drop(open);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Returns the first panic. One that ends only a task or a reconcile is a failure, too.
fn panic_of(errors: &str) -> Option<String> {
    let mut lines = errors.lines().skip_while(|line| !line.contains(" panicked at "));
    let place = lines.next()?.rsplit(" panicked at ").next()?;
    let message = lines.next().unwrap_or_default();
    Some(format!("panicked at {place} {message}"))
}

fn violation(text: &str) -> Option<String> {
    let (_, violation) = text.lines().last()?.split_once(" digest ")?;
    let (_, violation) = violation.split_once(": ")?;
    (violation != "ok").then(|| violation.to_owned())
}
