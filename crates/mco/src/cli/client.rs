//! The options of commands that follow and steer a cluster.

use clap::{Args, Subcommand};

use super::Format;
use crate::connection::Connection;

/// Show what every pool and node does, what it waits for, and how long it will take.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco status
  mco status worker --nodes
  mco status --watch
  mco status -o json")]
pub struct Status {
    /// Only these pools.
    #[arg(value_name = "POOL")]
    pub pools: Vec<String>,
    /// Show every node, not only those that have something to tell.
    #[arg(long)]
    pub nodes: bool,
    /// Show it again whenever something changes, until Ctrl-C.
    #[arg(short, long, conflicts_with = "output")]
    pub watch: bool,
    /// Print this format.
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
    #[command(flatten)]
    pub connection: Connection,
}

/// Wait until a pool's nodes all have its configuration.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco wait worker
  mco wait worker --timeout 30m

Exit code 0 when the pool is updated, 1 when it degrades or the time is over.")]
pub struct Wait {
    /// The pool.
    #[arg(value_name = "POOL")]
    pub pool: String,
    /// How long to wait, for example 90s, 30m or 2h.
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub timeout: String,
    #[command(flatten)]
    pub connection: Connection,
}

/// Steer a pool's rollout.
#[derive(Debug, Args)]
pub struct Rollout {
    #[command(subcommand)]
    pub action: RolloutAction,
}

#[derive(Debug, Subcommand)]
pub enum RolloutAction {
    /// Let no further node of a pool be updated.
    Pause(OnePool),
    /// Let a paused pool go on.
    Resume(OnePool),
    /// List the configurations a pool has had, the newest first.
    History(OnePool),
}

#[derive(Debug, Args)]
pub struct OnePool {
    /// The pool.
    #[arg(value_name = "POOL")]
    pub pool: String,
    #[command(flatten)]
    pub connection: Connection,
}
