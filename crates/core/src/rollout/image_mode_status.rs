//! The feature gate `ImageModeStatusReporting`: MachineConfigNodes report the image and the files of an update as
//! separate steps, and pools count their nodes by these reports.

use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use mco_api::MachineConfigNode;
use mco_api::machine_config_node::{ConfigImageStatus, DesiredConfigImage};
use mco_api::vocabulary::conditions::machine_config_node as type_;
use mco_api::vocabulary::conditions::status;
use regex::Regex;

use crate::config::feature_gates::FeatureGates;
use crate::rollout::RolloutTarget;

pub const FEATURE_GATE: &str = "ImageModeStatusReporting";

/// Whether the gate is enabled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ImageModeStatus {
    /// An update is written in one step, `AppliedFilesAndOS`.
    #[default]
    Off,
    /// It is written in the steps `ImagePulledFromRegistry`, `AppliedFiles` and `AppliedOSImage`.
    On,
}

impl ImageModeStatus {
    pub fn of_gates(gates: &FeatureGates) -> Self {
        if gates.is_enabled(FEATURE_GATE) {
            Self::On
        } else {
            Self::Off
        }
    }

    /// Returns which steps a MachineConfigNode has; `None` if it has neither. The steps of an update do not change
    /// while it is under way.
    pub fn of_conditions(conditions: &[Condition]) -> Option<Self> {
        let has = |wanted: &str| conditions.iter().any(|condition| condition.type_ == wanted);
        if has(type_::APPLIED_FILES) {
            Some(Self::On)
        } else if has(type_::APPLIED_FILES_AND_OS) {
            Some(Self::Off)
        } else {
            None
        }
    }
}

/// Returns the image for a MachineConfigNode's spec.
pub fn desired_image(mode: ImageModeStatus, image: Option<&str>) -> Option<DesiredConfigImage> {
    let image = image.filter(|image| mode == ImageModeStatus::On && is_reportable(image))?;
    Some(DesiredConfigImage {
        desired_image: image.to_owned(),
    })
}

/// Returns the images for a MachineConfigNode's status; `None` for a node that has and gets no built image.
pub fn images(
    mode: ImageModeStatus,
    current: Option<&str>,
    desired: Option<&str>,
) -> Option<ConfigImageStatus> {
    let reportable = |image: Option<&str>| {
        let image = image.filter(|image| mode == ImageModeStatus::On && is_reportable(image));
        image.map(str::to_owned)
    };
    let images = ConfigImageStatus {
        current_image: reportable(current),
        desired_image: reportable(desired),
    };
    (images != ConfigImageStatus::default()).then_some(images)
}

/// Returns whether a node reports that it has reached the target.
pub fn is_updated_to(node: &MachineConfigNode, target: &RolloutTarget) -> bool {
    let Some(status) = &node.status else {
        return false;
    };
    let config = status
        .config_version
        .as_ref()
        .map(|version| version.desired.as_str());
    let images = status.config_image.as_ref();
    let image = images.and_then(|images| images.desired_image.as_deref());
    let wanted = target.image.as_deref().filter(|image| is_reportable(image));
    holds(&status.conditions, type_::UPDATED) && config == Some(&target.config) && image == wanted
}

/// Returns whether a node reports a failure.
pub fn is_degraded(node: &MachineConfigNode) -> bool {
    let status = node.status.as_ref();
    status.is_some_and(|status| holds(&status.conditions, type_::NODE_DEGRADED))
}

fn holds(conditions: &[Condition], wanted: &str) -> bool {
    let found = conditions.iter().find(|condition| condition.type_ == wanted);
    found.is_some_and(|condition| condition.status == status::TRUE)
}

/// Returns whether the API accepts the image in a MachineConfigNode: by digest, from a host with a domain.
fn is_reportable(image: &str) -> bool {
    static RULE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r"^([a-zA-Z0-9-]+\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?/([a-zA-Z0-9_-]{0,61}/)?[a-zA-Z0-9_.-]*@sha256:[a-f0-9]{64}$",
        )
        .ok()
    });
    image.len() <= 447 && RULE.as_ref().is_some_and(|rule| rule.is_match(image))
}
