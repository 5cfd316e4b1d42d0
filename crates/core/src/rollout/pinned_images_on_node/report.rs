//! The status of a node's pinned images.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use mco_api::machine_config_node::PinnedImageSetStatus;
use mco_api::vocabulary::conditions::machine_config_node as type_;
use mco_api::vocabulary::conditions::status;
use mco_api::vocabulary::reasons;
use mco_api::vocabulary::reasons::machine_config_node as reason;

/// Maximum length of an error message; the CRD has a limit too.
const LONGEST_ERROR: usize = 2000;

/// The overall state of a node's sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keeping {
    /// All images are pulled and pinned.
    Done { message: String },
    /// Images are being pulled, or will be.
    Prefetching { message: String },
    /// A step failed; the node retries.
    Failed { message: String },
}

/// The state of one set on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetReport {
    pub name: String,
    pub generation: i32,
    pub state: SetState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetState {
    Kept,
    /// Not all images are pulled yet, and no error is reported.
    Awaited,
    Failed {
        error: String,
    },
}

/// Returns the status of each set that the node has or needs. Sets that are not reported are removed.
pub fn set_statuses(before: &[PinnedImageSetStatus], reports: &[SetReport]) -> Vec<PinnedImageSetStatus> {
    let status = |report: &SetReport| {
        let known = before
            .iter()
            .find(|status| status.name == report.name && !is_of_another(status, report));
        let mut status = known.cloned().unwrap_or_else(|| PinnedImageSetStatus {
            name: report.name.clone(),
            ..PinnedImageSetStatus::default()
        });
        status.desired_generation = Some(report.generation);
        match &report.state {
            SetState::Kept => {
                status.current_generation = Some(report.generation);
                status.last_failed_generation = None;
                status.last_failed_generation_error = None;
            }
            SetState::Awaited => {}
            SetState::Failed { error } => {
                status.last_failed_generation = Some(report.generation);
                status.last_failed_generation_error = Some(shortened(error));
            }
        }
        status
    };
    reports.iter().map(status).collect()
}

/// Returns the status that must be written before `after`: generations must not decrease, so a set that was deleted
/// and recreated under the same name must be removed first.
pub fn forgotten(
    before: &[PinnedImageSetStatus],
    after: &[PinnedImageSetStatus],
) -> Option<Vec<PinnedImageSetStatus>> {
    let decreases = |old: &PinnedImageSetStatus| {
        after
            .iter()
            .any(|new| new.name == old.name && new.desired_generation < old.desired_generation)
    };
    let remaining: Vec<PinnedImageSetStatus> = before.iter().filter(|old| !decreases(old)).cloned().collect();
    (remaining.len() < before.len()).then_some(remaining)
}

fn is_of_another(status: &PinnedImageSetStatus, report: &SetReport) -> bool {
    status.desired_generation > Some(report.generation)
}

/// Returns all conditions with the two about images updated. Transition times change only with a condition's status.
pub fn conditions(before: &[Condition], keeping: &Keeping, now: &Time) -> Vec<Condition> {
    let (progressing, degraded) = match keeping {
        Keeping::Done { message } => (
            (status::FALSE, reasons::AS_EXPECTED, message.clone()),
            (status::FALSE, reasons::AS_EXPECTED, message.clone()),
        ),
        Keeping::Prefetching { message } => (
            (status::TRUE, reason::IMAGE_PREFETCH, message.clone()),
            (status::FALSE, reasons::AS_EXPECTED, message.clone()),
        ),
        Keeping::Failed { message } => (
            (
                status::TRUE,
                reason::IMAGE_PREFETCH,
                "Waiting to retry after a failure".to_owned(),
            ),
            (status::TRUE, reason::PREFETCH_FAILED, shortened(message)),
        ),
    };
    let mut after = before.to_vec();
    set(&mut after, type_::PINNED_IMAGE_SETS_PROGRESSING, progressing, now);
    set(&mut after, type_::PINNED_IMAGE_SETS_DEGRADED, degraded, now);
    after
}

fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    (status, reason, message): (&str, &str, String),
    now: &Time,
) {
    let known = conditions.iter().find(|condition| condition.type_ == type_);
    let unchanged = known.filter(|condition| condition.status == status);
    let condition = Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: unchanged.map_or_else(|| now.clone(), |it| it.last_transition_time.clone()),
        observed_generation: None,
    };
    match conditions.iter_mut().find(|condition| condition.type_ == type_) {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(LONGEST_ERROR).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn report(generation: i32, state: SetState) -> Vec<SetReport> {
        vec![SetReport {
            name: "a".to_owned(),
            generation,
            state,
        }]
    }

    /// desired, current, failed
    fn numbers(statuses: &[PinnedImageSetStatus]) -> Vec<(Option<i32>, Option<i32>, Option<i32>)> {
        let numbers = |status: &PinnedImageSetStatus| {
            assert_eq!(
                status.last_failed_generation.is_some(),
                status.last_failed_generation_error.is_some()
            );
            (
                status.desired_generation,
                status.current_generation,
                status.last_failed_generation,
            )
        };
        statuses.iter().map(numbers).collect()
    }

    #[test]
    fn a_sets_status_follows_its_generations_and_never_goes_back() {
        let failed = |error: &str| SetState::Failed {
            error: error.to_owned(),
        };
        let mut known = Vec::new();
        for (name, generation, state, expected) in [
            ("just seen", 1, SetState::Awaited, (Some(1), None, None)),
            ("there", 1, SetState::Kept, (Some(1), Some(1), None)),
            ("changed", 2, SetState::Awaited, (Some(2), Some(1), None)),
            ("failed", 2, failed("x"), (Some(2), Some(1), Some(2))),
            ("tried again", 2, SetState::Awaited, (Some(2), Some(1), Some(2))),
            (
                "changed meanwhile",
                3,
                SetState::Awaited,
                (Some(3), Some(1), Some(2)),
            ),
            ("there at last", 3, SetState::Kept, (Some(3), Some(3), None)),
        ] {
            let after = set_statuses(&known, &report(generation, state));
            assert_eq!(numbers(&after), [expected], "{name}");
            assert_eq!(forgotten(&known, &after), None, "{name}");
            known = after;
        }
        let again = set_statuses(&known, &report(1, SetState::Awaited));
        assert_eq!(
            numbers(&again),
            [(Some(1), None, None)],
            "made again under its old name"
        );
        assert_eq!(forgotten(&known, &again), Some(Vec::new()));
        assert_eq!(
            set_statuses(&again, &[]),
            [],
            "sets that are gone are not mentioned"
        );
        let long = set_statuses(&[], &report(1, failed(&"ä".repeat(5000))));
        let error = long[0].last_failed_generation_error.as_ref().unwrap();
        assert_eq!(error.chars().count(), LONGEST_ERROR);
    }

    #[test]
    fn conditions_about_images_leave_all_others_alone() {
        let at = |second: i64| Time(Timestamp::from_second(second).unwrap());
        let other = Condition {
            type_: type_::UPDATED.to_owned(),
            status: status::TRUE.to_owned(),
            reason: "Updated".to_owned(),
            message: String::new(),
            last_transition_time: at(0),
            observed_generation: None,
        };
        let text = |text: &str| text.to_owned();
        let mut known = vec![other.clone()];
        for (second, keeping, expected) in [
            (
                1,
                Keeping::Prefetching { message: text("p") },
                "True/ImagePrefetch@1 False/AsExpected@1",
            ),
            (
                2,
                Keeping::Failed { message: text("f") },
                "True/ImagePrefetch@1 True/PrefetchFailed@2",
            ),
            (
                3,
                Keeping::Failed { message: text("g") },
                "True/ImagePrefetch@1 True/PrefetchFailed@2",
            ),
            (
                4,
                Keeping::Done { message: text("d") },
                "False/AsExpected@4 False/AsExpected@4",
            ),
        ] {
            known = conditions(&known, &keeping, &at(second));
            assert_eq!(known[0], other);
            let shown: Vec<String> = known[1..]
                .iter()
                .map(|it| {
                    let since = it.last_transition_time.0.as_second();
                    format!("{}/{}@{since}", it.status, it.reason)
                })
                .collect();
            assert_eq!(shown.join(" "), expected, "{keeping:?}");
            assert_eq!(known.len(), 3);
        }
    }
}
