//! Runs programs that administrators or configs have put on the machine: with a time limit and bounded output.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;

use crate::command::NOT_INSTALLED;

/// How long a program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// How long output is waited for that a background process of the program may still write.
const LATE_OUTPUT: Duration = Duration::from_millis(200);

/// A program to run, and its limits.
#[derive(Debug, Clone, Copy)]
pub struct ProgramRequest<'a> {
    /// A path below the root of the machine.
    pub program: &'a str,
    pub arguments: &'a [&'a str],
    /// Added to the environment of this process.
    pub environment: &'a [(&'a str, &'a str)],
    pub timeout: Duration,
    /// How many bytes of the output are kept: the last ones.
    pub output_limit: usize,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramEnd {
    Exited(i32),
    Killed(i32),
    TimedOut(Duration),
}

impl ProgramEnd {
    pub fn is_success(self) -> bool {
        self == Self::Exited(0)
    }
}

impl fmt::Display for ProgramEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Killed(signal) => write!(f, "signal {signal}"),
            Self::TimedOut(limit) => write!(f, "no exit within {} s", limit.as_secs()),
        }
    }
}

/// The result of a program, with the end of what it wrote to standard output and standard error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramResult {
    pub end: ProgramEnd,
    pub output: String,
}

#[derive(Debug, Error)]
#[error("could not start {program}: {source}")]
pub struct ProgramError {
    pub program: String,
    pub source: io::Error,
}

/// Runs programs of the machine.
pub trait Programs: fmt::Debug + Send + Sync {
    fn run(&self, request: &ProgramRequest<'_>) -> Result<ProgramResult, ProgramError>;
}

/// Runs real processes, each in a process group of its own.
#[derive(Debug, Clone, Default)]
pub struct HostPrograms {
    /// A command prefix that runs the program on the machine; empty if this process already runs there.
    launcher: Vec<OsString>,
}

impl HostPrograms {
    pub fn through(launcher: Vec<OsString>) -> Self {
        Self { launcher }
    }

    fn command(&self, program: &str) -> Command {
        match self.launcher.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        }
    }

    fn spawn(&self, request: &ProgramRequest<'_>) -> io::Result<(Child, io::PipeReader)> {
        let (reader, writer) = io::pipe()?;
        // The command is dropped here, with its ends of the pipe, so that the end of the output is seen.
        let child = self
            .command(request.program)
            .args(request.arguments)
            .envs(request.environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0)
            .spawn()?;
        Ok((child, reader))
    }
}

impl Programs for HostPrograms {
    fn run(&self, request: &ProgramRequest<'_>) -> Result<ProgramResult, ProgramError> {
        let failed = |source| ProgramError {
            program: request.program.to_owned(),
            source,
        };
        let (child, reader) = self.spawn(request).map_err(failed)?;
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let (end_of_output, output_ended) = mpsc::channel();
        let (kept, limit) = (Arc::clone(&tail), request.output_limit);
        std::thread::spawn(move || {
            keep_tail(reader, &kept, limit);
            // The receiver may have stopped waiting.
            let _ = end_of_output.send(());
        });
        let end = wait(child, request.timeout).map_err(failed)?;
        let _ = output_ended.recv_timeout(LATE_OUTPUT);
        let bytes: Vec<u8> = tail
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .copied()
            .collect();
        if !self.launcher.is_empty() && end == ProgramEnd::Exited(NOT_INSTALLED) {
            return Err(failed(io::ErrorKind::NotFound.into()));
        }
        Ok(ProgramResult {
            end,
            output: String::from_utf8_lossy(&bytes).into_owned(),
        })
    }
}

fn keep_tail(mut reader: io::PipeReader, tail: &Mutex<VecDeque<u8>>, limit: usize) {
    let mut buffer = [0; 4096];
    loop {
        let read = match reader.read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(buffer.iter().take(read));
        let excess = tail.len().saturating_sub(limit);
        tail.drain(..excess);
    }
}

/// Waits for the program, and ends its process group after the timeout.
fn wait(mut child: Child, timeout: Duration) -> io::Result<ProgramEnd> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (exited, exit) = mpsc::channel();
    std::thread::spawn(move || exited.send(child.wait()));
    match exit.recv_timeout(timeout) {
        Ok(status) => return status.map(end_of),
        Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::BrokenPipe.into()),
        Err(RecvTimeoutError::Timeout) => {}
    }
    let signal = |signal| group.map_or(Ok(()), |group| kill_process_group(group, signal));
    // The group may have ended in the meantime.
    let _ = signal(Signal::TERM);
    if exit.recv_timeout(GRACE).is_err() {
        let _ = signal(Signal::KILL);
        let _ = exit.recv_timeout(GRACE);
    }
    Ok(ProgramEnd::TimedOut(timeout))
}

fn end_of(status: ExitStatus) -> ProgramEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProgramEnd::Exited(code),
        (None, signal) => ProgramEnd::Killed(signal.unwrap_or_default()),
    }
}

/// A directory runs no programs: every one of them succeeds without output.
#[derive(Debug, Clone, Copy, Default)]
pub struct SimulatedPrograms;

impl Programs for SimulatedPrograms {
    fn run(&self, _: &ProgramRequest<'_>) -> Result<ProgramResult, ProgramError> {
        Ok(ProgramResult {
            end: ProgramEnd::Exited(0),
            output: String::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, timeout: Duration) -> ProgramResult {
        let request = ProgramRequest {
            program: "/bin/sh",
            arguments: &["-c", script],
            environment: &[("GREETING", "hello")],
            timeout,
            output_limit: 16,
        };
        HostPrograms::default().run(&request).unwrap()
    }

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn both_outputs_and_the_exit_code_are_returned() {
        let result = shell("echo $GREETING; echo oh >&2; exit 3", LONG);
        assert_eq!(result.end, ProgramEnd::Exited(3));
        assert_eq!(result.output, "hello\noh\n");
        assert_eq!(shell("kill -9 $$", LONG).end, ProgramEnd::Killed(9));
    }

    #[test]
    fn only_the_end_of_the_output_is_kept() {
        let result = shell("seq 100000; echo end", LONG);
        assert_eq!(result.output, "9999\n100000\nend\n");
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_its_children() {
        let limit = Duration::from_millis(50);
        let result = shell("trap '' TERM; echo started; sleep 1000 & wait; sleep 1000", limit);
        assert_eq!(result.end, ProgramEnd::TimedOut(limit));
        assert_eq!(result.output, "started\n");
    }

    #[test]
    fn a_background_process_that_keeps_the_output_open_is_not_waited_for() {
        let result = shell("sleep 1000 & echo $!", LONG);
        assert_eq!(result.end, ProgramEnd::Exited(0));
        let left: i32 = result.output.trim().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(left).unwrap(), Signal::KILL).unwrap();
    }

    #[test]
    fn a_program_that_is_not_there_cannot_be_started() {
        let request = ProgramRequest {
            program: "/no/such/program",
            arguments: &[],
            environment: &[],
            timeout: LONG,
            output_limit: 16,
        };
        let error = HostPrograms::default().run(&request).unwrap_err();
        assert_eq!(
            error.to_string(),
            "could not start /no/such/program: No such file or directory (os error 2)"
        );
        let launched = HostPrograms::through(vec!["/usr/bin/env".into()]);
        assert!(launched.run(&request).is_err());
    }
}
