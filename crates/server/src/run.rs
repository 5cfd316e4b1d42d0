//! The server as a component: settings, start and stop.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mco_core::generators::tls_profile::iana_name;
use mco_http::metrics::ScrapeAccess;
use mco_http::tls::{ALPN_HTTP1, CertificateFiles, TlsError, TlsPolicy};
use mco_http::tokens::TokenFileError;
use mco_http::{Listener, ListenerLimits, ListenerTransport};
use thiserror::Error;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::cluster::ClusterBackend;
use crate::http::{self, IgnitionApp, TokenGuard};
use crate::offline::DirectoryBackend;

/// The settings of the command line.
#[derive(Debug)]
pub struct ServerSettings {
    /// The address to listen on; all addresses if absent.
    pub address: Option<IpAddr>,
    pub secure_port: u16,
    /// The port for plain HTTP; 0 disables it, because configurations hold credentials.
    pub insecure_port: u16,
    /// Where `/metrics` and health endpoints are served, if anywhere, and to whom.
    pub metrics: Option<(SocketAddr, ScrapeAccess)>,
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub tls_minimum: String,
    /// Cipher suites by their IANA or OpenSSL names.
    pub tls_suites: Vec<String>,
    /// The file of hashed tokens; without it no token is required.
    pub tokens: Option<PathBuf>,
    pub limits: ListenerLimits,
}

/// The source of configurations.
#[derive(Debug)]
pub enum ConfigBackend {
    Directory(DirectoryBackend),
    Cluster(ClusterBackend),
}

#[derive(Debug, Error)]
pub enum RunError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
    #[error("kubeconfig not found at location: {}", .0.display())]
    Kubeconfig(PathBuf),
    #[error("{} is not a directory; render into one first: mco render --out DIR", .0.display())]
    Directory(PathBuf),
    #[error("cannot listen on {address}: {source}")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("{0} ended unexpectedly")]
    Ended(&'static str),
}

/// Serves until `stop` is cancelled, then waits for open transfers.
pub async fn run(
    settings: ServerSettings,
    backend: ConfigBackend,
    stop: CancellationToken,
) -> Result<(), RunError> {
    let policy = TlsPolicy::new(&settings.tls_minimum, &iana_names(&settings.tls_suites))?;
    let certificates = CertificateFiles::load(&settings.certificate, &settings.key)?;
    let tls = policy.server_config(Arc::clone(&certificates), ALPN_HTTP1)?;
    let tokens = settings.tokens.as_deref().map(TokenGuard::load).transpose()?;
    check(&backend)?;
    let app = Arc::new(IgnitionApp::new(tokens));

    // Binding comes first, so that a port conflict is reported before anything is watched.
    let address = settings.address.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
    let transport = ListenerTransport::Tls(TlsAcceptor::from(Arc::new(tls)));
    let mut listeners = vec![listener((address, settings.secure_port).into(), transport).await?];
    if settings.insecure_port != 0 {
        let address = (address, settings.insecure_port).into();
        listeners.push(listener(address, ListenerTransport::Plain).await?);
    }
    if app.tokens.is_none() && !address.is_loopback() {
        warn!("no token is required: every client that reaches {address} gets credentials");
    }
    let draining = CancellationToken::new();
    let mut background = JoinSet::new();
    if let Some((address, access)) = settings.metrics {
        let metrics = listener(address, ListenerTransport::Plain).await?;
        let serving = http::serve_metrics(metrics.socket, access, Arc::clone(&app), draining.clone());
        background.spawn(serving);
    }
    background.spawn(certificates.follow());
    match backend {
        ConfigBackend::Directory(directory) => background.spawn(directory.follow(Arc::clone(&app))),
        ConfigBackend::Cluster(cluster) => background.spawn(cluster.follow(Arc::clone(&app))),
    };
    if app.tokens.is_some() {
        let app = Arc::clone(&app);
        background.spawn(async move {
            if let Some(tokens) = &app.tokens {
                tokens.follow().await;
            }
        });
    }
    let mut serving = JoinSet::new();
    for listener in listeners {
        info!(
            "Launching server on {:?} ({:?})",
            listener.socket.local_addr(),
            listener.transport
        );
        serving.spawn(http::serve(
            listener,
            Arc::clone(&app),
            settings.limits,
            draining.clone(),
        ));
    }

    tokio::select! {
        () = stop.cancelled() => {}
        _ = background.join_next() => return Err(RunError::Ended("a background task")),
        _ = serving.join_next() => return Err(RunError::Ended("a listener")),
    }
    info!("stopping: waiting for open transfers");
    app.drain();
    draining.cancel();
    while serving.join_next().await.is_some() {}
    Ok(())
}

/// Maps OpenSSL names of cipher suites; other names are passed on.
fn iana_names(suites: &[String]) -> Vec<String> {
    let names = suites.iter().map(|name| name.trim());
    names
        .map(|name| iana_name(name).unwrap_or(name).to_owned())
        .collect()
}

fn check(backend: &ConfigBackend) -> Result<(), RunError> {
    if let ConfigBackend::Directory(directory) = backend {
        if !directory.kubeconfig.is_file() {
            return Err(RunError::Kubeconfig(directory.kubeconfig.clone()));
        }
        if !directory.base.is_dir() {
            return Err(RunError::Directory(directory.base.clone()));
        }
    }
    Ok(())
}

async fn listener(address: SocketAddr, transport: ListenerTransport) -> Result<Listener, RunError> {
    let socket = bind_with_retries(address)
        .await
        .map_err(|source| RunError::Bind { address, source })?;
    Ok(Listener { socket, transport })
}

/// Retries while the port is in use: the server that is being replaced may not have closed it yet.
async fn bind_with_retries(address: SocketAddr) -> io::Result<tokio::net::TcpListener> {
    const ATTEMPTS: u32 = 10;
    const PAUSE: Duration = Duration::from_millis(300);
    for _ in 1..ATTEMPTS {
        match mco_http::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => tokio::time::sleep(PAUSE).await,
            result => return result,
        }
    }
    mco_http::bind(address).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cipher_suites_have_iana_or_openssl_names() {
        let names = ["ECDHE-RSA-AES128-GCM-SHA256", " TLS_AES_128_GCM_SHA256", "other"];
        assert_eq!(
            iana_names(&names.map(str::to_owned)),
            [
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                "TLS_AES_128_GCM_SHA256",
                "other"
            ]
        );
    }
}
