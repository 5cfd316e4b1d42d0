//! The conditions of a MachineConfigNode during an update.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use mco_core::rollout::node_progress::{
    Applied, Phase, complete, config_version, observed_generation, report, report_all, report_while_degraded,
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

fn step(conditions: &[Condition], phase: &Phase, second: i64) -> Vec<Condition> {
    report(conditions, phase, "n", "rendered-1", &time(second))
        .unwrap_or_else(|| panic!("{phase:?} changed nothing"))
}

#[test]
fn an_update_with_a_reboot_step_by_step() {
    let executed = "UpdateExecuted=Unknown";
    let prepared = "UpdatePrepared=True:UpdatePrepared";
    let applied = "UpdateExecuted=True:AppliedFilesAndOS Cordoned=True:UpdateExecutedCordoned \
                   Drained=True:UpdateExecutedDrained AppliedFilesAndOS=True:UpdateExecutedAppliedFilesAndOS";
    let story = [
        (Phase::NeedsUpdate, String::new()),
        (
            Phase::Prepared {
                post_actions: vec![],
                drain_required: true,
            },
            prepared.to_owned(),
        ),
        (
            Phase::Cordoned,
            format!("{prepared} {executed}:Cordoned Cordoned=True:UpdateExecutedCordoned"),
        ),
        (
            Phase::Draining,
            format!(
                "{prepared} {executed}:Drained Cordoned=True:UpdateExecutedCordoned Drained=Unknown:UpdateExecutedDrained"
            ),
        ),
        (
            Phase::Drained,
            format!(
                "{prepared} {executed}:Drained Cordoned=True:UpdateExecutedCordoned Drained=True:UpdateExecutedDrained"
            ),
        ),
        (
            Phase::Applying(Applied::FilesAndOs),
            format!(
                "{prepared} {executed}:AppliedFilesAndOS Cordoned=True:UpdateExecutedCordoned Drained=True:UpdateExecutedDrained AppliedFilesAndOS=Unknown:UpdateExecutedAppliedFilesAndOS"
            ),
        ),
        (
            Phase::Applied(Applied::FilesAndOs),
            format!("{prepared} {applied}"),
        ),
        (
            Phase::RebootPending,
            format!("{prepared} {applied} RebootedNode=Unknown:RebootedNode"),
        ),
        (
            Phase::Rebooted,
            format!("{prepared} {applied} RebootedNode=True:RebootedNode"),
        ),
        (
            Phase::Resumed,
            format!("{prepared} {applied} RebootedNode=True:RebootedNode Resumed=True:Resumed"),
        ),
        (
            Phase::Uncordoned,
            format!(
                "{prepared} {applied} RebootedNode=True:RebootedNode Resumed=True:Resumed UpdateComplete=True:Uncordoned Uncordoned=True:UpdateCompleteUncordoned"
            ),
        ),
        (Phase::Updated, "Updated=True:Updated".to_owned()),
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
        (Phase::NeedsUpdate, "Updated", "Node n needs an update"),
        (
            Phase::Prepared {
                post_actions: vec!["reload crio".to_owned()],
                drain_required: false,
            },
            "UpdatePrepared",
            "Update Compatible. Post Cfg Actions: [reload crio] Drain Required: false",
        ),
        (
            Phase::DrainNotRequired,
            "Drained",
            "Node Drain Not required for this update.",
        ),
        (Phase::RebootPending, "RebootedNode", "Upgrade requires a reboot."),
        (Phase::Succeeded, "NodeDegraded", "Node n upgrade succeeded"),
        (
            Phase::Failed {
                error: "disk full".to_owned(),
            },
            "NodeDegraded",
            "Node n upgrade failure. disk full",
        ),
        (
            Phase::Cordoned,
            "Uncordoned",
            "This node has not yet entered the Uncordoned phase",
        ),
    ];
    for (phase, type_, expected) in cases {
        assert_eq!(message(&step(&[], &phase, 0), type_), expected, "{phase:?}");
    }
    let none = step(&[], &Phase::PostActionsDone { actions: vec![] }, 0);
    assert_eq!(shown(&none), "UpdatePostActionComplete=True:None");
    let impossible = step(
        &[],
        &Phase::Incompatible {
            error: "x".to_owned(),
        },
        0,
    );
    assert_eq!(shown(&impossible), "UpdatePrepared=Unknown:UpdatePrepared");
}

#[test]
fn saying_the_same_again_changes_nothing() {
    let before = step(&[], &Phase::Draining, 0);
    assert_eq!(
        report(&before, &Phase::Draining, "n", "rendered-1", &time(9)),
        None
    );
    let after = step(&before, &Phase::Drained, 9);
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
        &Phase::Failed {
            error: "x".to_owned(),
        },
        0,
    );
    let mut beside = conditions[0].clone();
    beside.type_ = "PinnedImageSetsDegraded".to_owned();
    beside.status = "True".to_owned();
    conditions.push(beside.clone());
    let after = step(&conditions, &Phase::NeedsUpdate, 5);
    assert_eq!(shown(&after), "PinnedImageSetsDegraded=True:NotYetOccurred");
    assert_eq!(after.last(), Some(&beside));
    assert_eq!(
        message(&after, "NodeDegraded"),
        "Action during update to rendered-1: Node n upgrade failure. x"
    );
}

#[test]
fn a_retry_does_not_clear_node_degraded_while_the_node_is_degraded() {
    let failed = Phase::Failed {
        error: "disk full".to_owned(),
    };
    let mut conditions = step(&step(&[], &Phase::NeedsUpdate, 0), &failed, 1);
    let retry = [
        Phase::NeedsUpdate,
        Phase::Prepared {
            post_actions: vec![],
            drain_required: true,
        },
        Phase::Applying(Applied::Files),
    ];
    for (second, phase) in (2..).zip(retry) {
        let now = time(second);
        let after = report_while_degraded(&conditions, &phase, "disk full", "n", "rendered-1", &now);
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
        &Phase::Applying(Applied::Files),
        "disk full",
        "n",
        "rendered-1",
        &time(9),
    );
    assert_eq!(again, None, "nothing has changed");
    let empty = report_while_degraded(&[], &Phase::NeedsUpdate, "disk full", "n", "rendered-1", &time(9));
    assert_eq!(shown(&empty.unwrap()), "NodeDegraded=True:NodeDegraded");
}

#[test]
fn steps_that_an_object_misses_do_not_hide_what_another_writer_has_reported() {
    let drain = [Phase::Cordoned, Phase::Draining];
    let mut by_controller = report_all(&[], &drain, "n", "rendered-1", &time(5)).unwrap();
    let mut beside = by_controller[0].clone();
    beside.type_ = "PinnedImageSetsDegraded".to_owned();
    by_controller.push(beside.clone());
    let prepared = Phase::Prepared {
        post_actions: vec![],
        drain_required: true,
    };
    let by_daemon = step(&step(&[], &Phase::NeedsUpdate, 9), &prepared, 9);
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
        &Phase::Prepared {
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
    let drain = [Phase::Cordoned, Phase::Draining, Phase::Drained];
    let reported =
        |conditions: &[Condition], second| report_all(conditions, &drain, "n", "rendered-1", &time(second));
    let begun = step(&[], &Phase::NeedsUpdate, 1);
    let drained = reported(&begun, 2).unwrap();
    assert_eq!(
        shown(&drained),
        "UpdateExecuted=Unknown:Drained Cordoned=True:UpdateExecutedCordoned Drained=True:UpdateExecutedDrained"
    );
    assert_eq!(reported(&drained, 3), None);
}
