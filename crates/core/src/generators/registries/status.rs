//! Status conditions of an ImagePolicy about its conflict with cluster-wide policies.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use mco_api::vocabulary::conditions::{image_policy as condition, status as truth};
use mco_api::vocabulary::reasons::image_policy as reason;

use super::PolicyConflict;

/// Returns the conditions after evaluating all policies. A resolved conflict is removed; conditions of other writers
/// are retained.
pub fn policy_conditions(
    before: &[Condition],
    conflict: Option<&PolicyConflict>,
    generation: Option<i64>,
    now: &Time,
) -> Vec<Condition> {
    let is_ours = |one: &Condition| one.type_ == condition::PENDING && one.reason == reason::CONFLICT_SCOPES;
    let Some(conflict) = conflict else {
        return before.iter().filter(|one| !is_ours(one)).cloned().collect();
    };
    let mut pending = Condition {
        last_transition_time: now.clone(),
        message: conflict.message(),
        observed_generation: generation,
        reason: reason::CONFLICT_SCOPES.to_owned(),
        status: truth::FALSE.to_owned(),
        type_: condition::PENDING.to_owned(),
    };
    let mut after = before.to_vec();
    match after.iter_mut().find(|one| one.type_ == condition::PENDING) {
        Some(old) => {
            if old.status == pending.status {
                pending.last_transition_time = old.last_transition_time.clone();
            }
            *old = pending;
        }
        None => after.push(pending),
    }
    after
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn a_conflict_is_reported_once_and_removed_when_resolved() {
        let conflict = |scope: &str| PolicyConflict {
            namespace: "shop".to_owned(),
            name: "signed".to_owned(),
            scopes: vec![scope.to_owned()],
        };
        let foreign = Condition {
            last_transition_time: at(0),
            message: String::new(),
            observed_generation: None,
            reason: "Other".to_owned(),
            status: "True".to_owned(),
            type_: "Other".to_owned(),
        };
        let first = policy_conditions(
            std::slice::from_ref(&foreign),
            Some(&conflict("a.example/x")),
            Some(1),
            &at(1),
        );
        let shown = &first[1];
        assert_eq!(
            (shown.type_.as_str(), shown.status.as_str(), shown.reason.as_str()),
            ("Pending", "False", "ConflictScopes")
        );
        assert_eq!(
            shown.message,
            "has conflicting scope(s) [\"a.example/x\"] that equal to or nest inside existing clusterimagepolicy, only \
             policy from clusterimagepolicy scope(s) will be applied"
        );
        let again = policy_conditions(&first, Some(&conflict("a.example/x")), Some(1), &at(5));
        assert_eq!(again, first, "nothing new, nothing to write");
        let other = policy_conditions(&first, Some(&conflict("b.example")), Some(2), &at(5));
        assert_eq!(other[1].last_transition_time, at(1), "still the same status");
        assert!(other[1].message.contains("b.example"));
        assert_eq!(policy_conditions(&other, None, Some(3), &at(9)), [foreign]);
    }
}
