//! The objects of a status, kept up to date by watches.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use mco_api::{MachineConfigNode, MachineConfigPool, MachineOSBuild, MachineOSConfig, RolloutPolicy};
use mco_client::build_status;
use mco_client::overview::{PoolOverview, overview};
use mco_core::rollout::RolloutView;
use mco_runtime::{Reflected, UnreadableObject};

use super::REFRESH;

/// Changes come in groups, and the screen is not redrawn for each of them.
const QUIET_PERIOD: Duration = Duration::from_millis(250);

/// Pools, nodes and the progress of their updates.
pub struct LiveStatus {
    events: BoxStream<'static, Result<(), watcher::Error>>,
    pools: Reflected<MachineConfigPool>,
    nodes: Reflected<Node>,
    progress: Reflected<MachineConfigNode>,
    policies: Reflected<RolloutPolicy>,
    configs: Reflected<MachineOSConfig>,
    builds: Reflected<MachineOSBuild>,
    /// Why the state may be outdated.
    pub lost: Option<String>,
}

impl LiveStatus {
    pub fn new(client: &Client) -> Self {
        let (pools, pool_events) = Reflected::watch(Api::all(client.clone()), without_managed_fields);
        let (nodes, node_events) = Reflected::watch(Api::all(client.clone()), without_managed_fields);
        let (progress, progress_events) = Reflected::watch(Api::all(client.clone()), without_managed_fields);
        let (policies, policy_events) = Reflected::watch(Api::all(client.clone()), without_managed_fields);
        // Optional: not every cluster has the kind, and its absence is no lost connection.
        let policy_events = policy_events.filter_map(async |event| event.ok().map(Ok));
        let (configs, config_events) = Reflected::watch(Api::all(client.clone()), without_managed_fields);
        let (builds, build_events) = Reflected::watch(Api::all(client.clone()), without_managed_fields);
        let image_events = stream::select(config_events, build_events);
        let image_events = image_events.filter_map(async |event| event.ok().map(Ok));
        let events = [
            pool_events.boxed(),
            node_events.boxed(),
            progress_events.boxed(),
            policy_events.boxed(),
            image_events.boxed(),
        ];
        Self {
            events: stream::select_all(events).boxed(),
            pools,
            nodes,
            progress,
            policies,
            configs,
            builds,
            lost: None,
        }
    }

    /// Waits for the next group of changes, or until `timeout` is over.
    pub async fn changed(&mut self, timeout: Duration) {
        let Ok(Some(first)) = tokio::time::timeout(timeout, self.events.next()).await else {
            return;
        };
        self.note_connection(first);
        let quiet = tokio::time::sleep(QUIET_PERIOD);
        tokio::pin!(quiet);
        loop {
            tokio::select! {
                () = &mut quiet => return,
                event = self.events.next() => match event {
                    Some(event) => self.note_connection(event),
                    None => return,
                },
            }
        }
    }

    /// Returns the state of every pool; `None` until pools and nodes are listed.
    pub fn overview(&self, now: Timestamp) -> Option<Vec<PoolOverview>> {
        let (pools, nodes) = (self.pools.listed()?, self.nodes.listed()?);
        let progress = self.progress.listed().unwrap_or_default();
        let policies = self.policies.listed().unwrap_or_default();
        let configs = owned(self.configs.listed());
        let builds = owned(self.builds.listed());
        let view = RolloutView::new(pools.iter().map(AsRef::as_ref), nodes.iter().map(AsRef::as_ref))
            .with_images(&configs, &builds)
            .with_policies(policies.iter().map(AsRef::as_ref), now, None);
        let mut pools = overview(&view, progress.iter().map(AsRef::as_ref), now);
        build_status::attach(&mut pools, &build_status::overviews(&builds, now));
        Some(pools)
    }

    /// Returns the pools after the next change, or after the refresh interval.
    pub async fn next_pools(&mut self) -> Vec<MachineConfigPool> {
        loop {
            self.changed(REFRESH).await;
            if let Some(pools) = self.pools.listed() {
                return pools.iter().map(|pool| MachineConfigPool::clone(pool)).collect();
            }
        }
    }

    /// Returns the objects that are left out, because they cannot be decoded.
    pub fn unreadable(&self) -> Vec<UnreadableObject> {
        [
            self.pools.unreadable(),
            self.nodes.unreadable(),
            self.progress.unreadable(),
        ]
        .concat()
    }

    fn note_connection(&mut self, event: Result<(), watcher::Error>) {
        self.lost = event.err().map(|error| error.to_string());
    }
}

fn owned<K: Clone>(listed: Option<Vec<Arc<K>>>) -> Vec<K> {
    let listed = listed.unwrap_or_default().into_iter();
    listed.map(Arc::unwrap_or_clone).collect()
}

fn without_managed_fields<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}
