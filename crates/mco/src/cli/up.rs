//! The options of `mco up`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;

use crate::commands::up::nodes::Fleet;

/// Run a whole cluster's machine configuration in one process: the API, and everything that works with it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco up
  mco up --nodes masters=3,workers=5
  mco up --simulate 200
  mco up --data-dir /var/lib/mco --port 6443 --listen 0.0.0.0
  mco up --fresh

Everything it knows is kept in one directory, the administrator's kubeconfig
in <data-dir>/kubeconfig and the log in <data-dir>/mco.log. Ctrl-C stops it;
the next start carries on where it stopped, also after a crash. No root needed.

The console's address is printed last. It logs one browser in, once; the address
for the next one is then in <data-dir>/console.")]
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
    /// Port of the Ignition server; another if it is taken.
    #[arg(long, value_name = "PORT", default_value_t = 22623)]
    pub server_port: u16,
    /// Port of the web console, on this machine's own address; another if it is taken.
    #[arg(long, value_name = "PORT", default_value_t = 7480)]
    pub console_port: u16,
    /// Throw away what an earlier start kept.
    #[arg(long)]
    pub fresh: bool,
    /// Only the API, with nothing installed in it.
    #[arg(long)]
    pub bare: bool,
}
