//! The gates of a policy: whether their last checks let the rollout continue, and when the next check is due.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::rollout_policy::{GateResult, PoolRolloutStatus, RolloutGate, RolloutPolicy, UnreachableGate};

use super::text::{duration_or, first_line, in_words, parse_duration};

pub(super) const DEFAULT_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// A passed check counts for two intervals and this time, so that a slow check does not interrupt a rollout.
const GRACE: SignedDuration = SignedDuration::from_secs(30);
/// Times in a status lose their fraction of a second, so a check is up to this much later than it is recorded.
const ROUNDED_OFF: SignedDuration = SignedDuration::from_secs(1);

/// What a check found is part of a sentence, and a server may respond with a whole page.
const LONGEST_MESSAGE: usize = 300;

/// What a check of a gate found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateObservation {
    pub gate: String,
    /// When the check began.
    pub at: Timestamp,
    /// Whether it passed, or why it could not be checked.
    pub outcome: Result<bool, String>,
    /// What the check found, such as `1 alert fires: KubeAPIDown`.
    pub message: String,
}

fn interval(gate: &RolloutGate) -> SignedDuration {
    duration_or(&gate.interval, DEFAULT_INTERVAL).max(SignedDuration::from_secs(1))
}

pub(super) fn result<'p>(policy: &'p RolloutPolicy, gate: &RolloutGate) -> Option<&'p GateResult> {
    let results = &policy.status.as_ref()?.gates;
    results.iter().find(|result| result.name == gate.name)
}

/// What a pool waits for at the gates: the sentence, and until when if that is certain.
pub(super) struct GateHold {
    pub message: String,
    pub until: Option<Timestamp>,
}

/// Returns the first gate that does not let the rollout of a pool continue. A check counts only if it began after the
/// last node was done.
pub(super) fn hold(
    policy: &RolloutPolicy,
    recorded: Option<&PoolRolloutStatus>,
    (under_way, sent): (usize, usize),
    now: Timestamp,
) -> Option<GateHold> {
    let settled = recorded.and_then(|recorded| recorded.settled.as_ref());
    let is_idle = under_way == 0;
    let settled = settled.filter(|settled| usize::try_from(settled.sent).is_ok_and(|count| count == sent));
    let at = |message: String, until: Option<Timestamp>| Some(GateHold { message, until });
    policy.spec.gates.iter().find_map(|gate| {
        let name = &gate.name;
        let Some(result) = result(policy, gate) else {
            return at(format!("waits for gate {name}, which was not checked yet"), None);
        };
        let age = now.duration_since(result.checked_at.0);
        let is_fresh = age <= interval(gate) * 2 + GRACE;
        let follows = settled.is_some_and(|settled| result.checked_at.0 >= settled.at.0);
        if !is_fresh || (is_idle && !follows) {
            return at(format!("waits for the next check of gate {name}"), None);
        }
        if !result.reachable {
            return match gate.on_unreachable {
                UnreachableGate::Pass => None,
                UnreachableGate::Wait => at(
                    format!(
                        "waits for gate {name}, which cannot be checked: {}",
                        result.message
                    ),
                    None,
                ),
            };
        }
        if !result.passed {
            return at(format!("waits for gate {name}: {}", result.message), None);
        }
        let needed = gate
            .prometheus
            .as_ref()
            .and_then(|gate| parse_duration(&gate.passing_for));
        let passes_at = result.since.0.checked_add(needed.unwrap_or_default()).ok()?;
        if passes_at <= now {
            return None;
        }
        at(
            format!(
                "waits until gate {name} has passed for {}",
                in_words(needed.unwrap_or_default())
            ),
            Some(passes_at),
        )
    })
}

/// Returns when each gate is to be checked next: at most once per interval. A gate without a check is due now.
pub fn due(policy: &RolloutPolicy, now: Timestamp) -> Vec<(&RolloutGate, Timestamp)> {
    let gates = policy.spec.gates.iter();
    gates
        .map(|gate| {
            let last = result(policy, gate).map(|result| result.checked_at.0);
            let interval = interval(gate) + ROUNDED_OFF;
            let next = last.and_then(|last| last.checked_add(interval).ok());
            // A time in the future comes from another clock, and must not stop the checks.
            let next = next.filter(|next| next.duration_since(now) <= interval);
            (gate, next.unwrap_or(now))
        })
        .collect()
}

/// Returns the results with an observation added. A result keeps its `since` while the outcome is the same.
pub fn merge(results: &[GateResult], observation: &GateObservation) -> GateResult {
    let before = results.iter().find(|result| result.name == observation.gate);
    let (passed, reachable) = match observation.outcome {
        Ok(passed) => (passed, true),
        Err(_) => (false, false),
    };
    let same = before.filter(|before| before.passed == passed && before.reachable == reachable);
    let message = match &observation.outcome {
        Ok(_) => &observation.message,
        Err(why) => why,
    };
    GateResult {
        name: observation.gate.clone(),
        passed,
        reachable,
        checked_at: Time(observation.at),
        since: same.map_or(Time(observation.at), |same| same.since.clone()),
        message: first_line(message, LONGEST_MESSAGE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_with_a_page_as_its_message_is_one_line_of_a_status() {
        let merged = |outcome: Result<bool, String>, message: &str| {
            let observation = GateObservation {
                gate: "ticket".to_owned(),
                at: Timestamp::UNIX_EPOCH,
                outcome,
                message: message.to_owned(),
            };
            merge(&[], &observation).message
        };
        let page = format!("the webhook answers 403: {}\n<html>", "x".repeat(100_000));
        for message in [
            merged(Ok(false), &page),
            merged(Err(page.clone()), ""),
            merged(Ok(true), &page),
        ] {
            assert_eq!(message.chars().count(), LONGEST_MESSAGE);
            assert!(
                message.starts_with("the webhook answers 403: xxx") && message.ends_with("xxx..."),
                "{message}"
            );
        }
        assert_eq!(merged(Ok(false), "no\r\nbecause"), "no");
        assert_eq!(merged(Ok(false), "a\u{7}b"), "a\\u{7}b");
    }
}
