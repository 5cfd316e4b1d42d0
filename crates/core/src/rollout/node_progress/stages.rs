//! A node's update in the five stages that administrators see: cordon, drain, apply, reboot, done.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use mco_api::vocabulary::conditions::machine_config_node as type_;
use mco_api::vocabulary::conditions::status;
use serde::Serialize;

use crate::rollout::image_mode_status::ImageModeStatus;
use crate::rollout::messages::PastUpdateStep;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UpdateStage {
    Cordon,
    Drain,
    Apply,
    Reboot,
    Done,
}

impl UpdateStage {
    pub const ALL: [Self; 5] = [Self::Cordon, Self::Drain, Self::Apply, Self::Reboot, Self::Done];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cordon => "cordon",
            Self::Drain => "drain",
            Self::Apply => "apply",
            Self::Reboot => "reboot",
            Self::Done => "done",
        }
    }

    fn condition(self, mode: ImageModeStatus) -> &'static str {
        match self {
            Self::Cordon => type_::CORDONED,
            Self::Drain => type_::DRAINED,
            Self::Apply if mode == ImageModeStatus::On => type_::APPLIED_FILES,
            Self::Apply => type_::APPLIED_FILES_AND_OS,
            Self::Reboot => type_::REBOOTED_NODE,
            Self::Done => type_::UPDATED,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StageState {
    Pending,
    Running,
    Done,
    /// This update does not need it.
    Skipped,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StageReport {
    pub stage: UpdateStage,
    pub state: StageState,
    /// The time of the last transition, as far as the conditions record it: for a finished update only its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Returns the stages of a node's current update, or of the last one if it is done.
pub fn stages(conditions: &[Condition]) -> [StageReport; 5] {
    let find = |wanted: &str| conditions.iter().find(|condition| condition.type_ == wanted);
    let arrived = find(type_::UPDATED).filter(|updated| updated.status == status::TRUE);
    let mode = ImageModeStatus::of_conditions(conditions).unwrap_or_default();
    let mut reports = UpdateStage::ALL.map(|stage| {
        let condition = find(stage.condition(mode));
        match arrived {
            Some(arrived) => of_finished(stage, condition, arrived),
            None => of_running(stage, condition),
        }
    });
    if arrived.is_none() {
        let no_reboot =
            find(type_::UPDATE_POST_ACTION_COMPLETE).is_some_and(|done| done.status == status::TRUE);
        settle(&mut reports, no_reboot);
        let degraded = find(type_::NODE_DEGRADED).filter(|degraded| degraded.status == status::TRUE);
        if let Some(degraded) = degraded {
            fail(&mut reports, degraded);
        }
    }
    reports
}

/// Returns a stage of a finished update. On completion all its conditions are closed at the same time; older
/// conditions belong to an earlier update.
fn of_finished(stage: UpdateStage, condition: Option<&Condition>, arrived: &Condition) -> StageReport {
    let took_part = condition.filter(|condition| {
        let closed = PastUpdateStep::parse(&condition.message).is_some() || stage == UpdateStage::Done;
        closed && condition.last_transition_time.0 >= arrived.last_transition_time.0
    });
    StageReport {
        stage,
        state: match took_part {
            Some(_) => StageState::Done,
            None => StageState::Skipped,
        },
        since: took_part.map(|condition| condition.last_transition_time.0),
        message: took_part.map_or_else(String::new, |condition| condition.message.clone()),
    }
}

fn of_running(stage: UpdateStage, condition: Option<&Condition>) -> StageReport {
    let begun = condition.filter(|condition| condition.status != status::FALSE);
    StageReport {
        stage,
        state: match begun.map(|condition| condition.status.as_str()) {
            None => StageState::Pending,
            Some(status::TRUE) => StageState::Done,
            Some(_) => StageState::Running,
        },
        since: begun.map(|condition| condition.last_transition_time.0),
        message: begun.map_or_else(String::new, |condition| condition.message.clone()),
    }
}

/// Completes the stages before the current one: done if they started, skipped if not.
fn settle(reports: &mut [StageReport; 5], no_reboot: bool) {
    let last = reports
        .iter()
        .rposition(|report| report.state != StageState::Pending);
    for report in reports.iter_mut().take(last.unwrap_or(0)) {
        report.state = match report.state {
            StageState::Pending => StageState::Skipped,
            StageState::Running => StageState::Done,
            settled => settled,
        };
    }
    for report in reports {
        if no_reboot && report.stage == UpdateStage::Reboot && report.state == StageState::Pending {
            report.state = StageState::Skipped;
        }
    }
}

fn fail(reports: &mut [StageReport; 5], degraded: &Condition) {
    let open = |state: StageState| move |report: &&mut StageReport| report.state == state;
    let running = reports.iter().any(|report| report.state == StageState::Running);
    let wanted = if running {
        StageState::Running
    } else {
        StageState::Pending
    };
    if let Some(report) = reports.iter_mut().find(open(wanted)) {
        report.state = StageState::Failed;
        report.since = Some(degraded.last_transition_time.0);
        report.message.clone_from(&degraded.message);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::rollout::image_mode_status::ImageModeStatus;
    use crate::rollout::node_progress::{Applied, UpdatePhase, report};

    /// The stages after some phases, one second each: `d`one, `r`unning, `-` skipped, `.` pending, `f`ailed.
    fn after(phases: &[UpdatePhase]) -> String {
        let mut conditions = Vec::new();
        for (second, phase) in (0_i64..).zip(phases) {
            let now = Time(Timestamp::from_second(second).unwrap());
            conditions = report(&conditions, phase, "a", "rendered-1", &now, ImageModeStatus::Off)
                .unwrap_or(conditions);
        }
        let letter = |report: &StageReport| match report.state {
            StageState::Pending => '.',
            StageState::Running => 'r',
            StageState::Done => 'd',
            StageState::Skipped => '-',
            StageState::Failed => 'f',
        };
        stages(&conditions).iter().map(letter).collect()
    }

    fn prepared() -> UpdatePhase {
        UpdatePhase::Prepared {
            post_actions: Vec::new(),
            drain_required: true,
        }
    }

    #[test]
    fn an_update_goes_through_its_stages_one_by_one() {
        let update = [
            (UpdatePhase::NeedsUpdate, "....."),
            (prepared(), "....."),
            (UpdatePhase::Cordoned, "d...."),
            (UpdatePhase::Draining, "dr..."),
            (UpdatePhase::Drained, "dd..."),
            (UpdatePhase::Applying(Applied::Files), "ddr.."),
            (UpdatePhase::Applied(Applied::Files), "ddd.."),
            (UpdatePhase::RebootPending, "dddr."),
            (UpdatePhase::Rebooted, "dddd."),
            (UpdatePhase::Resumed, "dddd."),
            (UpdatePhase::Updated, "ddddd"),
        ];
        let phases: Vec<UpdatePhase> = update.iter().map(|(phase, _)| phase.clone()).collect();
        for (index, (_, expected)) in update.iter().enumerate() {
            assert_eq!(after(&phases[..=index]), *expected, "after {:?}", phases[index]);
        }
    }

    #[test]
    fn an_update_without_drain_and_reboot_skips_these_stages_regardless_of_the_previous_one() {
        let mut phases = vec![
            UpdatePhase::NeedsUpdate,
            UpdatePhase::Cordoned,
            UpdatePhase::Drained,
            UpdatePhase::Applied(Applied::Files),
            UpdatePhase::Rebooted,
            UpdatePhase::Updated,
            UpdatePhase::NeedsUpdate,
        ];
        assert_eq!(after(&phases), ".....", "a new update has done nothing yet");
        phases.extend([
            UpdatePhase::DrainNotRequired,
            UpdatePhase::Applied(Applied::Files),
        ]);
        assert_eq!(after(&phases), "--d..");
        phases.push(UpdatePhase::PostActionsDone { actions: Vec::new() });
        assert_eq!(after(&phases), "--d-.");
        phases.push(UpdatePhase::Updated);
        assert_eq!(after(&phases), "--d-d");
    }

    #[test]
    fn what_was_not_needed_is_not_taken_for_done_when_everything_happens_within_a_second() {
        let now = Time(Timestamp::UNIX_EPOCH);
        let mut conditions = Vec::new();
        for phase in [
            UpdatePhase::NeedsUpdate,
            UpdatePhase::DrainNotRequired,
            UpdatePhase::Applied(Applied::Files),
            UpdatePhase::Updated,
        ] {
            conditions = report(&conditions, &phase, "a", "rendered-1", &now, ImageModeStatus::Off)
                .unwrap_or(conditions);
        }
        let states = stages(&conditions).map(|report| report.state);
        let (skipped, done) = (StageState::Skipped, StageState::Done);
        assert_eq!(states, [skipped, skipped, done, skipped, done]);
    }

    #[test]
    fn a_failure_is_shown_where_it_happened() {
        let failed = UpdatePhase::Failed {
            error: "disk full".to_owned(),
        };
        let before = [UpdatePhase::NeedsUpdate, failed.clone()];
        assert_eq!(after(&before), "f....");
        let during = [
            UpdatePhase::NeedsUpdate,
            UpdatePhase::Cordoned,
            UpdatePhase::Drained,
            UpdatePhase::Applying(Applied::Files),
            failed,
        ];
        assert_eq!(after(&during), "ddf..");
    }
}
