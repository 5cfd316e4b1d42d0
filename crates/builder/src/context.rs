//! What the reconcilers share: the client, the watch stores, the work queues.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource};
use mco_api::vocabulary::events::build as event;
use mco_api::vocabulary::{labels, names};
use mco_api::{MachineConfigPool, MachineOSBuild, MachineOSConfig};
use mco_runtime::{Debounce, FieldManager, Lenient, ObjectChange, Queue, Store, object_name};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::events::BuilderEvents;
use crate::options::Options;

pub(crate) const FIELD_MANAGER: FieldManager = FieldManager::new("machine-os-builder");

/// A MachineOSConfig and its pool are often written one after the other.
const QUIET_PERIOD: Duration = Duration::from_millis(200);
const MAX_DELAY: Duration = Duration::from_secs(1);

pub(crate) struct Context {
    pub client: Client,
    pub options: Options,
    pub events: BuilderEvents,
    pub configs: Store<MachineOSConfig>,
    pub builds: Store<MachineOSBuild>,
    pub pools: Store<MachineConfigPool>,
    pub nodes: Store<Node>,
    pub jobs: Store<Job>,
    /// MachineOSConfigs, by name.
    pub queue: Arc<Queue<String>>,
    /// Deleted builds whose images and digests remain, by name.
    pub cleanups: Arc<Queue<String>>,
    pub deleted: Mutex<HashMap<String, Arc<MachineOSBuild>>>,
}

impl Context {
    pub fn new(client: Client, options: Options, events: BuilderEvents) -> Arc<Self> {
        let debounce = Debounce::new(QUIET_PERIOD, MAX_DELAY);
        Arc::new_cyclic(|ctx| Self {
            client,
            options,
            events,
            configs: store(ctx, on_config),
            builds: store(ctx, on_build),
            pools: store(ctx, on_pool),
            nodes: store(ctx, |_, _| {}),
            jobs: store(ctx, on_job),
            queue: Arc::new(Queue::new(debounce)),
            cleanups: Arc::new(Queue::new(Debounce::immediate())),
            deleted: Mutex::default(),
        })
    }

    pub fn spawn_watches(self: &Arc<Self>, tasks: &mut JoinSet<&'static str>) {
        let all = watcher::Config::default;
        tasks.spawn(follow(
            Arc::clone(self),
            |ctx| &ctx.configs,
            Api::all(self.client.clone()),
            all(),
        ));
        tasks.spawn(follow(
            Arc::clone(self),
            |ctx| &ctx.builds,
            Api::all(self.client.clone()),
            all(),
        ));
        tasks.spawn(follow(
            Arc::clone(self),
            |ctx| &ctx.pools,
            Api::all(self.client.clone()),
            all(),
        ));
        tasks.spawn(follow(
            Arc::clone(self),
            |ctx| &ctx.nodes,
            Api::all(self.client.clone()),
            all(),
        ));
        let ours = all().labels(labels::build::EPHEMERAL);
        let jobs = Api::namespaced(self.client.clone(), names::NAMESPACE);
        tasks.spawn(follow(Arc::clone(self), |ctx| &ctx.jobs, jobs, ours));
    }

    pub async fn wait_until_ready(&self) {
        self.configs.wait_until_ready().await;
        self.builds.wait_until_ready().await;
        self.pools.wait_until_ready().await;
        self.nodes.wait_until_ready().await;
        self.jobs.wait_until_ready().await;
    }

    pub fn cluster_api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>,
    {
        Api::all(self.client.clone())
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), names::NAMESPACE)
    }

    pub fn now(&self) -> Timestamp {
        (self.options.clock)()
    }

    pub fn time(&self) -> Time {
        Time(self.now())
    }

    /// Returns the builds of a MachineOSConfig, in the order of their names.
    pub fn builds_of(&self, config: &str) -> Vec<Arc<MachineOSBuild>> {
        let mut builds = self.builds.all();
        builds.retain(|build| build.spec.machine_os_config.name == config);
        builds.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        builds
    }

    pub fn job_of(&self, build: &str) -> Option<Arc<Job>> {
        let name = names::build::job(build);
        self.jobs.get(&format!("{}/{name}", names::NAMESPACE))
    }

    /// Reads a rendered MachineConfig as it is stored: an absent list differs from an empty one.
    pub async fn stored_config(&self, name: &str) -> kube::Result<Option<Value>> {
        let path = format!("/apis/machineconfiguration.openshift.io/v1/machineconfigs/{name}");
        let request = http::Request::get(path)
            .body(Vec::new())
            .map_err(kube::Error::HttpError)?;
        mco_runtime::patch::unless_gone(self.client.request::<Value>(request).await)
    }
}

pub(crate) fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> &'a str {
    let labels = metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(key))
        .map_or("", String::as_str)
}

pub(crate) fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> &'a str {
    let annotations = metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(key))
        .map_or("", String::as_str)
}

fn on_config(ctx: &Context, change: &ObjectChange<'_, MachineOSConfig>) {
    if let Some(config) = change.latest() {
        let name = object_name(&config.metadata);
        ctx.queue.enqueue(name);
        if change.new.is_none() {
            let message = format!("MachineOSConfig {name:?} deleted, removing associated builds");
            ctx.events.normal(&**config, event::CONFIG_DELETED, message);
        }
    }
    ctx.options.metrics.set_configs(ctx.configs.len());
}

fn on_build(ctx: &Context, change: &ObjectChange<'_, MachineOSBuild>) {
    let Some(build) = change.latest() else {
        return;
    };
    ctx.queue.enqueue(build.spec.machine_os_config.name.as_str());
    if change.new.is_none() {
        let name = object_name(&build.metadata).to_owned();
        ctx.deleted.lock().insert(name.clone(), Arc::clone(build));
        ctx.cleanups.enqueue(name);
    }
}

fn on_job(ctx: &Context, change: &ObjectChange<'_, Job>) {
    if let Some(job) = change.latest() {
        ctx.queue
            .enqueue(label(&job.metadata, labels::build::MACHINE_OS_CONFIG));
    }
}

fn on_pool(ctx: &Context, change: &ObjectChange<'_, MachineConfigPool>) {
    let Some(pool) = change.latest() else {
        return;
    };
    let name = object_name(&pool.metadata);
    let configs = ctx.configs.all();
    let mut of_pool = configs
        .iter()
        .filter(|config| config.spec.machine_config_pool.name == name)
        .peekable();
    if of_pool.peek().is_none() {
        return;
    }
    if let (Some(old), Some(new)) = (change.old, change.new)
        && old.target_name() != new.target_name()
    {
        ctx.options.metrics.count_config_change(name);
        let message = format!(
            "Rendered config changed from {} to {}",
            old.target_name(),
            new.target_name()
        );
        ctx.events.normal(&**new, event::POOL_CONFIG_CHANGED, message);
    }
    for config in of_pool {
        ctx.queue.enqueue(object_name(&config.metadata));
    }
}

fn store<K>(ctx: &Weak<Context>, on_change: fn(&Context, &ObjectChange<'_, K>)) -> Store<K>
where
    K: Resource + Clone + Debug + Send + Sync + 'static,
{
    let ctx = Weak::clone(ctx);
    let without_managed_fields = |object: &mut K| object.meta_mut().managed_fields = None;
    Store::new(without_managed_fields, move |change: &ObjectChange<'_, K>| {
        if let Some(ctx) = ctx.upgrade() {
            on_change(&ctx, change);
        }
    })
}

fn follow<K>(
    ctx: Arc<Context>,
    store: fn(&Context) -> &Store<K>,
    api: Api<Lenient<K>>,
    config: watcher::Config,
) -> impl Future<Output = &'static str> + Send + 'static
where
    K: Resource + Clone + Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    let events = watcher(api, config);
    async move {
        store(&ctx).follow(events).await;
        "a watch"
    }
}
