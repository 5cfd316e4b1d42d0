//! The status of a ControllerConfig about the base configuration rendered from it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::controller_config::{ControllerCertificate, ControllerConfigCondition, ControllerConfigStatus};
use mco_api::vocabulary::conditions::{controller_config as condition, status};

/// The outcome of rendering the base configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateOutcome<'a> {
    Completed,
    Failed(&'a str),
}

/// Returns the status while rendering is in progress; `None` if it adds nothing, so that unchanged input causes no
/// write: only the first attempt of a generation and version is reported.
pub fn begin(
    before: &ControllerConfigStatus,
    generation: i64,
    version: &str,
    now: &Time,
) -> Option<ControllerConfigStatus> {
    let towards = towards(generation, version);
    let ended = |entry: &ControllerConfigCondition| {
        entry.status == status::TRUE
            && entry.type_ != condition::TEMPLATE_CONTROLLER_RUNNING
            && entry.message.contains(&towards)
    };
    if before.observed_generation == generation && before.conditions.iter().any(ended) {
        return None;
    }
    let mut after = before.clone();
    after.observed_generation = generation;
    let message = format!("syncing {towards}");
    let mut completed = after
        .conditions
        .iter()
        .filter(|entry| entry.status == status::TRUE);
    if completed.any(|entry| entry.type_ == condition::TEMPLATE_CONTROLLER_COMPLETED) {
        let why = if before.observed_generation == generation {
            "controller version"
        } else {
            "Generation"
        };
        set(
            &mut after.conditions,
            condition::TEMPLATE_CONTROLLER_COMPLETED,
            status::FALSE,
            format!("{message} due to change in {why}"),
            now,
        );
    }
    set(
        &mut after.conditions,
        condition::TEMPLATE_CONTROLLER_RUNNING,
        status::TRUE,
        message,
        now,
    );
    (after != *before).then_some(after)
}

/// Returns the status after an attempt. Only times differ when nothing else changed.
pub fn report(
    before: &ControllerConfigStatus,
    outcome: TemplateOutcome<'_>,
    generation: i64,
    version: &str,
    certificates: Vec<ControllerCertificate>,
    now: &Time,
) -> ControllerConfigStatus {
    let mut after = before.clone();
    after.observed_generation = generation;
    after.controller_certificates = certificates;
    let towards = towards(generation, version);
    let [completed, failing] = match outcome {
        TemplateOutcome::Completed => [Some(format!("sync completed {towards}")), None],
        TemplateOutcome::Failed(why) => [None, Some(format!("failed to syncing {towards}: {why}"))],
    };
    let states = [
        (condition::TEMPLATE_CONTROLLER_COMPLETED, completed),
        (condition::TEMPLATE_CONTROLLER_RUNNING, None),
        (condition::TEMPLATE_CONTROLLER_FAILING, failing),
    ];
    for (type_, message) in states {
        let holds = if message.is_some() {
            status::TRUE
        } else {
            status::FALSE
        };
        set(
            &mut after.conditions,
            type_,
            holds,
            message.unwrap_or_default(),
            now,
        );
    }
    after
}

fn towards(generation: i64, version: &str) -> String {
    format!("towards ({generation}) generation using controller version {version}")
}

fn set(
    conditions: &mut Vec<ControllerConfigCondition>,
    type_: &str,
    status: &str,
    message: String,
    now: &Time,
) {
    let known = conditions.iter_mut().find(|condition| condition.type_ == type_);
    match known {
        Some(known) => {
            if known.status != status {
                known.last_transition_time = Some(now.clone());
            }
            status.clone_into(&mut known.status);
            known.message = message;
        }
        None => conditions.push(ControllerConfigCondition {
            last_transition_time: Some(now.clone()),
            message,
            reason: String::new(),
            status: status.to_owned(),
            type_: type_.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time(k8s_openapi::jiff::Timestamp::from_second(second).unwrap())
    }

    fn shown(status: &ControllerConfigStatus) -> Vec<String> {
        let condition = |c: &ControllerConfigCondition| {
            let since = c.last_transition_time.as_ref().unwrap().0.as_second();
            format!("{}={} @{since} {}", c.type_, c.status, c.message)
                .trim_end()
                .to_owned()
        };
        status.conditions.iter().map(condition).collect()
    }

    #[test]
    fn a_failure_and_its_end_are_reported_and_repetition_changes_nothing() {
        let first = report(
            &ControllerConfigStatus::default(),
            TemplateOutcome::Failed("no platform"),
            2,
            "abc",
            Vec::new(),
            &at(1),
        );
        assert_eq!(first.observed_generation, 2);
        assert_eq!(
            shown(&first),
            [
                "TemplateControllerCompleted=False @1",
                "TemplateControllerRunning=False @1",
                "TemplateControllerFailing=True @1 failed to syncing towards (2) generation using controller version abc: no platform",
            ]
        );
        let second = report(&first, TemplateOutcome::Completed, 3, "abc", Vec::new(), &at(5));
        assert_eq!(
            shown(&second),
            [
                "TemplateControllerCompleted=True @5 sync completed towards (3) generation using controller version abc",
                "TemplateControllerRunning=False @1",
                "TemplateControllerFailing=False @5",
            ]
        );
        assert_eq!(
            report(&second, TemplateOutcome::Completed, 3, "abc", Vec::new(), &at(9)),
            second
        );
    }

    #[test]
    fn a_new_generation_is_reported_once_and_ends_as_completed_or_failing() {
        let nothing = ControllerConfigStatus::default();
        let begun = begin(&nothing, 1, "abc", &at(1)).unwrap();
        assert_eq!(
            shown(&begun),
            ["TemplateControllerRunning=True @1 syncing towards (1) generation using controller version abc"]
        );
        assert_eq!(begun.observed_generation, 1);
        assert_eq!(
            begin(&begun, 1, "abc", &at(2)),
            None,
            "who was killed meanwhile does not say it again"
        );
        let done = report(&begun, TemplateOutcome::Completed, 1, "abc", Vec::new(), &at(3));
        assert_eq!(
            shown(&done)[0],
            "TemplateControllerRunning=False @3",
            "its end is reported"
        );
        assert_eq!(begin(&done, 1, "abc", &at(4)), None, "nothing has changed");
        let failed = report(
            &done,
            TemplateOutcome::Failed("no secret"),
            1,
            "abc",
            Vec::new(),
            &at(5),
        );
        assert_eq!(
            begin(&failed, 1, "abc", &at(6)),
            None,
            "another attempt is no news"
        );

        let syncing = "syncing towards (2) generation using controller version abc";
        let next = begin(&done, 2, "abc", &at(7)).unwrap();
        assert_eq!(
            shown(&next),
            [
                format!("TemplateControllerRunning=True @7 {syncing}"),
                format!("TemplateControllerCompleted=False @7 {syncing} due to change in Generation"),
                "TemplateControllerFailing=False @3".to_owned(),
            ]
        );
        let upgraded = shown(&begin(&done, 1, "abcd", &at(8)).unwrap());
        assert!(
            upgraded[1].ends_with("controller version abcd due to change in controller version"),
            "{upgraded:?}"
        );
    }
}
