//! A Node's state as parsed from its annotations, conditions and taints: the predicates that rollout decisions use.
//!
//! Independent of pools, budgets and other nodes.

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use mco_api::vocabulary::annotations::{ADOPTION_REQUEST, REBOOT_LOCK, node as annotation};
use mco_api::vocabulary::conditions::status;
use mco_api::vocabulary::{labels, node_state, taints};

use super::adoption::AdoptionRequest;
use super::node_annotations::NodeAnnotations;
use super::target::RolloutTarget;
use crate::rollout::drain::cordon::{self, Cordon};

/// A Node with its parsed annotations, which are the protocol between controller and daemon.
#[derive(Debug, Clone, Copy)]
pub struct NodeView<'a> {
    pub name: &'a str,
    pub node: &'a Node,
    /// The rendered config that the daemon has verified on disk; empty until it reports one.
    pub current_config: &'a str,
    /// The rendered config to update to; empty until it is set.
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

    /// Returns why the node is not ready or unschedulable, with the reference's wording; `None` if it is available. A
    /// condition that is not reported counts as healthy.
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

    /// Returns since when the kubelet reports the node as not ready; `None` while it is ready.
    pub fn not_ready_since(&self) -> Option<Timestamp> {
        let ready = self
            .conditions()
            .iter()
            .find(|condition| condition.type_ == "Ready")?;
        let since = ready.last_transition_time.as_ref()?.0;
        (ready.status != status::TRUE).then_some(since)
    }

    pub fn is_ready(&self) -> bool {
        !self.is_unschedulable() && self.is_kubelet_healthy()
    }

    /// Whether the kubelet reports the node as ready, regardless of cordons.
    pub fn is_kubelet_healthy(&self) -> bool {
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

    /// Returns what blocks the drain of the node, if anything does.
    pub fn drain_obstacle(&self) -> Option<String> {
        NodeAnnotations::of_node(self.node).drain_obstacle()
    }

    /// Whether a user has requested to release the node.
    pub fn is_being_released(&self) -> bool {
        let request = self.annotation(ADOPTION_REQUEST).and_then(AdoptionRequest::parse);
        request == Some(AdoptionRequest::Release)
    }

    /// Whether a user has requested to adopt the node.
    pub fn is_being_adopted(&self) -> bool {
        let request = self.annotation(ADOPTION_REQUEST).and_then(AdoptionRequest::parse);
        request == Some(AdoptionRequest::Adopt)
    }

    /// Whether current and desired config are set and equal.
    pub fn config_is_done(&self) -> bool {
        !self.current_config.is_empty() && self.current_config == self.desired_config
    }

    /// Whether the node runs the desired image, or the pool has none.
    pub fn image_is_done(&self) -> bool {
        match (self.current_image, self.desired_image) {
            (None, None) => true,
            (Some(current), Some(desired)) => !current.is_empty() && current == desired,
            _ => false,
        }
    }

    /// Whether the daemon has verified that the node has its desired config and image.
    pub fn is_done(&self) -> bool {
        self.config_is_done() && self.image_is_done() && self.state == node_state::DONE
    }

    /// Whether the daemon reports a failure, in any phase.
    pub fn is_degraded(&self) -> bool {
        node_state::is_failure(self.state)
    }

    /// Whether an update was requested and is not completed, or has failed.
    pub fn is_in_flight(&self) -> bool {
        let known = !self.current_config.is_empty() && !self.desired_config.is_empty();
        known && !(self.config_is_done() && self.image_is_done())
    }

    /// Whether an update was requested before the daemon reported the node's current config. It starts as soon as the
    /// daemon has reported.
    pub fn was_sent_before_it_reported(&self) -> bool {
        self.current_config.is_empty() && !self.desired_config.is_empty()
    }

    /// Whether the node counts in `unavailableMachineCount`: not ready, or being updated. A node that failed to
    /// update but is still schedulable is available.
    pub fn is_unavailable(&self) -> bool {
        if !self.is_ready() {
            return true;
        }
        let failed_on_the_way = self.current_config != self.desired_config && self.is_degraded();
        !self.is_done() && !failed_on_the_way
    }

    /// Whether the node counts against `maxUnavailable`, and only once: unavailable for any reason, or failed during
    /// an update, because its repair will make it unavailable, or its own update agent may reboot it.
    pub fn holds_a_slot(&self) -> bool {
        let has_failed = self.is_in_flight() && self.is_degraded();
        self.is_unavailable() || has_failed || self.annotation(REBOOT_LOCK).is_some()
    }

    /// Whether the node is unavailable, or may become it at any time. A node that holds a slot and is not interrupted is
    /// available until its turn: its daemon has failed, or has not reported yet.
    pub fn is_interrupted(&self) -> bool {
        !self.is_ready()
            || self.is_in_flight()
            || self.was_sent_before_it_reported()
            || self.annotation(REBOOT_LOCK).is_some()
    }

    /// Whether the desired config and image of the node are exactly the target.
    pub fn is_sent_to(&self, target: &RolloutTarget) -> bool {
        self.desired_config == target.config && self.desired_image == target.image.as_deref()
    }

    /// Whether the node has exactly the target, verified.
    pub fn is_updated_to(&self, target: &RolloutTarget) -> bool {
        self.is_done() && self.is_sent_to(target)
    }

    /// Returns the first taint of a readiness controller, which the node has until its readiness rules are met.
    pub fn readiness_taint(&self) -> Option<&'a str> {
        let spec = self.node.spec.as_ref()?;
        let mut all = spec.taints.iter().flatten();
        let taint = all.find(|taint| taint.key.starts_with(taints::READINESS_PREFIX))?;
        Some(&taint.key)
    }

    /// Whether the node has the soft taint that makes the scheduler prefer nodes without a pending update.
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
