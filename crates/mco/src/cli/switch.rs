//! Options of `mco switch`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::OutputArguments;
use crate::connection::Connection;

/// Switch a cluster from the Go implementation to this one, or back, without a reboot.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco switch check --templates templates/
  mco switch prepare
  mco install --image registry.example.com/mco:0.1.0 ... | kubectl apply \\
      --server-side -f -
  mco switch back
  mco switch release

check reads only. prepare and back print each step and ask before the first
one; --dry-run only prints them. See docs/switch.md for the whole procedure.")]
pub struct SwitchArguments {
    #[command(subcommand)]
    pub action: SwitchAction,
}

#[derive(Debug, Subcommand)]
pub enum SwitchAction {
    Check(SwitchCheck),
    Prepare(SwitchPrepare),
    Back(SwitchBack),
    Release(SwitchRelease),
}

/// Check that switching would render the same names, and that no node is in the middle of an update.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco switch check --templates templates/
  mco switch check --templates templates/ --pull-secret pull-secret.yaml
  mco switch check --templates templates/ -o json

Renders every pool from the objects of the cluster, as the controller will, and
compares the name with the one that the pool has. Where they differ, what
differs on the nodes is shown. The templates are those of the release,
unchanged: copy /etc/mcc/templates out of the machine-config-operator image.
The pull secret is read from the cluster unless --pull-secret is set.

Exit codes: 0 safe to switch, 1 the check failed, 3 a pool would get another
config, a node is being updated, or the cluster uses something that is not
supported.")]
pub struct SwitchCheck {
    /// Directory of the release's base templates.
    #[arg(long, value_name = "DIR")]
    pub templates: PathBuf,
    /// Manifest of the Secret with the registry credentials, if you may not read it in the cluster.
    #[arg(long, value_name = "FILE")]
    pub pull_secret: Option<PathBuf>,
    /// Release whose feature gates apply; by default the ControllerConfig's, or the only one there is.
    #[arg(long, value_name = "VERSION")]
    pub payload_version: Option<String>,
    /// Show the changed lines of text files.
    #[arg(long)]
    pub show_contents: bool,
    #[command(flatten)]
    pub output: OutputArguments,
    #[command(flatten)]
    pub connection: Connection,
}

/// Confirmation and timeout of a switch.
#[derive(Debug, Clone, Args)]
pub struct SwitchSteps {
    /// Do not ask for confirmation.
    #[arg(short, long, conflicts_with = "dry_run")]
    pub yes: bool,
    /// Only print the steps.
    #[arg(long)]
    pub dry_run: bool,
    /// How long to wait until every node is settled, for example 90s, 30m or 2h.
    #[arg(long, value_name = "TIME", default_value = "2h")]
    pub timeout: String,
    /// Do not wait: the other implementation completes the updates in progress.
    #[arg(long)]
    pub no_wait: bool,
}

/// Pause the pools, wait until every node is settled, and save the original's workloads.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco switch prepare --dry-run
  mco switch prepare
  mco switch prepare --yes --save original.yaml --timeout 30m

Pools that are paused already stay so, now and when `mco switch back` or `mco
switch release` resumes the others. On OpenShift, ClusterVersion overrides make
the cluster version operator ignore our Deployment, Services and
ServiceMonitors; your overrides stay. A file that exists is not overwritten.
Nothing of the original is deleted: the last lines of the output show how. Exit
code 3 with --dry-run if there is something to do.")]
pub struct SwitchPrepare {
    /// The file for the original's workloads.
    #[arg(long, value_name = "FILE", default_value = "original.yaml")]
    pub save: PathBuf,
    #[command(flatten)]
    pub steps: SwitchSteps,
    #[command(flatten)]
    pub connection: Connection,
}

/// Switch back: remove our workloads and webhook, and the state that other controllers do not use.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco switch back --dry-run
  mco switch back
  mco switch back --yes --restore original.yaml
  mco switch back --no-wait

Pauses the pools, waits until every node is settled, deletes our operator,
webhook and other workloads, removes the finalizer of rendered MachineConfigs,
removes the overrides that prepare added, and resumes the pools that it or
prepare paused. The cluster version operator then recreates the original
operator; without one, use --restore with the file that prepare saved.
MachineConfigs, pools, node annotations and the files on nodes stay. Exit code
3 with --dry-run if there is something to do.")]
pub struct SwitchBack {
    /// Create the workloads in this file, which prepare saved.
    #[arg(long, value_name = "FILE")]
    pub restore: Option<PathBuf>,
    #[command(flatten)]
    pub steps: SwitchSteps,
    #[command(flatten)]
    pub connection: Connection,
}

/// Remove our finalizer from the rendered MachineConfigs, after our controllers are gone.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco install --removal | kubectl delete --ignore-not-found -f - \\
      && mco switch release
  mco switch release --dry-run

While our controller runs, a rendered MachineConfig that a node or pool uses
has a finalizer. Without a controller that removes it, such a MachineConfig
could never be deleted. Other finalizers stay. `mco switch back` does this too.")]
pub struct SwitchRelease {
    /// Only print what would be changed.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub connection: Connection,
}
