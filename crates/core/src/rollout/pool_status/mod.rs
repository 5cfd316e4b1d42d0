//! Computes a pool's status: machine counts and conditions.
//!
//! Counts and conditions follow from the pool's current members; the only state is the previous status itself.

mod counts;
mod degraded;
mod updating;

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::MachineConfigNode;
use mco_api::controller_config::ControllerCertificate;
use mco_api::machine_config_pool::{
    CertificateExpiry, MachineConfigPoolCondition, MachineConfigPoolStatus, OSImageStreamReference,
};
use mco_api::vocabulary::conditions::pool as condition;
use mco_api::vocabulary::events;

use crate::rollout::image_mode_status::ImageModeStatus;
use crate::rollout::target::reached_target;
use crate::rollout::{PlannedEvent, PoolPlan, PoolView, RolloutTarget, TargetState};

pub use counts::{NodeCounts, NodeReports};

/// The CA bundle whose certificates a pool's status lists: the one with which its nodes trust the API server.
const SHOWN_BUNDLE: &str = "KubeAPIServerServingCAData";

/// The inputs of a status, in addition to the pool and its members.
#[derive(Debug, Clone, Default)]
pub struct PoolStatusInputs<'a> {
    /// The current plan, to report what blocks the rollout.
    pub plan: Option<&'a PoolPlan>,
    /// By node.
    pub machine_config_nodes: HashMap<&'a str, &'a MachineConfigNode>,
    /// Whether nodes are counted by their MachineConfigNodes.
    pub image_mode_status: ImageModeStatus,
    pub certificates: &'a [ControllerCertificate],
    /// The stream of the target's image, unless a MachineConfig sets the image.
    pub os_image_stream: Option<&'a str>,
    /// The outcome of the latest render of the pool; without it the status keeps its condition.
    pub render: Option<RenderOutcome<'a>>,
    /// Whether the pinned images were determined; without it the status keeps its condition.
    pub pinned_images: Option<Result<(), &'a str>>,
}

impl PoolStatusInputs<'_> {
    fn reports(&self) -> NodeReports<'_> {
        match self.image_mode_status {
            ImageModeStatus::Off => NodeReports::Annotations,
            ImageModeStatus::On => NodeReports::MachineConfigNodes(&self.machine_config_nodes),
        }
    }
}

/// The outcome of a render of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenderOutcome<'a> {
    Rendered,
    Failed(&'a str),
}

/// A pool's new status.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolStatusReport {
    pub status: MachineConfigPoolStatus,
    pub events: Vec<PlannedEvent>,
    /// Whether the status must be written.
    pub changed: bool,
}

/// Returns the status of a pool. Before the first render, for a pool that selects every node and for one whose target
/// is not its own, it only reports failures of rendering and pinned images.
pub fn report(pool: &PoolView<'_>, inputs: &PoolStatusInputs<'_>, now: &Time) -> PoolStatusReport {
    let mut before = pool.pool.status.clone().unwrap_or_default();
    if let Some(outcome) = inputs.render {
        condition::set(&mut before.conditions, degraded::render(pool.name, outcome, now));
    }
    if let Some(outcome) = inputs.pinned_images {
        let pinned = degraded::pinned_images(pool.name, outcome, now);
        condition::set(&mut before.conditions, pinned);
    }
    let is_foreign = pool.target_state == TargetState::NotOurs;
    if pool.pool.target_name().is_empty() || pool.selects_everything() || is_foreign {
        if inputs.render.is_some() {
            degraded::write(&mut before.conditions, pool, inputs, now);
        }
        // Without an own render this state may persist, and its nodes must still be counted.
        if is_foreign && matches!(inputs.render, Some(RenderOutcome::Failed(_))) {
            NodeCounts::of(pool, None, inputs.reports()).write(&mut before);
            before.observed_generation = pool.pool.metadata.generation.unwrap_or_default();
        }
        let changed = pool.pool.status.clone().unwrap_or_default() != before;
        return PoolStatusReport {
            status: before,
            events: Vec::new(),
            changed,
        };
    }
    let target = reached_target(pool.pool, &pool.layering);
    let counts = NodeCounts::of(pool, target.as_ref(), inputs.reports());
    let all_updated = counts.all_updated() && !pool.layering.is_building();
    let mut status = before.clone();
    counts.write(&mut status);
    status.observed_generation = pool.pool.metadata.generation.unwrap_or_default();
    status.cert_expirys = expiries(inputs.certificates);
    status.pool_synchronizers_status = vec![counts::pinned_image_sets(
        pool,
        &counts,
        &inputs.machine_config_nodes,
    )];
    let described = described_target(pool, target);
    let mut events = Vec::new();
    if all_updated {
        if status.configuration.reference.name != pool.pool.spec.configuration.reference.name {
            events.push(PlannedEvent::normal(
                events::rollout::COMPLETED,
                format!("Pool {} has completed update to {described}", pool.name),
            ));
        }
        status.configuration = pool.pool.spec.configuration.clone();
    }
    let progress = updating::UpdateProgress {
        all_updated,
        target: &described,
        degraded_before: degraded::blocks_images(&before.conditions),
        stalled: inputs.plan.and_then(PoolPlan::stalled),
        is_held_back: inputs.plan.is_some_and(PoolPlan::is_held_back),
    };
    for new in updating::conditions(pool, &progress, now) {
        condition::set(&mut status.conditions, new);
    }
    if updating::begins_anew(pool, &described, &before, &status)
        && let Some(updating) = condition::find_mut(&mut status.conditions, condition::UPDATING)
    {
        updating.last_transition_time = Some(now.clone());
    }
    events.extend(updating::news(pool, &described, &before, &status));
    degraded::write(&mut status.conditions, pool, inputs, now);
    if let Some(interrupted) = degraded::interrupted_build(&status.conditions, pool, now) {
        condition::set(&mut status.conditions, interrupted);
    }
    let sound = all_updated && !condition::holds(&status.conditions, condition::DEGRADED);
    status.os_image_stream = inputs
        .os_image_stream
        .filter(|_| sound)
        .map(|name| OSImageStreamReference {
            name: name.to_owned(),
        });
    let changed = pool.pool.status.as_ref() != Some(&status);
    PoolStatusReport {
        status,
        events,
        changed,
    }
}

/// Returns the target as the conditions name it; with the image as soon as there is one.
fn described_target(pool: &PoolView<'_>, target: Option<RolloutTarget>) -> RolloutTarget {
    target.unwrap_or_else(|| RolloutTarget {
        config: pool.pool.target_name().to_owned(),
        image: Some(pool.layering.image().to_owned()).filter(|image| !image.is_empty()),
    })
}

fn expiries(certificates: &[ControllerCertificate]) -> Vec<CertificateExpiry> {
    let shown = certificates
        .iter()
        .filter(|certificate| certificate.bundle_file == SHOWN_BUNDLE);
    shown
        .map(|certificate| CertificateExpiry {
            bundle: certificate.bundle_file.clone(),
            expiry: certificate.not_after.clone(),
            subject: certificate.subject.clone(),
        })
        .collect()
}

fn since(type_: &str, holds: bool, reason: &str, message: String, now: &Time) -> MachineConfigPoolCondition {
    if holds {
        condition::is_true(type_, reason, message, now.clone())
    } else {
        condition::is_false(type_, reason, message, now.clone())
    }
}
