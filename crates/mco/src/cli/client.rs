//! Options of the commands that observe and control a cluster.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgAction, Args, Subcommand};
use clap_complete::ArgValueCompleter;

use super::completion::{nodes, pools, rendered_configs};
use super::{ListOutputArguments, OutputArguments, OutputFormat, output};
use crate::connection::Connection;

/// The cluster to query and the format of the output.
#[derive(Debug, Args)]
pub struct QueryArguments {
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub connection: Connection,
}

/// The cluster to query and the format of a list.
#[derive(Debug, Args)]
pub struct ListArguments {
    #[command(flatten)]
    pub output: ListOutputArguments,
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
  mco status -o wide
  mco status -o jsonpath='{range [*]}{.name} {.state}{\"\\n\"}{end}'

Lists the pools, then every node that is not up to date: what it does, what it
waits for, and since when. Once one node has finished, an estimated completion
time is shown.")]
pub struct StatusArguments {
    /// Only these pools.
    #[arg(value_name = "POOL", add = ArgValueCompleter::new(pools))]
    pub pools: Vec<String>,
    /// Show every node, not only those that are being updated, waiting or degraded.
    #[arg(long)]
    pub nodes: bool,
    /// Refresh on every change, until Ctrl-C.
    #[arg(short, long, conflicts_with = "output")]
    pub watch: bool,
    #[command(flatten)]
    pub query: ListArguments,
}

/// Wait until pools are up to date, or until they have a condition.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco wait worker
  mco wait worker --timeout 30m
  mco wait --all
  mco wait worker infra --for condition=Degraded=False
  mco wait worker --for condition=Updating --timeout 1m

Exit code 0 when every pool is there, 1 on timeout. Without --for also 1 as
soon as a pool degrades.")]
pub struct Wait {
    /// The pools.
    #[arg(value_name = "POOL", required_unless_present = "all", add = ArgValueCompleter::new(pools))]
    pub pools: Vec<String>,
    /// All pools.
    #[arg(long, conflicts_with = "pools")]
    pub all: bool,
    /// What to wait for: updated, or condition=TYPE[=STATUS] of the MachineConfigPool.
    #[arg(long = "for", value_name = "TARGET", default_value = "updated")]
    pub target: WaitTarget,
    /// How long to wait, for example 90s, 30m or 2h.
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub timeout: String,
    #[command(flatten)]
    pub connection: Connection,
}

/// What `mco wait` waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitTarget {
    /// All nodes have the current config, and nothing is left to render.
    Updated,
    Condition {
        condition: String,
        status: String,
    },
}

impl FromStr for WaitTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "updated" {
            return Ok(Self::Updated);
        }
        let Some(wanted) = text
            .strip_prefix("condition=")
            .filter(|wanted| !wanted.is_empty())
        else {
            return Err("expected updated or condition=TYPE[=STATUS]".to_owned());
        };
        let (condition, status) = wanted.split_once('=').unwrap_or((wanted, "True"));
        Ok(Self::Condition {
            condition: condition.to_owned(),
            status: status.to_owned(),
        })
    }
}

/// Create or change objects in the cluster, as kubectl apply --server-side does; Butane configs are translated.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco apply -f 50-worker-chrony.bu
  mco apply -f 50-worker-chrony.bu --dry-run -o yaml
  kustomize build cluster/ | mco apply -f -

Every object is validated first; with an error in one, none is applied. See
what an object would change on the nodes with: mco plan -f FILE.")]
pub struct Apply {
    /// Files, directories, or - for standard input.
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Only print what would be applied; the cluster is not contacted.
    #[arg(long)]
    pub dry_run: bool,
    /// Take over fields that another field manager has set.
    #[arg(long)]
    pub force_conflicts: bool,
    /// Print the objects in this format; only with --dry-run.
    #[arg(short, long, value_name = output::FORMATS, requires = "dry_run")]
    pub output: Option<OutputFormat>,
    #[command(flatten)]
    pub connection: Connection,
}

/// Show one node: its state, the timeline of its last update, what it waits for, and why it is degraded.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco node worker-1
  mco node worker-1 -o json
  mco node worker-1 --logs
  mco node worker-1 --logs --follow --tail 100

During an update the timeline comes from the node's MachineConfigNode,
afterwards from events, which the cluster deletes after a while. --logs prints
the log of the daemon's pod instead.")]
pub struct NodeArguments {
    /// The node.
    #[arg(value_name = "NODE", add = ArgValueCompleter::new(nodes))]
    pub name: String,
    /// Print the log of the node's daemon.
    #[arg(long, conflicts_with = "output")]
    pub logs: bool,
    /// Print new lines as they come, until Ctrl-C.
    #[arg(short, long, requires = "logs")]
    pub follow: bool,
    /// Only this many lines from the end.
    #[arg(long, value_name = "LINES", requires = "logs")]
    pub tail: Option<i64>,
    /// The log of the container before its last restart.
    #[arg(short, long, requires = "logs", conflicts_with = "follow")]
    pub previous: bool,
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

Shows what the nodes report; nothing is read from their disks. Exit code 0 when
no node reports drift, 3 when one does. Files that a node has restored by
itself, because its pool has the annotation
machineconfiguration.openshift.io/drift-policy=heal, are listed too.")]
pub struct DriftArguments {
    /// Only this node.
    #[arg(value_name = "NODE", add = ArgValueCompleter::new(nodes))]
    pub node: Option<String>,
    #[command(flatten)]
    pub query: ListArguments,
}

/// Gather objects, events and logs for a support case, with secrets removed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco gather
  mco gather --out bundle.tar.gz
  mco gather -o json

Removed are the data of Secrets and ConfigMaps, the contents of files and units
in MachineConfigs (sizes and hashes are left), keys, password hashes, pull
secrets, tokens and private keys. Names, paths and messages are left; review
them before you share the bundle.")]
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
  mco rollout status worker
  mco rollout pause worker
  mco rollout resume worker
  mco rollout restart worker --dry-run
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
    Status(RolloutStatus),
    Restart(RestartArguments),
    /// Pause a pool: no further node is updated.
    #[command(after_help = "\
Example:
  mco rollout pause worker

Updates that are under way are completed.")]
    Pause(OnePool),
    /// Resume a pool that is paused, was aborted, or is halted by its RolloutPolicy.
    #[command(after_help = "\
Example:
  mco rollout resume worker

The nodes that have failed no longer count against maxFailures of the
RolloutPolicy, for the current config of the pool. A config that the policy has
reverted is not attempted again; the pool needs a new one.")]
    Resume(OnePool),
    /// Continue with the next wave of the RolloutPolicy, without its soak time.
    #[command(after_help = "\
Example:
  mco rollout promote worker

The current wave of the pool's RolloutPolicy is not waited for any more, nor is
its soak time. Windows, gates, budgets and maxFailures still apply.")]
    Promote(OnePool),
    /// Stop the rollout of the current config under the pool's RolloutPolicy.
    #[command(after_help = "\
Example:
  mco rollout abort worker

No further node is updated to the current config of the pool; updates that are
under way are completed. Another config is rolled out again. Continue with: mco
rollout resume. Go back to the config before with: mco rollout undo.")]
    Abort(OnePool),
    /// List the configurations that a pool has had, newest first.
    #[command(after_help = "\
Examples:
  mco rollout history worker
  mco rollout history worker -o name")]
    History(HistoryArguments),
    Undo(UndoArguments),
}

/// Show the rollout of a pool until it has finished.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco rollout status worker
  mco rollout status worker --watch=false
  mco rollout status worker --timeout 30m

Exit code 0 when all nodes of the pool are up to date, 1 when it degrades or on
timeout. With --watch=false the state is printed once, with exit code 0.")]
pub struct RolloutStatus {
    /// The pool.
    #[arg(value_name = "POOL", add = ArgValueCompleter::new(pools))]
    pub pool: String,
    /// Whether to wait for the end of the rollout.
    #[arg(short, long, value_name = "true|false", default_value_t = true, action = ArgAction::Set)]
    pub watch: bool,
    /// How long to wait, for example 30m; 0s is without limit.
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub timeout: String,
    #[command(flatten)]
    pub connection: Connection,
}

/// Reboot the nodes of a pool, as a rollout.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco rollout restart worker --dry-run
  mco rollout restart worker
  mco rollout restart worker --yes && mco rollout status worker

Writes MachineConfig 99-POOL-restart with the file /etc/mco-restarted-at, which
holds the time. The ordinary rollout follows: within maxUnavailable each node
is drained and rebooted. Delete that MachineConfig to remove the file, with
another rollout. Pools that select the MachineConfigs of this pool too, as
custom pools do with those of worker, restart with it: the command refuses
unless --with-inheriting is given. Exit code 3 with --dry-run.")]
pub struct RestartArguments {
    /// The pool.
    #[arg(value_name = "POOL", add = ArgValueCompleter::new(pools))]
    pub pool: String,
    /// Also restart the nodes of pools that select this pool's MachineConfigs.
    #[arg(long)]
    pub with_inheriting: bool,
    /// Do not ask for confirmation.
    #[arg(short, long, conflicts_with = "dry_run")]
    pub yes: bool,
    /// Only show what would be done.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub connection: Connection,
}

/// Roll a pool back to its previous configuration.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco rollout undo worker
  mco rollout undo worker --dry-run
  mco rollout undo worker --to rendered-worker-8ce1b1ab --yes
  mco rollout undo worker --dry-run -o json

MachineConfigs that were added since are deleted, changed ones are reverted,
and what was removed is restored in one MachineConfig, by default
99-<pool>-undo. Before anything is written, the result is rendered as the
controller would render it and compared with the former config; if anything
would differ on the nodes, nothing is done. Exit code 3 with --dry-run if there
is something to undo.")]
pub struct UndoArguments {
    /// The pool.
    #[arg(value_name = "POOL", add = ArgValueCompleter::new(pools))]
    pub pool: String,
    /// The rendered config to roll back to; by default the one before the current one.
    #[arg(long, value_name = "RENDERED", add = ArgValueCompleter::new(rendered_configs))]
    pub to: Option<String>,
    /// Do not ask for confirmation.
    #[arg(short, long, group = "decided")]
    pub yes: bool,
    /// Only show what would be done.
    #[arg(long, group = "decided")]
    pub dry_run: bool,
    /// Print this format instead of text. There is no confirmation prompt, so --yes or --dry-run is required.
    #[arg(short, long, value_name = output::FORMATS, requires = "decided")]
    pub output: Option<OutputFormat>,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct HistoryArguments {
    #[command(flatten)]
    pub output: ListOutputArguments,
    #[command(flatten)]
    pub of: OnePool,
}

#[derive(Debug, Args)]
pub struct OnePool {
    /// The pool.
    #[arg(value_name = "POOL", add = ArgValueCompleter::new(pools))]
    pub pool: String,
    #[command(flatten)]
    pub connection: Connection,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_for_the_update_or_for_a_condition() {
        let condition = |condition: &str, status: &str| WaitTarget::Condition {
            condition: condition.to_owned(),
            status: status.to_owned(),
        };
        for (text, expected) in [
            ("updated", Some(WaitTarget::Updated)),
            ("condition=Updated", Some(condition("Updated", "True"))),
            ("condition=Degraded=False", Some(condition("Degraded", "False"))),
            ("condition=", None),
            ("delete", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
    }
}
