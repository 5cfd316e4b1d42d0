//! The command line: names, options and the help that teaches them.

pub mod daemon;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 there are changes.";

/// Manage the operating system of every machine in a cluster as just another Kubernetes component.
#[derive(Debug, Parser)]
#[command(name = "mco", version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Render(Render),
    Validate(Validate),
    Diff(Diff),
    Explain(Explain),
    Daemon(daemon::Daemon),
    Crds(Crds),
    Completions(Completions),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For programs: one JSON document.
    Json,
    /// For programs: YAML.
    Yaml,
}

/// Render each pool's configuration from a directory of manifests, without a cluster.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco render --manifests examples/quickstart --out rendered/
  mco render --manifests examples/quickstart --out -
  kubectl get machineconfigs,machineconfigpools -o yaml | mco render --manifests - --out -

Writes OUT/machine-configs/<rendered name>.yaml and OUT/machine-pools/<pool>.yaml. Without any pool in the
manifests, the built-in pools master and worker are assumed. A pool that cannot be rendered is reported, the
others are written, and the exit code is 1.")]
pub struct Render {
    /// Directory of YAML or JSON manifests, a single file, or - for standard input.
    #[arg(long, value_name = "DIR")]
    pub manifests: PathBuf,
    /// Directory to write to, or - to print.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Print this format instead of YAML; only with --out -.
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
}

/// Check MachineConfigs and MachineConfigPools as a cluster would before accepting them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco validate 50-chrony.yaml
  mco validate examples/quickstart
  cat 50-chrony.yaml | mco validate -

Every problem is reported with the object, the place in it and the remedy. Exit code 1 if there is any.")]
pub struct Validate {
    /// Files, directories, or - for standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print the findings in this format.
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
}

/// Show what changes on machines between two configurations, and what the change costs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco diff before/ after/
  mco diff rendered-worker-1.yaml rendered-worker-2.yaml
  mco diff --show-contents before/ after/

A and B are both manifest directories (each pool is rendered and compared) or both MachineConfig files.
File contents may be secret, so they are shown as sizes and hashes unless you ask. Exit code 3 if anything differs.")]
pub struct Diff {
    /// The old configuration: a MachineConfig file or a directory of manifests.
    #[arg(value_name = "A")]
    pub old: PathBuf,
    /// The new configuration, of the same kind as A.
    #[arg(value_name = "B")]
    pub new: PathBuf,
    /// Show the changed lines of text files.
    #[arg(long)]
    pub show_contents: bool,
    /// Print the differences in this format.
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
}

/// Show which MachineConfig each part of a pool's configuration comes from, and what it overrode.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco explain --manifests examples/quickstart --pool infra /etc/chrony.conf
  mco explain --manifests examples/quickstart --pool worker kubelet.service
  mco explain --manifests examples/quickstart --pool worker kernelArguments
  mco explain --manifests examples/quickstart --pool worker")]
pub struct Explain {
    /// Directory of YAML or JSON manifests, a single file, or - for standard input.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub manifests: PathBuf,
    /// The pool whose configuration is explained.
    #[arg(long, value_name = "POOL")]
    pub pool: String,
    /// A file path, a unit or user name, or a field such as kernelArguments; everything if left out.
    #[arg(value_name = "PATH")]
    pub path: Option<String>,
    /// Print the explanation in this format.
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
}

/// Print the CustomResourceDefinitions, ready for kubectl apply.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  mco crds | kubectl apply --server-side -f -")]
pub struct Crds {
    /// Print this format instead of YAML documents.
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
}

/// Print a completion script for your shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  mco completions bash > /etc/bash_completion.d/mco")]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}
