//! Merges all watches of the agent into one stream of events.

use std::pin::Pin;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher as watch;
use kube::runtime::watcher::{self, Event};
use mco_api::ControllerConfig;
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_runtime::{Lenient, with_backoff};

use super::cluster::AgentClient;

/// A watch event.
#[derive(Debug)]
pub(super) enum ClusterChange {
    Node(Box<Node>),
    /// The Node was deleted; nothing is done for it until it is created again.
    NodeGone,
    ControllerConfig(Box<ControllerConfig>),
    /// The node's MachineConfigNode; `None` if it is deleted.
    MachineConfigNode(Option<Box<ObjectMeta>>),
}

pub(super) type ClusterChanges = Pin<Box<dyn Stream<Item = ClusterChange> + Send>>;

/// Watches one object by name.
fn only(name: &str) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={name}"))
}

/// Returns the changes of the own Node. Interruptions are logged and retried.
pub(super) fn node_changes(cluster: &AgentClient) -> ClusterChanges {
    let node = with_backoff(watch(cluster.lenient_nodes(), only(cluster.node()))).filter_map(async |event| {
        match event {
            Ok(Event::Apply(Lenient(Ok(node))) | Event::InitApply(Lenient(Ok(node)))) => {
                Some(ClusterChange::Node(Box::new(node)))
            }
            Ok(Event::Apply(Lenient(Err(node))) | Event::InitApply(Lenient(Err(node)))) => {
                tracing::warn!("this node continues with the last state of its Node: {node}");
                None
            }
            Ok(Event::Delete(_)) => Some(ClusterChange::NodeGone),
            Ok(Event::Init | Event::InitDone) => None,
            Err(error) => {
                tracing::warn!(%error, "the watch of this Node was interrupted");
                None
            }
        }
    });
    Box::pin(node)
}

/// Returns the events of three single-object watches. Interruptions are logged and retried.
pub(super) fn cluster_changes(cluster: &AgentClient) -> ClusterChanges {
    let config = with_backoff(watch(cluster.controller_configs(), only(CONTROLLER_CONFIG_NAME))).filter_map(
        async |event| match event {
            Ok(Event::Apply(config) | Event::InitApply(config)) => {
                Some(ClusterChange::ControllerConfig(Box::new(config)))
            }
            Ok(_) => None,
            Err(error) => {
                tracing::warn!(%error, "the watch of the ControllerConfig was interrupted");
                None
            }
        },
    );
    // A metadata-only watch: identity and resource version are enough, so its conditions are not transferred.
    let progress = with_backoff(watch(
        cluster.machine_config_node_metadata(),
        only(cluster.node()),
    ))
    .filter_map(async |event| match event {
        Ok(Event::Apply(object) | Event::InitApply(object)) => {
            Some(ClusterChange::MachineConfigNode(Some(Box::new(object.metadata))))
        }
        Ok(Event::Delete(_)) => Some(ClusterChange::MachineConfigNode(None)),
        Ok(Event::Init | Event::InitDone) => None,
        Err(error) => {
            tracing::debug!(%error, "the watch of the MachineConfigNode was interrupted");
            None
        }
    });
    let objects = futures::stream::select(config, progress);
    Box::pin(futures::stream::select(node_changes(cluster), objects))
}
