//! The conditions about the progress of a rollout: Updated and Updating.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::machine_config_pool::{MachineConfigPoolCondition, MachineConfigPoolStatus};
use mco_api::vocabulary::conditions::{pool as condition, status};
use mco_api::vocabulary::events;
use mco_api::vocabulary::reasons::pool as reasons;

use super::since;
use crate::rollout::target::BuildState;
use crate::rollout::{PlannedEvent, PoolView, RolloutTarget};

pub(super) struct UpdateProgress<'a> {
    pub all_updated: bool,
    pub target: &'a RolloutTarget,
    /// Whether the pool was degraded before this reconcile.
    pub degraded_before: bool,
    /// Why the rollout makes no progress, if it does not.
    pub stalled: Option<String>,
    /// Whether policies or holds keep it back.
    pub is_held_back: bool,
}

pub(super) fn conditions(
    pool: &PoolView<'_>,
    progress: &UpdateProgress<'_>,
    now: &Time,
) -> [MachineConfigPoolCondition; 2] {
    let updated = if progress.all_updated {
        format!("All nodes are updated with {}", progress.target)
    } else {
        String::new()
    };
    let (updating, message) = layered(pool, progress).unwrap_or_else(|| plain(pool, progress));
    let held = updating && progress.is_held_back;
    let reason = if held { reasons::ROLLOUT_HELD } else { "" };
    [
        since(condition::UPDATED, progress.all_updated, "", updated, now),
        since(condition::UPDATING, updating, reason, message, now),
    ]
}

/// Whether a pool that was updating already begins anew: with another target, or at the end of a hold. The operator
/// counts the time of an update from then.
pub(super) fn begins_anew(
    pool: &PoolView<'_>,
    target: &RolloutTarget,
    before: &MachineConfigPoolStatus,
    after: &MachineConfigPoolStatus,
) -> bool {
    let updating = |status: &MachineConfigPoolStatus| {
        let condition = condition::find(&status.conditions, condition::UPDATING);
        condition
            .filter(|condition| condition.status == status::TRUE)
            .cloned()
    };
    let (Some(before), Some(after)) = (updating(before), updating(after)) else {
        return false;
    };
    // In a layered pool the condition names the build instead.
    let is_named = pool.layering.config.is_some() || before.message.contains(&target.to_string());
    let held = |condition: &MachineConfigPoolCondition| condition.reason == reasons::ROLLOUT_HELD;
    !is_named || (held(&before) && !held(&after))
}

/// Returns the event about a pool that starts to update to another config: once per config, because the condition
/// then names it.
pub(super) fn news(
    pool: &PoolView<'_>,
    target: &RolloutTarget,
    before: &MachineConfigPoolStatus,
    after: &MachineConfigPoolStatus,
) -> Option<PlannedEvent> {
    let updating = |status: &MachineConfigPoolStatus| {
        let condition = condition::find(&status.conditions, condition::UPDATING);
        condition
            .filter(|condition| condition.status == status::TRUE)
            .map(|condition| condition.message.clone())
    };
    // An unhealthy node of the pool is not a new target.
    let is_elsewhere = before.configuration.name() != target.config;
    let was_told = updating(before).is_some_and(|message| {
        // In a layered pool the condition names the build instead.
        pool.layering.config.is_some() || message.contains(&target.to_string())
    });
    (is_elsewhere && updating(after).is_some() && !was_told).then(|| {
        let message = format!("Pool {} now targeting {target}", pool.name);
        PlannedEvent::normal(events::rollout::UPDATING, message)
    })
}

fn plain(pool: &PoolView<'_>, progress: &UpdateProgress<'_>) -> (bool, String) {
    let target = progress.target;
    if progress.all_updated {
        (false, String::new())
    } else if pool.is_paused() {
        (false, format!("Pool is paused; will not update to {target}"))
    } else {
        let message = format!("All nodes are updating to {target}");
        let message = match &progress.stalled {
            Some(obstacle) => format!("{message}. Nothing moves: {obstacle}"),
            None => message,
        };
        (true, message)
    }
}

/// Returns the state of a layered pool's image where it is more specific than the nodes'; otherwise `None`.
fn layered(pool: &PoolView<'_>, progress: &UpdateProgress<'_>) -> Option<(bool, String)> {
    let config = pool.layering.config?;
    let paused = pool.is_paused();
    let state = pool.layering.build_state();
    let (updating, message) = match (state, paused) {
        (_, false) if progress.degraded_before => (false, "Pool update paused due to degraded condition"),
        (None, false) => (true, "Pool is waiting for a new OS image build to start"),
        (None, true) => (true, "Pool is paused; waiting for a new OS image build to start"),
        (Some(BuildState::Prepared | BuildState::New), false) => {
            (true, "Pool is waiting for OS image build to start")
        }
        (Some(BuildState::Prepared), true) => (
            true,
            "Pool is paused; OS image build has been prepared but will not rollout",
        ),
        (Some(BuildState::New), true) => (
            true,
            "Pool is paused; OS image build has been created but not yet started",
        ),
        (Some(BuildState::Building), false) => (true, "Pool is waiting for OS image build to complete"),
        (Some(BuildState::Building), true) => (true, "Pool is paused; OS image build in progress"),
        (Some(BuildState::Succeeded), false) if progress.all_updated => return None,
        (Some(BuildState::Succeeded), false) => (true, "Pool is waiting for nodes to apply OS image"),
        (Some(BuildState::Succeeded), true) => {
            (false, "Pool is paused; OS image build completed successfully")
        }
        (Some(BuildState::Failed), false) => (false, "Pool update stopped due to OS image build failure"),
        (Some(BuildState::Failed), true) => (false, "Pool is paused; OS image build failed"),
        (Some(BuildState::Interrupted), false) => (
            false,
            "Pool update stopped due to OS image build being interrupted",
        ),
        (Some(BuildState::Interrupted), true) => (false, "Pool is paused; OS image build was interrupted"),
    };
    let subject = match pool.layering.build_name() {
        Some(build) => format!("mosb: {build}"),
        None => format!("mosc: {}", config.metadata.name.as_deref().unwrap_or_default()),
    };
    Some((updating, format!("{message} ({subject})")))
}
