//! The options of commands that follow and steer a cluster.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Format, Output};
use crate::connection::Connection;

/// Which cluster is asked, and how its answer is printed.
#[derive(Debug, Args)]
pub struct Query {
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

/// Show what every pool and node does, what it waits for, and how long it will take.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco status
  mco status worker --nodes
  mco status --watch
  mco status -o json

Pools come first, then what every node does that is not done, what it waits for,
and since when. A rollout that has brought a node home tells when it will be over.")]
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
    #[command(flatten)]
    pub query: Query,
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

/// Show one node: its state, the story of its last update, what it waits for, and why it is degraded.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco node worker-1
  mco node worker-1 -o json
  watch mco node worker-1

The story is told by the node's MachineConfigNode while an update is under way, and
by events afterwards; a cluster forgets events after a while.")]
pub struct Node {
    /// The node.
    #[arg(value_name = "NODE")]
    pub name: String,
    #[command(flatten)]
    pub query: Query,
}

/// Show which nodes are not what their config says: which file, what differs, since when, and who sets it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco drift
  mco drift worker-1
  mco drift -o json

Tells what the nodes report; nothing is read from their disks. Exit code 0 when no
node reports drift, 3 when one does. Files that a node has put back by itself,
because its pool has the annotation
machineconfiguration.openshift.io/drift-policy=heal, are listed too.")]
pub struct Drift {
    /// Only this node.
    #[arg(value_name = "NODE")]
    pub node: Option<String>,
    #[command(flatten)]
    pub query: Query,
}

/// Gather what somebody needs who helps you: objects, events and logs, with the secrets removed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco gather
  mco gather --out bundle.tar.gz
  mco gather -o json

Removed are the data of Secrets and ConfigMaps, the contents of files and units in
MachineConfigs (sizes and hashes are left), keys, password hashes, pull secrets,
tokens and private keys. Names, paths and messages are left; read them before you
pass the bundle on.")]
pub struct Gather {
    /// The file to write; by default mco-gather-<time>.tar.gz here.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub query: Query,
}

/// Steer a pool's rollout.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco rollout pause worker
  mco rollout resume worker
  mco rollout history worker
  mco rollout undo worker")]
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
    History(History),
    Undo(Undo),
}

/// Bring back the configuration that a pool had before.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco rollout undo worker
  mco rollout undo worker --dry-run
  mco rollout undo worker --to rendered-worker-8ce1b1ab --yes
  mco rollout undo worker --dry-run -o json

MachineConfigs that were added since are deleted, those that were changed get their
former contents back, and what was taken away is put into one MachineConfig, by
default 99-<pool>-undo. Before anything is written, the result is rendered as the
controller would render it and compared with the former config; if something would
be different on the machines, nothing is done. Exit code 3 with --dry-run if there is
something to undo.")]
pub struct Undo {
    /// The pool.
    #[arg(value_name = "POOL")]
    pub pool: String,
    /// The rendered config to go back to; by default the one before the current one.
    #[arg(long, value_name = "RENDERED")]
    pub to: Option<String>,
    /// Do not ask.
    #[arg(short, long, group = "decided")]
    pub yes: bool,
    /// Only show what would be done.
    #[arg(long, group = "decided")]
    pub dry_run: bool,
    /// Print this format instead of text; nobody is asked then, so it takes --yes or --dry-run.
    #[arg(short, long, value_enum, requires = "decided")]
    pub output: Option<Format>,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct History {
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub of: OnePool,
}

#[derive(Debug, Args)]
pub struct OnePool {
    /// The pool.
    #[arg(value_name = "POOL")]
    pub pool: String,
    #[command(flatten)]
    pub connection: Connection,
}
