//! The timeline of a node's latest update: when each step happened, and how long it took.
//!
//! There are two sources. The conditions of the MachineConfigNode have the steps and times of an update in progress;
//! when it ends, the times are lost. Events report each step as it happens, but they expire after about an hour, and
//! some get lost. No decision is made here, and a step that neither source reports is not inferred.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use mco_api::MachineConfigNode;
use mco_api::vocabulary::conditions::{machine_config_node as type_, status};
use mco_api::vocabulary::events::{daemon, drain, rollout};
use mco_core::rollout::messages::TargetedNode;
use serde::Serialize;

/// The steps of a node's update, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum UpdateStep {
    /// The pool's controller has set the node's target.
    Asked,
    Prepared,
    Cordoned,
    Draining,
    Drained,
    Applying,
    Applied,
    /// Services were reloaded or restarted, or no action was needed.
    Actions,
    Rebooting,
    Rebooted,
    Uncordoned,
    Done,
    /// A failure; not part of a successful update.
    Trouble,
}

impl UpdateStep {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Prepared => "prepared",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::Applying => "applying",
            Self::Applied => "applied",
            Self::Actions => "actions",
            Self::Rebooting => "rebooting",
            Self::Rebooted => "rebooted",
            Self::Uncordoned => "uncordoned",
            Self::Done => "done",
            Self::Trouble => "trouble",
        }
    }
}

/// One entry of the timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Moment {
    pub at: Timestamp,
    pub step: UpdateStep,
    pub message: String,
    /// Seconds until the next entry; until now if it is the last and the update is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
}

/// The latest update of a node, and later events about it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeline {
    pub moments: Vec<Moment>,
    /// The duration of the update, if it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
}

/// Returns the timeline of a node's latest update. `events` may include events about other nodes, which are filtered
/// out.
pub fn timeline<'a>(
    node: &str,
    progress: Option<&MachineConfigNode>,
    events: impl IntoIterator<Item = &'a Event>,
    now: Timestamp,
) -> Timeline {
    let conditions = progress.and_then(|progress| progress.status.as_ref());
    let conditions = conditions.map_or(&[][..], |status| &status.conditions);
    let mut moments: Vec<Moment> = conditions.iter().filter_map(from_condition).collect();
    moments.extend(events.into_iter().filter_map(|event| from_event(node, event)));
    // Most sources have a resolution of one second; within it, the order of steps decides.
    moments.sort_by_key(|moment| (moment.at.as_second(), moment.step));
    let mut moments = once_each(latest_update(moments));
    let times: Vec<Timestamp> = moments.iter().skip(1).map(|moment| moment.at).collect();
    for (moment, next) in moments.iter_mut().zip(times.into_iter().map(Some).chain([None])) {
        let goes_on = !matches!(moment.step, UpdateStep::Done | UpdateStep::Trouble);
        let until = next.or_else(|| goes_on.then_some(now));
        moment.seconds = until.map(|until| seconds_between(moment.at, until));
    }
    let end = moments.iter().find(|moment| moment.step == UpdateStep::Done);
    let begin = moments.first().filter(|moment| moment.step != UpdateStep::Done);
    let seconds = begin
        .zip(end)
        .map(|(begin, end)| seconds_between(begin.at, end.at));
    Timeline { moments, seconds }
}

fn seconds_between(start: Timestamp, end: Timestamp) -> i64 {
    (end.as_second() - start.as_second()).max(0)
}

/// Returns the entries from the latest request on; without a request, those after the previous update.
fn latest_update(mut moments: Vec<Moment>) -> Vec<Moment> {
    let is = |step: UpdateStep| move |moment: &Moment| moment.step == step;
    let first = if let Some(last) = moments.iter().rposition(is(UpdateStep::Asked)) {
        // The controller's event precedes the node's own report of the same request.
        let is_the_same =
            |earlier: &Moment| earlier.step == UpdateStep::Asked && is_reported_by_controller(earlier);
        let before = last.checked_sub(1).and_then(|before| moments.get(before));
        let told_twice =
            before.is_some_and(is_the_same) && !moments.get(last).is_some_and(is_reported_by_controller);
        if told_twice { last - 1 } else { last }
    } else {
        let ends = moments.iter().enumerate().rev();
        let mut ends = ends.filter(|(_, moment)| is(UpdateStep::Done)(moment));
        ends.nth(1).map_or(0, |(index, _)| index + 1)
    };
    moments.split_off(first)
}

fn is_reported_by_controller(request: &Moment) -> bool {
    TargetedNode::parse(&request.message).is_some()
}

/// Removes duplicates: both sources report the same step, and a failure is reported repeatedly; the first report
/// counts.
fn once_each(moments: Vec<Moment>) -> Vec<Moment> {
    let mut once: Vec<Moment> = Vec::new();
    for moment in moments {
        let known = once.iter().any(|earlier| match moment.step {
            UpdateStep::Trouble => {
                earlier.step == UpdateStep::Trouble && is_same_report(&earlier.message, &moment.message)
            }
            // Several services may be restarted.
            UpdateStep::Actions => earlier.message == moment.message,
            step => earlier.step == step,
        });
        if !known {
            once.push(moment);
        }
    }
    once
}

/// Whether one message contains the other.
fn is_same_report(one: &str, other: &str) -> bool {
    one.contains(other) || other.contains(one)
}

fn from_condition(condition: &Condition) -> Option<Moment> {
    let step = match (condition.type_.as_str(), condition.status.as_str()) {
        (type_::UPDATED, status::TRUE) => UpdateStep::Done,
        (type_::UPDATED, status::FALSE) => UpdateStep::Asked,
        (type_::UPDATE_PREPARED, status::TRUE) => UpdateStep::Prepared,
        (type_::UPDATE_PREPARED, status::UNKNOWN) | (type_::NODE_DEGRADED, status::TRUE) => {
            UpdateStep::Trouble
        }
        (type_::CORDONED, status::TRUE) => UpdateStep::Cordoned,
        (type_::DRAINED, status::UNKNOWN) => UpdateStep::Draining,
        (type_::DRAINED, status::TRUE) => UpdateStep::Drained,
        (type_::APPLIED_FILES_AND_OS | type_::APPLIED_FILES, status::UNKNOWN) => UpdateStep::Applying,
        (type_::APPLIED_FILES_AND_OS | type_::APPLIED_FILES, status::TRUE) => UpdateStep::Applied,
        (type_::UPDATE_POST_ACTION_COMPLETE, status::TRUE) => UpdateStep::Actions,
        (type_::REBOOTED_NODE, status::UNKNOWN) => UpdateStep::Rebooting,
        (type_::REBOOTED_NODE, status::TRUE) => UpdateStep::Rebooted,
        (type_::UNCORDONED, status::TRUE) => UpdateStep::Uncordoned,
        _ => return None,
    };
    Some(Moment {
        at: condition.last_transition_time.0,
        step,
        message: condition.message.clone(),
        seconds: None,
    })
}

fn from_event(node: &str, event: &Event) -> Option<Moment> {
    let reason = event.reason.as_deref().unwrap_or_default();
    let message = event.message.as_deref().unwrap_or_default();
    let about = &event.involved_object;
    let is_about = |kind: &str| about.kind.as_deref() == Some(kind);
    let step = if is_about("Node") && about.name.as_deref() == Some(node) {
        step_of(reason, event.type_.as_deref().unwrap_or_default())?
    } else if is_about("MachineConfigPool") && is_request(node, reason, message) {
        UpdateStep::Asked
    } else {
        return None;
    };
    Some(Moment {
        at: time_of(event)?,
        step,
        message: message.to_owned(),
        seconds: None,
    })
}

fn step_of(reason: &str, type_: &str) -> Option<UpdateStep> {
    Some(match reason {
        daemon::CORDON => UpdateStep::Cordoned,
        daemon::DRAIN => UpdateStep::Draining,
        daemon::OS_UPDATE_STARTED => UpdateStep::Applying,
        daemon::OS_UPDATE_STAGED | daemon::OS_UPGRADE_APPLIED => UpdateStep::Applied,
        daemon::SKIP_REBOOT | daemon::SERVICE_RELOAD | daemon::SERVICE_RESTART => UpdateStep::Actions,
        daemon::REBOOT => UpdateStep::Rebooting,
        daemon::UNCORDON => UpdateStep::Uncordoned,
        daemon::NODE_DONE => UpdateStep::Done,
        daemon::CONFIG_DRIFT_DETECTED
        | daemon::PREFLIGHT_CONFIG_DRIFT_CHECK_FAILED
        | daemon::ON_DISK_STATE_VALIDATION_FAILED
        | daemon::FAILED_TO_DRAIN
        | daemon::FAILED_TO_UNCORDON
        | daemon::FAILED_TO_RECONCILE
        | daemon::FAILED_SERVICE_RELOAD
        | daemon::FAILED_SERVICE_RESTART
        | daemon::FAILED_FINALIZATION
        | daemon::GOT_SIGTERM_DURING_UPDATE
        | drain::DRAIN_BLOCKED
        | drain::DRAIN_FAILED
        | drain::DRAIN_THRESHOLD_EXCEEDED
            if type_ != "Normal" =>
        {
            UpdateStep::Trouble
        }
        _ => return None,
    })
}

/// Whether an event is the pool controller's about the target of this node.
fn is_request(node: &str, reason: &str, message: &str) -> bool {
    matches!(
        reason,
        rollout::SET_DESIRED_CONFIG | rollout::SET_DESIRED_CONFIG_AND_OS_IMAGE
    ) && TargetedNode::parse(message).is_some_and(|targeted| targeted.node == node)
}

/// Returns the time of an event; different reporters set different fields.
pub fn time_of(event: &Event) -> Option<Timestamp> {
    let exact = event.event_time.as_ref().map(|time| time.0);
    let first = event.first_timestamp.as_ref().map(|time| time.0);
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    let created = event.metadata.creation_timestamp.as_ref().map(|time| time.0);
    exact.or(first).or(last).or(created)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: u32) -> Timestamp {
        format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60)
            .parse()
            .unwrap()
    }

    fn event(second: u32, kind: &str, name: &str, reason: &str, message: &str) -> Event {
        let type_ = if reason.contains("Drift") || reason.contains("Fail") || reason.contains("Blocked") {
            "Warning"
        } else {
            "Normal"
        };
        serde_json::from_value(json!({
            "metadata": {"name": format!("{name}.{second}")},
            "involvedObject": {"kind": kind, "name": name},
            "reason": reason, "message": message, "type": type_, "lastTimestamp": at(second),
        }))
        .unwrap()
    }

    fn progress(conditions: &[(&str, &str, u32)]) -> MachineConfigNode {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(type_, status, second)| {
                json!({"type": type_, "status": status, "reason": type_, "message": format!("{type_} is {status}"),
                    "lastTransitionTime": at(*second)})
            })
            .collect();
        serde_json::from_value(
            json!({"metadata": {"name": "w"}, "spec": {}, "status": {"conditions": conditions}}),
        )
        .unwrap()
    }

    fn shown(timeline: &Timeline) -> Vec<(UpdateStep, Option<i64>)> {
        timeline
            .moments
            .iter()
            .map(|moment| (moment.step, moment.seconds))
            .collect()
    }

    #[test]
    fn an_update_in_progress_is_read_from_its_conditions() {
        let progress = progress(&[
            ("Updated", "False", 10),
            ("UpdatePrepared", "True", 11),
            ("UpdateExecuted", "Unknown", 12),
            ("Cordoned", "True", 12),
            ("Drained", "Unknown", 13),
            ("RebootedNode", "False", 10),
        ]);
        let timeline = timeline("w", Some(&progress), [], at(43));
        assert_eq!(
            shown(&timeline),
            [
                (UpdateStep::Asked, Some(1)),
                (UpdateStep::Prepared, Some(1)),
                (UpdateStep::Cordoned, Some(1)),
                (UpdateStep::Draining, Some(30)),
            ]
        );
        assert_eq!(timeline.seconds, None);
    }

    #[test]
    fn only_the_latest_finished_update_is_read_from_events() {
        let events = [
            event(1, "Node", "w", "Cordon", "an older update"),
            event(5, "Node", "w", "NodeDone", "an older update"),
            event(
                7,
                "MachineConfigPool",
                "worker",
                "SetDesiredConfig",
                "Targeted node w to MachineConfig: of which nothing more is known",
            ),
            event(
                10,
                "MachineConfigPool",
                "worker",
                "SetDesiredConfig",
                "Targeted node w to MachineConfig: rendered-worker-2",
            ),
            event(
                10,
                "MachineConfigPool",
                "worker",
                "SetDesiredConfig",
                "Targeted node w-2 to MachineConfig: rendered-worker-2",
            ),
            event(11, "Node", "w", "Cordon", "Cordoned node to apply update"),
            event(11, "Node", "w", "Drain", "Draining node"),
            event(41, "Node", "w", "Reboot", "because"),
            event(100, "Node", "w", "NodeDone", "done"),
            event(100, "Node", "other", "Reboot", "not this one"),
            event(100, "Node", "w", "ConfigDriftMonitorStarted", "not a step"),
        ];
        let progress = progress(&[("Updated", "True", 101), ("Drained", "False", 101)]);
        let timeline = timeline("w", Some(&progress), &events, at(500));
        assert_eq!(
            shown(&timeline),
            [
                (UpdateStep::Asked, Some(1)),
                (UpdateStep::Cordoned, Some(0)),
                (UpdateStep::Draining, Some(30)),
                (UpdateStep::Rebooting, Some(59)),
                (UpdateStep::Done, None),
            ]
        );
        assert_eq!(timeline.seconds, Some(90));
    }

    #[test]
    fn witnesses_that_know_only_the_second_are_heard_in_the_order_of_an_update() {
        let mut asked = event(
            10,
            "MachineConfigPool",
            "worker",
            "SetDesiredConfig",
            "Targeted node w to MachineConfig: x",
        );
        asked.event_time = serde_json::from_value(json!("2026-01-01T00:00:10.900000Z")).unwrap();
        let events = [
            event(10, "Node", "w", "NodeDone", "done"),
            event(10, "Node", "w", "Cordon", "cordoned"),
            asked,
        ];
        let timeline = timeline("w", None, &events, at(30));
        assert_eq!(
            shown(&timeline),
            [
                (UpdateStep::Asked, Some(0)),
                (UpdateStep::Cordoned, Some(0)),
                (UpdateStep::Done, None)
            ]
        );
    }

    #[test]
    fn a_failure_after_an_update_is_listed_once() {
        let events = [
            event(1, "Node", "w", "NodeDone", "done"),
            event(9, "Node", "w", "ConfigDriftDetected", "content mismatch"),
            event(19, "Node", "w", "ConfigDriftDetected", "content mismatch"),
            event(
                20,
                "Node",
                "w",
                "PreflightConfigDriftCheckFailed",
                "unexpected: content mismatch",
            ),
        ];
        let timeline = timeline("w", None, &events, at(30));
        assert_eq!(
            shown(&timeline),
            [(UpdateStep::Done, Some(8)), (UpdateStep::Trouble, None)]
        );
    }

    #[test]
    fn nothing_known_is_an_empty_list() {
        assert_eq!(timeline("w", None, [], at(0)), Timeline::default());
    }
}
