//! `mco daemon`: names, options and help.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use mco_daemon::agent::HealthEndpoint;
use mco_daemon::member::Fingerprint;

use super::Format;
use super::metrics::Metrics;

/// Bring this machine, or a directory that plays one, to its configuration.
#[derive(Debug, Args)]
pub struct Daemon {
    #[command(subcommand)]
    pub command: DaemonCommand,
}

#[derive(Debug, Subcommand)]
pub enum DaemonCommand {
    Start(DaemonStart),
    Join(DaemonJoin),
    Firstboot(FirstBoot),
    OnceFrom(OnceFrom),
    Validate(DaemonValidate),
    Status(DaemonStatus),
    #[command(hide = true)]
    InRoot(InRoot),
}

/// Follow the Node object of this machine and bring the machine to what it asks for.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco daemon start --node-name worker-1
  mco daemon start --root /rootfs --metrics-listen 127.0.0.1:8797
  mco daemon start --node-name worker-1 --kubeconfig node.kubeconfig --root /srv/nodes/worker-1
  mco daemon start

A machine that has joined an mco up needs no options. Without --kubeconfig, the service account of the pod is used, or KUBECONFIG. Stopping waits until the step under way is done.")]
pub struct DaemonStart {
    /// The Node this machine is; by default the one it has joined as.
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub node_name: Option<String>,
    /// How to reach the cluster.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub metrics: Metrics,
    /// Where the kubelet of this machine tells how it is.
    #[arg(long, value_name = "URL", default_value = "http://localhost:10248/healthz")]
    pub kubelet_healthz_endpoint: HealthEndpoint,
    /// Ask the kubelet every 30 seconds how it is, for the metric mcd_kubelet_state; not without --metrics-listen, and by
    /// default not where a directory plays a machine.
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub kubelet_healthz_enabled: Option<bool>,
    #[command(flatten)]
    pub machine: MachineOptions,
}

/// Make this machine a node of a running mco up, and keep it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco daemon join --server https://10.0.0.5:7443 --token 1a2b3c4d.V3x...
  mco daemon join --server https://10.0.0.5:7443 --token 1a2b3c4d.V3x... --node-name lab-7 --root /srv/nodes/lab-7

mco up --join-token prints the whole command. The token names the authority of its server, so nothing is said to any other
server. The machine gets its own Node and a credential for that Node alone, kept in /etc/machine-config-daemon/kubeconfig below
the root, then the configuration of its pool, and boots if that needs a boot. Joining again changes nothing.

On a machine under systemd the daemon is installed as mco-daemon.service and this command ends; with --foreground, and on
everything else, it goes on as the daemon. mco daemon start resumes it.")]
pub struct DaemonJoin {
    /// Where the mco up is that the machine joins.
    #[arg(long, value_name = "URL")]
    pub server: String,
    /// The join token.
    #[arg(long, value_name = "TOKEN", env = "MCO_JOIN_TOKEN", hide_env_values = true)]
    pub token: String,
    /// Insist on this authority; it must be the one that the token names.
    #[arg(long, value_name = "sha256:HASH")]
    pub ca_hash: Option<Fingerprint>,
    /// The name of the Node; by default the machine's own.
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// Tell /metrics, /livez and /readyz here, over plain HTTP.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics_listen: Option<SocketAddr>,
    /// Go on as the daemon here, also where systemd could run it.
    #[arg(long)]
    pub foreground: bool,
    #[command(flatten)]
    pub machine: MachineOptions,
}

/// Complete the first boot of a machine that Ignition has provisioned.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco daemon firstboot
  mco daemon firstboot --skip-reboot

Brings the operating system image, kernel arguments and extensions to what the machine was installed for, as
/etc/ignition-machine-config-encapsulated.json says, and boots the machine if that changed anything. Without that file there
is nothing to do. Meant to run before the kubelet starts.")]
pub struct FirstBoot {
    #[command(flatten)]
    pub machine: MachineOptions,
    /// Never boot the machine, even if the change takes effect only then.
    #[arg(long)]
    pub skip_reboot: bool,
}

/// Apply a MachineConfig or an Ignition config without a cluster; repeat it as often as you like.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco daemon once-from 50-chrony.yaml
  mco daemon once-from node.ign --root /srv/images/node1
  mco daemon once-from 50-chrony.yaml --skip-reboot

Everything in the file is applied, or nothing is. What an earlier file managed and this one does not is given back as
it was before. If the change needs a boot, the machine boots unless you say otherwise.")]
pub struct OnceFrom {
    /// A MachineConfig manifest or an Ignition config.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub machine: MachineOptions,
    /// Never boot the machine, even if the change takes effect only then.
    #[arg(long)]
    pub skip_reboot: bool,
}

/// Compare the machine with the configuration that was applied to it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco daemon validate
  mco daemon validate --root /srv/images/node1 -o json

Everything that differs is shown, by size, mode, owner and hash, never by contents. Exit code 3 if anything does.")]
pub struct DaemonValidate {
    #[command(flatten)]
    pub machine: MachineOptions,
    /// Print the differences in this format.
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
}

/// Show what the machine has, what it is doing and what it waits for.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  mco daemon status --root /srv/images/node1")]
pub struct DaemonStatus {
    #[command(flatten)]
    pub machine: MachineOptions,
    /// Print the status in this format.
    #[arg(short, long, value_enum)]
    pub output: Option<Format>,
}

/// Run a program with another root; the daemon's own way to the tools of a machine whose root is mounted in its container.
#[derive(Debug, Args)]
pub struct InRoot {
    pub root: PathBuf,
    pub program: OsString,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct MachineOptions {
    /// The machine's root: /, or where a container has it mounted. Any other directory plays a machine: nothing is
    /// started and boots are simulated.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}
