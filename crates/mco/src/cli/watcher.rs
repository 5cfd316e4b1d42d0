//! Options of `mco apiserver-watcher`, `mco flock` and `mco version`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use mco_daemon::apiserver_watcher::HealthUrl;

use super::OutputArguments;
use crate::connection::Connection;

/// Report to the routing scripts of a control-plane machine whether its API server is healthy.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  mco apiserver-watcher --root /rootfs \\
      --health-check-url https://api-int.example.com:6443/readyz

For clouds whose load balancer sends connections of a backend back to itself.
Every two seconds the same path is requested from localhost. After one success
/run/cloud-routes/ADDRESS.up exists for each address of the URL's host, after
eight failures in a row and on SIGTERM or SIGINT ADDRESS.down does.")]
pub struct ApiserverWatcher {
    /// The health endpoint at the load balancer.
    #[arg(long, value_name = "URL")]
    pub health_check_url: HealthUrl,
    /// The machine's root.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

/// Run a command with a lock, as flock of util-linux does: static pods start the API server watcher this way.
#[derive(Debug, Args)]
pub struct Flock {
    /// Print progress.
    #[arg(long)]
    pub verbose: bool,
    /// Take an exclusive lock; the only kind there is.
    #[arg(short = 'x', long)]
    pub exclusive: bool,
    /// Seconds to wait for the lock.
    #[arg(short = 'w', long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
    /// The file to lock; created if it is missing.
    pub file: PathBuf,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

/// Print the versions of this program and of the cluster's operator.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco version
  mco version --client
  mco version -o json

The server's version is the one that the cluster's ControllerConfig was written
with. Without a reachable cluster it is left out, and the exit code is 0.")]
pub struct VersionArguments {
    /// Print the version of this program only.
    #[arg(long)]
    pub client: bool,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub connection: Connection,
}
