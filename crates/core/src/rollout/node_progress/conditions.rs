//! Updates a MachineConfigNode's conditions for a phase of an update.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use mco_api::machine_config_node::{ConfigVersionStatus, NOT_YET_SET};
use mco_api::vocabulary::conditions::machine_config_node as type_;
use mco_api::vocabulary::conditions::status;
use mco_api::vocabulary::reasons::machine_config_node as reason;

use super::phase::{ConditionPart, UpdatePhase};
use crate::rollout::image_mode_status::ImageModeStatus;
use crate::rollout::messages::PastUpdateStep;

/// The conditions of an update before it is written, in the order the phases set them.
const BEFORE: [&str; 5] = [
    type_::UPDATED,
    type_::UPDATE_PREPARED,
    type_::UPDATE_EXECUTED,
    type_::CORDONED,
    type_::DRAINED,
];

/// The conditions after it is written.
const AFTER: [&str; 6] = [
    type_::UPDATE_POST_ACTION_COMPLETE,
    type_::REBOOTED_NODE,
    type_::NODE_DEGRADED,
    type_::RESUMED,
    type_::UPDATE_COMPLETE,
    type_::UNCORDONED,
];

const SEPARATE: [&str; 3] = [
    type_::IMAGE_PULLED_FROM_REGISTRY,
    type_::APPLIED_FILES,
    type_::APPLIED_OS_IMAGE,
];

/// Returns every condition of an update in order.
fn order(mode: ImageModeStatus) -> impl Iterator<Item = &'static str> {
    let writing = match mode {
        ImageModeStatus::Off => &[type_::APPLIED_FILES_AND_OS][..],
        ImageModeStatus::On => &SEPARATE,
    };
    BEFORE.iter().chain(writing).chain(&AFTER).copied()
}

/// Whether a condition is one of an update, with the feature gate or without.
fn is_of_update(type_: &str) -> bool {
    let separate = SEPARATE.contains(&type_);
    separate || order(ImageModeStatus::Off).any(|known| known == type_)
}

/// Returns the conditions after a phase; `None` if only times would change.
///
/// All conditions of an update are always present, in one order; unrelated conditions are kept after them. `target`
/// is the config that the node is updated to, or was updated to when it is done.
pub fn report(
    conditions: &[Condition],
    phase: &UpdatePhase,
    node: &str,
    target: &str,
    now: &Time,
    mode: ImageModeStatus,
) -> Option<Vec<Condition>> {
    if phase.is_about_image() && mode == ImageModeStatus::Off {
        return None;
    }
    let statement = phase.statement(node, mode);
    let mut after: Vec<Condition> = order(mode)
        .map(|type_| {
            let known = conditions.iter().find(|condition| condition.type_ == type_);
            known.cloned().unwrap_or_else(|| not_yet(type_, now))
        })
        .collect();
    if phase.starts_afresh() {
        let others = after
            .iter_mut()
            .filter(|condition| condition.type_ != type_::UPDATED);
        for condition in others.filter(|condition| condition.status != status::FALSE) {
            status::FALSE.clone_into(&mut condition.status);
            condition.message = PastUpdateStep {
                config: target.to_owned(),
                message: std::mem::take(&mut condition.message),
            }
            .to_string();
            condition.last_transition_time = now.clone();
        }
    }
    for part in std::iter::once(statement.parent).chain(statement.children) {
        set(&mut after, part, now);
    }
    let beside = conditions
        .iter()
        .filter(|condition| !is_of_update(&condition.type_));
    after.extend(beside.cloned());
    (after != conditions).then_some(after)
}

/// Returns the conditions after a phase of a degraded node, which stays degraded with this error until it is done:
/// neither a retry nor another target clears the error. `None` if only times would change.
pub fn report_while_degraded(
    conditions: &[Condition],
    phase: &UpdatePhase,
    error: &str,
    node: &str,
    target: &str,
    now: &Time,
    mode: ImageModeStatus,
) -> Option<Vec<Condition>> {
    let mut after = report(conditions, phase, node, target, now, mode).unwrap_or_else(|| conditions.to_vec());
    let known = conditions
        .iter()
        .find(|condition| condition.type_ == type_::NODE_DEGRADED);
    for condition in &mut after {
        if condition.type_ == type_::NODE_DEGRADED {
            // Keep its state from before the phase, so that its time is when the node became degraded.
            *condition = known
                .cloned()
                .unwrap_or_else(|| not_yet(type_::NODE_DEGRADED, now));
        }
    }
    let failed = UpdatePhase::Failed {
        error: error.to_owned(),
    };
    set(&mut after, failed.statement(node, mode).parent, now);
    (after != conditions).then_some(after)
}

/// Returns the conditions after several phases; `None` if in the end only times would change, such as when all of
/// them were reported before.
pub fn report_all(
    conditions: &[Condition],
    phases: &[UpdatePhase],
    node: &str,
    target: &str,
    now: &Time,
    mode: ImageModeStatus,
) -> Option<Vec<Condition>> {
    let mut after = conditions.to_vec();
    for phase in phases {
        after = report(&after, phase, node, target, now, mode).unwrap_or(after);
    }
    (!is_equivalent(conditions, &after)).then_some(after)
}

fn is_equivalent(before: &[Condition], after: &[Condition]) -> bool {
    let same = |(a, b): (&Condition, &Condition)| {
        (&a.type_, &a.status, &a.reason, &a.message) == (&b.type_, &b.status, &b.reason, &b.message)
    };
    before.len() == after.len() && before.iter().zip(after).all(same)
}

/// Merges the phases of one writer into an object that lacks them: `reported` are those phases, and conditions that
/// other writers reported are retained.
pub fn complete(conditions: &[Condition], reported: Vec<Condition>) -> Vec<Condition> {
    let of = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
    let mut after: Vec<Condition> = reported
        .into_iter()
        .map(|mut condition| match of(&condition.type_) {
            Some(known) if condition.reason == reason::NOT_YET_OCCURRED => known.clone(),
            Some(known) if known.status == condition.status => {
                condition.last_transition_time = known.last_transition_time.clone();
                condition
            }
            _ => condition,
        })
        .collect();
    let is_new = |known: &&Condition| {
        !is_of_update(&known.type_) && after.iter().all(|condition| condition.type_ != known.type_)
    };
    let beside: Vec<Condition> = conditions.iter().filter(is_new).cloned().collect();
    after.extend(beside);
    after
}

/// Returns the config versions for the status: the desired one is set once the update is validated, the current one
/// always.
pub fn config_version(current: &str, desired: &str, conditions: &[Condition]) -> ConfigVersionStatus {
    let holds = |type_: &str| {
        conditions
            .iter()
            .any(|condition| condition.type_ == type_ && condition.status == status::TRUE)
    };
    let known = current == desired || holds(type_::UPDATE_PREPARED);
    ConfigVersionStatus {
        current: current.to_owned(),
        desired: if known && !desired.is_empty() {
            desired.to_owned()
        } else {
            NOT_YET_SET.to_owned()
        },
    }
}

/// Returns the generation that a status describes. Other implementations write the object's plus one, and the number
/// must never decrease.
pub fn observed_generation(before: Option<i64>, generation: Option<i64>) -> Option<i64> {
    before.max(generation)
}

fn set(conditions: &mut [Condition], part: ConditionPart, now: &Time) {
    let found = conditions
        .iter_mut()
        .find(|condition| condition.type_ == part.type_);
    let Some(condition) = found else { return };
    if condition.status != part.status {
        condition.last_transition_time = now.clone();
    }
    part.status.clone_into(&mut condition.status);
    condition.reason = part.reason;
    condition.message = part.message;
}

fn not_yet(type_: &str, now: &Time) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: status::FALSE.to_owned(),
        reason: reason::NOT_YET_OCCURRED.to_owned(),
        message: format!("This node has not yet entered the {type_} phase"),
        last_transition_time: now.clone(),
        observed_generation: None,
    }
}
