//! Drift policies. The default is that of the reference: report Degraded and change nothing.

use std::collections::VecDeque;
use std::time::Duration;

/// The number of heals after which an administrator has to intervene.
const HEALS: usize = 3;
const HEALS_WITHIN: Duration = Duration::from_hours(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DriftPolicy {
    #[default]
    Degrade,
    /// Restore the config's contents, a bounded number of times.
    Heal,
    Ignore,
}

impl DriftPolicy {
    /// The annotation that selects the policy, on a pool or on a single node.
    pub const ANNOTATION: &str = "machineconfiguration.openshift.io/drift-policy";

    /// Parses the annotation. An unknown value must not make a node change itself, so it selects the default.
    pub fn from_annotation(value: &str) -> Self {
        match value {
            "heal" => Self::Heal,
            "ignore" => Self::Ignore,
            _ => Self::Degrade,
        }
    }
}

/// Limits the rate of heals, so that another writer of the same file is noticed.
#[derive(Debug, Clone, Default)]
pub struct HealBudget {
    spent: VecDeque<Duration>,
}

impl HealBudget {
    /// Returns whether one more heal is allowed. `now` is a monotonic clock.
    pub fn spend(&mut self, now: Duration) -> bool {
        while self
            .spent
            .front()
            .is_some_and(|then| now.saturating_sub(*then) >= HEALS_WITHIN)
        {
            self.spent.pop_front();
        }
        let allowed = self.spent.len() < HEALS;
        if allowed {
            self.spent.push_back(now);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_policies_touch_nothing() {
        for (value, expected) in [
            ("degrade", DriftPolicy::Degrade),
            ("heal", DriftPolicy::Heal),
            ("ignore", DriftPolicy::Ignore),
            ("Heal ", DriftPolicy::Degrade),
            ("", DriftPolicy::Degrade),
        ] {
            assert_eq!(DriftPolicy::from_annotation(value), expected, "{value:?}");
        }
    }

    #[test]
    fn heals_are_bounded_and_the_budget_returns_with_time() {
        let mut budget = HealBudget::default();
        let at = Duration::from_secs;
        assert!(budget.spend(at(0)) && budget.spend(at(1)) && budget.spend(at(2)));
        assert!(!budget.spend(at(3)));
        assert!(!budget.spend(at(3599)));
        assert!(budget.spend(at(3600)));
        assert!(!budget.spend(at(3600)));
    }
}
