//! `mco server`

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use mco_http::ListenerLimits;
use mco_http::metrics::ScrapeAccess;
use mco_server::cluster::ClusterBackend;
use mco_server::http::{DEFAULT_LIMITS, is_pool_name};
use mco_server::offline::DirectoryBackend;
use mco_server::{ConfigBackend, ServerSettings};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::cli::ServerArguments;
use crate::log::Log;
use crate::output::CommandOutcome;
use crate::runtime;

/// Worker threads; more would only cost memory.
const WORKERS: usize = 2;
/// Time after which startup is complete.
const STARTED: Duration = Duration::from_secs(5);

pub fn run(arguments: ServerArguments) -> anyhow::Result<CommandOutcome> {
    Log::start(std::io::stderr);
    runtime::run(WORKERS, |stop| serve(arguments, stop))?;
    Ok(CommandOutcome::Done)
}

async fn serve(arguments: ServerArguments, stop: CancellationToken) -> anyhow::Result<()> {
    if let Some(address) = arguments.fleetlock {
        let client =
            kube::Client::try_from(cluster(&arguments).await?).context("cannot connect to the cluster")?;
        let socket = mco_http::bind(address).await;
        let socket = socket.with_context(|| format!("cannot listen on {address}"))?;
        info!(%address, "answering requests of FleetLock");
        mco_server::fleetlock::serve(socket, client, stop).await;
        return Ok(());
    }
    let backend = backend(&arguments).await?;
    let metrics = metrics(&arguments, &backend)?;
    let settings = ServerSettings {
        address: Some(arguments.listen),
        secure_port: arguments.secure_port,
        insecure_port: arguments.insecure_port,
        metrics,
        certificate: arguments.cert.clone(),
        key: arguments.key.clone(),
        tls_minimum: arguments.tls_min_version.clone(),
        tls_suites: arguments.tls_cipher_suites.clone(),
        tokens: arguments.tokens.clone(),
        limits: ListenerLimits {
            connections: usize::try_from(arguments.max_connections)?,
            ..DEFAULT_LIMITS
        },
    };
    let shrinking = tokio::spawn(shrink_once_started());
    let served = mco_server::run(settings, backend, stop).await;
    shrinking.abort();
    Ok(served?)
}

/// Returns unused memory to the system after startup, which allocates more than serving.
async fn shrink_once_started() {
    tokio::time::sleep(STARTED).await;
    if let Err(problem) = mco_daemon::footprint::release_memory() {
        debug!("cannot release unused memory: {problem}");
    }
}

/// Returns where metrics are served, and to whom.
fn metrics(
    arguments: &ServerArguments,
    backend: &ConfigBackend,
) -> anyhow::Result<Option<(SocketAddr, ScrapeAccess)>> {
    let Some(address) = arguments.metrics.listen else {
        return Ok(None);
    };
    let access = match backend {
        ConfigBackend::Cluster(cluster) => arguments.metrics.access(&cluster.client)?,
        ConfigBackend::Directory(_) if arguments.metrics.certificate.is_some() => {
            bail!("--metrics-cert needs a cluster that authenticates scrapers; omit it with --bootstrap-dir")
        }
        ConfigBackend::Directory(_) => ScrapeAccess::default(),
    };
    Ok(Some((address, access)))
}

async fn backend(arguments: &ServerArguments) -> anyhow::Result<ConfigBackend> {
    if let Some(base) = arguments.bootstrap_dir.clone() {
        if let Some(name) = arguments.bootstrap_pools.iter().find(|name| !is_pool_name(name)) {
            bail!("--bootstrap-pools: {name:?} is not a pool name");
        }
        return Ok(ConfigBackend::Directory(DirectoryBackend {
            base,
            kubeconfig: arguments.bootstrap_kubeconfig.clone(),
            certificates: arguments.bootstrap_certs.clone(),
            pools: arguments.bootstrap_pools.clone(),
        }));
    }
    let api_server_url = arguments.apiserver_url.clone().unwrap_or_default();
    if api_server_url.is_empty() {
        bail!("--apiserver-url cannot be empty; to serve files without a cluster, use --bootstrap-dir");
    }
    let config = cluster(arguments).await?;
    Ok(ConfigBackend::Cluster(ClusterBackend {
        client: kube::Client::try_from(config).context("cannot connect to the cluster")?,
        api_server_url,
        token_directory: arguments.bootstrap_token_dir.clone(),
    }))
}

/// Returns how to reach the cluster.
async fn cluster(arguments: &ServerArguments) -> anyhow::Result<kube::Config> {
    let Some(path) = &arguments.kubeconfig else {
        return kube::Config::incluster().context("not inside a pod; use --kubeconfig or --bootstrap-dir");
    };
    let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("cannot use {}", path.display()))?;
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("cannot use {}", path.display()))
}
