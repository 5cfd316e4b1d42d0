//! What a ControllerConfig's status says about the base configuration that was made from it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::controller_config::{ControllerCertificate, ControllerConfigCondition, ControllerConfigStatus};
use mco_api::vocabulary::conditions::{controller_config as condition, status};

/// How making the base configuration went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    Completed,
    Failed(&'a str),
}

/// The status after an attempt. The same but for times when nothing else changed.
pub fn report(
    before: &ControllerConfigStatus,
    outcome: Outcome<'_>,
    generation: i64,
    version: &str,
    certificates: Vec<ControllerCertificate>,
    now: &Time,
) -> ControllerConfigStatus {
    let mut after = before.clone();
    after.observed_generation = generation;
    after.controller_certificates = certificates;
    let towards = format!("towards ({generation}) generation using controller version {version}");
    let [completed, failing] = match outcome {
        Outcome::Completed => [Some(format!("sync completed {towards}")), None],
        Outcome::Failed(why) => [None, Some(format!("failed to syncing {towards}: {why}"))],
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
    fn a_failure_and_its_end_are_told_and_repetition_changes_nothing() {
        let first = report(
            &ControllerConfigStatus::default(),
            Outcome::Failed("no platform"),
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
        let second = report(&first, Outcome::Completed, 3, "abc", Vec::new(), &at(5));
        assert_eq!(
            shown(&second),
            [
                "TemplateControllerCompleted=True @5 sync completed towards (3) generation using controller version abc",
                "TemplateControllerRunning=False @1",
                "TemplateControllerFailing=False @5",
            ]
        );
        assert_eq!(
            report(&second, Outcome::Completed, 3, "abc", Vec::new(), &at(9)),
            second
        );
    }
}
