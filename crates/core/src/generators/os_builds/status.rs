//! The state of a build: derived from its Job, stored as conditions, and which changes of it are allowed.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use mco_api::MachineOSBuild;
use mco_api::machine_os_build::{MachineOSBuildStatus, MachineOSBuilderReference};
use mco_api::machine_os_config::GroupResourceReference;
use mco_api::vocabulary::conditions::{machine_os_build as condition, status};
use mco_api::vocabulary::names;
use mco_api::vocabulary::reasons::machine_os_build as reason;

/// After this many failed pods a Job is given up.
const GIVEN_UP: i32 = 3;

/// The state of an image build: the first that applies, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildState {
    Prepared,
    Building,
    Succeeded,
    Failed,
    Interrupted,
    /// The build exists, but has no status yet.
    New,
}

impl BuildState {
    /// Whether the build never changes again.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Interrupted)
    }

    /// Whether the build runs or is about to.
    pub fn is_running(self) -> bool {
        matches!(self, Self::Prepared | Self::Building)
    }

    /// Returns the name of the state in metrics and in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "pending",
            Self::Prepared => "prepared",
            Self::Building => "building",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

const STATES: [(&str, BuildState, &str, &str); 5] = [
    (
        condition::PREPARED,
        BuildState::Prepared,
        reason::PREPARED,
        "Build Prepared and Pending",
    ),
    (
        condition::BUILDING,
        BuildState::Building,
        reason::BUILDING,
        "Image Build In Progress",
    ),
    (
        condition::FAILED,
        BuildState::Failed,
        reason::FAILED,
        "Build Failed",
    ),
    (
        condition::INTERRUPTED,
        BuildState::Interrupted,
        reason::INTERRUPTED,
        "Build Interrupted",
    ),
    (
        condition::SUCCEEDED,
        BuildState::Succeeded,
        reason::READY,
        "Build Ready",
    ),
];

/// Returns the state that a build's conditions describe.
pub fn build_state(build: &MachineOSBuild) -> BuildState {
    let conditions = build
        .status
        .as_ref()
        .map_or(&[][..], |status| status.conditions.as_slice());
    let holds = |type_: &str| {
        conditions
            .iter()
            .any(|condition| condition.type_ == type_ && condition.status == status::TRUE)
    };
    let state = [
        (condition::PREPARED, BuildState::Prepared),
        (condition::BUILDING, BuildState::Building),
        (condition::SUCCEEDED, BuildState::Succeeded),
        (condition::FAILED, BuildState::Failed),
        (condition::INTERRUPTED, BuildState::Interrupted),
    ]
    .into_iter()
    .find(|(type_, _)| holds(type_));
    state.map_or(BuildState::New, |(_, state)| state)
}

/// What is read of a Job.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact about the Job")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobView {
    pub is_deleting: bool,
    pub active: i32,
    pub succeeded: i32,
    pub failed: i32,
    pub has_uncounted_pods: bool,
    pub has_conditions: bool,
    pub is_complete: bool,
    pub has_failed: bool,
}

impl From<&Job> for JobView {
    fn from(job: &Job) -> Self {
        let status = job.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let holds = |type_: &str| {
            conditions
                .iter()
                .any(|condition| condition.type_ == type_ && condition.status == status::TRUE)
        };
        Self {
            is_deleting: job.metadata.deletion_timestamp.is_some(),
            active: status.active.unwrap_or_default(),
            succeeded: status.succeeded.unwrap_or_default(),
            failed: status.failed.unwrap_or_default(),
            has_uncounted_pods: status.uncounted_terminated_pods.is_some(),
            has_conditions: !conditions.is_empty(),
            is_complete: holds("Complete"),
            has_failed: holds("Failed"),
        }
    }
}

/// Returns the state of a build from its Job.
pub fn job_state(job: JobView) -> BuildState {
    let is_unfinished = job.succeeded == 0 && job.failed <= GIVEN_UP;
    if job.is_deleting && is_unfinished {
        return BuildState::Interrupted;
    }
    if job.active == 0 && job.succeeded == 0 && job.failed == 0 && !job.has_uncounted_pods {
        return BuildState::Prepared;
    }
    if is_unfinished && !job.has_failed {
        return BuildState::Building;
    }
    if job.succeeded > 0 {
        return match job {
            JobView {
                is_complete: true, ..
            }
            | JobView {
                has_conditions: false,
                ..
            } => BuildState::Succeeded,
            JobView { has_failed: true, .. } => BuildState::Failed,
            _ => BuildState::Building,
        };
    }
    BuildState::Failed
}

/// Whether a build may go from one state to another. A final state is never left, and a build does not become
/// Prepared again.
pub fn may_change(from: BuildState, to: BuildState) -> bool {
    match (from, to) {
        (BuildState::New, to) => to != BuildState::New,
        (BuildState::Prepared, BuildState::Building) => true,
        (BuildState::Prepared | BuildState::Building, to) => to.is_final(),
        _ => false,
    }
}

/// Returns the five conditions of a state. Conditions that do not change keep their time.
pub fn conditions(before: &[Condition], state: BuildState, now: &Time) -> Vec<Condition> {
    with_texts(before, state, now, |_, reason, message| {
        (reason.to_owned(), message.to_owned())
    })
}

/// The same with other reasons and messages, chosen by whether a condition holds.
pub(super) fn with_texts(
    before: &[Condition],
    state: BuildState,
    now: &Time,
    texts: impl Fn(bool, &str, &str) -> (String, String),
) -> Vec<Condition> {
    let all = STATES.into_iter().map(|(type_, of, reason, message)| {
        let holds = of == state;
        let value = if holds { status::TRUE } else { status::FALSE };
        let (reason, message) = texts(holds, reason, message);
        let unchanged = before
            .iter()
            .find(|old| old.type_ == type_ && old.status == value);
        Condition {
            type_: type_.to_owned(),
            status: value.to_owned(),
            reason,
            message,
            last_transition_time: unchanged
                .map_or_else(|| now.clone(), |old| old.last_transition_time.clone()),
            observed_generation: None,
        }
    });
    all.collect()
}

/// Returns the status of a build in a new state, or `None` if the state may not change to it. The times of the build
/// are set once.
pub fn with_state(
    build: &MachineOSBuild,
    state: BuildState,
    job: Option<&Job>,
    now: &Time,
) -> Option<MachineOSBuildStatus> {
    if !may_change(build_state(build), state) {
        return None;
    }
    let mut status = build.status.clone().unwrap_or_default();
    status.conditions = conditions(&status.conditions, state, now);
    let Some(job) = job else {
        return Some(status);
    };
    let created = job.metadata.creation_timestamp.clone();
    let start = match created {
        Some(created) if state.is_final() => created,
        _ => now.clone(),
    };
    let start = status.build_start.get_or_insert(start).clone();
    if state.is_final() && status.build_end.is_none() {
        // Times have no fractions of a second, and the end must be after the start.
        let earliest = start
            .0
            .checked_add(std::time::Duration::from_secs(1))
            .unwrap_or(start.0);
        status.build_end = Some(Time(now.0.max(earliest)));
    }
    status.builder = Some(MachineOSBuilderReference {
        image_builder_type: "Job".to_owned(),
        job: Some(GroupResourceReference {
            group: "batch".to_owned(),
            resource: "jobs".to_owned(),
            namespace: names::NAMESPACE.to_owned(),
            name: job.metadata.name.clone().unwrap_or_default(),
        }),
    });
    Some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_follows_the_job() {
        let idle = JobView::default();
        let running = JobView { active: 1, ..idle };
        for (job, expected) in [
            (idle, BuildState::Prepared),
            (running, BuildState::Building),
            (
                JobView {
                    has_uncounted_pods: true,
                    ..idle
                },
                BuildState::Building,
            ),
            (JobView { failed: 3, ..idle }, BuildState::Building),
            (JobView { failed: 4, ..idle }, BuildState::Failed),
            (
                JobView {
                    failed: 1,
                    has_failed: true,
                    has_conditions: true,
                    ..idle
                },
                BuildState::Failed,
            ),
            (JobView { succeeded: 1, ..idle }, BuildState::Succeeded),
            (
                JobView {
                    succeeded: 1,
                    has_conditions: true,
                    is_complete: true,
                    ..idle
                },
                BuildState::Succeeded,
            ),
            (
                JobView {
                    succeeded: 1,
                    has_conditions: true,
                    ..idle
                },
                BuildState::Building,
            ),
            (
                JobView {
                    is_deleting: true,
                    ..running
                },
                BuildState::Interrupted,
            ),
            (
                JobView {
                    is_deleting: true,
                    failed: 4,
                    ..idle
                },
                BuildState::Failed,
            ),
            (
                JobView {
                    is_deleting: true,
                    succeeded: 1,
                    ..idle
                },
                BuildState::Succeeded,
            ),
        ] {
            assert_eq!(job_state(job), expected, "{job:?}");
        }
    }

    #[test]
    fn a_final_state_is_never_left() {
        use BuildState::{Building, Failed, Interrupted, New, Prepared, Succeeded};
        let all = [New, Prepared, Building, Succeeded, Failed, Interrupted];
        for from in all {
            for to in all {
                let allowed = match from {
                    New => to != New,
                    Prepared => to == Building || to.is_final(),
                    Building => to.is_final(),
                    Succeeded | Failed | Interrupted => false,
                };
                assert_eq!(may_change(from, to), allowed, "{from:?} to {to:?}");
            }
        }
    }
}
