//! Options of the commands that observe and control a cluster.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{OutputArguments, OutputFormat};
use crate::connection::Connection;

/// The cluster to query and the format of the output.
#[derive(Debug, Args)]
pub struct QueryArguments {
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub connection: Connection,
}

/// Show the state of every pool and node, what it waits for, and how long it will take.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco status
  mco status worker --nodes
  mco status --watch
  mco status -o json

Lists the pools, then every node that is not up to date: what it does, what it waits
for, and since when. Once one node has finished, an estimated completion time is shown.")]
pub struct StatusArguments {
    /// Only these pools.
    #[arg(value_name = "POOL")]
    pub pools: Vec<String>,
    /// Show every node, not only those that are being updated, waiting or degraded.
    #[arg(long)]
    pub nodes: bool,
    /// Refresh on every change, until Ctrl-C.
    #[arg(short, long, conflicts_with = "output")]
    pub watch: bool,
    #[command(flatten)]
    pub query: QueryArguments,
}

/// Wait until all nodes of a pool are up to date.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco wait worker
  mco wait worker --timeout 30m

Exit code 0 when the pool is updated, 1 when it degrades or on timeout.")]
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

/// Show one node: its state, the timeline of its last update, what it waits for, and why it is degraded.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco node worker-1
  mco node worker-1 -o json
  watch mco node worker-1

During an update the timeline comes from the node's MachineConfigNode, afterwards
from events, which the cluster deletes after a while.")]
pub struct NodeArguments {
    /// The node.
    #[arg(value_name = "NODE")]
    pub name: String,
    #[command(flatten)]
    pub query: QueryArguments,
}

/// Show which nodes have drifted from their config: which file, what differs, since when, and which MachineConfig sets
/// it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco drift
  mco drift worker-1
  mco drift -o json

Shows what the nodes report; nothing is read from their disks. Exit code 0 when no
node reports drift, 3 when one does. Files that a node has restored by itself,
because its pool has the annotation
machineconfiguration.openshift.io/drift-policy=heal, are listed too.")]
pub struct DriftArguments {
    /// Only this node.
    #[arg(value_name = "NODE")]
    pub node: Option<String>,
    #[command(flatten)]
    pub query: QueryArguments,
}

/// Gather objects, events and logs for a support case, with secrets removed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco gather
  mco gather --out bundle.tar.gz
  mco gather -o json

Removed are the data of Secrets and ConfigMaps, the contents of files and units in
MachineConfigs (sizes and hashes are left), keys, password hashes, pull secrets,
tokens and private keys. Names, paths and messages are left; review them before you
share the bundle.")]
pub struct Gather {
    /// The file to write; by default mco-gather-<time>.tar.gz in the current directory.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub query: QueryArguments,
}

/// Control a pool's rollout.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco rollout pause worker
  mco rollout resume worker
  mco rollout promote worker
  mco rollout abort worker
  mco rollout history worker
  mco rollout undo worker")]
pub struct Rollout {
    #[command(subcommand)]
    pub action: RolloutAction,
}

#[derive(Debug, Subcommand)]
pub enum RolloutAction {
    /// Pause a pool: no further node is updated.
    Pause(OnePool),
    /// Resume a pool that is paused, was aborted, or is halted by its RolloutPolicy.
    #[command(after_help = "\
The nodes that have failed no longer count against maxFailures of the RolloutPolicy, for
the current config of the pool.")]
    Resume(OnePool),
    /// Continue with the next wave of the RolloutPolicy, without its soak time.
    #[command(after_help = "\
The current wave of the pool's RolloutPolicy is not waited for any more, nor is its soak
time. Windows, gates, budgets and maxFailures still apply.")]
    Promote(OnePool),
    /// Stop the rollout of the current config under the pool's RolloutPolicy.
    #[command(after_help = "\
No further node is updated to the current config of the pool; updates that are under way
are completed. Another config is rolled out again. Continue with: mco rollout resume.
Go back to the config before with: mco rollout undo.")]
    Abort(OnePool),
    /// List the configurations that a pool has had, newest first.
    History(HistoryArguments),
    Undo(UndoArguments),
}

/// Roll a pool back to its previous configuration.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco rollout undo worker
  mco rollout undo worker --dry-run
  mco rollout undo worker --to rendered-worker-8ce1b1ab --yes
  mco rollout undo worker --dry-run -o json

MachineConfigs that were added since are deleted, changed ones are reverted, and what
was removed is restored in one MachineConfig, by default 99-<pool>-undo. Before
anything is written, the result is rendered as the controller would render it and
compared with the former config; if anything would differ on the nodes, nothing is
done. Exit code 3 with --dry-run if there is
something to undo.")]
pub struct UndoArguments {
    /// The pool.
    #[arg(value_name = "POOL")]
    pub pool: String,
    /// The rendered config to roll back to; by default the one before the current one.
    #[arg(long, value_name = "RENDERED")]
    pub to: Option<String>,
    /// Do not ask for confirmation.
    #[arg(short, long, group = "decided")]
    pub yes: bool,
    /// Only show what would be done.
    #[arg(long, group = "decided")]
    pub dry_run: bool,
    /// Print this format instead of text. There is no confirmation prompt, so --yes or --dry-run is required.
    #[arg(short, long, value_enum, requires = "decided")]
    pub output: Option<OutputFormat>,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct HistoryArguments {
    #[command(flatten)]
    pub output: OutputArguments,
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
