//! Options of `mco plan`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::ArgValueCompleter;

use super::completion::machine_configs;
use super::{BaseArguments, OutputFormat, output};
use crate::connection::Connection;

/// Show what a change would do before you make it: which files and units change, which disruption that causes, on which
/// nodes, in which order.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco plan -f 50-chrony.yaml
  mco plan -f 50-chrony.yaml -f 51-sshd.yaml --show-contents
  mco plan --delete 50-chrony
  mco plan -f machineosconfig.yaml --show-contents
  mco plan -f 50-chrony.yaml --manifests cluster/
  mco plan -f 50-worker-chrony.bu
  kustomize build cluster/ | mco plan -f -
  mco plan --base kubeadm

Reads the cluster of your kubeconfig and changes nothing there. With
--manifests a directory replaces the cluster; Nodes, Pods, PodDisruptionBudgets
and the disruption policies of a MachineConfiguration in it are used.

For a pool with a MachineOSConfig, shows whether its OS image is built or which one
is used again, and why; with --show-contents also the Containerfile.

File contents may be secret, so they are shown as sizes and hashes. With
--show-contents the changed lines of files and units are shown, except of files
that are not world-readable, and without anything that could be a password, a
token or a key.

Exit code 0 when no node would change, 3 when there are changes, 1 when
something would be rejected.")]
pub struct PlanArguments {
    /// Files, directories, or - for standard input, with the objects to apply.
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE",
        required_unless_present_any = ["delete", "base"]
    )]
    pub files: Vec<PathBuf>,
    /// Names of MachineConfigs or other objects to delete.
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(machine_configs))]
    pub delete: Vec<String>,
    /// Use the objects in this directory instead of a cluster's.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "context"])]
    pub manifests: Option<PathBuf>,
    #[command(flatten)]
    pub base: BaseArguments,
    /// Show the changed lines of text files, with secrets removed.
    #[arg(long)]
    pub show_contents: bool,
    /// Print the plan in this format.
    #[arg(short, long, value_name = output::FORMATS)]
    pub output: Option<OutputFormat>,
    #[command(flatten)]
    pub connection: Connection,
}
