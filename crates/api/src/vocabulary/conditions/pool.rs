//! The conditions of a MachineConfigPool.

use std::fmt::Display;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::status;
use crate::machine_config_pool::MachineConfigPoolCondition;

/// Every machine runs the target.
pub const UPDATED: &str = "Updated";
/// At least one machine does not run the target yet.
pub const UPDATING: &str = "Updating";
/// Any of the other `*Degraded` types is True.
pub const DEGRADED: &str = "Degraded";
/// A machine reports that it cannot reach its target.
pub const NODE_DEGRADED: &str = "NodeDegraded";
/// The target could not be produced.
pub const RENDER_DEGRADED: &str = "RenderDegraded";
/// Images could not be pinned.
pub const PINNED_IMAGE_SETS_DEGRADED: &str = "PinnedImageSetsDegraded";
/// The pool's image could not be built.
pub const IMAGE_BUILD_DEGRADED: &str = "ImageBuildDegraded";
/// An image build waits to start.
pub const BUILD_PENDING: &str = "BuildPending";
/// An image is being built.
pub const BUILDING: &str = "Building";
/// The image was built.
pub const BUILD_SUCCESS: &str = "BuildSuccess";
/// The image build failed.
pub const BUILD_FAILED: &str = "BuildFailed";
/// The image build was stopped because its result is no longer wanted.
pub const BUILD_INTERRUPTED: &str = "BuildInterrupted";

/// Returns a condition that is True since `now`.
pub fn is_true(
    type_: &str,
    reason: &str,
    message: impl Into<String>,
    now: Time,
) -> MachineConfigPoolCondition {
    condition(type_, status::TRUE, reason, message.into(), now)
}

/// Returns a condition that is False since `now`.
pub fn is_false(
    type_: &str,
    reason: &str,
    message: impl Into<String>,
    now: Time,
) -> MachineConfigPoolCondition {
    condition(type_, status::FALSE, reason, message.into(), now)
}

/// Returns the condition for a pool whose target could not be rendered.
pub fn render_degraded(pool: &str, error: &impl Display, now: Time) -> MachineConfigPoolCondition {
    is_true(
        RENDER_DEGRADED,
        "",
        format!("Failed to render configuration for pool {pool}: {error}"),
        now,
    )
}

/// Returns the condition for a pool whose target was rendered.
pub fn not_render_degraded(now: Time) -> MachineConfigPoolCondition {
    is_false(RENDER_DEGRADED, "", "", now)
}

/// Returns the condition for a pool whose pinned images could not be determined.
pub fn pinned_image_sets_degraded(pool: &str, error: &impl Display, now: Time) -> MachineConfigPoolCondition {
    is_true(
        PINNED_IMAGE_SETS_DEGRADED,
        "",
        format!("Failed to populate pinned image sets for pool {pool}: {error}"),
        now,
    )
}

/// Returns the condition for a pool whose pinned images were determined.
pub fn not_pinned_image_sets_degraded(now: Time) -> MachineConfigPoolCondition {
    is_false(PINNED_IMAGE_SETS_DEGRADED, "", "", now)
}

/// Returns the condition of this type; the last one if a list has several.
pub fn find<'a>(
    conditions: &'a [MachineConfigPoolCondition],
    type_: &str,
) -> Option<&'a MachineConfigPoolCondition> {
    conditions.iter().rev().find(|condition| condition.type_ == type_)
}

/// Returns the condition of this type, to change it.
pub fn find_mut<'a>(
    conditions: &'a mut [MachineConfigPoolCondition],
    type_: &str,
) -> Option<&'a mut MachineConfigPoolCondition> {
    let mut conditions = conditions.iter_mut().rev();
    conditions.find(|condition| condition.type_ == type_)
}

/// Returns whether the condition of this type is True.
pub fn holds(conditions: &[MachineConfigPoolCondition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == status::TRUE)
}

/// Sets a condition in the list and returns whether the list changed.
///
/// A condition with the same status, reason and message is left alone. The transition time is kept if the status is the
/// same. A changed condition moves to the end of the list.
pub fn set(conditions: &mut Vec<MachineConfigPoolCondition>, mut new: MachineConfigPoolCondition) -> bool {
    if let Some(old) = find(conditions, &new.type_) {
        if old.status == new.status && old.reason == new.reason && old.message == new.message {
            return false;
        }
        if old.status == new.status {
            new.last_transition_time.clone_from(&old.last_transition_time);
        }
    }
    conditions.retain(|condition| condition.type_ != new.type_);
    conditions.push(new);
    true
}

fn condition(
    type_: &str,
    status: &str,
    reason: &str,
    message: String,
    now: Time,
) -> MachineConfigPoolCondition {
    MachineConfigPoolCondition {
        last_transition_time: Some(now),
        message,
        reason: reason.to_owned(),
        status: status.to_owned(),
        type_: type_.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time(k8s_openapi::jiff::Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn the_same_status_reason_and_message_change_nothing() {
        let mut conditions = vec![
            is_true(UPDATING, "r", "m", at(1)),
            is_false(UPDATED, "", "", at(1)),
        ];
        let before = conditions.clone();
        assert!(!set(&mut conditions, is_true(UPDATING, "r", "m", at(2))));
        assert_eq!(conditions, before);
    }

    #[test]
    fn another_message_keeps_the_transition_time_and_moves_to_the_end() {
        let mut conditions = vec![
            is_true(UPDATING, "r", "old", at(1)),
            is_false(UPDATED, "", "", at(1)),
        ];
        assert!(set(&mut conditions, is_true(UPDATING, "r", "new", at(2))));
        assert_eq!(
            conditions,
            [
                is_false(UPDATED, "", "", at(1)),
                is_true(UPDATING, "r", "new", at(1))
            ]
        );
    }

    #[test]
    fn another_status_takes_the_new_transition_time() {
        let mut conditions = vec![is_true(UPDATING, "r", "m", at(1))];
        assert!(set(&mut conditions, is_false(UPDATING, "r", "m", at(2))));
        assert_eq!(conditions, [is_false(UPDATING, "r", "m", at(2))]);
    }

    #[test]
    fn a_new_type_is_added_at_the_end() {
        let mut conditions = vec![is_true(UPDATED, "", "", at(1))];
        assert!(set(&mut conditions, not_render_degraded(at(2))));
        assert_eq!(conditions.last(), Some(&is_false(RENDER_DEGRADED, "", "", at(2))));
        assert!(!holds(&conditions, RENDER_DEGRADED));
    }

    #[test]
    fn of_duplicates_the_last_one_counts_and_one_remains() {
        let mut conditions = vec![
            is_true(DEGRADED, "", "a", at(1)),
            is_false(DEGRADED, "", "b", at(2)),
        ];
        assert_eq!(find(&conditions, DEGRADED).unwrap().message, "b");
        assert!(!holds(&conditions, DEGRADED));
        assert!(set(&mut conditions, is_false(DEGRADED, "", "c", at(3))));
        assert_eq!(conditions, [is_false(DEGRADED, "", "c", at(2))]);
    }

    #[test]
    fn a_failed_render_names_pool_and_error() {
        let condition = render_degraded("worker", &"no configs", at(1));
        assert_eq!(
            condition.message,
            "Failed to render configuration for pool worker: no configs"
        );
        assert_eq!(
            (condition.status.as_str(), condition.reason.as_str()),
            (status::TRUE, "")
        );
    }
}
