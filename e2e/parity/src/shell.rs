//! Shell lines of a transcript, run in a scratch directory with `kubectl` first on the path.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// Timeout of a line; the longest is a drain that waits for a budget.
const LINE: Duration = Duration::from_secs(90);

/// Timeout of the expected output of a background line.
const PRINTED: Duration = Duration::from_secs(30);

const RETRY: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub struct Shell {
    directory: TempDir,
    kubeconfig: PathBuf,
    path: String,
    background: HashMap<String, Background>,
}

#[derive(Debug, Clone)]
pub struct Output {
    pub exit: i32,
    pub stdout: String,
    pub stderr: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    #[error("no scratch directory")]
    Directory(#[source] std::io::Error),
    #[error("file {name:?} cannot be written")]
    File { name: String, source: std::io::Error },
    #[error("{line:?} cannot be run")]
    Run { line: String, source: std::io::Error },
    #[error("{line:?} did not end within {} s", LINE.as_secs())]
    Deadline { line: String },
    #[error("nothing runs in the background as {name}")]
    NotRunning { name: String },
    #[error("{name} printed {} of {wanted} lines within {} s: {}", seen.len(), PRINTED.as_secs(), seen.join("\n"))]
    Silent {
        name: String,
        wanted: usize,
        seen: Vec<String>,
    },
}

#[derive(Debug)]
struct Background {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    seen: Vec<String>,
}

impl Shell {
    /// Creates a scratch directory; `kubectl` is the directory that holds the command.
    pub fn new(kubeconfig: &Path, kubectl: Option<&Path>) -> Result<Self, ShellError> {
        let directory = TempDir::with_prefix("parity-").map_err(ShellError::Directory)?;
        let inherited = std::env::var("PATH").unwrap_or_default();
        let path = kubectl.map_or(inherited.clone(), |first| {
            format!("{}:{inherited}", first.display())
        });
        let kubeconfig = std::path::absolute(kubeconfig).map_err(ShellError::Directory)?;
        Ok(Self {
            directory,
            kubeconfig,
            path,
            background: HashMap::new(),
        })
    }

    pub async fn run(&self, line: &str, files: &BTreeMap<String, String>) -> Result<Output, ShellError> {
        self.write(files).await?;
        let wrap = |source| ShellError::Run {
            line: line.to_owned(),
            source,
        };
        let child = self.command(line).spawn().map_err(wrap)?;
        let output = timeout(LINE, child.wait_with_output())
            .await
            .map_err(|_| ShellError::Deadline {
                line: line.to_owned(),
            })?
            .map_err(wrap)?;
        Ok(Output {
            exit: exit_code(output.status),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Repeats the line until it exits with 0 or the deadline has passed; returns the output of the last run.
    pub async fn run_until_success(
        &self,
        line: &str,
        files: &BTreeMap<String, String>,
    ) -> Result<Output, ShellError> {
        let started = Instant::now();
        loop {
            let output = self.run(line, files).await?;
            if output.exit == 0 || started.elapsed() > LINE {
                return Ok(output);
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Starts the line and waits until it has printed so many lines.
    pub async fn start(
        &mut self,
        name: &str,
        line: &str,
        files: &BTreeMap<String, String>,
        lines: usize,
    ) -> Result<(), ShellError> {
        self.write(files).await?;
        let wrap = |source| ShellError::Run {
            line: line.to_owned(),
            source,
        };
        // `exec` makes the command itself the child, so that killing the child kills the command.
        let mut child = self.command(&format!("exec {line}")).spawn().map_err(wrap)?;
        let stdout = child
            .stdout
            .take()
            .ok_or_else(|| wrap(std::io::Error::other("no standard output")))?;
        let mut background = Background {
            child,
            stdout: BufReader::new(stdout).lines(),
            seen: Vec::new(),
        };
        background.wait_for(name, lines).await?;
        self.background.insert(name.to_owned(), background);
        Ok(())
    }

    /// Waits until the background line has printed so many lines in all, then ends it.
    pub async fn collect(&mut self, name: &str, lines: usize) -> Result<Output, ShellError> {
        let mut background = self
            .background
            .remove(name)
            .ok_or_else(|| ShellError::NotRunning {
                name: name.to_owned(),
            })?;
        let printed = background.wait_for(name, lines).await;
        background.end().await;
        printed?;
        let mut stderr = String::new();
        if let Some(mut stream) = background.child.stderr.take() {
            // Only what was printed before the end is compared; a broken pipe is ignored.
            let _ = stream.read_to_string(&mut stderr).await;
        }
        Ok(Output {
            exit: 0,
            stdout: background.seen.join("\n"),
            stderr,
        })
    }

    pub async fn stop(&mut self) {
        for background in self.background.values_mut() {
            background.end().await;
        }
        self.background.clear();
    }

    async fn write(&self, files: &BTreeMap<String, String>) -> Result<(), ShellError> {
        for (name, text) in files {
            tokio::fs::write(self.directory.path().join(name), text)
                .await
                .map_err(|source| ShellError::File {
                    name: name.clone(),
                    source,
                })?;
        }
        Ok(())
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("bash");
        command
            .args(["-c", line])
            .current_dir(self.directory.path())
            .env("PATH", &self.path)
            .env("KUBECONFIG", &self.kubeconfig)
            // The discovery cache of one server must not be used for another.
            .env("HOME", self.directory.path())
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }
}

impl Background {
    async fn wait_for(&mut self, name: &str, wanted: usize) -> Result<(), ShellError> {
        let complete = timeout(PRINTED, async {
            while self.seen.len() < wanted {
                match self.stdout.next_line().await {
                    Ok(Some(line)) => self.seen.push(line),
                    Ok(None) | Err(_) => return false,
                }
            }
            true
        })
        .await
        .unwrap_or(false);
        if complete {
            return Ok(());
        }
        Err(ShellError::Silent {
            name: name.to_owned(),
            wanted,
            seen: self.seen.clone(),
        })
    }

    async fn end(&mut self) {
        // The command may have exited already.
        let _ = self.child.kill().await;
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or(-1)
}
