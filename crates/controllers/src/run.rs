//! Starts the watches, the workers and the metrics endpoint, and stops them.

use std::future::Future;
use std::net::SocketAddr;

use kube::Client;
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_core::generators::generated::Generator;
use mco_http::metrics::ScrapeAccess;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::context::Context;
use crate::error::Error;
use crate::events;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::reconcilers::Queues;
use crate::watched_kinds::WatchStores;

/// Runs all controllers until `stop` is cancelled. They may be stopped or killed at any moment: the next run continues
/// from what it finds in the cluster.
pub async fn run(client: Client, options: Options, stop: CancellationToken) -> Result<(), Error> {
    let mut tasks: JoinSet<&'static str> = JoinSet::new();
    if let Some(address) = options.metrics_address {
        let (access, metrics) = (options.metrics_access.clone(), options.metrics.clone());
        let serving = serve_metrics(address, access, metrics, stop.clone()).await?;
        tasks.spawn(named("the metrics endpoint", serving));
    }
    let (events, writer) = events::channel();
    tasks.spawn(named("the event writer", writer.run(client.clone())));
    let ctx = Context::new(client, options, events);
    WatchStores::spawn_watches(&ctx, &mut tasks);
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = ctx.stores.wait_until_ready() => {}
    }
    info!(
        pools = ctx.stores.pools.len(),
        nodes = ctx.stores.nodes.len(),
        configs = ctx.stores.config_metadata.len(),
        "caches synced"
    );
    if ctx.controller_config().is_none() {
        info!("waiting for ControllerConfig {CONTROLLER_CONFIG_NAME}, which the operator writes");
    }
    Queues::spawn_workers(&ctx, &stop, &mut tasks);
    ctx.queues.generators.enqueue(Generator::Templates);
    ctx.queues.disruption_policy.enqueue(());
    ctx.queues.rendered_config_gc.enqueue(());
    tokio::select! {
        () = stop.cancelled() => Ok(()),
        Some(ended) = tasks.join_next() => match ended {
            _ if stop.is_cancelled() => Ok(()),
            Ok(task) => Err(Error::Ended { task, reason: "it must run until it is stopped".to_owned() }),
            Err(reason) => Err(Error::Ended { task: "a task", reason: reason.to_string() }),
        },
    }
}

/// Serves metrics on `address` until `stop` is cancelled. A replica that is not the leader is scraped too, so this is
/// separate from [`run`].
pub async fn serve_metrics(
    address: SocketAddr,
    access: ScrapeAccess,
    metrics: Metrics,
    stop: CancellationToken,
) -> Result<impl Future<Output = ()> + Send + 'static, Error> {
    let listener = mco_http::bind(address)
        .await
        .map_err(|source| Error::Listen { address, source })?;
    let source = move || metrics.encode();
    Ok(mco_http::metrics::serve_metrics(listener, access, source, stop))
}

async fn named(name: &'static str, task: impl Future<Output = ()>) -> &'static str {
    task.await;
    name
}
