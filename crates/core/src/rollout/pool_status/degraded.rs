//! The conditions about failures: NodeDegraded, ImageBuildDegraded when it is outdated, the aggregated Degraded, and
//! whether an image build was interrupted.
//!
//! RenderDegraded and others have their own writers; here they are only read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::MachineConfigNode;
use mco_api::machine_config_pool::MachineConfigPoolCondition;
use mco_api::vocabulary::conditions::{machine_config_node, pool as condition, status};
use mco_api::vocabulary::reasons;

use super::{PoolStatusInputs, RenderOutcome, since};
use crate::rollout::target::BuildState;
use crate::rollout::{NodeView, PoolView};

/// Whether image rollouts are blocked by another failure of the pool.
pub(super) fn blocks_images(conditions: &[MachineConfigPoolCondition]) -> bool {
    [
        condition::RENDER_DEGRADED,
        condition::NODE_DEGRADED,
        condition::PINNED_IMAGE_SETS_DEGRADED,
    ]
    .iter()
    .any(|type_| condition::holds(conditions, type_))
}

pub(super) fn render(pool: &str, outcome: RenderOutcome<'_>, now: &Time) -> MachineConfigPoolCondition {
    match outcome {
        RenderOutcome::Rendered => condition::not_render_degraded(now.clone()),
        RenderOutcome::Failed(why) => condition::render_degraded(pool, &why, now.clone()),
    }
}

pub(super) fn pinned_images(pool: &str, outcome: Result<(), &str>, now: &Time) -> MachineConfigPoolCondition {
    match outcome {
        Ok(()) => condition::not_pinned_image_sets_degraded(now.clone()),
        Err(why) => condition::pinned_image_sets_degraded(pool, &why, now.clone()),
    }
}

pub(super) fn write(
    conditions: &mut Vec<MachineConfigPoolCondition>,
    pool: &PoolView<'_>,
    inputs: &PoolStatusInputs<'_>,
    now: &Time,
) {
    let degraded: Vec<&NodeView<'_>> = pool
        .members
        .iter()
        .filter(|node| inputs.reports().is_degraded(node))
        .collect();
    let (reason, message) = if degraded.is_empty() {
        (String::new(), String::new())
    } else {
        (
            reasons::pool::degraded_nodes(degraded.len()),
            complaints(&degraded, inputs),
        )
    };
    let nodes = since(
        condition::NODE_DEGRADED,
        !degraded.is_empty(),
        &reason,
        message.clone(),
        now,
    );
    condition::set(conditions, nodes);
    if let Some((reason, message)) = outdated_build_failure(conditions, pool) {
        condition::set(
            conditions,
            condition::is_false(condition::IMAGE_BUILD_DEGRADED, reason, message, now.clone()),
        );
    }
    if let Some(failed) = build_failure(conditions, pool, now) {
        condition::set(conditions, failed);
    }
    let sum = if !degraded.is_empty() {
        Some(message)
    } else if condition::holds(conditions, condition::IMAGE_BUILD_DEGRADED) {
        Some("Custom OS image build failed".to_owned())
    } else if condition::holds(conditions, condition::RENDER_DEGRADED) {
        condition::find(conditions, condition::RENDER_DEGRADED).map(|render| render.message.clone())
    } else {
        None
    };
    let holds = sum.is_some();
    condition::set(
        conditions,
        since(condition::DEGRADED, holds, "", sum.unwrap_or_default(), now),
    );
}

/// Maximum number of nodes in a message. Hundreds of failing nodes mostly fail alike, and an object cannot hold all
/// of it.
const QUOTED: usize = 10;

/// Returns the failure messages of degraded nodes: from their MachineConfigNodes, then from their annotations if
/// different, or at least the fact that they are degraded.
fn complaints(degraded: &[&NodeView<'_>], inputs: &PoolStatusInputs<'_>) -> String {
    let shown = |node: &NodeView<'_>| {
        let object = inputs.machine_config_nodes.get(node.name)?;
        failure(object).filter(|text| !text.is_empty())
    };
    let quoted = degraded.iter().take(QUOTED);
    let first = quoted.clone().filter_map(|node| Some((node.name, shown(node)?)));
    let then = quoted.filter_map(|node| {
        let text = match (shown(node), node.reason) {
            (None, "") => node.state,
            (Some(shown), reason) if reason.is_empty() || reason == shown => return None,
            (_, reason) => reason,
        };
        Some((node.name, text))
    });
    let mut texts: Vec<String> = first
        .chain(then)
        .map(|(name, text)| format!("Node {name} is reporting: {text:?}"))
        .collect();
    let more = degraded.len().saturating_sub(QUOTED);
    if more > 0 {
        texts.push(format!("and {more} more nodes"));
    }
    texts.join(", ")
}

fn failure(node: &MachineConfigNode) -> Option<&str> {
    let conditions = &node.status.as_ref()?.conditions;
    let degraded = conditions.iter().find(|condition| {
        condition.type_ == machine_config_node::NODE_DEGRADED && condition.status == status::TRUE
    })?;
    Some(&degraded.message)
}

/// Reports an image for the current target that is no longer being built, which needs intervention. A pool that never
/// had such a build has no condition for it.
pub(super) fn interrupted_build(
    conditions: &[MachineConfigPoolCondition],
    pool: &PoolView<'_>,
    now: &Time,
) -> Option<MachineConfigPoolCondition> {
    let type_ = condition::BUILD_INTERRUPTED;
    if pool.layering.build_state() == Some(BuildState::Interrupted) {
        let build = pool.layering.build_name().unwrap_or_default();
        let message = format!("OS image build {build} was interrupted");
        let reason = reasons::pool::BUILD_INTERRUPTED;
        return Some(condition::is_true(type_, reason, message, now.clone()));
    }
    condition::holds(conditions, type_).then(|| condition::is_false(type_, "", "", now.clone()))
}

/// Reports that the image for the current target could not be built. Another builder's message stays.
fn build_failure(
    conditions: &[MachineConfigPoolCondition],
    pool: &PoolView<'_>,
    now: &Time,
) -> Option<MachineConfigPoolCondition> {
    let type_ = condition::IMAGE_BUILD_DEGRADED;
    let is_reported = condition::holds(conditions, type_);
    if is_reported || pool.layering.build_state() != Some(BuildState::Failed) {
        return None;
    }
    let message = format!(
        "Failed to build OS image for pool {} (MachineOSBuild: {}): Failed: Build Failed",
        pool.name,
        pool.layering.build_name().unwrap_or_default()
    );
    Some(condition::is_true(
        type_,
        reasons::pool::BUILD_FAILED,
        message,
        now.clone(),
    ))
}

/// Returns why a build failure in the status is outdated.
fn outdated_build_failure(
    conditions: &[MachineConfigPoolCondition],
    pool: &PoolView<'_>,
) -> Option<(&'static str, &'static str)> {
    if !condition::holds(conditions, condition::IMAGE_BUILD_DEGRADED) {
        return None;
    }
    match (pool.layering.is_layered(), pool.layering.build_state()) {
        (_, Some(BuildState::Prepared | BuildState::Building)) => {
            Some((reasons::pool::BUILDING, "New build started"))
        }
        (_, Some(BuildState::Succeeded)) => {
            Some((reasons::pool::BUILD_SUCCESS, "Build completed successfully"))
        }
        (_, Some(BuildState::Failed | BuildState::Interrupted | BuildState::New)) => None,
        (true, None) => Some((
            reasons::pool::BUILD_PENDING,
            "MachineOSConfig updated/created, waiting for MachineOSBuild",
        )),
        (false, None) => Some((
            reasons::pool::NO_LAYERED_OBJECTS,
            "No layered pool objects found, clearing stale build degraded condition",
        )),
    }
}
