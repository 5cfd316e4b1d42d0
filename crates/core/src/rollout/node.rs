//! What one Node says about itself, read once: the questions every rollout decision is made of.
//!
//! Nothing here knows pools, budgets or other nodes.

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::vocabulary::conditions::status;
use mco_api::vocabulary::{annotations::node as annotation, labels, node_state, taints};

use super::node_annotations::NodeAnnotations;
use super::target::Target;
use crate::rollout::drain::cordon::{self, Cordon};

/// A Node and the annotations the controller and the daemon talk through.
#[derive(Debug, Clone, Copy)]
pub struct NodeView<'a> {
    pub name: &'a str,
    pub node: &'a Node,
    /// The rendered config proven on disk; empty while nobody has reported one.
    pub current_config: &'a str,
    /// The rendered config to reach; empty while nobody has set one.
    pub desired_config: &'a str,
    /// As annotated; an image that is present and empty is never up to date.
    pub current_image: Option<&'a str>,
    pub desired_image: Option<&'a str>,
    pub state: &'a str,
    pub reason: &'a str,
}

impl<'a> NodeView<'a> {
    pub fn new(node: &'a Node) -> Self {
        let annotations = NodeAnnotations::of_node(node);
        Self {
            name: node.metadata.name.as_deref().unwrap_or_default(),
            node,
            current_config: annotations.current_config.unwrap_or_default(),
            desired_config: annotations.desired_config.unwrap_or_default(),
            current_image: annotation_of(node, annotation::CURRENT_IMAGE),
            desired_image: annotation_of(node, annotation::DESIRED_IMAGE),
            state: annotations.state,
            reason: annotations.reason,
        }
    }

    pub fn annotation(&self, key: &str) -> Option<&'a str> {
        annotation_of(self.node, key)
    }

    pub fn label(&self, key: &str) -> Option<&'a str> {
        self.node.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    pub fn zone(&self) -> Option<&'a str> {
        self.label(labels::node::ZONE).filter(|zone| !zone.is_empty())
    }

    pub fn created(&self) -> Option<&'a Time> {
        self.node.metadata.creation_timestamp.as_ref()
    }

    /// Why the node cannot take work, in the words users know; `None` when it can. A condition that is not reported
    /// counts as fine.
    pub fn unready(&self) -> Option<String> {
        let name = self.name;
        for condition in self.conditions() {
            let (bad, word) = match condition.type_.as_str() {
                "Ready" => (condition.status != status::TRUE, "NotReady"),
                "DiskPressure" => (condition.status != status::FALSE, "OutOfDisk"),
                "NetworkUnavailable" => (condition.status != status::FALSE, "NetworkUnavailable"),
                _ => continue,
            };
            if bad {
                return Some(format!("node {name} is reporting {word}={}", condition.status));
            }
        }
        self.is_unschedulable()
            .then(|| format!("node {name} is reporting Unschedulable"))
    }

    pub fn is_ready(&self) -> bool {
        !self.is_unschedulable() && self.kubelet_is_well()
    }

    /// Ready as far as the kubelet can tell, whatever somebody decided about scheduling.
    pub fn kubelet_is_well(&self) -> bool {
        self.conditions()
            .iter()
            .all(|condition| match condition.type_.as_str() {
                "Ready" => condition.status == status::TRUE,
                "DiskPressure" | "NetworkUnavailable" => condition.status == status::FALSE,
                _ => true,
            })
    }

    pub fn is_unschedulable(&self) -> bool {
        self.node
            .spec
            .as_ref()
            .and_then(|spec| spec.unschedulable)
            .unwrap_or(false)
    }

    pub fn cordon(&self) -> Cordon {
        cordon::of_node(self.node)
    }

    /// What keeps the node's pods from leaving for an update, once something does.
    pub fn drain_obstacle(&self) -> Option<String> {
        NodeAnnotations::of_node(self.node).drain_obstacle()
    }

    /// Current and desired config are known and equal.
    pub fn config_is_done(&self) -> bool {
        !self.current_config.is_empty() && self.current_config == self.desired_config
    }

    /// There is no built image, or the one to reach is the one that runs.
    pub fn image_is_done(&self) -> bool {
        match (self.current_image, self.desired_image) {
            (None, None) => true,
            (Some(current), Some(desired)) => !current.is_empty() && current == desired,
            _ => false,
        }
    }

    /// The daemon has proven that the node has what it shall have.
    pub fn is_done(&self) -> bool {
        self.config_is_done() && self.image_is_done() && self.state == node_state::DONE
    }

    /// The daemon reports a failure, whatever it was doing.
    pub fn is_degraded(&self) -> bool {
        node_state::is_failure(self.state)
    }

    /// An update was asked for and has not arrived, or has failed on the way.
    pub fn is_in_flight(&self) -> bool {
        let known = !self.current_config.is_empty() && !self.desired_config.is_empty();
        known && !(self.config_is_done() && self.image_is_done())
    }

    /// An update was asked for before the daemon said what the node has. It will begin as soon as it has found out.
    pub fn was_sent_before_it_reported(&self) -> bool {
        self.current_config.is_empty() && !self.desired_config.is_empty()
    }

    /// As users see it in `unavailableMachineCount`: not ready, or being changed. A node that failed to reach another
    /// config and still takes work is available.
    pub fn is_unavailable(&self) -> bool {
        if !self.is_ready() {
            return true;
        }
        let failed_on_the_way = self.current_config != self.desired_config && self.is_degraded();
        !self.is_done() && !failed_on_the_way
    }

    /// Counts against `maxUnavailable`, and only once: unavailable for whatever reason, or failed half-way, because
    /// its repair will make it unavailable.
    pub fn holds_a_slot(&self) -> bool {
        self.is_unavailable() || (self.is_in_flight() && self.is_degraded())
    }

    /// The node shall have exactly this.
    pub fn is_sent_to(&self, target: &Target) -> bool {
        self.desired_config == target.config && self.desired_image == target.image.as_deref()
    }

    /// The node has exactly this, proven.
    pub fn is_updated_to(&self, target: &Target) -> bool {
        self.is_done() && self.is_sent_to(target)
    }

    /// Carries the soft taint that asks the scheduler to prefer nodes that are not about to be updated.
    pub fn has_update_taint(&self) -> bool {
        let taints = self
            .node
            .spec
            .iter()
            .flat_map(|spec| spec.taints.iter().flatten());
        taints
            .into_iter()
            .any(|taint| taint.key == taints::UPDATE_IN_PROGRESS)
    }

    fn conditions(&self) -> &'a [NodeCondition] {
        self.node
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_deref())
            .unwrap_or_default()
    }
}

fn annotation_of<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}
