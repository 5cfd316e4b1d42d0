//! A typed view of a Node's annotations.

use std::collections::BTreeMap;

use mco_api::vocabulary::annotations::node as annotation;
use mco_api::vocabulary::{node_state, topology};
use mco_core::rollout::drain::DrainRecord;

use super::report::Report;
use crate::config::NodeConfig;
use crate::drift::DriftPolicy;

/// The annotations of the protocol between controller and daemon. Absent and empty are equal, except where a Node
/// without the annotation has not been registered by its daemon yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeView {
    pub current_config: Option<String>,
    pub desired_config: Option<String>,
    pub desired_image: Option<String>,
    pub current_image: Option<String>,
    pub state: String,
    pub reason: String,
    pub desired_drain: Option<String>,
    pub last_applied_drain: Option<String>,
    /// What blocks the requested drain, as reported by the controller.
    pub drain_obstacle: Option<String>,
    pub rebooting: bool,
    pub single_replica: bool,
    /// The node's own drift policy, which overrides the pool's.
    pub drift_policy: Option<DriftPolicy>,
    /// Why a boot lost its staged deployment.
    pub finalization_failure: Option<String>,
    /// The resource version of the ControllerConfig whose certificates were synced last.
    pub synced_controller_config: Option<String>,
}

impl NodeView {
    pub fn new(annotations: &BTreeMap<String, String>) -> Self {
        let text = |key: &str| annotations.get(key).filter(|value| !value.is_empty()).cloned();
        Self {
            current_config: text(annotation::CURRENT_CONFIG),
            desired_config: text(annotation::DESIRED_CONFIG),
            desired_image: text(annotation::DESIRED_IMAGE),
            current_image: text(annotation::CURRENT_IMAGE),
            state: text(annotation::STATE).unwrap_or_default(),
            reason: text(annotation::REASON).unwrap_or_default(),
            desired_drain: text(annotation::DESIRED_DRAIN),
            last_applied_drain: text(annotation::LAST_APPLIED_DRAIN),
            drain_obstacle: DrainRecord::obstacle(annotations),
            rebooting: text(annotation::POST_CONFIG_ACTION).as_deref() == Some(annotation::REBOOTING),
            single_replica: text(annotation::CONTROL_PLANE_TOPOLOGY).as_deref()
                == Some(topology::SINGLE_REPLICA),
            drift_policy: text(DriftPolicy::ANNOTATION).map(|value| DriftPolicy::from_annotation(&value)),
            finalization_failure: text(annotation::OSTREE_FINALIZE_STAGED_FAILURE),
            synced_controller_config: text(annotation::LAST_SYNCED_CONTROLLER_CONFIG),
        }
    }

    pub fn is_done(&self) -> bool {
        self.state == node_state::DONE
    }

    pub fn is_failing(&self) -> bool {
        node_state::is_failure(&self.state)
    }

    /// Returns whether the Node already has the state and reason of a report.
    pub fn says(&self, report: &Report) -> bool {
        let has = |key: &str, value: &str| report.get(key).and_then(Option::as_deref) == Some(value);
        has(annotation::STATE, &self.state) && has(annotation::REASON, &self.reason)
    }

    /// Returns a drain or uncordon request that the controller has not answered yet.
    pub fn open_request(&self) -> Option<&str> {
        self.desired_drain
            .as_deref()
            .filter(|request| self.last_applied_drain.as_deref() != Some(request))
    }
}

/// The config and image recorded on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OnDisk {
    pub config: Option<String>,
    pub image: Option<String>,
}

impl OnDisk {
    pub fn new(config: Option<&NodeConfig>) -> Self {
        Self {
            config: config.map(|config| config.name().to_owned()),
            image: config.and_then(|config| config.built_image.clone()),
        }
    }
}
