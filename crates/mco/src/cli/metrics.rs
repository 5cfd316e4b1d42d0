//! Where a component tells its metrics, and to whom.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use mco_serve_metrics::Door;

#[derive(Debug, Clone, Args)]
pub struct Metrics {
    /// Tell /metrics and signs of life here, over plain HTTP.
    #[arg(long = "metrics-listen", id = "metrics_listen", value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Tell metrics there over TLS only, with this certificate, and only to those whose bearer token the cluster knows and whom
    /// it lets get /metrics. The file may come later and is read again when it changes.
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

impl Metrics {
    /// Who gets to see them. Where not everybody does, the cluster of the client decides.
    pub fn door(&self, client: &kube::Client) -> anyhow::Result<Door> {
        Ok(match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Door::with_files(certificate, key, client.clone())?,
            _ => Door::default(),
        })
    }
}
