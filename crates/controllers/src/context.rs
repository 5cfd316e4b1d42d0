//! What the reconcilers share: the client, the watch stores, the work queues, and the results of generators and
//! renders.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, Resource};
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::{ControllerConfig, MachineConfig};
use mco_core::config::{pools, rendered_configs};
use mco_core::generators::generated::Generator;
use mco_core::pipeline::BaseConfigs;
use mco_runtime::object_name;
use parking_lot::RwLock;
use tokio::time::Instant;

use crate::boot_images::WrittenImages;
use crate::contents::ContentCache;
use crate::events::ControllerEvents;
use crate::generated_configs::GeneratedConfigStore;
use crate::membership::MembershipIndex;
use crate::options::Options;
use crate::pinned_images::PinnedImageResults;
use crate::policies::PolicyState;
use crate::reconcilers::Queues;
use crate::render_state::RenderStates;
use crate::source_cache::SourceCache;
use crate::watched_kinds::WatchStores;

/// How soon to retry while source MachineConfigs are being fetched.
pub(crate) const SOURCES_POLL: Duration = Duration::from_millis(20);

pub(crate) struct Context {
    pub client: Client,
    pub options: Options,
    pub events: ControllerEvents,
    pub queues: Queues,
    pub stores: WatchStores,
    pub membership: MembershipIndex,
    pub generated: GeneratedConfigStore,
    pub sources: SourceCache,
    pub contents: ContentCache,
    pub renders: RenderStates,
    pub pinned_images: PinnedImageResults,
    /// Held by the rollout of a pool of etcd voters from its plan until its writes are done.
    pub voters: tokio::sync::Mutex<()>,
    pub policies: PolicyState,
    pub written_images: WrittenImages,
    /// The base configs of all roles.
    pub base: RwLock<Option<Arc<BaseConfigs>>>,
    /// Why the base configs could not be rendered the last time.
    pub base_problem: RwLock<Option<String>>,
    /// Why the OSImageStream could not be brought up to date the last time.
    pub stream_problem: RwLock<Option<String>>,
    /// A deleted Scheduler means the defaults, unlike a Scheduler that never existed.
    pub scheduler_was_deleted: AtomicBool,
}

impl Context {
    pub fn new(client: Client, options: Options, events: ControllerEvents) -> Arc<Self> {
        Arc::new_cyclic(|ctx| Self {
            client,
            queues: Queues::new(&options),
            stores: WatchStores::new(ctx),
            options,
            events,
            membership: MembershipIndex::default(),
            generated: GeneratedConfigStore::default(),
            sources: SourceCache::default(),
            contents: ContentCache::default(),
            renders: RenderStates::default(),
            pinned_images: PinnedImageResults::default(),
            voters: tokio::sync::Mutex::default(),
            policies: PolicyState::default(),
            written_images: WrittenImages::default(),
            base: RwLock::default(),
            base_problem: RwLock::default(),
            stream_problem: RwLock::default(),
            scheduler_was_deleted: AtomicBool::default(),
        })
    }

    pub fn now(&self) -> Timestamp {
        self.options.clock.now()
    }

    pub fn time(&self) -> Time {
        Time(self.now())
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>,
    {
        Api::all(self.client.clone())
    }

    /// Returns the ControllerConfig; `None` until the operator has written it.
    pub fn controller_config(&self) -> Option<Arc<ControllerConfig>> {
        self.stores.controller_configs.get(CONTROLLER_CONFIG_NAME)
    }

    /// Returns the base configs of all roles; `None` until they were rendered.
    pub fn base(&self) -> Option<Arc<BaseConfigs>> {
        self.base.read().clone()
    }

    /// Returns a source MachineConfig if the cached copy has the version that the watch reported last.
    pub fn current_source(&self, name: &str) -> Option<Arc<MachineConfig>> {
        let metadata = self.stores.config_metadata.get(name)?;
        let source = self.sources.get(name)?;
        let is_current = source.is_current(metadata.metadata.resource_version.as_ref());
        let config = source.config.ok().filter(|_| is_current)?;
        Some(Arc::clone(&config.object))
    }

    /// Returns true if every source MachineConfig is cached in its current version. Before that a generator would
    /// take a config that is only not fetched yet for a deleted one.
    pub fn sources_are_current(&self) -> bool {
        let configs = self.stores.config_metadata.all();
        let mut sources = configs
            .iter()
            .filter(|config| rendered_configs::pool_of(&config.metadata).is_none());
        sources.all(|config| {
            let source = self.sources.get(object_name(&config.metadata));
            source.is_some_and(|source| source.is_current(config.metadata.resource_version.as_ref()))
        })
    }

    /// Returns true if the generated configs reflect every change up to `until`.
    pub fn generators_have_seen(&self, until: Instant) -> bool {
        let mut generators = Generator::ALL.iter();
        generators.all(|generator| self.queues.generators.has_seen(generator, until))
    }

    /// Enqueues every generator that builds on the base configs.
    pub fn enqueue_generators(&self) {
        let generators = Generator::ALL.into_iter();
        for generator in generators.filter(|generator| *generator != Generator::Templates) {
            self.queues.generators.enqueue(generator);
        }
    }

    pub fn enqueue_all_renders(&self) {
        for pool in self.stores.pools.all() {
            self.queues.render.enqueue(object_name(&pool.metadata));
        }
    }

    /// Enqueues the renders of pools whose selector matches a MachineConfig with these labels.
    pub fn enqueue_renders_selecting(&self, labels: Option<&BTreeMap<String, String>>) {
        for pool in self.stores.pools.all() {
            if pools::config_selector(&pool).is_ok_and(|selector| selector.matches(labels)) {
                self.queues.render.enqueue(object_name(&pool.metadata));
            }
        }
    }

    pub fn enqueue_all_rollouts(&self) {
        for pool in self.stores.pools.all() {
            self.queues.rollout.enqueue(object_name(&pool.metadata));
        }
    }
}
