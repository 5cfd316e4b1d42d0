//! The command line: names, options and help.

mod adopt;
mod builder;
mod client;
mod completion;
mod console;
pub mod daemon;
mod get;
mod global;
mod groups;
mod metrics;
mod names;
mod operator;
mod output;
mod plan;
#[cfg(test)]
mod reference;
mod server;
mod switch;
mod token;
mod up;
mod watcher;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use mco_api::ClusterBase;
use mco_http::fetch::Network;

pub use adopt::{AdoptArguments, ReleaseArguments};
pub use builder::{BuilderArguments, BuilderCommand, BuilderPlan, DigestArguments, ImageBuildArguments};
pub use client::{
    Apply, DriftArguments, Gather, HistoryArguments, NodeArguments, OnePool, RestartArguments, Rollout,
    RolloutAction, RolloutStatus, StatusArguments, UndoArguments, Wait, WaitTarget,
};
pub use completion::{complete_for_kubectl, registration};
pub use console::Console;
pub use get::{Get, GetTarget, OsImageStreamQuery, ReleaseFiles};
pub use global::{LogArguments, LogFormat};
pub use groups::{command, plugin_command};
pub use names::{ProgramName, translate};
pub use operator::{
    Bootstrap, Controller, InstallArguments, OperatorArguments, OperatorCommand, UninstallArguments,
};
pub use output::{ListFormat, ListOutputArguments, OutputArguments, OutputFormat};
pub use plan::PlanArguments;
pub use server::{PointerArguments, ServerArguments};
pub use switch::{
    SwitchAction, SwitchArguments, SwitchBack, SwitchCheck, SwitchPrepare, SwitchRelease, SwitchSteps,
};
pub use token::{TokenAction, TokenArguments, TokenCreate};
pub use up::{DataDirectoryArgument, Up};
pub use watcher::{ApiserverWatcher, Flock, VersionArguments};

const AFTER_HELP: &str = "\
Examples:
  mco up
  mco plan -f 50-chrony.yaml
  kubectl mco status

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 would change.";

/// Manage your nodes' operating system the Kubernetes way: declarative, previewed, rolled out safely.
#[derive(Debug, Parser)]
#[command(name = "mco", version, propagate_version = true, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(flatten)]
    pub log: LogArguments,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Up(Up),
    Token(TokenArguments),
    Plan(Box<PlanArguments>),
    Apply(Apply),
    Status(StatusArguments),
    Wait(Wait),
    Node(NodeArguments),
    Drift(DriftArguments),
    Adopt(AdoptArguments),
    Release(ReleaseArguments),
    Rollout(Rollout),
    Gather(Gather),
    Console(Console),
    Render(RenderArguments),
    Validate(Validate),
    Diff(Diff),
    Why(Why),
    Get(Get),
    Daemon(daemon::Daemon),
    Operator(Box<OperatorArguments>),
    Controller(Controller),
    Builder(Box<BuilderArguments>),
    Install(Box<InstallArguments>),
    Uninstall(UninstallArguments),
    Switch(SwitchArguments),
    Crds(Crds),
    Server(Box<ServerArguments>),
    Pointer(PointerArguments),
    ApiserverWatcher(ApiserverWatcher),
    #[command(hide = true)]
    Flock(Flock),
    Version(VersionArguments),
    Completions(Completions),
    Man(Man),
}

/// Inputs of the base configuration of every machine, in addition to the manifests.
#[derive(Debug, Clone, Default, Args)]
pub struct BaseArguments {
    /// Directory of base templates, instead of the built-in ones.
    #[arg(long, value_name = "DIR")]
    pub templates: Option<PathBuf>,
    /// Manifest of the Secret with the registry credentials of the machines.
    #[arg(long, value_name = "FILE")]
    pub pull_secret: Option<PathBuf>,
    /// Release whose feature gates apply; by default the ControllerConfig's, or the only one there is.
    #[arg(long, value_name = "VERSION")]
    pub payload_version: Option<String>,
    /// Generate as an installation does (one KubeletConfig and one ContainerRuntimeConfig per pool, every object must
    /// be valid) or as the controllers of a running cluster do; by default depends on whether the manifests have a
    /// metadata.uid.
    #[arg(long, value_name = "STAGE", value_enum)]
    pub stage: Option<StageArgument>,
    /// The base of the cluster: openshift, none, kubeadm, k3s, rke2 or machine; by default the ControllerConfig's. With
    /// another one than the cluster has, shows what changing it would do.
    #[arg(long, value_name = "BASE")]
    pub base: Option<ClusterBase>,
}

/// The phase of the cluster for which configs are generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StageArgument {
    Installation,
    Cluster,
}

impl From<StageArgument> for mco_core::pipeline::ClusterStage {
    fn from(stage: StageArgument) -> Self {
        match stage {
            StageArgument::Installation => Self::Installation,
            StageArgument::Cluster => Self::Cluster,
        }
    }
}

/// Render each pool's configuration from a directory of manifests, without a cluster.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco render --manifests examples/quickstart --out rendered/
  mco render --manifests examples/quickstart --out -
  mco render --manifests cluster/ --pull-secret pull-secret.yaml \\
      --out rendered/
  kubectl get mc,mcp -o yaml | mco render --manifests - --out -
  mco render --manifests cluster/ --resolve --out rendered/

Writes OUT/machine-configs/<rendered name>.yaml and
OUT/machine-pools/<pool>.yaml, and with a base configuration
OUT/controller-config/ and OUT/api-server/ too, ready for mco server. A pool
that cannot be rendered is reported, the others are written, and the exit code
is 1.

What the manifests leave out:
  pools             master and worker are assumed
  ControllerConfig  platform None, cluster DNS 10.96.0.10, domain
                    cluster.local, API server
                    https://api-int.cluster.local:6443, no proxy; but
                    only with --templates, or with objects that change the
                    base (KubeletConfig, ContainerRuntimeConfig, Image,
                    mirrors, FeatureGate, Node, APIServer). Otherwise no
                    base configuration is added
  FeatureGate       no feature gates
  Node, APIServer   cgroups version 2, the base's kubelet timing, the
                    Intermediate TLS profile")]
pub struct RenderArguments {
    /// Directory of YAML or JSON manifests, a single file, or - for standard input.
    #[arg(long, value_name = "DIR")]
    pub manifests: PathBuf,
    /// Directory to write to, or - to print.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    #[command(flatten)]
    pub base: BaseArguments,
    #[command(flatten)]
    pub remote: ResolveArguments,
    /// Print this format instead of YAML; only with --out -.
    #[arg(short, long, value_name = output::FORMATS)]
    pub output: Option<OutputFormat>,
}

/// Options of commands that fetch remote contents.
#[derive(Debug, Clone, Default, Args)]
pub struct ResolveArguments {
    /// Fetch the remote contents that MachineConfigs refer to, over https, and verify their hash.
    #[arg(long)]
    pub resolve: bool,
    /// A private network that contents may be fetched from, such as 10.0.0.0/8; can be repeated.
    #[arg(long = "contents-network", value_name = "CIDR", requires = "resolve")]
    pub contents_networks: Vec<Network>,
    /// Certificate authorities to trust in addition to the system's, as PEM.
    #[arg(long, value_name = "FILE", requires = "resolve")]
    pub contents_ca: Option<PathBuf>,
}

/// Check MachineConfigs, MachineConfigPools, KubeletConfigs and ContainerRuntimeConfigs as admission would.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco validate 50-chrony.yaml
  mco validate examples/quickstart
  kustomize build cluster/ | mco validate -
  mco validate 50-worker-chrony.bu
  mco validate --resolve 50-motd.yaml

With --resolve, prints the hash of remote contents that have none, to be pasted
into verification.hash. Reports every problem with the object, the field path
and a hint. Exit code 1 if there is any.

Butane configs (variant openshift, fcos or flatcar) are translated first.")]
pub struct Validate {
    /// Files, directories, or - for standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Check as on a cluster with this base: openshift, none, kubeadm, k3s, rke2 or machine; by default openshift.
    #[arg(long, value_name = "BASE")]
    pub base: Option<ClusterBase>,
    #[command(flatten)]
    pub remote: ResolveArguments,
    /// Print the findings in this format.
    #[arg(short, long, value_name = output::FORMATS)]
    pub output: Option<OutputFormat>,
}

/// Show what changes on nodes between two configurations, and which disruption it causes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco diff before/ after/
  mco diff rendered-worker-1.yaml rendered-worker-2.yaml
  mco diff --show-contents before/ after/

A and B are both manifest directories (each pool is rendered and compared) or
both MachineConfig files; one of them can be - for standard input. File
contents may be secret, so they are shown as sizes and hashes unless you use
--show-contents. Exit code 3 if anything differs.")]
pub struct Diff {
    /// The old configuration: a MachineConfig file or a directory of manifests.
    #[arg(value_name = "A")]
    pub old: PathBuf,
    /// The new configuration, of the same kind as A.
    #[arg(value_name = "B")]
    pub new: PathBuf,
    #[command(flatten)]
    pub base: BaseArguments,
    /// Show the changed lines of text files.
    #[arg(long)]
    pub show_contents: bool,
    /// Print the differences in this format.
    #[arg(short, long, value_name = output::FORMATS)]
    pub output: Option<OutputFormat>,
}

/// Show which MachineConfig each part of a pool's configuration comes from, and what it overrides.
#[derive(Debug, Args)]
#[command(
    visible_alias = "explain",
    after_help = "\
Examples:
  mco why --manifests examples/quickstart --pool infra /etc/chrony.conf
  mco why --manifests examples/quickstart --pool worker kubelet.service
  mco why --manifests examples/quickstart --pool worker kernelArguments
  mco why --pool worker --node node.yaml /etc/example.conf
  kustomize build cluster/ | mco why --manifests - --pool worker"
)]
pub struct Why {
    /// Directory of YAML or JSON manifests, a single file, or - for standard input.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub manifests: PathBuf,
    /// The pool whose configuration is explained.
    #[arg(long, value_name = "POOL")]
    pub pool: String,
    /// Also show the contents of files with per-node values on this Node, as kubectl get node NAME -o yaml prints it.
    #[arg(long, value_name = "FILE")]
    pub node: Option<PathBuf>,
    /// A file path, a unit or user name, or a field such as kernelArguments; by default everything.
    #[arg(value_name = "PATH")]
    pub path: Option<String>,
    #[command(flatten)]
    pub base: BaseArguments,
    /// Print the explanation in this format.
    #[arg(short, long, value_name = output::FORMATS)]
    pub output: Option<OutputFormat>,
}

/// Print the CustomResourceDefinitions, ready for kubectl apply.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  mco crds | kubectl apply --server-side -f -")]
pub struct Crds {
    /// Print this format instead of YAML documents.
    #[arg(short, long, value_name = output::FORMATS)]
    pub output: Option<OutputFormat>,
}

/// Print a completion script for your shell. It completes pools, nodes and MachineConfigs of the cluster, too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco completions bash > /etc/bash_completion.d/mco
  source <(mco completions zsh)

For kubectl mco, link this program as kubectl-mco and as kubectl_complete-mco
into a directory of your PATH.")]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Write the manual pages of all commands.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco man --out man/
  mco man --out /usr/local/share/man/man1")]
pub struct Man {
    /// The directory; created if it is missing.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}
