//! Options of `mco adopt` and `mco release`.

use clap::Args;

use super::client::QueryArguments;

/// Show what a pool's config would change on nodes that existed before, and adopt them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco adopt
  mco adopt --pool worker
  mco adopt worker-1 worker-2
  mco adopt worker-1 --yes

Each node's daemon compares the machine with the config of its pool and changes
nothing: which paths it would create, which files of others it would replace or
remove (size, hash, owning package), what it would change of the operating
system, what that costs, and which other agents reboot the node or write the
same files. With --yes the node is adopted:
everything it has is kept, and the ordinary rollout updates it within the
pool's budget. mco release is the way back.

A pool adopts nodes by itself according to its annotation mco.dev/adopt: never,
when-equal (the default: only nodes that already are as configured) or always.

Exit code 3 if a config would change anything, 1 if a node did not answer.")]
pub struct AdoptArguments {
    /// The nodes; by default all that are not adopted yet.
    #[arg(value_name = "NODE")]
    pub nodes: Vec<String>,
    /// Only nodes of this pool.
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
    /// Adopt the nodes.
    #[arg(long)]
    pub yes: bool,
    /// How long to wait for each node's daemon, for example 30s or 2m.
    #[arg(long, value_name = "TIME", default_value = "1m")]
    pub timeout: String,
    #[command(flatten)]
    pub query: QueryArguments,
}

/// Give an adopted node back: restore what was there before, and manage it no more.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco release worker-1
  mco release worker-1 --timeout 1h

Originals are restored and files that were created are removed, as an ordinary
update with its drain and reboot. Then the annotations and taints of the node
are removed, and no pool adopts it again by itself.")]
pub struct ReleaseArguments {
    /// The nodes.
    #[arg(value_name = "NODE", required = true)]
    pub nodes: Vec<String>,
    /// How long to wait for each node, for example 30m or 2h.
    #[arg(long, value_name = "TIME", default_value = "30m")]
    pub timeout: String,
    #[command(flatten)]
    pub query: QueryArguments,
}
