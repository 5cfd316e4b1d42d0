//! Options of `mco up`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use jiff::SignedDuration;

use crate::commands::up::nodes::{Fleet, LocalNode};
use crate::commands::up::simulation::{FailureSelector, SimulatedLatency, SimulationProfile};

/// Run the machine configuration of a whole cluster in one process: API server, operator, controllers and nodes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco up
  mco up --nodes masters=3,workers=5
  mco up --simulate 200
  mco up --simulate 200 --simulate-seconds 0.5 --simulate-failures 2%
  mco up --data-dir /var/lib/mco --port 6443 --listen 0.0.0.0
  mco up --join-token
  mco up --join-token --pool infra --ttl 1h
  mco up --join-token --once --node-names 'lab-*'
  mco up --list-join-tokens
  mco up --rotate
  mco up --fresh

A real machine joins a running mco up without any Kubernetes: mco token create
(or mco up --join-token), on the same host and with the same --data-dir, prints
the command to run on the machine. Any number of machines can join its pool
with the token until it expires or is revoked, unless --once, --max-uses or
--node-names limit it; only its hash is stored. kubectl delete node NAME
revokes that machine's access and ends its open watches. The machine can join
again only with a token that is still valid; revoke the token to keep it out.

--rotate revokes all credentials of administrators: copies of the kubeconfig
stop working, also on open connections, and a new kubeconfig is in the data
directory. Nodes keep their access. It works on a running mco up and on a
stopped one. Browsers that are logged in to the console stay so until mco up
stops.

All state is in one directory, with the administrator's kubeconfig in
<data-dir>/kubeconfig and the log in <data-dir>/mco.log, which is rotated at 16
MiB to mco.log.1 up to mco.log.4. Ctrl-C stops it; the next start resumes, also
after a crash. Root is not required.

Startup progress is shown on standard error. Then it prints the kubeconfig
path, three commands to try, and the console's address. That address logs in
one browser, once; the address for the next one is then in <data-dir>/console.

A damaged directory is not used: the error names the damage and the minimum to
delete, and --fresh starts over with an empty directory.")]
pub struct Up {
    #[command(flatten)]
    pub data: DataDirectoryArgument,
    /// Port of the Kubernetes API.
    #[arg(long, value_name = "PORT", default_value_t = 7443)]
    pub port: u16,
    /// Address to listen on; by default only reachable from this machine.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub listen: IpAddr,
    /// Local nodes, each a directory with a real daemon; none for no nodes.
    #[arg(
        long,
        value_name = "masters=N,workers=N",
        default_value = "masters=1,workers=3"
    )]
    pub nodes: Fleet,
    /// Simulate this many nodes instead, to see how a large fleet behaves.
    #[arg(long, value_name = "N", conflicts_with = "nodes", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub simulate: Option<u16>,
    /// How long a change takes on a simulated node, including its reboot and excluding its drain.
    #[arg(long, value_name = "SECONDS", default_value = "3", requires = "simulate")]
    pub simulate_seconds: SimulatedLatency,
    /// Simulated nodes that fail: a name, in which * matches anything, or a percentage of them with each config, as in
    /// 5%; can be repeated. They fail after their drain, and recover with another config.
    #[arg(long, value_name = "NAME|SHARE", requires = "simulate")]
    pub simulate_failures: Vec<FailureSelector>,
    /// A name or address at which other machines reach this one, if it is not one of its own; can be repeated.
    #[arg(long, value_name = "HOST")]
    pub advertise: Vec<String>,
    /// Port of the Ignition server; another if it is in use.
    #[arg(long, value_name = "PORT", default_value_t = 22623)]
    pub server_port: u16,
    /// Port of the web console, on this machine's own address; another if it is in use.
    #[arg(long, value_name = "PORT", default_value_t = 7480)]
    pub console_port: u16,
    /// Serve the metrics of operator and controllers on this address, over plain HTTP; off by default.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics_listen: Option<SocketAddr>,
    /// Lifetime of the certificates of the API server and of administrators, for example 30m; renewed when a quarter of
    /// it is over, or after 12 hours. A kubeconfig that was copied works no longer than that.
    #[arg(long, value_name = "TIME", default_value = "8760h", value_parser = certificate_lifetime)]
    pub certificate_lifetime: Duration,
    /// Delete the data of earlier starts.
    #[arg(long)]
    pub fresh: bool,
    #[command(flatten)]
    pub server: ServerOnly,
    /// Revoke all credentials of administrators, write a new kubeconfig, and exit.
    #[arg(long, conflicts_with_all = ["fresh", "join_token", "list_join_tokens", "revoke_join_token"])]
    pub rotate: bool,
    #[command(flatten)]
    pub join: JoinTokenArguments,
}

/// Shorter, and a client that connects slowly finds an expired certificate.
const MIN_CERTIFICATE_LIFETIME: Duration = Duration::from_mins(1);
/// Longer, and a certificate would outlive its authority.
const MAX_CERTIFICATE_LIFETIME: Duration = Duration::from_hours(365 * 24);

fn certificate_lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = text
        .parse::<SignedDuration>()
        .ok()
        .and_then(|lifetime| Duration::try_from(lifetime).ok());
    lifetime
        .filter(|lifetime| (MIN_CERTIFICATE_LIFETIME..=MAX_CERTIFICATE_LIFETIME).contains(lifetime))
        .ok_or_else(|| "expected a time from 1m to 8760h, for example 30m or 720h".to_owned())
}

/// Whether only the API server runs.
#[derive(Debug, Clone, Default, Args)]
pub struct ServerOnly {
    /// Run only the API server, with nothing installed in it.
    #[arg(long)]
    pub bare: bool,
    /// Create no ServiceAccount and no certificates in new namespaces, as an
    /// API server without a controller manager.
    #[arg(long, requires = "bare")]
    pub empty_namespaces: bool,
}

/// Where `mco up` keeps its data.
#[derive(Debug, Clone, Default, Args)]
pub struct DataDirectoryArgument {
    /// The data directory; by default mco/ in your user data directory.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

impl Up {
    /// Returns the nodes that are directories with a daemon each.
    pub fn local_nodes(&self) -> impl Iterator<Item = LocalNode> + use<> {
        let local = self.simulate.is_none().then_some(self.nodes);
        local.into_iter().flat_map(Fleet::nodes)
    }

    /// Returns the simulation profile.
    pub fn simulation_profile(&self) -> SimulationProfile {
        SimulationProfile {
            latency: self.simulate_seconds,
            failing: self.simulate_failures.clone(),
        }
    }

    /// Returns the number of nodes before any machine joins.
    pub fn own_nodes(&self) -> usize {
        self.simulate
            .map_or_else(|| self.local_nodes().count(), usize::from)
    }
}

/// Options that manage the join tokens of a running `mco up`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Join tokens of a running mco up")]
pub struct JoinTokenArguments {
    /// Print the command with which a machine joins, and exit.
    #[arg(long)]
    pub join_token: bool,
    /// The pool of the machines that join with the token.
    #[arg(long, value_name = "POOL", default_value = "worker")]
    pub pool: String,
    /// Lifetime of the token, for example 30m or 24h.
    #[arg(long, value_name = "TIME", default_value = "24h")]
    pub ttl: SignedDuration,
    /// Let one machine join with the token, and no more; the same as --max-uses 1.
    #[arg(long, requires = "join_token", conflicts_with = "max_uses")]
    pub once: bool,
    /// Let this many machines join with the token; any number by default.
    #[arg(long, value_name = "N", requires = "join_token", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_uses: Option<u32>,
    /// Let machines join only with these Node names, in which * matches anything.
    #[arg(long, value_name = "PATTERN", requires = "join_token")]
    pub node_names: Option<String>,
    /// List the tokens with their uses and limits, and exit.
    #[arg(long, conflicts_with = "join_token")]
    pub list_join_tokens: bool,
    /// Revoke a token by the name that was printed with it, and exit.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["join_token", "list_join_tokens"])]
    pub revoke_join_token: Option<String>,
}
