//! The conditions of a MachineConfigNode during an update.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use mco_core::rollout::image_mode_status::ImageModeStatus;
use mco_core::rollout::node_progress::{
    Applied, UpdatePhase, complete, config_version, observed_generation, report, report_all,
    report_while_degraded,
};

use crate::fixtures::*;

/// Conditions that are not False, as `Type=Status:Reason`.
fn shown(conditions: &[Condition]) -> String {
    let shown = conditions
        .iter()
        .filter(|condition| condition.status != "False")
        .map(|condition| format!("{}={}:{}", condition.type_, condition.status, condition.reason));
    shown.collect::<Vec<_>>().join(" ")
}

fn message<'a>(conditions: &'a [Condition], type_: &str) -> &'a str {
    &conditions
        .iter()
        .find(|condition| condition.type_ == type_)
        .unwrap()
        .message
}

fn step(conditions: &[Condition], phase: &UpdatePhase, second: i64) -> Vec<Condition> {
    report(
        conditions,
        phase,
        "n",
        "rendered-1",
        &time(second),
        ImageModeStatus::Off,
    )
    .unwrap_or_else(|| panic!("{phase:?} changed nothing"))
}

#[test]
fn an_update_with_a_reboot_step_by_step() {
    let executed = "UpdateExecuted=Unknown";
    let prepared = "UpdatePrepared=True:UpdatePrepared";
    let applied = "UpdateExecuted=True:AppliedFilesAndOS Cordoned=True:UpdateExecutedCordoned \
                   Drained=True:UpdateExecutedDrained AppliedFilesAndOS=True:UpdateExecutedAppliedFilesAndOS";
    let story = [
        (UpdatePhase::NeedsUpdate, String::new()),
        (
            UpdatePhase::Prepared {
                post_actions: vec![],
                drain_required: true,
            },
            prepared.to_owned(),
        ),
        (
            UpdatePhase::Cordoned,
            format!("{prepared} {executed}:Cordoned Cordoned=True:UpdateExecutedCordoned"),
        ),
        (
            UpdatePhase::Draining,
            format!(
                "{prepared} {executed}:Drained Cordoned=True:UpdateExecutedCordoned Drained=Unknown:UpdateExecutedDrained"
            ),
        ),
        (
            UpdatePhase::Drained,
            format!(
                "{prepared} {executed}:Drained Cordoned=True:UpdateExecutedCordoned Drained=True:UpdateExecutedDrained"
            ),
        ),
        (
            UpdatePhase::Applying(Applied::FilesAndOs),
            format!(
                "{prepared} {executed}:AppliedFilesAndOS Cordoned=True:UpdateExecutedCordoned Drained=True:UpdateExecutedDrained AppliedFilesAndOS=Unknown:UpdateExecutedAppliedFilesAndOS"
            ),
        ),
        (
            UpdatePhase::Applied(Applied::FilesAndOs),
            format!("{prepared} {applied}"),
        ),
        (
            UpdatePhase::RebootPending,
            format!("{prepared} {applied} RebootedNode=Unknown:RebootedNode"),
        ),
        (
            UpdatePhase::Rebooted,
            format!("{prepared} {applied} RebootedNode=True:RebootedNode"),
        ),
        (
            UpdatePhase::Resumed,
            format!("{prepared} {applied} RebootedNode=True:RebootedNode Resumed=True:Resumed"),
        ),
        (
            UpdatePhase::Uncordoned,
            format!(
                "{prepared} {applied} RebootedNode=True:RebootedNode Resumed=True:Resumed UpdateComplete=True:Uncordoned Uncordoned=True:UpdateCompleteUncordoned"
            ),
        ),
        (UpdatePhase::Updated, "Updated=True:Updated".to_owned()),
    ];
    let mut conditions = Vec::new();
    for (second, (phase, expected)) in (0..).zip(story) {
        conditions = step(&conditions, &phase, second);
        assert_eq!(shown(&conditions), expected, "{phase:?}");
        assert_eq!(conditions.len(), 12, "all steps are always shown: {phase:?}");
    }
    assert_eq!(message(&conditions, "Updated"), "Node n Updated");
    assert_eq!(
        message(&conditions, "RebootedNode"),
        "Action during update to rendered-1: Node n has rebooted"
    );
}

#[test]
fn messages_that_people_and_programs_know() {
    let cases = [
        (UpdatePhase::NeedsUpdate, "Updated", "Node n needs an update"),
        (
            UpdatePhase::Prepared {
                post_actions: vec!["reload crio".to_owned()],
                drain_required: false,
            },
            "UpdatePrepared",
            "Update Compatible. Post Cfg Actions: [reload crio] Drain Required: false",
        ),
        (
            UpdatePhase::DrainNotRequired,
            "Drained",
            "Node Drain Not required for this update.",
        ),
        (
            UpdatePhase::RebootPending,
            "RebootedNode",
            "Upgrade requires a reboot.",
        ),
        (UpdatePhase::Succeeded, "NodeDegraded", "Node n upgrade succeeded"),
        (
            UpdatePhase::Failed {
                error: "disk full".to_owned(),
            },
            "NodeDegraded",
            "Node n upgrade failure. disk full",
        ),
        (
            UpdatePhase::Cordoned,
            "Uncordoned",
            "This node has not yet entered the Uncordoned phase",
        ),
    ];
    for (phase, type_, expected) in cases {
        assert_eq!(message(&step(&[], &phase, 0), type_), expected, "{phase:?}");
    }
    let none = step(&[], &UpdatePhase::PostActionsDone { actions: vec![] }, 0);
    assert_eq!(shown(&none), "UpdatePostActionComplete=True:None");
    let impossible = step(
        &[],
        &UpdatePhase::Incompatible {
            error: "x".to_owned(),
        },
        0,
    );
    assert_eq!(shown(&impossible), "UpdatePrepared=Unknown:UpdatePrepared");
}

#[test]
fn saying_the_same_again_changes_nothing() {
    let before = step(&[], &UpdatePhase::Draining, 0);
    assert_eq!(
        report(
            &before,
            &UpdatePhase::Draining,
            "n",
            "rendered-1",
            &time(9),
            ImageModeStatus::Off
        ),
        None
    );
    let after = step(&before, &UpdatePhase::Drained, 9);
    let since = |type_: &str| {
        after
            .iter()
            .find(|condition| condition.type_ == type_)
            .unwrap()
            .last_transition_time
            .clone()
    };
    assert_eq!(since("Drained"), time(9));
    assert_eq!(since("UpdateExecuted"), time(0), "still the same");
}

#[test]
fn a_new_update_forgets_the_failure_of_the_old_and_nothing_of_others() {
    let mut conditions = step(
        &[],
        &UpdatePhase::Failed {
            error: "x".to_owned(),
        },
        0,
    );
    let mut beside = conditions[0].clone();
    beside.type_ = "PinnedImageSetsDegraded".to_owned();
    beside.status = "True".to_owned();
    conditions.push(beside.clone());
    let after = step(&conditions, &UpdatePhase::NeedsUpdate, 5);
    assert_eq!(shown(&after), "PinnedImageSetsDegraded=True:NotYetOccurred");
    assert_eq!(after.last(), Some(&beside));
    assert_eq!(
        message(&after, "NodeDegraded"),
        "Action during update to rendered-1: Node n upgrade failure. x"
    );
}

#[test]
fn a_retry_does_not_clear_node_degraded_while_the_node_is_degraded() {
    let failed = UpdatePhase::Failed {
        error: "disk full".to_owned(),
    };
    let mut conditions = step(&step(&[], &UpdatePhase::NeedsUpdate, 0), &failed, 1);
    let retry = [
        UpdatePhase::NeedsUpdate,
        UpdatePhase::Prepared {
            post_actions: vec![],
            drain_required: true,
        },
        UpdatePhase::Applying(Applied::Files),
    ];
    for (second, phase) in (2..).zip(retry) {
        let now = time(second);
        let after = report_while_degraded(
            &conditions,
            &phase,
            "disk full",
            "n",
            "rendered-1",
            &now,
            ImageModeStatus::Off,
        );
        conditions = after.unwrap_or(conditions);
        let degraded = conditions
            .iter()
            .find(|condition| condition.type_ == "NodeDegraded")
            .unwrap();
        assert_eq!(degraded.status, "True", "{phase:?}");
        assert_eq!(degraded.message, "Node n upgrade failure. disk full", "{phase:?}");
        assert_eq!(degraded.last_transition_time, time(1), "{phase:?}");
    }
    let again = report_while_degraded(
        &conditions,
        &UpdatePhase::Applying(Applied::Files),
        "disk full",
        "n",
        "rendered-1",
        &time(9),
        ImageModeStatus::Off,
    );
    assert_eq!(again, None, "nothing has changed");
    let empty = report_while_degraded(
        &[],
        &UpdatePhase::NeedsUpdate,
        "disk full",
        "n",
        "rendered-1",
        &time(9),
        ImageModeStatus::Off,
    );
    assert_eq!(shown(&empty.unwrap()), "NodeDegraded=True:NodeDegraded");
}

#[test]
fn steps_that_an_object_misses_do_not_hide_what_another_writer_has_reported() {
    let drain = [UpdatePhase::Cordoned, UpdatePhase::Draining];
    let mut by_controller =
        report_all(&[], &drain, "n", "rendered-1", &time(5), ImageModeStatus::Off).unwrap();
    let mut beside = by_controller[0].clone();
    beside.type_ = "PinnedImageSetsDegraded".to_owned();
    by_controller.push(beside.clone());
    let prepared = UpdatePhase::Prepared {
        post_actions: vec![],
        drain_required: true,
    };
    let by_daemon = step(&step(&[], &UpdatePhase::NeedsUpdate, 9), &prepared, 9);
    let after = complete(&by_controller, by_daemon.clone());
    assert_eq!(
        shown(&after),
        "UpdatePrepared=True:UpdatePrepared UpdateExecuted=Unknown:Drained Cordoned=True:UpdateExecutedCordoned \
         Drained=Unknown:UpdateExecutedDrained"
    );
    assert_eq!(message(&after, "Updated"), "Node n needs an update");
    assert_eq!(after.last(), Some(&beside));
    assert_eq!(complete(&after, by_daemon.clone()), after, "also the times stay");
    assert_eq!(complete(&[], by_daemon.clone()), by_daemon);
}

#[test]
fn where_a_node_goes_is_shown_once_it_can() {
    let prepared = step(
        &[],
        &UpdatePhase::Prepared {
            post_actions: vec![],
            drain_required: true,
        },
        0,
    );
    let desired = |current: &str, desired: &str, conditions: &[Condition]| {
        config_version(current, desired, conditions).desired
    };
    assert_eq!(desired("a", "b", &[]), "not-yet-set");
    assert_eq!(desired("a", "b", &prepared), "b");
    assert_eq!(desired("a", "a", &[]), "a");
    assert_eq!(desired("", "", &[]), "not-yet-set");
}

#[test]
fn the_observed_generation_never_decreases() {
    assert_eq!(observed_generation(None, Some(3)), Some(3));
    assert_eq!(observed_generation(Some(4), Some(3)), Some(4));
    assert_eq!(observed_generation(Some(4), Some(5)), Some(5));
}

#[test]
fn steps_that_were_reported_before_are_no_news_although_they_pass_through_others() {
    let drain = [UpdatePhase::Cordoned, UpdatePhase::Draining, UpdatePhase::Drained];
    let reported = |conditions: &[Condition], second| {
        report_all(
            conditions,
            &drain,
            "n",
            "rendered-1",
            &time(second),
            ImageModeStatus::Off,
        )
    };
    let begun = step(&[], &UpdatePhase::NeedsUpdate, 1);
    let drained = reported(&begun, 2).unwrap();
    assert_eq!(
        shown(&drained),
        "UpdateExecuted=Unknown:Drained Cordoned=True:UpdateExecutedCordoned Drained=True:UpdateExecutedDrained"
    );
    assert_eq!(reported(&drained, 3), None);
}

/// The steps of an update with the feature gate `ImageModeStatusReporting`.
#[test]
fn with_the_feature_gate_image_and_files_are_steps_of_their_own() {
    let mode = ImageModeStatus::On;
    let next = |conditions: &[Condition], phase: &UpdatePhase, second| {
        report(conditions, phase, "n", "rendered-1", &time(second), mode)
            .unwrap_or_else(|| panic!("{phase:?} changed nothing"))
    };
    let pulled = "ImagePulledFromRegistry=True:ImagePulledFromRegistry";
    let story = [
        (
            UpdatePhase::PullingImage,
            "ImagePulledFromRegistry=Unknown:ImagePulledFromRegistry".to_owned(),
        ),
        (UpdatePhase::ImagePulled, pulled.to_owned()),
        (
            UpdatePhase::Applying(Applied::FilesAndOs),
            format!(
                "UpdateExecuted=Unknown:AppliedOSImage {pulled} AppliedFiles=Unknown:UpdateExecutedAppliedFiles \
                 AppliedOSImage=Unknown:UpdateExecutedAppliedOSImage"
            ),
        ),
        (
            UpdatePhase::Applied(Applied::FilesAndOs),
            format!(
                "UpdateExecuted=True:AppliedOSImage {pulled} AppliedFiles=True:UpdateExecutedAppliedFiles \
                 AppliedOSImage=True:UpdateExecutedAppliedOSImage"
            ),
        ),
        (UpdatePhase::Updated, "Updated=True:Updated".to_owned()),
        (
            UpdatePhase::Applied(Applied::Files),
            "Updated=True:Updated UpdateExecuted=True:AppliedFiles AppliedFiles=True:UpdateExecutedAppliedFiles"
                .to_owned(),
        ),
        (
            UpdatePhase::ImagePullFailed {
                error: "unauthorized".to_owned(),
            },
            "Updated=True:Updated UpdateExecuted=True:AppliedFiles AppliedFiles=True:UpdateExecutedAppliedFiles"
                .to_owned(),
        ),
    ];
    let mut conditions = Vec::new();
    for (second, (phase, expected)) in (0..).zip(story) {
        conditions = next(&conditions, &phase, second);
        assert_eq!(shown(&conditions), expected, "{phase:?}");
        assert_eq!(conditions.len(), 14, "all steps are always shown: {phase:?}");
    }
    assert_eq!(
        message(&conditions, "ImagePulledFromRegistry"),
        "Node n could not pull the image: unauthorized"
    );
}

#[test]
fn a_changed_feature_gate_replaces_the_steps_of_the_other_setting() {
    let types = |conditions: &[Condition]| {
        let types = conditions.iter().map(|condition| condition.type_.clone());
        types
            .filter(|type_| type_.contains("Applied"))
            .collect::<Vec<_>>()
    };
    let applied = UpdatePhase::Applied(Applied::FilesAndOs);
    let begin = UpdatePhase::NeedsUpdate;
    let off = step(&[], &applied, 0);
    assert_eq!(types(&off), ["AppliedFilesAndOS"]);
    assert_eq!(ImageModeStatus::of_conditions(&off), Some(ImageModeStatus::Off));
    let on = report(&off, &begin, "n", "rendered-2", &time(1), ImageModeStatus::On).unwrap();
    assert_eq!(types(&on), ["AppliedFiles", "AppliedOSImage"]);
    assert_eq!(ImageModeStatus::of_conditions(&on), Some(ImageModeStatus::On));
    assert_eq!(
        types(&complete(&off, on.clone())),
        ["AppliedFiles", "AppliedOSImage"]
    );
    let again = step(&on, &begin, 2);
    assert_eq!(types(&again), ["AppliedFilesAndOS"]);
    assert_eq!(
        report(
            &again,
            &UpdatePhase::PullingImage,
            "n",
            "rendered-2",
            &time(3),
            ImageModeStatus::Off
        ),
        None
    );
    assert_eq!(ImageModeStatus::of_conditions(&[]), None);
}
