//! Options of `mco server` and `mco pointer`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;

use super::metrics::MetricsArguments;

/// Serve each pool's configuration to machines that boot for the first time.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco server --apiserver-url https://api-int.example.com:6443
  mco server --bootstrap-dir rendered/ --bootstrap-kubeconfig kubeconfig \\
      --cert tls.crt --key tls.key
  mco server --apiserver-url https://api-int.example.com:6443 \\
      --tokens /etc/mcs/tokens.json
  mco server --fleetlock 0.0.0.0:8080

What is served contains credentials: without --tokens, every client that
reaches the port gets them.

Without --bootstrap-dir the objects of the cluster are served, found through
--kubeconfig or from inside a pod. Certificate, key, tokens and served objects
are reloaded when they change. On SIGTERM, open transfers are completed.")]
pub struct ServerArguments {
    /// Port for HTTPS.
    #[arg(long, value_name = "PORT", default_value_t = 22623)]
    pub secure_port: u16,
    /// Port for plain HTTP; 0 is off. What is served holds credentials.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub insecure_port: u16,
    /// Address to listen on; :: is every IPv6 and IPv4 address.
    #[arg(long, value_name = "ADDRESS", default_value = "::")]
    pub listen: IpAddr,
    #[command(flatten)]
    pub metrics: MetricsArguments,
    /// The server's certificate chain.
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/mcs/tls.crt")]
    pub cert: PathBuf,
    /// The key of the certificate.
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/mcs/tls.key")]
    pub key: PathBuf,
    /// The lowest TLS version: VersionTLS12 or VersionTLS13.
    #[arg(long, value_name = "VERSION", default_value = "VersionTLS12")]
    pub tls_min_version: String,
    /// TLS cipher suites by their IANA names, separated by commas; by default all secure ones.
    #[arg(long, value_name = "SUITES", value_delimiter = ',')]
    pub tls_cipher_suites: Vec<String>,
    /// Require a token from every machine; FILE holds their hashes, written by mco pointer --token or by the operator
    /// of an installation.
    #[arg(long, value_name = "FILE")]
    pub tokens: Option<PathBuf>,
    /// Serve no configurations, but answer update agents of nodes that speak FleetLock, such as Zincati, on this address,
    /// over plain HTTP. Their reboots share the budget of the pool.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["bootstrap_dir", "apiserver_url", "tokens"])]
    pub fleetlock: Option<SocketAddr>,
    /// Maximum number of concurrent connections; more are answered with 503.
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_connections: u32,

    /// How to reach the cluster; from inside a pod by default.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "bootstrap_dir",
        help_heading = "Serving a cluster"
    )]
    pub kubeconfig: Option<PathBuf>,
    /// Address of the API server in the kubeconfig of new machines; required.
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "bootstrap_dir",
        help_heading = "Serving a cluster"
    )]
    pub apiserver_url: Option<String>,
    /// Directory with the token and ca.crt with which new machines authenticate.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/etc/mcs/bootstrap-token",
        help_heading = "Serving a cluster"
    )]
    pub bootstrap_token_dir: PathBuf,

    /// Serve the files that mco render wrote to DIR instead of a cluster.
    #[arg(
        long,
        visible_alias = "server-basedir",
        value_name = "DIR",
        help_heading = "Serving a directory"
    )]
    pub bootstrap_dir: Option<PathBuf>,
    /// The kubeconfig of new machines.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/kubernetes/kubeconfig",
        help_heading = "Serving a directory"
    )]
    pub bootstrap_kubeconfig: PathBuf,
    /// Certificates of an image registry, in a file relative to the directory; can be repeated.
    #[arg(
        long,
        value_name = "HOST=FILE",
        value_delimiter = ',',
        value_parser = host_and_file,
        help_heading = "Serving a directory"
    )]
    pub bootstrap_certs: Vec<(String, PathBuf)>,
    /// Pools to serve; requests for other pools are answered with 503.
    #[arg(
        long,
        value_name = "POOLS",
        value_delimiter = ',',
        default_value = "master,arbiter",
        help_heading = "Serving a directory"
    )]
    pub bootstrap_pools: Vec<String>,
}

fn host_and_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((host, file)) if !host.is_empty() && !file.is_empty() && !file.contains('=') => {
            let is_host = host.bytes().all(|byte| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'[' | b']' | b'_')
            });
            if is_host && !host.starts_with('.') {
                Ok((host.to_owned(), file.into()))
            } else {
                Err(format!("{host:?} is not a registry host"))
            }
        }
        _ => Err("could not use cert, missing key or value; write HOST=FILE".to_owned()),
    }
}

/// Print the pointer config that a new machine of a pool is created with.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mco pointer --pool worker --server api-int.example.com --ca ca.crt
  mco pointer --pool worker --server api-int.example.com --ca ca.crt \\
      --spec-version 3.2.0
  mco pointer --pool worker --server 192.0.2.1:8443 --ca ca.crt --token \\
      --tokens tokens.json

The pointer config contains the URL of the pool's configuration and the CA that
verifies it. With --token it contains a new token, whose hash is added to the
file that mco server --tokens reads. Removing the record from that file revokes
the token.

An installed cluster needs none of this: its operator writes the pointer config
of each pool, with a token, into Secret POOL-user-data-managed of namespace
openshift-machine-api.")]
pub struct PointerArguments {
    /// The pool that the machine joins.
    #[arg(long, value_name = "POOL")]
    pub pool: String,
    /// Host or address of the server, with its port unless that is 22623.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub server: String,
    /// CA certificates that verify the server's certificate; by default the system's trust store.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Version of the Ignition spec to write.
    #[arg(long, value_name = "VERSION", default_value = mco_ignition::SpecVersion::NEWEST.as_str())]
    pub spec_version: String,
    /// Create a new token for this pool.
    #[arg(long, requires = "tokens")]
    pub token: bool,
    /// The file with the hashes of the tokens.
    #[arg(long, value_name = "FILE", requires = "token")]
    pub tokens: Option<PathBuf>,
    /// Lifetime of a new token, for example 30m, 24h or 7d.
    #[arg(long, value_name = "TIME", default_value = "24h")]
    pub token_lifetime: String,
    /// Use the token in this file instead of a new one.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
}
