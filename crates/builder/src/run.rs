//! Starts the watches and workers, and stops them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::ListParams;
use mco_api::{MachineOSBuild, MachineOSConfig};
use mco_runtime::{object_name, run_worker};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::context::Context;
use crate::error::Error;
use crate::options::Options;
use crate::{cleanup, events, reconcile};

/// Builds are few, and a reconcile waits for registries.
const CONCURRENCY: usize = 4;
/// How long a stop waits for the objects of deleted MachineOSConfigs.
const SHUTDOWN: Duration = Duration::from_secs(10);
const SHUTDOWN_POLL: Duration = Duration::from_millis(100);
/// How long a stop then waits for the workers to end, and as long for the events that they have reported.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs the builder until `stop` is cancelled. Work for MachineOSConfigs that were deleted is completed first, for up
/// to ten seconds: the operator stops the builder when the last one is gone.
pub async fn run(client: Client, options: Options, stop: CancellationToken) -> Result<(), Error> {
    let mut tasks: JoinSet<&'static str> = JoinSet::new();
    let mut working: JoinSet<&'static str> = JoinSet::new();
    let mut writing: JoinSet<&'static str> = JoinSet::new();
    let (events, writer) = events::channel();
    let writers_client = client.clone();
    writing.spawn(async move {
        writer.run(writers_client).await;
        "the event writer"
    });
    let ctx = Context::new(client, options, events);
    ctx.spawn_watches(&mut tasks);
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = ctx.wait_until_ready() => {}
    }
    info!(
        configs = ctx.configs.len(),
        builds = ctx.builds.len(),
        "caches synced"
    );
    let workers = CancellationToken::new();
    spawn_workers(&ctx, &workers, &mut working);
    // Builds of MachineOSConfigs that were deleted while no builder ran.
    for build in ctx.builds.all() {
        ctx.queue.enqueue(build.spec.machine_os_config.name.as_str());
    }
    let ended = tokio::select! {
        () = stop.cancelled() => None,
        ended = tasks.join_next() => ended,
        ended = working.join_next() => ended,
        ended = writing.join_next() => ended,
    };
    if stop.is_cancelled() {
        finish(&ctx).await;
        workers.cancel();
        wait_for(working).await;
        tasks.shutdown().await;
        // The writer ends when nothing is left that can report events.
        drop(ctx);
        wait_for(writing).await;
        return Ok(());
    }
    Err(match ended {
        Some(Ok(task)) => Error::Ended {
            task,
            reason: "it must run until it is stopped".to_owned(),
        },
        Some(Err(reason)) => Error::Ended {
            task: "a task",
            reason: reason.to_string(),
        },
        None => Error::Ended {
            task: "the builder",
            reason: "nothing runs".to_owned(),
        },
    })
}

/// Waits a little for the end of tasks, then ends them.
async fn wait_for(mut tasks: JoinSet<&'static str>) {
    let ending = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST_WORDS, ending).await.is_err() {
        tasks.shutdown().await;
    }
}

fn spawn_workers(ctx: &Arc<Context>, stop: &CancellationToken, tasks: &mut JoinSet<&'static str>) {
    let (queue, worker, stopped) = (Arc::clone(&ctx.queue), Arc::clone(ctx), stop.clone());
    tasks.spawn(async move {
        let reconcile = move |name| Box::pin(reconcile::reconcile(Arc::clone(&worker), name));
        run_worker("machine-os-config", queue, CONCURRENCY, stopped, reconcile).await;
        "machine-os-config"
    });
    let (queue, worker, stopped) = (Arc::clone(&ctx.cleanups), Arc::clone(ctx), stop.clone());
    tasks.spawn(async move {
        let reconcile = move |name| Box::pin(cleanup::reconcile(Arc::clone(&worker), name));
        run_worker("machine-os-build-cleanup", queue, CONCURRENCY, stopped, reconcile).await;
        "machine-os-build-cleanup"
    });
}

/// Waits until no deleted MachineOSConfig has builds left.
async fn finish(ctx: &Context) {
    let deadline = Instant::now() + SHUTDOWN;
    // The watch may not have delivered a deletion yet, and this process is often stopped because of it.
    match tokio::time::timeout(SHUTDOWN, list_configs(ctx)).await {
        Ok(Ok(present)) => {
            let is_behind = || {
                ctx.configs
                    .all()
                    .iter()
                    .any(|known| !present.contains(object_name(&known.metadata)))
            };
            while is_behind() && Instant::now() < deadline {
                tokio::time::sleep(SHUTDOWN_POLL).await;
            }
        }
        Ok(Err(error)) => warn!("cannot check for deleted MachineOSConfigs: {error}"),
        Err(_) => warn!("cannot check for deleted MachineOSConfigs: the API server does not respond"),
    }
    loop {
        let left = leftovers(ctx);
        if left.is_empty() {
            return;
        }
        if Instant::now() >= deadline {
            warn!(
                "stopped before the cleanup was complete; delete by hand: {}",
                left.join(", ")
            );
            return;
        }
        tokio::time::sleep(SHUTDOWN_POLL).await;
    }
}

async fn list_configs(ctx: &Context) -> kube::Result<BTreeSet<String>> {
    let found = ctx
        .cluster_api::<MachineOSConfig>()
        .list_metadata(&ListParams::default())
        .await?;
    Ok(found
        .into_iter()
        .map(|one| object_name(&one.metadata).to_owned())
        .collect())
}

fn leftovers(ctx: &Context) -> Vec<String> {
    let is_orphan = |build: &Arc<MachineOSBuild>| {
        let config = ctx.configs.get(&build.spec.machine_os_config.name);
        build.metadata.deletion_timestamp.is_none()
            && config.is_none_or(|config| config.metadata.deletion_timestamp.is_some())
    };
    let orphans = ctx.builds.all().into_iter().filter(is_orphan);
    let builds = orphans.map(|build| format!("MachineOSBuild {}", object_name(&build.metadata)));
    let images = ctx
        .deleted
        .lock()
        .keys()
        .map(|name| format!("the image of {name}"))
        .collect::<Vec<_>>();
    builds.chain(images).collect()
}
