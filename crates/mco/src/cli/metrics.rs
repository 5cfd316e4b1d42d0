//! Options for the metrics endpoint of a component.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use mco_http::metrics::ScrapeAccess;
use mco_http::tls::TlsPolicy;

#[derive(Debug, Clone, Args)]
pub struct MetricsArguments {
    /// Serve /metrics and health endpoints on this address, over plain HTTP.
    #[arg(long = "metrics-listen", id = "metrics_listen", value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Serve metrics over TLS only, with this certificate, to clients whose bearer token the cluster authenticates and
    /// authorizes to get /metrics. The file may appear later and is reloaded when it changes.
    #[arg(
        long = "metrics-cert",
        id = "metrics_cert",
        value_name = "FILE",
        requires_all = ["metrics_listen", "metrics_key"]
    )]
    pub certificate: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(
        long = "metrics-key",
        id = "metrics_key",
        value_name = "FILE",
        requires = "metrics_cert"
    )]
    pub key: Option<PathBuf>,
    /// The lowest TLS version for metrics: VersionTLS12 or VersionTLS13.
    #[arg(
        long = "metrics-tls-min-version",
        id = "metrics_tls_min_version",
        value_name = "VERSION",
        default_value = "VersionTLS12"
    )]
    pub tls_min_version: String,
    /// TLS cipher suites for metrics by their IANA names, separated by commas; by default all secure ones.
    #[arg(
        long = "metrics-tls-cipher-suites",
        id = "metrics_tls_cipher_suites",
        value_name = "SUITES",
        value_delimiter = ','
    )]
    pub tls_cipher_suites: Vec<String>,
}

impl MetricsArguments {
    /// Returns the access control of the metrics endpoint. With a certificate, the client's cluster authenticates and
    /// authorizes every scrape.
    pub fn access(&self, client: &kube::Client) -> anyhow::Result<ScrapeAccess> {
        Ok(match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                let policy = TlsPolicy::new(&self.tls_min_version, &self.tls_cipher_suites)?;
                ScrapeAccess::with_policy(certificate, key, client.clone(), &policy)?
            }
            _ => ScrapeAccess::default(),
        })
    }
}
