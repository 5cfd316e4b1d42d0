//! Options of `mco daemon`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use mco_daemon::agent::HealthEndpoint;
use mco_daemon::member::CaFingerprint;
use mco_daemon::paths;
use mco_http::fetch::Network;

use super::metrics::MetricsArguments;
use super::{OutputFormat, output};

/// Apply the configuration of this machine, or of a directory that simulates one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco daemon start --node-name worker-1
  mco daemon once-from 50-chrony.yaml
  mco daemon status --root /srv/images/node1")]
pub struct Daemon {
    #[command(subcommand)]
    pub command: DaemonCommand,
}

#[derive(Debug, Subcommand)]
pub enum DaemonCommand {
    Start(DaemonStart),
    Join(DaemonJoin),
    Firstboot(FirstBootArguments),
    OnceFrom(OnceFrom),
    Validate(DaemonValidate),
    Status(DaemonStatus),
    #[command(hide = true)]
    Guard(MachineOptions),
    #[command(hide = true)]
    InRoot(InRoot),
}

/// Watch the Node object of this machine and apply its desired config.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco daemon start --node-name worker-1
  mco daemon start --root /rootfs --metrics-listen 127.0.0.1:8797
  mco daemon start --node-name worker-1 --kubeconfig node.kubeconfig \\
      --root /srv/nodes/worker-1
  mco daemon start

A machine that has joined an mco up needs no options. Without --kubeconfig, the
service account of the pod is used, or KUBECONFIG. On SIGTERM the step in
progress is completed first.")]
pub struct DaemonStart {
    /// Name of the Node object of this machine; by default the one it joined as.
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub node_name: Option<String>,
    /// The kubeconfig; by default the pod's service account, or KUBECONFIG.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Run on a node of a hosted cluster: the directory with a mounted ConfigMap whose keys config and hash are the
    /// desired config, as HyperShift mounts it for updates in place. It and the kubeconfig are looked for below the
    /// machine's root first.
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "metrics_listen")]
    pub desired_configmap: Option<PathBuf>,
    #[command(flatten)]
    pub metrics: MetricsArguments,
    /// Where the values of Secrets for files of this node are fetched; by default at the API server, which that of mco up
    /// serves.
    #[arg(long, value_name = "URL", requires = "secret_files_credentials")]
    pub secret_files_url: Option<String>,
    /// Directory with the files token and ca.crt for that.
    #[arg(long, value_name = "DIR", requires = "secret_files_url")]
    pub secret_files_credentials: Option<PathBuf>,
    /// Kubelet health endpoint.
    #[arg(long, value_name = "URL", default_value = "http://localhost:10248/healthz")]
    pub kubelet_healthz_endpoint: HealthEndpoint,
    /// Poll kubelet health every 30 seconds, for the metric mcd_kubelet_state. Requires --metrics-listen; by default
    /// off where a directory simulates a machine.
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

/// Join this machine to a running mco up as a node, and run its daemon.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  echo 1a2b3c4d.V3x... | mco daemon join --server https://10.0.0.5:7443 \\
      --token-file -
  mco daemon join --server https://10.0.0.5:7443 --token-file token \\
      --node-name lab-7 --root /srv/nodes/lab-7

mco up --join-token prints the whole command. The token contains the
fingerprint of its server's CA, so nothing is sent to any other server. The
machine gets its own Node and a credential for that Node alone, in
/etc/machine-config-daemon/kubeconfig below the root, then the configuration of
its pool, and reboots if needed. Joining is idempotent.

On a machine with systemd the daemon is installed as mco-daemon.service and
this command exits; with --foreground, and without systemd, it keeps running as
the daemon. mco daemon start resumes it.")]
pub struct DaemonJoin {
    /// Address of the mco up to join.
    #[arg(long, value_name = "URL")]
    pub server: String,
    /// File with the join token; - for standard input.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The join token. Other users of this machine see it while the command runs; prefer --token-file.
    #[arg(long, value_name = "TOKEN", env = "MCO_JOIN_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Require this CA fingerprint; it must match the one in the token.
    #[arg(long, value_name = "sha256:HASH")]
    pub ca_hash: Option<CaFingerprint>,
    /// Name of the Node; by default the machine's host name.
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// Serve /metrics, /livez and /readyz on this address, over plain HTTP.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics_listen: Option<SocketAddr>,
    /// Run the daemon in the foreground, even where systemd could run it.
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

Applies the operating system image, kernel arguments and extensions of
/etc/ignition-machine-config-encapsulated.json and reboots the machine if
anything changed. Without that file it does nothing. Run it before the kubelet
starts.")]
pub struct FirstBootArguments {
    #[command(flatten)]
    pub machine: MachineOptions,
    /// Never reboot, even if the change takes effect only after a reboot.
    #[arg(long)]
    pub skip_reboot: bool,
    /// Only pin the names of network interfaces, for an update to the next major version of Enterprise Linux.
    #[arg(long)]
    pub persist_nics: bool,
    /// After an error, try again every minute instead of exiting.
    #[arg(long, hide = true)]
    pub retry: bool,
    /// The file to complete, one of the two that are looked for anyway.
    #[arg(long, value_name = "FILE", hide = true, value_parser = first_boot_file)]
    pub machineconfig_file: Option<PathBuf>,
}

/// Accepts the files that a first boot looks for.
fn first_boot_file(text: &str) -> Result<PathBuf, String> {
    let known = [paths::ENCAPSULATED, paths::REVERT_CONFIG];
    if known.contains(&text) {
        Ok(PathBuf::from(text))
    } else {
        Err(format!("expected {} or {}", known[0], known[1]))
    }
}

/// Apply a MachineConfig or an Ignition config without a cluster; idempotent.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco daemon once-from 50-chrony.yaml
  mco daemon once-from node.ign --root /srv/images/node1
  mco daemon once-from 50-chrony.yaml --skip-reboot
  mco daemon once-from https://configs.example.com/50-chrony.yaml --hash sha256-9f86d0...

A URL must be https, and --hash is required: the configuration is applied only if it has that hash (sha256- or sha512- and
the hexadecimal digest, as printed by sha256sum). The proxy of the environment is used.

The file is applied as a whole or not at all: what takes effect at first boot
only (disks, LUKS, users other than core, configs to merge) is refused with its
path before anything is written. What an earlier file managed and this one does
not is restored to its original state. If the change needs a reboot, the
machine reboots unless you use --skip-reboot.")]
pub struct OnceFrom {
    /// A MachineConfig manifest or an Ignition config.
    #[arg(value_name = "FILE|URL")]
    pub file: PathBuf,
    /// The hash of the configuration at a URL, such as sha256-9f86d0...
    #[arg(long, value_name = "HASH")]
    pub hash: Option<String>,
    /// A private network that a URL may be fetched from, such as 10.0.0.0/8; can be repeated.
    #[arg(long = "contents-network", value_name = "CIDR", requires = "hash")]
    pub contents_networks: Vec<Network>,
    /// Certificate authorities to trust in addition to the system's, as PEM.
    #[arg(long, value_name = "FILE", requires = "hash")]
    pub contents_ca: Option<PathBuf>,
    #[command(flatten)]
    pub machine: MachineOptions,
    /// Never reboot, even if the change takes effect only after a reboot.
    #[arg(long)]
    pub skip_reboot: bool,
}

/// Compare the machine with the configuration that was applied to it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco daemon validate
  mco daemon validate --root /srv/images/node1 -o json

Shows every difference by size, mode, owner and hash, never by contents. Exit
code 3 if anything differs.")]
pub struct DaemonValidate {
    #[command(flatten)]
    pub machine: MachineOptions,
    /// Print the differences in this format.
    #[arg(short, long, value_name = output::FORMATS)]
    pub output: Option<OutputFormat>,
}

/// Show the machine's config, the step that is in progress and what it waits for.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  mco daemon status --root /srv/images/node1")]
pub struct DaemonStatus {
    #[command(flatten)]
    pub machine: MachineOptions,
    /// Print the status in this format.
    #[arg(short, long, value_name = output::FORMATS)]
    pub output: Option<OutputFormat>,
}

/// Run a program in another root directory. The daemon runs the tools of a machine this way when the machine's root is
/// mounted in its container.
#[derive(Debug, Args)]
pub struct InRoot {
    pub root: PathBuf,
    /// The program and its arguments, none of which are options of this command.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct MachineOptions {
    /// The machine's root: /, or where a container has it mounted. Any other directory simulates a machine: no service
    /// is started and reboots are simulated.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;
    use crate::cli::{Cli, Command, command, translate};

    #[test]
    fn the_options_of_a_machines_tool_were_answered_by_our_own_parser() {
        for tool in [
            &["grubby", "--version"][..],
            &["rpm-ostree", "--help"],
            &["rpm", "-q", "kernel"],
            &["systemctl", "-h", "--log-level", "x", "-v"],
            &["nice", "--", "ionice", "-c", "3"],
            &["version"],
        ] {
            let line = ["mco", "daemon", "in-root", "/rootfs"].iter().chain(tool);
            let arguments = translate(line.map(OsString::from));
            let matches = command().try_get_matches_from(arguments).unwrap();
            let Command::Daemon(daemon) = Cli::from_arg_matches(&matches).unwrap().command else {
                panic!("{tool:?} is another command");
            };
            let DaemonCommand::InRoot(request) = daemon.command else {
                panic!("{tool:?} is another command of the daemon");
            };
            assert_eq!(request.command, *tool);
            assert_eq!(request.root, PathBuf::from("/rootfs"));
        }
    }
}
