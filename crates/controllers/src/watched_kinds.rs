//! The watched kinds. One line of the table declares what is watched, what is kept of it, and which handler runs on a
//! change; the store, its watch and the wait for its first list are generated from it.

use std::fmt::Debug;
use std::sync::{Arc, Weak};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube::api::PartialObjectMeta;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource};
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::foreign::api_server::APIServer;
use mco_api::foreign::cluster_version::ClusterVersion;
use mco_api::foreign::credential_provider::CRIOCredentialProviderConfig;
use mco_api::foreign::feature_gate::FeatureGate;
use mco_api::foreign::image::Image;
use mco_api::foreign::image_policy::{ClusterImagePolicy, ImagePolicy};
use mco_api::foreign::machine_set::{ControlPlaneMachineSet, MachineSet};
use mco_api::foreign::mirrors::{ImageContentSourcePolicy, ImageDigestMirrorSet, ImageTagMirrorSet};
use mco_api::foreign::node::Node as NodeSettings;
use mco_api::foreign::scheduler::Scheduler;
use mco_api::vocabulary::names::{self, CLUSTER_VERSION, SINGLETON, config_map, secret};
use mco_api::{
    ContainerRuntimeConfig, ControllerConfig, KubeletConfig, MachineConfig, MachineConfigNode,
    MachineConfigPool, MachineConfiguration, MachineOSBuild, MachineOSConfig, OSImageStream, PinnedImageSet,
    RolloutPolicy, plain,
};
use mco_core::generators::generated::Generator;
use mco_runtime::{Lenient, ObjectChange, Store};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use crate::boot_image_events;
use crate::context::Context;
use crate::error::Error;
use crate::source_cache;
use crate::transforms::{machine_config_node, node, without_managed_fields};
use crate::watch_handlers::{self as on, spec_or_metadata_changed};

/// `field: Kind = which objects, what is kept of each, what happens on a change;`
macro_rules! watched_kinds {
    ($($(#[$doc:meta])* $field:ident: $kind:ty = $select:expr, $transform:expr, $on_change:expr;)*) => {
        /// The watched objects.
        pub(crate) struct WatchStores {
            $($(#[$doc])* pub $field: Store<$kind>,)*
        }

        impl WatchStores {
            pub fn new(ctx: &Weak<Context>) -> Self {
                Self { $($field: store(ctx, $transform, $on_change),)* }.keep_last_readable()
            }

            /// Starts one watch per kind.
            pub fn spawn_watches(ctx: &Arc<Context>, tasks: &mut JoinSet<&'static str>) {
                $(tasks.spawn(follow(Arc::clone(ctx), |stores| &stores.$field, $select));)*
            }

            /// Waits for the first list of every kind. Nothing is reconciled before: a decision may depend on any of
            /// them.
            pub async fn wait_until_ready(&self) {
                $(self.$field.wait_until_ready().await;)*
            }
        }
    };
}

watched_kinds! {
    pools: MachineConfigPool = everywhere, without_managed_fields, on::pool;
    nodes: Node = everywhere, node, on::node;
    rollout_policies: RolloutPolicy = everywhere, without_managed_fields, on::rollout_policy;
    /// Rendered MachineConfigs are large and many; sources are fetched by name when their metadata changes.
    config_metadata: PartialObjectMeta<MachineConfig> = everywhere, without_managed_fields, on::config;
    machine_config_nodes: MachineConfigNode = everywhere, machine_config_node, on::machine_config_node;
    controller_configs: ControllerConfig =
        named(CONTROLLER_CONFIG_NAME), without_managed_fields, on::controller_config;
    kubelet_configs: KubeletConfig = everywhere, without_managed_fields, |ctx, change| {
        enqueue_if(ctx, Generator::Kubelet, spec_or_metadata_changed(change));
    };
    runtime_configs: ContainerRuntimeConfig = everywhere, without_managed_fields, |ctx, change| {
        enqueue_if(ctx, Generator::ContainerRuntime, spec_or_metadata_changed(change));
    };
    credential_providers: CRIOCredentialProviderConfig = named(SINGLETON), without_managed_fields, |ctx, change| {
        enqueue_if(ctx, Generator::CredentialProvider, spec_or_metadata_changed(change));
    };
    machine_configurations: MachineConfiguration = named(SINGLETON), without_managed_fields, |ctx, change| {
        on::machine_configuration(ctx, change);
        boot_image_events::settings(ctx, change);
    };
    plain_machine_configurations: plain::MachineConfiguration =
        named(SINGLETON), without_managed_fields, on::machine_configuration;
    os_configs: MachineOSConfig = everywhere, without_managed_fields, on::os_config;
    os_builds: MachineOSBuild = everywhere, without_managed_fields, on::os_build;
    os_streams: OSImageStream = named(SINGLETON), without_managed_fields, on::os_stream;
    /// The operating system images of the release.
    os_images: ConfigMap = in_namespace(names::NAMESPACE, config_map::OS_IMAGE_URL), without_managed_fields,
        |ctx, _| ctx.queues.os_streams.enqueue(());
    /// The versions of the Secrets that MachineConfigs have written to nodes.
    secret_versions: ConfigMap = in_namespace(names::NAMESPACE, config_map::SECRET_VERSIONS), without_managed_fields,
        |ctx, _| source_cache::enqueue_with_secrets(ctx);
    /// The metadata of the release's boot images.
    boot_images: ConfigMap = in_namespace(names::NAMESPACE, config_map::BOOT_IMAGES), without_managed_fields,
        |ctx, change| boot_image_events::source(ctx, "BootImageConfigMap", change);
    machine_sets: MachineSet = all_in_namespace(names::MACHINE_API_NAMESPACE), without_managed_fields,
        |ctx, change| boot_image_events::machine_set(ctx, "MAPIMachineSet", |set| &set.spec, change);
    control_plane_machine_sets: ControlPlaneMachineSet =
        all_in_namespace(names::MACHINE_API_NAMESPACE), without_managed_fields,
        |ctx, change| boot_image_events::machine_set(ctx, "ControlPlaneMachineSet", |set| &set.spec, change);
    pinned_image_sets: PartialObjectMeta<PinnedImageSet> =
        everywhere, without_managed_fields, on::pinned_image_set;
    images: Image = named(SINGLETON), without_managed_fields, registries;
    digest_mirrors: ImageDigestMirrorSet = everywhere, without_managed_fields, registries;
    tag_mirrors: ImageTagMirrorSet = everywhere, without_managed_fields, registries;
    plain_digest_mirrors: plain::ImageDigestMirrorSet = everywhere, without_managed_fields, registries;
    plain_tag_mirrors: plain::ImageTagMirrorSet = everywhere, without_managed_fields, registries;
    content_policies: ImageContentSourcePolicy = everywhere, without_managed_fields, registries;
    cluster_image_policies: ClusterImagePolicy = everywhere, without_managed_fields, registries;
    image_policies: ImagePolicy = everywhere, without_managed_fields, registries;
    cluster_versions: ClusterVersion = named(CLUSTER_VERSION), without_managed_fields, on::cluster_version;
    feature_gates: FeatureGate = named(SINGLETON), without_managed_fields, on::feature_gate;
    api_servers: APIServer = named(SINGLETON), without_managed_fields, base_configs;
    pull_secrets: PartialObjectMeta<Secret> =
        in_namespace(names::CONFIG_NAMESPACE, secret::PULL_SECRET), without_managed_fields, base_configs;
    /// All of them: one with another name has no effect, which is reported on it.
    node_settings: NodeSettings = everywhere, without_managed_fields, on::node_settings;
    schedulers: Scheduler = named(SINGLETON), without_managed_fields, on::scheduler;
}

impl WatchStores {
    /// Returns the cluster's MachineConfiguration, of whichever group it is.
    pub fn machine_configuration(&self) -> Option<Arc<MachineConfiguration>> {
        self.machine_configurations.get(SINGLETON).or_else(|| {
            let plain = self.plain_machine_configurations.get(SINGLETON)?;
            Some(Arc::new(Arc::unwrap_or_clone(plain).into()))
        })
    }

    /// Keeps objects that can no longer be decoded where their absence has an effect: nodes would change their pool,
    /// and settings would fall back to defaults. Nodes are left out; user configs are left out as well, and stop only
    /// their generator.
    fn keep_last_readable(self) -> Self {
        Self {
            pools: self.pools.keep_last_readable(),
            rollout_policies: self.rollout_policies.keep_last_readable(),
            config_metadata: self.config_metadata.keep_last_readable(),
            controller_configs: self.controller_configs.keep_last_readable(),
            machine_configurations: self.machine_configurations.keep_last_readable(),
            plain_machine_configurations: self.plain_machine_configurations.keep_last_readable(),
            os_configs: self.os_configs.keep_last_readable(),
            os_builds: self.os_builds.keep_last_readable(),
            os_streams: self.os_streams.keep_last_readable(),
            os_images: self.os_images.keep_last_readable(),
            secret_versions: self.secret_versions.keep_last_readable(),
            cluster_versions: self.cluster_versions.keep_last_readable(),
            feature_gates: self.feature_gates.keep_last_readable(),
            api_servers: self.api_servers.keep_last_readable(),
            pull_secrets: self.pull_secrets.keep_last_readable(),
            node_settings: self.node_settings.keep_last_readable(),
            schedulers: self.schedulers.keep_last_readable(),
            ..self
        }
    }

    /// Refuses to generate configs while an object that they depend on cannot be decoded: without it, its configs
    /// would be removed from the nodes.
    pub fn require_readable_inputs(&self, generator: Generator) -> Result<(), Error> {
        let unreadable = match generator {
            Generator::Templates => Vec::new(),
            Generator::Kubelet => self.kubelet_configs.unreadable(),
            Generator::ContainerRuntime => self.runtime_configs.unreadable(),
            Generator::CredentialProvider => self.credential_providers.unreadable(),
            Generator::Registries => [
                self.images.unreadable(),
                self.digest_mirrors.unreadable(),
                self.tag_mirrors.unreadable(),
                self.plain_digest_mirrors.unreadable(),
                self.plain_tag_mirrors.unreadable(),
                self.content_policies.unreadable(),
                self.cluster_image_policies.unreadable(),
                self.image_policies.unreadable(),
            ]
            .concat(),
        };
        match unreadable.first() {
            Some(object) => Err(Error::Invalid(object.to_string())),
            None => Ok(()),
        }
    }
}

fn enqueue_if(ctx: &Context, generator: Generator, changed: bool) {
    if changed {
        ctx.queues.generators.enqueue(generator);
    }
}

fn registries<K>(ctx: &Context, _: &ObjectChange<'_, K>) {
    ctx.queues.generators.enqueue(Generator::Registries);
}

fn base_configs<K>(ctx: &Context, _: &ObjectChange<'_, K>) {
    ctx.queues.generators.enqueue(Generator::Templates);
}

/// Selects all objects, of all namespaces.
fn everywhere<K>(client: Client) -> (Api<K>, watcher::Config)
where
    K: Resource<DynamicType = ()>,
{
    (Api::all(client), watcher::Config::default())
}

/// Selects one object by name.
fn named<K>(name: &'static str) -> impl FnOnce(Client) -> (Api<K>, watcher::Config)
where
    K: Resource<DynamicType = ()>,
{
    move |client| (Api::all(client), by_name(name))
}

/// Selects all objects of a namespace.
fn all_in_namespace<K>(namespace: &'static str) -> impl FnOnce(Client) -> (Api<K>, watcher::Config)
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    move |client| (Api::namespaced(client, namespace), watcher::Config::default())
}

/// Selects one object of a namespace by name.
fn in_namespace<K>(
    namespace: &'static str,
    name: &'static str,
) -> impl FnOnce(Client) -> (Api<K>, watcher::Config)
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    move |client| (Api::namespaced(client, namespace), by_name(name))
}

fn by_name(name: &str) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={name}"))
}

fn store<K>(
    ctx: &Weak<Context>,
    transform: fn(&mut K),
    on_change: fn(&Context, &ObjectChange<'_, K>),
) -> Store<K>
where
    K: Resource + Clone + Debug + Send + Sync + 'static,
{
    let ctx = Weak::clone(ctx);
    Store::new(transform, move |change: &ObjectChange<'_, K>| {
        if let Some(ctx) = ctx.upgrade() {
            on_change(&ctx, change);
        }
    })
}

fn follow<K>(
    ctx: Arc<Context>,
    store: fn(&WatchStores) -> &Store<K>,
    select: impl FnOnce(Client) -> (Api<Lenient<K>>, watcher::Config),
) -> impl Future<Output = &'static str> + Send + 'static
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (api, config) = select(ctx.client.clone());
    let events = watcher(api, config);
    async move {
        store(&ctx.stores).follow(events).await;
        "a watch"
    }
}
