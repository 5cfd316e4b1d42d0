//! Starts everything and stops it again.

use std::fmt::Debug;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::Stream;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PartialObjectMeta;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource};
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::vocabulary::names;
use mco_http::metrics::ScrapeAccess;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::cluster::{Cluster, WHOLE};
use crate::error::Error;
use crate::metrics::Metrics;
use crate::mirror::Mirror;
use crate::options::Options;
use crate::queue::{Again, Queue};
use crate::{
    collector, contents, control_plane, disruption_policy, drain, events, foundation, generators,
    node_objects, os_streams, owned, pinned_images, render, rollout, worker,
};

/// Pools are few, and each look at one is short.
const POOLS_AT_ONCE: usize = 8;
/// Small objects, many at a start.
const OBJECTS_AT_ONCE: usize = 32;
const ONE: usize = 1;

/// Runs all controllers until `stop` is cancelled. Nothing is lost by stopping at any moment: whatever was begun is
/// recognised and finished by the next run.
pub async fn run(client: Client, options: Options, stop: CancellationToken) -> Result<(), Error> {
    let mut tasks: JoinSet<&'static str> = JoinSet::new();
    if let Some(address) = options.metrics_address {
        let (access, metrics) = (options.metrics_access.clone(), options.metrics.clone());
        let serving = serve_metrics(address, access, metrics, stop.clone()).await?;
        tasks.spawn(named("the metrics", serving));
    }
    let (teller, writer) = events::channel();
    tasks.spawn(named("events", writer.run(client.clone())));
    let cluster = Cluster::new(client, options, teller);
    follow(&cluster, &mut tasks);
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = everything_known(&cluster) => {}
    }
    info!(
        pools = cluster.pools.len(),
        nodes = cluster.nodes.len(),
        configs = cluster.config_metadata.len(),
        "the controllers know the cluster"
    );
    if cluster.controller_config().is_none() {
        info!("waiting for ControllerConfig {CONTROLLER_CONFIG_NAME}, which the operator writes");
    }
    work(&cluster, &stop, &mut tasks);
    tokio::select! {
        () = stop.cancelled() => Ok(()),
        Some(ended) = tasks.join_next() => match ended {
            _ if stop.is_cancelled() => Ok(()),
            Ok(task) => Err(Error::Ended { task, reason: "it should run for ever".to_owned() }),
            Err(reason) => Err(Error::Ended { task: "a task", reason: reason.to_string() }),
        },
    }
}

/// Answers scrapers there until `stop`. For those who want to be scraped before they may work.
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

/// Starts one watch per kind.
fn follow(cluster: &Arc<Cluster>, tasks: &mut JoinSet<&'static str>) {
    let client = || cluster.client.clone();
    let all = watcher::Config::default;
    let one = |name: &str| all().fields(&format!("metadata.name={name}"));
    macro_rules! follow {
        ($($field:ident: $config:expr,)*) => {
            $(
                let events = watch(Api::all(client()), $config);
                tasks.spawn(mirrored(Arc::clone(cluster), |cluster| &cluster.$field, events));
            )*
        };
    }
    follow! {
        pools: all(),
        nodes: all(),
        machine_config_nodes: all(),
        controller_configs: one(CONTROLLER_CONFIG_NAME),
        kubelet_configs: all(),
        runtime_configs: all(),
        machine_configurations: one(names::SINGLETON),
        os_configs: all(),
        os_builds: all(),
        os_streams: one(names::SINGLETON),
        images: one(names::SINGLETON),
        digest_mirrors: all(),
        tag_mirrors: all(),
        content_policies: all(),
        wide_image_policies: all(),
        image_policies: all(),
        credential_providers: one(names::SINGLETON),
        releases: one(names::CLUSTER_VERSION),
        feature_gates: one(names::SINGLETON),
        // One of another name is nobody's settings, and its owner should hear that.
        node_settings: all(),
        api_servers: one(names::SINGLETON),
        schedulers: one(names::SINGLETON),
    }
    let configs = watcher(Api::all(client()), all());
    tasks.spawn(mirrored(
        Arc::clone(cluster),
        |cluster| &cluster.config_metadata,
        configs,
    ));
    let sets = watcher(Api::all(client()), all());
    tasks.spawn(mirrored(
        Arc::clone(cluster),
        |cluster| &cluster.pinned_image_sets,
        sets,
    ));
    let os_images: Api<ConfigMap> = Api::namespaced(client(), names::NAMESPACE);
    let os_images = watcher(os_images, one(names::config_map::OS_IMAGE_URL));
    tasks.spawn(mirrored(
        Arc::clone(cluster),
        |cluster| &cluster.os_images,
        os_images,
    ));
    let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(client(), names::CONFIG_NAMESPACE);
    let secrets = watcher(secrets, one(names::secret::PULL_SECRET));
    tasks.spawn(mirrored(
        Arc::clone(cluster),
        |cluster| &cluster.pull_secrets,
        secrets,
    ));
}

fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watcher(api, config)
}

async fn mirrored<K>(
    cluster: Arc<Cluster>,
    mirror: fn(&Cluster) -> &Mirror<K>,
    events: impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send,
) -> &'static str
where
    K: Resource + Clone + Debug + Send + Sync + 'static,
{
    mirror(&cluster).follow(events).await;
    "a watch"
}

/// No decision is made before all that it could depend on is known.
async fn everything_known(cluster: &Cluster) {
    macro_rules! wait {
        ($($field:ident)*) => { $(cluster.$field.wait_until_ready().await;)* };
    }
    wait! {
        pools nodes config_metadata machine_config_nodes controller_configs kubelet_configs runtime_configs
        machine_configurations os_configs os_builds os_streams os_images pinned_image_sets images digest_mirrors tag_mirrors content_policies
        wide_image_policies image_policies credential_providers releases feature_gates node_settings api_servers schedulers pull_secrets
    }
}

/// Starts the reconcilers.
fn work(cluster: &Arc<Cluster>, stop: &CancellationToken, tasks: &mut JoinSet<&'static str>) {
    type Look = fn(Arc<Cluster>, String) -> BoxFuture<'static, Result<Again, Error>>;
    let queues = &cluster.queues;
    let drains = cluster.options.drain.at_once;
    let reconcilers: [(&'static str, &Arc<Queue<String>>, usize, Look); 16] = [
        ("contents", &queues.contents, OBJECTS_AT_ONCE, |c, n| {
            Box::pin(contents::fetch(c, n))
        }),
        ("keeper", &queues.keeper, OBJECTS_AT_ONCE, |c, n| {
            Box::pin(owned::keep(c, n))
        }),
        ("template", &queues.templates, ONE, |c, _| {
            Box::pin(foundation::reconcile(c))
        }),
        ("kubelet-config", &queues.kubelet, ONE, |c, _| {
            Box::pin(generators::kubelet(c))
        }),
        ("container-runtime-config", &queues.runtime, ONE, |c, _| {
            Box::pin(generators::container_runtime(c))
        }),
        ("registries", &queues.registries, ONE, |c, _| {
            Box::pin(generators::registries(c))
        }),
        ("os-image-stream", &queues.os_streams, ONE, |c, _| {
            Box::pin(os_streams::reconcile(c))
        }),
        (
            "credential-provider",
            &queues.credential_providers,
            ONE,
            |c, _| Box::pin(generators::credential_provider(c)),
        ),
        (
            "pinned-image-set",
            &queues.pinned_images,
            POOLS_AT_ONCE,
            |c, n| Box::pin(pinned_images::reconcile(c, n)),
        ),
        ("render", &queues.render, POOLS_AT_ONCE, |c, n| {
            Box::pin(render::reconcile(c, n))
        }),
        ("node", &queues.rollout, POOLS_AT_ONCE, |c, n| {
            Box::pin(rollout::reconcile(c, n))
        }),
        ("drain", &queues.drain, drains, |c, n| {
            Box::pin(drain::reconcile(c, n))
        }),
        (
            "machine-config-node",
            &queues.node_objects,
            OBJECTS_AT_ONCE,
            |c, n| Box::pin(node_objects::reconcile(c, n)),
        ),
        ("control-plane", &queues.control_plane, POOLS_AT_ONCE, |c, n| {
            Box::pin(control_plane::reconcile(c, n))
        }),
        ("disruption-policy", &queues.policies, ONE, |c, _| {
            Box::pin(disruption_policy::reconcile(c))
        }),
        ("collector", &queues.collector, ONE, |c, _| {
            Box::pin(collector::reconcile(c))
        }),
    ];
    for (name, queue, at_once, look) in reconcilers {
        let cluster = Arc::clone(cluster);
        let reconcile = move |key: String| look(Arc::clone(&cluster), key);
        tasks.spawn(named(
            name,
            worker::run(name, Arc::clone(queue), at_once, stop.clone(), reconcile),
        ));
    }
    for queue in [&queues.templates, &queues.policies, &queues.collector] {
        queue.wake(WHOLE);
    }
}
