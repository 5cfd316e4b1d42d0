//! Options for the metrics endpoint of a component.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use mco_http::metrics::ScrapeAccess;

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
}

impl MetricsArguments {
    /// Returns the access control of the metrics endpoint. With a certificate, the client's cluster authenticates and
    /// authorizes every scrape.
    pub fn access(&self, client: &kube::Client) -> anyhow::Result<ScrapeAccess> {
        Ok(match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => ScrapeAccess::with_files(certificate, key, client.clone())?,
            _ => ScrapeAccess::default(),
        })
    }
}
