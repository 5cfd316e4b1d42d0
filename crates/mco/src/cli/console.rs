//! Options of `mco console`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;

use crate::connection::Connection;

/// Serve the web console of a cluster: pools, nodes, MachineConfigs, plans and search, live.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco console
  mco console --context production --port 8080
  mco console --listen 0.0.0.0 --tls-cert tls.crt --tls-key tls.key

On your own machine it uses your kubeconfig: the browser that opens the printed
address has your permissions, and no more. The address works once and for ten
minutes; then the next one is printed. Where the output is no terminal, it is
written to a private file in $XDG_RUNTIME_DIR. Other users log in with a token
of the cluster and have the permissions of that token.

On an address that other machines can reach, it needs a certificate, and every
user logs in with a token. The console has no permissions of its own, also
inside a cluster.

Browsers resolve names below localhost by themselves. For one that does not,
use --host localhost; programs on other ports of this machine then get its
cookies when you visit them.")]
pub struct Console {
    /// Port to listen on.
    #[arg(long, value_name = "PORT", default_value_t = 7480)]
    pub port: u16,
    /// Address to listen on; by default only reachable from this machine.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub listen: IpAddr,
    /// The only host name under which browsers reach it; by default a random name below localhost, so that no
    /// other program of this machine gets its cookies, and any name where it serves TLS.
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Certificate chain to serve TLS with.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Directory of the cluster's base templates, for plans; by default the built-in ones.
    #[arg(long, value_name = "DIR")]
    pub templates: Option<PathBuf>,
    #[command(flatten)]
    pub connection: Connection,
}
