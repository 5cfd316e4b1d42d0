//! `mco apiserver-watcher` and `mco flock`

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use mco_daemon::apiserver_watcher;
use mco_host::{Ownership, Root};
use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, FdFlags, fcntl_setfd};

use crate::cli::{ApiserverWatcher, Flock};
use crate::log::Log;
use crate::output::{self, CommandOutcome};
use crate::runtime;

/// One for probes; files are written between them.
const WORKERS: usize = 1;
/// How often a lock that is held is tried again.
const LOCK_INTERVAL: Duration = Duration::from_millis(200);

pub fn watch(arguments: &ApiserverWatcher) -> anyhow::Result<CommandOutcome> {
    Log::start(std::io::stderr);
    let ownership = if rustix::process::geteuid().is_root() {
        Ownership::Enforced
    } else {
        Ownership::Recorded
    };
    let root = Root::open(&arguments.root, ownership)?;
    runtime::run(WORKERS, |stop| async move {
        Ok(apiserver_watcher::watch(&arguments.health_check_url, &root, stop).await?)
    })?;
    Ok(CommandOutcome::Done)
}

/// Replaces this process with the command, which inherits the lock; returns only on failure.
pub fn lock(arguments: &Flock) -> anyhow::Result<CommandOutcome> {
    let file = arguments.file.display();
    let Some((program, options)) = arguments.command.split_first() else {
        bail!("no program was named");
    };
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o644)
        .open(&arguments.file)
        .with_context(|| format!("cannot open {file}"))?;
    let deadline = arguments
        .timeout
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    loop {
        match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => return Err(error).with_context(|| format!("cannot lock {file}")),
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            bail!("another process holds the lock {file}");
        }
        thread::sleep(LOCK_INTERVAL);
    }
    if arguments.verbose {
        output::aside(format_args!("locked {file}"));
    }
    // The lock lives as long as a process has the file open, so the command has to inherit it.
    fcntl_setfd(&opened, FdFlags::empty()).with_context(|| format!("cannot pass on {file}"))?;
    let error = Command::new(program).args(options).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}
