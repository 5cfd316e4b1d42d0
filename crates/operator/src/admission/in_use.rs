//! Which rendered configs are in use, from watches, so that an admission request needs no request of its own.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use mco_api::{MachineConfigPool, MachineOSBuild, RolloutPolicy};
use mco_core::config::problem::Problem;
use mco_core::config::rendered_configs::{used_by_build, used_by_node, used_by_pool};
use mco_core::pipeline::admission::{AdmissionWrite, ConfigInUse as Answer, Users, review};
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
    nodes: Reflected<PartialObjectMeta<Node>>,
    pools: Reflected<MachineConfigPool>,
    builds: Reflected<MachineOSBuild>,
    policies: Reflected<RolloutPolicy>,
}

impl InUseIndex {
    /// Returns the users of a config; unknown until all objects are listed.
    pub fn of(&self, config: &str) -> Answer {
        let users = self.watched.get().and_then(|watched| watched.users(config));
        users.map_or(Answer::Unknown, Answer::By)
    }

    /// Returns the RolloutPolicies of the cluster; none until they are listed.
    pub fn policies(&self) -> Vec<RolloutPolicy> {
        let watched = self.watched.get().and_then(|watched| watched.policies.listed());
        let policies = watched.unwrap_or_default();
        policies
            .iter()
            .map(|policy| RolloutPolicy::clone(policy))
            .collect()
    }

    /// Decides about a write; see [`mco_core::pipeline::admission::review`].
    pub fn review(&self, request: &AdmissionWrite<'_>) -> Result<Vec<Problem>, String> {
        review(request, |config| self.of(config), || self.policies())
    }

    /// Watches the users until `stop` is cancelled. May be called once.
    pub async fn follow(&self, client: Client, stop: CancellationToken) {
        let (nodes, node_events) = Reflected::watch(Api::all(client.clone()), used_annotations);
        let (pools, pool_events) =
            Reflected::watch(Api::all(client.clone()), |pool: &mut MachineConfigPool| {
                pool.metadata.managed_fields = None;
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
            policies,
        };
        if self.watched.set(watched).is_err() {
            return;
        }
        let events = stream::select_all([
            node_events.boxed(),
            pool_events.boxed(),
            build_events.boxed(),
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

/// Keeps of a node only the annotations that name configs: a cluster has thousands of nodes.
fn used_annotations(node: &mut PartialObjectMeta<Node>) {
    let mut annotations = node.metadata.annotations.take();
    if let Some(annotations) = &mut annotations {
        annotations.retain(|key, _| key.starts_with(OWN_ANNOTATIONS));
    }
    node.metadata = ObjectMeta {
        name: node.metadata.name.take(),
        annotations,
        ..ObjectMeta::default()
    };
}
