//! The status of a CRIOCredentialProviderConfig.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use mco_api::vocabulary::conditions::{credential_provider as condition, status as truth};
use mco_api::vocabulary::reasons::{self, credential_provider as reason};

use super::quoted;

/// The result of a reconcile of the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialProviderOutcome {
    /// Applied, except for the patterns that overlap with the platform's own.
    Applied { ignored: Vec<String> },
    /// The object is invalid.
    Invalid(String),
    /// Generating its MachineConfigs failed.
    NotRendered(String),
}

/// Returns the conditions after a reconcile. An unchanged condition keeps its transition time, and conditions of
/// other writers are retained.
pub fn conditions(
    before: &[Condition],
    outcome: &CredentialProviderOutcome,
    generation: Option<i64>,
    now: &Time,
) -> Vec<Condition> {
    let validated = match outcome {
        CredentialProviderOutcome::Applied { ignored } if ignored.is_empty() => {
            (truth::TRUE, reasons::AS_EXPECTED, String::new())
        }
        CredentialProviderOutcome::Applied { ignored } => (
            truth::FALSE,
            reason::CONFIGURATION_PARTIALLY_APPLIED,
            format!(
                "matchImages [{}] overlap with the platform's own credential provider and are ignored",
                quoted(ignored)
            ),
        ),
        CredentialProviderOutcome::Invalid(why) => (truth::FALSE, reason::VALIDATION_FAILED, why.clone()),
        CredentialProviderOutcome::NotRendered(_) => (truth::TRUE, reasons::AS_EXPECTED, String::new()),
    };
    let rendered = match outcome {
        CredentialProviderOutcome::Applied { .. } => (
            truth::TRUE,
            reason::MACHINE_CONFIG_RENDERING_SUCCEEDED,
            String::new(),
        ),
        CredentialProviderOutcome::Invalid(why) | CredentialProviderOutcome::NotRendered(why) => {
            (truth::FALSE, reason::MACHINE_CONFIG_RENDERING_FAILED, why.clone())
        }
    };
    let mut after = before.to_vec();
    for (type_, (status, reason, message)) in [
        (condition::VALIDATED, validated),
        (condition::MACHINE_CONFIG_RENDERED, rendered),
    ] {
        let mut new = Condition {
            last_transition_time: now.clone(),
            message,
            observed_generation: generation,
            reason: reason.to_owned(),
            status: status.to_owned(),
            type_: type_.to_owned(),
        };
        match after.iter_mut().find(|one| one.type_ == type_) {
            Some(old) => {
                if old.status == new.status {
                    new.last_transition_time = old.last_transition_time.clone();
                }
                *old = new;
            }
            None => after.push(new),
        }
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        serde_json::from_value(serde_json::json!(format!("2026-01-01T00:00:{second:02}Z"))).unwrap()
    }

    fn summaries(conditions: &[Condition]) -> Vec<String> {
        let line = |one: &Condition| format!("{}={} {} {}", one.type_, one.status, one.reason, one.message);
        conditions
            .iter()
            .map(|one| line(one).trim_end().to_owned())
            .collect()
    }

    #[test]
    fn what_is_ignored_or_refused_is_named() {
        let rendered = "MachineConfigRendered=True MachineConfigRenderingSucceeded";
        for (outcome, expected) in [
            (
                CredentialProviderOutcome::Applied { ignored: Vec::new() },
                ["Validated=True AsExpected", rendered],
            ),
            (
                CredentialProviderOutcome::Applied {
                    ignored: vec!["a.io".to_owned(), "b.io".to_owned()],
                },
                [
                    "Validated=False ConfigurationPartiallyApplied matchImages [\"a.io\", \"b.io\"] overlap with the platform's own credential provider and are ignored",
                    rendered,
                ],
            ),
            (
                CredentialProviderOutcome::Invalid("no".to_owned()),
                [
                    "Validated=False ValidationFailed no",
                    "MachineConfigRendered=False MachineConfigRenderingFailed no",
                ],
            ),
            (
                CredentialProviderOutcome::NotRendered("no".to_owned()),
                [
                    "Validated=True AsExpected",
                    "MachineConfigRendered=False MachineConfigRenderingFailed no",
                ],
            ),
        ] {
            let conditions = conditions(&[], &outcome, Some(3), &at(1));
            assert_eq!(summaries(&conditions), expected);
            assert!(conditions.iter().all(|one| one.observed_generation == Some(3)));
        }
    }

    #[test]
    fn times_stay_while_nothing_turns_and_others_conditions_stay_anyway() {
        let fine = CredentialProviderOutcome::Applied { ignored: Vec::new() };
        let mut before = conditions(&[], &fine, Some(1), &at(1));
        let mut foreign = before[0].clone();
        foreign.type_ = "Foreign".to_owned();
        before.insert(0, foreign.clone());
        let same = conditions(&before, &fine, Some(1), &at(2));
        assert_eq!(same, before, "nothing new is nothing to write");
        let turned = conditions(
            &before,
            &CredentialProviderOutcome::Invalid("no".to_owned()),
            Some(2),
            &at(3),
        );
        assert_eq!(turned[0], foreign);
        assert!(turned[1..].iter().all(|one| one.last_transition_time == at(3)));
    }
}
