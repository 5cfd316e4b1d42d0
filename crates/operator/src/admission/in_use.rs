//! Which rendered configs are in use, from watches, so that an admission request needs no request of its own.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, NodeStatus, NodeSystemInfo};
use kube::api::ObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use mco_api::controller_config::ControllerConfigSpec;
use mco_api::{ClusterBase, ControllerConfig, MachineConfigPool, MachineOSBuild, RolloutPolicy};
use mco_core::config::node_versions::NodeVersions;
use mco_core::config::pools::NodePools;
use mco_core::config::problem::Problem;
use mco_core::config::rendered_configs::{used_by_build, used_by_node, used_by_pool};
use mco_core::pipeline::admission::{
    AdmissionContext, AdmissionWrite, BOOTS_IMAGES, ConfigInUse as Answer, ImageNode, Users,
    review_image_build, review_on,
};
use mco_runtime::{Reflected, object_name};
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// The prefix of the annotations by which a node uses configs.
const OWN_ANNOTATIONS: &str = "machineconfiguration.openshift.io/";

/// The users of every rendered config. Shared by the task that watches them and the webhook.
#[derive(Debug, Default)]
pub struct InUseIndex {
    watched: OnceLock<WatchedUsers>,
}

#[derive(Debug)]
struct WatchedUsers {
    nodes: Reflected<Node>,
    pools: Reflected<MachineConfigPool>,
    builds: Reflected<MachineOSBuild>,
    configs: Reflected<ControllerConfig>,
    policies: Reflected<RolloutPolicy>,
}

impl InUseIndex {
    /// Returns the users of a config; unknown until all objects are listed.
    fn of(&self, config: &str) -> Answer {
        let users = self.watched.get().and_then(|watched| watched.users(config));
        users.map_or(Answer::Unknown, Answer::By)
    }

    /// Returns the RolloutPolicies of the cluster; none until they are listed.
    fn policies(&self) -> Vec<RolloutPolicy> {
        let watched = self.watched.get().and_then(|watched| watched.policies.listed());
        let policies = watched.unwrap_or_default();
        policies
            .iter()
            .map(|policy| RolloutPolicy::clone(policy))
            .collect()
    }

    /// Decides about a write; see [`mco_core::pipeline::admission::review`].
    pub fn review(&self, request: &AdmissionWrite<'_>) -> Result<Vec<Problem>, String> {
        self.review_image_build(request)?;
        review_on(
            || self.context(),
            request,
            |config| self.of(config),
            || self.policies(),
        )
    }

    /// Returns what admission depends on. Before the operator has written the base, nothing depends on it.
    fn context(&self) -> AdmissionContext {
        let context = self.watched.get().and_then(WatchedUsers::context);
        context.unwrap_or_default()
    }

    /// Refuses an image build for nodes that cannot boot images. Before all objects are listed, nothing is known about
    /// them.
    fn review_image_build(&self, request: &AdmissionWrite<'_>) -> Result<(), String> {
        let pool = request
            .object
            .and_then(|object| object["spec"]["machineConfigPool"]["name"].as_str());
        let (Some(pool), Some(watched)) = (pool, self.watched.get()) else {
            return Ok(());
        };
        let (Some(nodes), Some(pools)) = (watched.nodes.listed(), watched.pools.listed()) else {
            return Ok(());
        };
        let membership = NodePools::new(pools.iter().map(AsRef::as_ref));
        let members = nodes
            .iter()
            .filter(|node| membership.is_member(node.metadata.labels.as_ref(), pool));
        let members: Vec<ImageNode<'_>> = members.map(|node| image_node(node)).collect();
        review_image_build(request, &members)
    }

    /// Watches the users until `stop` is cancelled. May be called once.
    pub async fn follow(&self, client: Client, stop: CancellationToken) {
        let (nodes, node_events) = Reflected::watch(Api::all(client.clone()), used_parts);
        let (pools, pool_events) =
            Reflected::watch(Api::all(client.clone()), |pool: &mut MachineConfigPool| {
                pool.metadata.managed_fields = None;
            });
        let (configs, config_events) =
            Reflected::watch(Api::all(client.clone()), |config: &mut ControllerConfig| {
                config.metadata.managed_fields = None;
                config.spec = ControllerConfigSpec::default();
                config.status = None;
            });
        let (policies, policy_events) =
            Reflected::watch(Api::all(client.clone()), |policy: &mut RolloutPolicy| {
                policy.metadata.managed_fields = None;
            });
        let (builds, build_events) = Reflected::watch(Api::all(client), |build: &mut MachineOSBuild| {
            build.metadata.managed_fields = None;
        });
        let watched = WatchedUsers {
            nodes,
            pools,
            builds,
            configs,
            policies,
        };
        if self.watched.set(watched).is_err() {
            return;
        }
        let events = stream::select_all([
            node_events.boxed(),
            pool_events.boxed(),
            build_events.boxed(),
            config_events.boxed(),
            policy_events.boxed(),
        ]);
        tokio::select! {
            () = stop.cancelled() => {}
            () = poll(events) => {}
        }
    }
}

async fn poll(events: impl Stream<Item = Result<(), watcher::Error>>) {
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        if let Err(error) = event {
            debug!("watch interrupted; retrying: {error}");
        }
    }
}

impl WatchedUsers {
    fn context(&self) -> Option<AdmissionContext> {
        let configs = self.configs.listed()?;
        let base = configs
            .first()
            .map_or(Ok(ClusterBase::None), |config| config.base());
        let (pools, nodes) = (self.pools.listed()?, self.nodes.listed()?);
        Some(AdmissionContext {
            base: base.unwrap_or(ClusterBase::None),
            pools: pools.iter().map(|pool| MachineConfigPool::clone(pool)).collect(),
            nodes: nodes.iter().map(|node| NodeVersions::of(node)).collect(),
        })
    }

    fn users(&self, config: &str) -> Option<Users> {
        let unreadable = [
            self.nodes.unreadable(),
            self.pools.unreadable(),
            self.builds.unreadable(),
        ]
        .concat();
        if !unreadable.is_empty() {
            // It may use any config.
            return None;
        }
        let (nodes, pools, builds) = (self.nodes.listed()?, self.pools.listed()?, self.builds.listed()?);
        let nodes = nodes
            .iter()
            .filter(|node| used_by_node(&node.metadata).any(|used| used == config));
        let pools = pools
            .iter()
            .filter(|pool| used_by_pool(pool).any(|used| used == config));
        let builds = builds
            .iter()
            .filter(|build| used_by_build(build).any(|used| used == config));
        Some(Users {
            nodes: names(nodes.map(|node| &node.metadata)),
            pools: names(pools.map(|pool| &pool.metadata)),
            builds: names(builds.map(|build| &build.metadata)),
        })
    }
}

fn names<'o>(objects: impl Iterator<Item = &'o ObjectMeta>) -> BTreeSet<String> {
    objects.map(|metadata| object_name(metadata).to_owned()).collect()
}

fn image_node(node: &Node) -> ImageNode<'_> {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let annotations = node.metadata.annotations.as_ref();
    ImageNode {
        name: object_name(&node.metadata),
        os_image: info.map_or("", |info| info.os_image.as_str()),
        annotation: annotations
            .and_then(|all| all.get(BOOTS_IMAGES))
            .map(String::as_str),
    }
}

/// Keeps of a node its labels, the annotations that name configs, its operating system and its versions: a cluster has thousands of
/// nodes.
fn used_parts(node: &mut Node) {
    let mut annotations = node.metadata.annotations.take();
    if let Some(annotations) = &mut annotations {
        annotations.retain(|key, _| key.starts_with(OWN_ANNOTATIONS) || key == BOOTS_IMAGES);
    }
    node.metadata = ObjectMeta {
        name: node.metadata.name.take(),
        labels: node.metadata.labels.take(),
        annotations,
        ..ObjectMeta::default()
    };
    node.spec = None;
    let info = node.status.take().and_then(|status| status.node_info);
    node.status = info.map(|info| NodeStatus {
        node_info: Some(NodeSystemInfo {
            os_image: info.os_image,
            kubelet_version: info.kubelet_version,
            container_runtime_version: info.container_runtime_version,
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    });
}
