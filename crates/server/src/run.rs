//! The whole server, from its settings to its end.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mco_tls::{Certificates, Offer, TlsError};
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::cluster::Cluster;
use crate::http::{self, App, Limits, Listener, TokenGuard, Transport};
use crate::offline::Directory;
use crate::tokens::TokensError;

/// Everything that can be chosen on the command line.
#[derive(Debug)]
pub struct Settings {
    /// Where to listen; on every address of the machine if left out.
    pub address: Option<IpAddr>,
    pub secure_port: u16,
    /// 0 is off: what is served holds credentials.
    pub insecure_port: u16,
    /// 0 is off.
    pub metrics_port: u16,
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub tls_minimum: String,
    pub tls_suites: Vec<String>,
    /// Where hashed tokens are; without it nobody is asked for one.
    pub tokens: Option<PathBuf>,
    pub limits: Limits,
}

/// Where configurations come from.
#[derive(Debug)]
pub enum Backend {
    Directory(Directory),
    Cluster(Cluster),
}

#[derive(Debug, Error)]
pub enum RunError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Tokens(#[from] TokensError),
    #[error("kubeconfig not found at location: {}", .0.display())]
    Kubeconfig(PathBuf),
    #[error("{} is not a directory; render into one first: mco render --out DIR", .0.display())]
    Directory(PathBuf),
    #[error("cannot listen on port {port}: {source}")]
    Bind { port: u16, source: io::Error },
    #[error("{0} ended unexpectedly")]
    Ended(&'static str),
}

/// Serves until `stop` is cancelled, then lets open transfers finish.
pub async fn run(settings: Settings, backend: Backend, stop: CancellationToken) -> Result<(), RunError> {
    let offer = Offer::new(&settings.tls_minimum, &settings.tls_suites)?;
    let certificates = Certificates::load(&settings.certificate, &settings.key)?;
    let tls = offer.server_config(Arc::clone(&certificates))?;
    let tokens = settings.tokens.as_deref().map(TokenGuard::load).transpose()?;
    check(&backend)?;
    let app = Arc::new(App::new(tokens));
    allow_descriptors(settings.limits.connections);

    // Binding first: a port that is taken is known before anything is watched.
    let mut listeners = vec![
        listener(
            settings.address,
            settings.secure_port,
            Transport::Tls(TlsAcceptor::from(Arc::new(tls))),
        )
        .await?,
    ];
    if settings.insecure_port != 0 {
        listeners.push(listener(settings.address, settings.insecure_port, Transport::Plain).await?);
    }
    let (drain, draining) = watch::channel(false);
    if settings.metrics_port != 0 {
        let metrics = listener(settings.address, settings.metrics_port, Transport::Plain).await?;
        tokio::spawn(http::serve_metrics(
            metrics.socket,
            Arc::clone(&app),
            draining.clone(),
        ));
    }

    let mut followers = JoinSet::new();
    followers.spawn(certificates.follow());
    match backend {
        Backend::Directory(directory) => followers.spawn(directory.follow(Arc::clone(&app))),
        Backend::Cluster(cluster) => followers.spawn(cluster.follow(Arc::clone(&app))),
    };
    if app.tokens.is_some() {
        let app = Arc::clone(&app);
        followers.spawn(async move {
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
        _ = followers.join_next() => return Err(RunError::Ended("watching for changes")),
        _ = serving.join_next() => return Err(RunError::Ended("a listener")),
    }
    info!("stopping: waiting for open transfers");
    app.drain();
    drain.send_replace(true);
    while serving.join_next().await.is_some() {}
    Ok(())
}

/// One descriptor per connection, and some for files and the cluster. Shells start programs with far fewer.
fn allow_descriptors(connections: usize) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    const OTHERS: u64 = 256;
    let wanted = u64::try_from(connections)
        .unwrap_or(u64::MAX)
        .saturating_add(OTHERS);
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    limit.current = Some(limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
    let possible = limit.current;
    if let Err(problem) = setrlimit(Resource::Nofile, limit) {
        warn!("cannot raise the limit of open files: {problem}");
    } else if possible < Some(wanted) {
        warn!("the limit of open files allows fewer than {connections} connections");
    }
}

fn check(backend: &Backend) -> Result<(), RunError> {
    if let Backend::Directory(directory) = backend {
        if !directory.kubeconfig.is_file() {
            return Err(RunError::Kubeconfig(directory.kubeconfig.clone()));
        }
        if !directory.base.is_dir() {
            return Err(RunError::Directory(directory.base.clone()));
        }
    }
    Ok(())
}

async fn listener(address: Option<IpAddr>, port: u16, transport: Transport) -> Result<Listener, RunError> {
    let socket = bind_patiently(address, port)
        .await
        .map_err(|source| RunError::Bind { port, source })?;
    Ok(Listener { socket, transport })
}

/// The server that is being replaced may need a moment to let go of the port.
async fn bind_patiently(address: Option<IpAddr>, port: u16) -> io::Result<tokio::net::TcpListener> {
    const ATTEMPTS: u32 = 10;
    const PAUSE: Duration = Duration::from_millis(300);
    for _ in 1..ATTEMPTS {
        match http::bind(address, port).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => tokio::time::sleep(PAUSE).await,
            result => return result,
        }
    }
    http::bind(address, port).await
}
