//! Everything the reconcilers share: the client, the copies of the cluster's objects, the queues, and what generators and
//! renders have produced. It decides nothing.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::PartialObjectMeta;
use kube::{Api, Client, Resource};
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::foreign::api_server::APIServer;
use mco_api::foreign::cluster_version::ClusterVersion;
use mco_api::foreign::credential_provider::CRIOCredentialProviderConfig;
use mco_api::foreign::feature_gate::FeatureGate;
use mco_api::foreign::image::Image;
use mco_api::foreign::image_policy::{ClusterImagePolicy, ImagePolicy};
use mco_api::foreign::mirrors::{ImageContentSourcePolicy, ImageDigestMirrorSet, ImageTagMirrorSet};
use mco_api::foreign::node::Node as NodeSettings;
use mco_api::foreign::scheduler::Scheduler;
use mco_api::{
    ContainerRuntimeConfig, ControllerConfig, KubeletConfig, MachineConfig, MachineConfigNode,
    MachineConfigPool, MachineConfiguration, MachineOSBuild, MachineOSConfig, OSImageStream, PinnedImageSet,
};
use mco_core::config::pools;
use mco_core::config::rendered_configs;
use parking_lot::RwLock;
use tokio::time::Instant;

use crate::contents::Contents;
use crate::events::Events;
use crate::foundation::Foundation;
use crate::members::Members;
use crate::mirror::{Change, Mirror};
use crate::options::Options;
use crate::owned::Owned;
use crate::pinned_images::Outcomes;
use crate::queue::{Patience, Queue};
use crate::renders::Renders;
use crate::{trim, wiring};

/// How soon to look again while sources are being fetched.
pub(crate) const SOURCES_POLL: Duration = Duration::from_millis(20);

/// The key of work that is about the whole cluster.
pub(crate) const WHOLE: &str = "cluster";

pub(crate) struct Cluster {
    pub client: Client,
    pub options: Options,
    pub events: Events,
    pub queues: Queues,
    pub members: Members,
    pub owned: Owned,
    pub contents: Contents,
    pub renders: Renders,
    pub pinned: Outcomes,
    /// Held by the pool of voters that decides, until it has written what it decided.
    pub voters: tokio::sync::Mutex<()>,
    pub foundation: RwLock<Option<Arc<Foundation>>>,
    /// Why the base configuration could not be made the last time.
    pub base_problem: RwLock<Option<String>>,
    /// Somebody deleted the Scheduler, which asks for what a Scheduler asks for that says nothing.
    pub scheduler_is_gone: AtomicBool,

    pub pools: Mirror<MachineConfigPool>,
    pub nodes: Mirror<Node>,
    pub config_metadata: Mirror<PartialObjectMeta<MachineConfig>>,
    pub machine_config_nodes: Mirror<MachineConfigNode>,
    pub controller_configs: Mirror<ControllerConfig>,
    pub kubelet_configs: Mirror<KubeletConfig>,
    pub runtime_configs: Mirror<ContainerRuntimeConfig>,
    pub machine_configurations: Mirror<MachineConfiguration>,
    pub os_configs: Mirror<MachineOSConfig>,
    pub os_builds: Mirror<MachineOSBuild>,
    pub os_streams: Mirror<OSImageStream>,
    /// What the release says about its operating systems.
    pub os_images: Mirror<ConfigMap>,
    pub pinned_image_sets: Mirror<PartialObjectMeta<PinnedImageSet>>,
    pub images: Mirror<Image>,
    pub digest_mirrors: Mirror<ImageDigestMirrorSet>,
    pub tag_mirrors: Mirror<ImageTagMirrorSet>,
    pub content_policies: Mirror<ImageContentSourcePolicy>,
    pub wide_image_policies: Mirror<ClusterImagePolicy>,
    pub image_policies: Mirror<ImagePolicy>,
    pub credential_providers: Mirror<CRIOCredentialProviderConfig>,
    pub releases: Mirror<ClusterVersion>,
    pub feature_gates: Mirror<FeatureGate>,
    pub node_settings: Mirror<NodeSettings>,
    pub api_servers: Mirror<APIServer>,
    pub schedulers: Mirror<Scheduler>,
    pub pull_secrets: Mirror<PartialObjectMeta<Secret>>,
}

/// What is waiting to be looked at, by who looks.
pub(crate) struct Queues {
    pub contents: Arc<Queue<String>>,
    pub keeper: Arc<Queue<String>>,
    pub templates: Arc<Queue<String>>,
    pub kubelet: Arc<Queue<String>>,
    pub runtime: Arc<Queue<String>>,
    pub registries: Arc<Queue<String>>,
    pub os_streams: Arc<Queue<String>>,
    pub credential_providers: Arc<Queue<String>>,
    pub pinned_images: Arc<Queue<String>>,
    pub render: Arc<Queue<String>>,
    pub rollout: Arc<Queue<String>>,
    pub drain: Arc<Queue<String>>,
    pub node_objects: Arc<Queue<String>>,
    pub control_plane: Arc<Queue<String>>,
    pub policies: Arc<Queue<String>>,
    pub collector: Arc<Queue<String>>,
}

/// People and tools write several objects one after the other; this long after the last one a pool is rendered.
const RENDER_SETTLE: Duration = Duration::from_millis(150);
/// However much is written, a pool is rendered this often and not more often.
pub(crate) const RENDER_SPACING: Duration = Duration::from_secs(2);
pub(crate) const fn render_patience(interval: Duration) -> Patience {
    Patience::settling(RENDER_SETTLE, interval).spaced(interval)
}
/// Generators are quick, and renders wait for them anyway.
const GENERATE_SETTLE: Duration = Duration::from_millis(20);
const GENERATE_LONGEST: Duration = Duration::from_millis(200);
/// A rollout's own steps come in quick succession; what ends in the same moment is planned together.
const ROLLOUT_SETTLE: Duration = Duration::from_millis(5);
/// A plan looks at every node of its pool: in large pools, whose nodes report all the time, not for each of them.
const ROLLOUT_SPACING: Duration = Duration::from_millis(100);
/// Nobody waits for what is thrown away.
const COLLECT_SETTLE: Duration = Duration::from_secs(1);
const COLLECT_SPACING: Duration = Duration::from_secs(10);

impl Queues {
    fn new(options: &Options) -> Self {
        let queue = |patience| Arc::new(Queue::new(patience));
        let at_once = || queue(Patience::at_once());
        let generate = || queue(Patience::settling(GENERATE_SETTLE, GENERATE_LONGEST));
        let rollout = Patience::settling(ROLLOUT_SETTLE, ROLLOUT_SPACING).spaced(ROLLOUT_SPACING);
        let collect = Patience::settling(COLLECT_SETTLE, COLLECT_SPACING).spaced(COLLECT_SPACING);
        Self {
            contents: at_once(),
            keeper: at_once(),
            templates: generate(),
            kubelet: generate(),
            runtime: generate(),
            registries: generate(),
            os_streams: generate(),
            credential_providers: generate(),
            pinned_images: generate(),
            render: queue(render_patience(options.render_interval)),
            rollout: queue(rollout),
            drain: at_once(),
            node_objects: at_once(),
            control_plane: at_once(),
            policies: generate(),
            collector: queue(collect),
        }
    }

    /// Of those who make configs for pools on top of the base configuration.
    pub fn generators(&self) -> [&Arc<Queue<String>>; 4] {
        [
            &self.kubelet,
            &self.runtime,
            &self.registries,
            &self.credential_providers,
        ]
    }
}

impl Cluster {
    pub fn new(client: Client, options: Options, events: Events) -> Arc<Self> {
        Arc::new_cyclic(|this| {
            fn telling<K>(
                this: &Weak<Cluster>,
                trim: fn(&mut K),
                handler: fn(&Cluster, &Change<'_, K>),
            ) -> Mirror<K>
            where
                K: Resource + Clone + std::fmt::Debug + Send + Sync + 'static,
            {
                let this = Weak::clone(this);
                Mirror::new(trim, move |change: &Change<'_, K>| {
                    if let Some(cluster) = this.upgrade() {
                        handler(&cluster, change);
                    }
                })
            }
            Self {
                client,
                queues: Queues::new(&options),
                options,
                events,
                members: Members::default(),
                owned: Owned::default(),
                contents: Contents::default(),
                renders: Renders::default(),
                pinned: Outcomes::default(),
                voters: tokio::sync::Mutex::default(),
                foundation: RwLock::default(),
                base_problem: RwLock::default(),
                scheduler_is_gone: AtomicBool::default(),
                pools: telling(this, trim::managed_fields, wiring::pool),
                nodes: telling(this, trim::node, wiring::node),
                config_metadata: telling(this, trim::managed_fields, wiring::config),
                machine_config_nodes: telling(this, trim::machine_config_node, wiring::machine_config_node),
                controller_configs: telling(this, trim::managed_fields, wiring::controller_config),
                kubelet_configs: telling(this, trim::managed_fields, wiring::kubelet_config),
                runtime_configs: telling(this, trim::managed_fields, wiring::runtime_config),
                machine_configurations: telling(this, trim::managed_fields, wiring::machine_configuration),
                os_configs: telling(this, trim::managed_fields, wiring::os_config),
                os_builds: telling(this, trim::managed_fields, wiring::os_build),
                os_streams: telling(this, trim::managed_fields, wiring::os_stream),
                os_images: telling(this, trim::managed_fields, wiring::os_images),
                pinned_image_sets: telling(this, trim::managed_fields, wiring::pinned_image_set),
                images: telling(this, trim::managed_fields, wiring::registries),
                digest_mirrors: telling(this, trim::managed_fields, wiring::registries),
                tag_mirrors: telling(this, trim::managed_fields, wiring::registries),
                content_policies: telling(this, trim::managed_fields, wiring::registries),
                wide_image_policies: telling(this, trim::managed_fields, wiring::registries),
                image_policies: telling(this, trim::managed_fields, wiring::registries),
                credential_providers: telling(this, trim::managed_fields, wiring::credential_provider),
                releases: telling(this, trim::managed_fields, wiring::release),
                feature_gates: telling(this, trim::managed_fields, wiring::foundations),
                node_settings: telling(this, trim::managed_fields, wiring::node_settings),
                api_servers: telling(this, trim::managed_fields, wiring::foundations),
                schedulers: telling(this, trim::managed_fields, wiring::scheduler),
                pull_secrets: telling(this, trim::managed_fields, wiring::foundations),
            }
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

    /// The ControllerConfig, once the operator has written it.
    pub fn controller_config(&self) -> Option<Arc<ControllerConfig>> {
        self.controller_configs.get(CONTROLLER_CONFIG_NAME)
    }

    /// The base configuration of all roles, once it was made.
    pub fn foundation(&self) -> Option<Arc<Foundation>> {
        self.foundation.read().clone()
    }

    /// A source as the API server has it now, as far as we know.
    pub fn current_content(&self, name: &str) -> Option<Arc<MachineConfig>> {
        let metadata = self.config_metadata.get(name)?;
        let content = self.contents.get(name)?;
        let current = content.is_of(metadata.metadata.resource_version.as_ref());
        let config = content.config.ok().filter(|_| current)?;
        Some(Arc::clone(&config.object))
    }

    /// Whether every source was fetched as it is now. Before that, what cannot be made again would be taken for gone.
    pub fn sources_are_known(&self) -> bool {
        let configs = self.config_metadata.all();
        let mut sources = configs
            .iter()
            .filter(|config| rendered_configs::pool_of(&config.metadata).is_none());
        sources.all(|config| {
            let name = config.metadata.name.as_deref().unwrap_or_default();
            let content = self.contents.get(name);
            content.is_some_and(|content| content.is_of(config.metadata.resource_version.as_ref()))
        })
    }

    /// Whether whatever happened until then has reached the configs that generators make.
    pub fn generators_have_seen(&self, until: Instant) -> bool {
        let mut all = self
            .queues
            .generators()
            .into_iter()
            .chain([&self.queues.templates]);
        all.all(|queue| queue.has_seen(WHOLE, until))
    }

    pub fn wake_all_renders(&self) {
        for pool in self.pools.all() {
            self.queues
                .render
                .wake(pool.metadata.name.clone().unwrap_or_default());
        }
    }

    /// Wakes the renders of pools whose selector matches a MachineConfig with these labels.
    pub fn wake_renders_selecting(&self, labels: Option<&BTreeMap<String, String>>) {
        for pool in self.pools.all() {
            if pools::config_selector(&pool).is_ok_and(|selector| selector.matches(labels)) {
                self.queues
                    .render
                    .wake(pool.metadata.name.clone().unwrap_or_default());
            }
        }
    }

    pub fn wake_all_rollouts(&self) {
        for pool in self.pools.all() {
            self.queues
                .rollout
                .wake(pool.metadata.name.clone().unwrap_or_default());
        }
    }
}
