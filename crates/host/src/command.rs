//! Runs the machine's own tools. Arguments and output of each tool are handled in a module of its own, not here.

use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::process::{Command, Stdio};

use thiserror::Error;

/// How much of a tool's error output is included in messages.
const LONGEST_COMPLAINT: usize = 256;

/// Runs tools; tests provide a fake.
pub trait Commands: fmt::Debug + Send + Sync {
    fn run(&self, program: &str, arguments: &[&str]) -> Result<CommandOutput, CommandError> {
        self.run_with(program, arguments, &[])
    }

    /// Runs a tool with these environment variables. Secrets are passed there, because arguments are world-readable.
    fn run_with(
        &self,
        program: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<CommandOutput, CommandError>;
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandOutput {
    pub stdout: String,
    pub stderr: String,
    /// `None` if a signal terminated the tool.
    pub code: Option<i32>,
}

#[derive(Debug, Error)]
pub enum CommandError {
    #[error("{program} is not installed on this machine")]
    Missing { program: String },
    #[error("could not start {program}: {source}")]
    Start { program: String, source: std::io::Error },
    #[error("{command} failed with {}: {complaint}", code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}")))]
    Failed {
        command: String,
        code: Option<i32>,
        complaint: String,
    },
    #[error("{command} printed something unexpected: {why}")]
    Unexpected { command: String, why: String },
}

/// Runs real processes.
#[derive(Debug, Clone, Default)]
pub struct HostCommands {
    /// A command prefix that runs the tool on the machine; empty if this process already runs there.
    launcher: Vec<OsString>,
}

/// The exit code of a launcher, as of shells, if the machine does not have the tool.
pub const NOT_INSTALLED: i32 = 127;

impl HostCommands {
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
}

impl Commands for HostCommands {
    fn run_with(
        &self,
        program: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<CommandOutput, CommandError> {
        let result = self
            .command(program)
            .args(arguments)
            .envs(environment.iter().copied())
            // rpm-ostree logs this client ID, so that administrators see the origin of a request.
            .env("RPMOSTREE_CLIENT_ID", "machine-config-operator")
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null())
            .output();
        match result {
            Ok(output) if !self.launcher.is_empty() && output.status.code() == Some(NOT_INSTALLED) => {
                Err(CommandError::Missing {
                    program: program.to_owned(),
                })
            }
            Ok(output) => Ok(CommandOutput {
                stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
                stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
                code: output.status.code(),
            }),
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => Err(CommandError::Missing {
                program: program.to_owned(),
            }),
            Err(source) => Err(CommandError::Start {
                program: program.to_owned(),
                source,
            }),
        }
    }
}

/// Runs a tool that must succeed and returns its output.
pub fn succeed(commands: &dyn Commands, program: &str, arguments: &[&str]) -> Result<String, CommandError> {
    succeed_with(commands, program, arguments, &[])
}

/// Runs a tool with environment variables, which are never included in errors.
pub fn succeed_with(
    commands: &dyn Commands,
    program: &str,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Result<String, CommandError> {
    let output = commands.run_with(program, arguments, environment)?;
    if output.code == Some(0) {
        return Ok(output.stdout);
    }
    Err(CommandError::Failed {
        command: [&[program], arguments].concat().join(" "),
        code: output.code,
        complaint: shortened(output.stderr.trim(), LONGEST_COMPLAINT),
    })
}

/// Returns the first characters of a text, and how many more there were.
pub fn shortened(text: &str, limit: usize) -> String {
    let more = text.chars().count().saturating_sub(limit);
    let mut short: String = text.chars().take(limit).collect();
    if more > 0 {
        let _ = write!(short, " [{more} more chars]");
    }
    short
}

#[cfg(test)]
pub(crate) mod testing {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::{CommandError, CommandOutput, Commands};

    /// A fake that replays recorded output and records the calls.
    #[derive(Debug, Default)]
    pub struct Recorded {
        answers: BTreeMap<String, CommandOutput>,
        asked: Mutex<Vec<String>>,
    }

    impl Recorded {
        pub fn answering(answers: &[(&str, &str)]) -> Self {
            let answer = |text: &str| CommandOutput {
                stdout: text.to_owned(),
                code: Some(0),
                ..CommandOutput::default()
            };
            let answers = answers
                .iter()
                .map(|(command, text)| ((*command).to_owned(), answer(text)))
                .collect();
            Self {
                answers,
                asked: Mutex::default(),
            }
        }

        pub fn failing(mut self, command: &str, code: i32, stderr: &str) -> Self {
            let output = CommandOutput {
                stderr: stderr.to_owned(),
                code: Some(code),
                ..CommandOutput::default()
            };
            self.answers.insert(command.to_owned(), output);
            self
        }

        pub fn invocations(&self) -> Vec<String> {
            self.asked.lock().unwrap().clone()
        }
    }

    impl Commands for std::sync::Arc<Recorded> {
        fn run_with(
            &self,
            program: &str,
            arguments: &[&str],
            environment: &[(&str, &str)],
        ) -> Result<CommandOutput, CommandError> {
            let command = [&[program], arguments].concat().join(" ");
            let variables = environment.iter().map(|(name, value)| format!("{name}={value} "));
            self.asked
                .lock()
                .unwrap()
                .push(variables.chain([command.clone()]).collect());
            let answer = self.answers.get(&command).or_else(|| self.answers.get(program));
            answer.cloned().ok_or_else(|| CommandError::Missing {
                program: program.to_owned(),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_complaint_is_cut_and_says_so() {
        assert_eq!(shortened("abcde", 4), "abcd [1 more chars]");
        assert_eq!(shortened("abcd", 4), "abcd");
        assert_eq!(shortened("äöüß!", 4), "äöüß [1 more chars]");
    }

    #[test]
    fn a_launcher_runs_the_tool_in_its_own_way() {
        let commands = HostCommands::through(vec!["/usr/bin/env".into(), "WHERE=there".into()]);
        let output = commands.run("sh", &["-c", "echo $WHERE"]).unwrap();
        assert_eq!(output.stdout, "there\n");
        assert!(matches!(
            commands.run("no-such-tool", &[]),
            Err(CommandError::Missing { program }) if program == "no-such-tool"
        ));
    }

    #[test]
    fn a_real_tool_runs_and_its_failure_is_reported() {
        assert_eq!(
            succeed(&HostCommands::default(), "echo", &["hello"]).unwrap(),
            "hello\n"
        );
        let error = succeed(&HostCommands::default(), "sh", &["-c", "echo no >&2; exit 4"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "sh -c echo no >&2; exit 4 failed with exit code 4: no"
        );
        let reported = succeed_with(
            &HostCommands::default(),
            "sh",
            &["-c", "echo $SECRET"],
            &[("SECRET", "x")],
        );
        assert_eq!(reported.unwrap(), "x\n");
        let missing = succeed(&HostCommands::default(), "no-such-tool-here", &[]).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "no-such-tool-here is not installed on this machine"
        );
    }
}
