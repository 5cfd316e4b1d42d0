//! Status conditions of KubeletConfigs and ContainerRuntimeConfigs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::kubelet_config::NodeConfigCondition;

/// The outcome of applying an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GenerationOutcome {
    Success,
    Failure { message: String },
}

impl GenerationOutcome {
    /// Returns a failure whose message is the error's text.
    pub fn error(error: impl std::fmt::Display) -> Self {
        Self::Failure {
            message: format!("Error: {error}"),
        }
    }

    pub fn message(&self) -> &str {
        match self {
            Self::Success => SUCCESS,
            Self::Failure { message } => message,
        }
    }
}

const ACCEPTED: &str = "Accepted";
const SUCCESS: &str = "Success";
const FAILURE: &str = "Failure";
/// Number of conditions to keep; older ones add no information.
const KEPT: usize = 3;

/// Returns the conditions of a KubeletConfig after another outcome: the most recent ones and, always last, one in the
/// format that older clients expect.
pub fn of_kubelet_config(
    existing: &[NodeConfigCondition],
    outcome: &GenerationOutcome,
    now: &Time,
) -> Vec<NodeConfigCondition> {
    let mut conditions: Vec<NodeConfigCondition> = existing
        .iter()
        .filter(|condition| condition.type_ == ACCEPTED)
        .cloned()
        .collect();
    let status = if *outcome == GenerationOutcome::Success {
        "True"
    } else {
        "False"
    };
    report(&mut conditions, condition(ACCEPTED, status, outcome, now));
    conditions.push(legacy(outcome, now));
    conditions
}

/// Returns the conditions of a ContainerRuntimeConfig after another outcome.
pub fn of_container_runtime_config(
    existing: &[NodeConfigCondition],
    outcome: &GenerationOutcome,
    now: &Time,
) -> Vec<NodeConfigCondition> {
    let mut conditions = existing.to_vec();
    report(&mut conditions, legacy(outcome, now));
    conditions
}

/// Appends a condition; a repeated message only updates the time.
fn report(conditions: &mut Vec<NodeConfigCondition>, new: NodeConfigCondition) {
    if conditions.last().is_some_and(|last| last.message == new.message) {
        conditions.pop();
    }
    conditions.push(new);
    let surplus = conditions.len().saturating_sub(KEPT);
    conditions.drain(..surplus);
}

fn legacy(outcome: &GenerationOutcome, now: &Time) -> NodeConfigCondition {
    let type_ = if *outcome == GenerationOutcome::Success {
        SUCCESS
    } else {
        FAILURE
    };
    condition(type_, "True", outcome, now)
}

fn condition(type_: &str, status: &str, outcome: &GenerationOutcome, now: &Time) -> NodeConfigCondition {
    NodeConfigCondition {
        last_transition_time: Some(now.clone()),
        message: outcome.message().to_owned(),
        reason: String::new(),
        status: status.to_owned(),
        type_: type_.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        serde_json::from_value(serde_json::json!(format!("2026-01-01T00:00:{second:02}Z"))).unwrap()
    }

    fn shown(conditions: &[NodeConfigCondition]) -> Vec<String> {
        conditions
            .iter()
            .map(|c| format!("{}={} {}", c.type_, c.status, c.message))
            .collect()
    }

    #[test]
    fn the_last_three_reports_and_a_legacy_one_are_kept() {
        let mut conditions = Vec::new();
        for (second, message) in ["one", "two", "two", "three", "four"].into_iter().enumerate() {
            let now = at(i64::try_from(second).unwrap());
            conditions = of_kubelet_config(&conditions, &GenerationOutcome::error(message), &now);
        }
        assert_eq!(
            shown(&conditions),
            [
                "Accepted=False Error: two",
                "Accepted=False Error: three",
                "Accepted=False Error: four",
                "Failure=True Error: four"
            ]
        );
        assert_eq!(
            conditions[0].last_transition_time,
            Some(at(2)),
            "a repeated message has the later time"
        );
        conditions = of_kubelet_config(&conditions, &GenerationOutcome::Success, &at(9));
        assert_eq!(
            shown(&conditions)[2..],
            ["Accepted=True Success", "Success=True Success"]
        );
    }

    #[test]
    fn a_container_runtime_config_has_one_kind_of_report() {
        let first = of_container_runtime_config(&[], &GenerationOutcome::error("x"), &at(0));
        let second = of_container_runtime_config(&first, &GenerationOutcome::Success, &at(1));
        assert_eq!(shown(&second), ["Failure=True Error: x", "Success=True Success"]);
        assert_eq!(
            of_container_runtime_config(&second, &GenerationOutcome::Success, &at(2)).len(),
            2
        );
    }
}
