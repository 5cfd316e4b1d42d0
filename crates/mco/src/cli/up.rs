//! The options of `mco up`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use jiff::SignedDuration;

use crate::commands::up::nodes::{Fleet, LocalNode};
use crate::commands::up::simulation::{Failing, Pace, Temper};

/// Run a whole cluster's machine configuration in one process: the API, and everything that works with it.
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
  mco up --fresh

A real machine joins a running mco up without any Kubernetes: --join-token,
beside the running one and with the same --data-dir, prints the one command
to paste there. The token lets any number of machines into its pool until it
expires or is revoked, and is kept only as a hash. kubectl delete node shows
a machine the door.

Everything it knows is kept in one directory, the administrator's kubeconfig
in <data-dir>/kubeconfig and the log in <data-dir>/mco.log. Ctrl-C stops it;
the next start carries on where it stopped, also after a crash. No root needed.

While it starts it shows how far each part is, on standard error. Then it prints
where the kubeconfig is, three commands to try, and the console's address, which
comes last. That address logs one browser in, once; the one for the next is then
in <data-dir>/console.

A damaged directory is not used: what is wrong is told, with the least that has
to go, and --fresh starts over without any of it.")]
pub struct Up {
    /// Where everything is kept; by default mco/ in your data directory.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Port of the Kubernetes API.
    #[arg(long, value_name = "PORT", default_value_t = 7443)]
    pub port: u16,
    /// Address to listen on; the default is for this machine alone.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub listen: IpAddr,
    /// Local nodes, each a directory with a real daemon; none for no nodes.
    #[arg(
        long,
        value_name = "masters=N,workers=N",
        default_value = "masters=1,workers=3"
    )]
    pub nodes: Fleet,
    /// Pretend to have this many machines instead, to see how a large fleet behaves.
    #[arg(long, value_name = "N", conflicts_with = "nodes", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub simulate: Option<u16>,
    /// How long a simulated machine takes for a change, its boot included and its drain not.
    #[arg(long, value_name = "SECONDS", default_value = "3", requires = "simulate")]
    pub simulate_seconds: Pace,
    /// Simulated machines that fail: a name, in which * stands for anything, or a share of them with each config,
    /// as in 5%; may be repeated. They fail after their drain, and are well again when they are sent elsewhere.
    #[arg(long, value_name = "NAME|SHARE", requires = "simulate")]
    pub simulate_failures: Vec<Failing>,
    /// A name or address by which other machines reach this one, if it is not one of its own; may be repeated.
    #[arg(long, value_name = "HOST")]
    pub advertise: Vec<String>,
    /// Port of the Ignition server; another if it is taken.
    #[arg(long, value_name = "PORT", default_value_t = 22623)]
    pub server_port: u16,
    /// Port of the web console, on this machine's own address; another if it is taken.
    #[arg(long, value_name = "PORT", default_value_t = 7480)]
    pub console_port: u16,
    /// Tell what operator and controllers count at /metrics here, over plain HTTP; nowhere by default.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics_listen: Option<SocketAddr>,
    /// Throw away what an earlier start kept.
    #[arg(long)]
    pub fresh: bool,
    /// Only the API, with nothing installed in it.
    #[arg(long)]
    pub bare: bool,
    #[command(flatten)]
    pub join: JoinTokens,
}

impl Up {
    /// The nodes that are directories with a daemon each.
    pub fn local_nodes(&self) -> impl Iterator<Item = LocalNode> + use<> {
        let local = self.simulate.is_none().then_some(self.nodes);
        local.into_iter().flat_map(Fleet::nodes)
    }

    /// What simulated machines are like.
    pub fn temper(&self) -> Temper {
        Temper {
            pace: self.simulate_seconds,
            failing: self.simulate_failures.clone(),
        }
    }

    /// How many nodes there are before any machine joins.
    pub fn own_nodes(&self) -> usize {
        self.simulate
            .map_or_else(|| self.local_nodes().count(), usize::from)
    }
}

/// What is asked of an `mco up` that runs already.
#[derive(Debug, Args)]
#[command(next_help_heading = "Let other machines join the mco up that runs")]
pub struct JoinTokens {
    /// Print the command by which a machine joins, and end.
    #[arg(long)]
    pub join_token: bool,
    /// The pool for which the token is good.
    #[arg(long, value_name = "POOL", default_value = "worker")]
    pub pool: String,
    /// How long the token is good, for example 30m or 24h.
    #[arg(long, value_name = "TIME", default_value = "24h")]
    pub ttl: SignedDuration,
    /// Make a token useless before its time, by the name that was printed with it, and end.
    #[arg(long, value_name = "NAME", conflicts_with = "join_token")]
    pub revoke_join_token: Option<String>,
}
