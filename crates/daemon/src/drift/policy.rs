//! What is done about drift. The default is what people know: say so and touch nothing.

use std::collections::VecDeque;
use std::time::Duration;

/// How often files may be put back before a person has to look.
const HEALS: usize = 3;
const HEALS_WITHIN: Duration = Duration::from_hours(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DriftPolicy {
    #[default]
    Degrade,
    /// Put back what the config says, a bounded number of times.
    Heal,
    Ignore,
}

impl DriftPolicy {
    /// On a pool, or on a single node of it.
    pub const ANNOTATION: &str = "machineconfiguration.openshift.io/drift-policy";

    /// An unknown value must not make a node change itself, so it means the default.
    pub fn from_annotation(value: &str) -> Self {
        match value {
            "heal" => Self::Heal,
            "ignore" => Self::Ignore,
            _ => Self::Degrade,
        }
    }
}

/// Somebody who keeps changing a file is stronger than us; this makes us notice.
#[derive(Debug, Clone, Default)]
pub struct HealBudget {
    spent: VecDeque<Duration>,
}

impl HealBudget {
    /// Whether one more heal is allowed now; `now` is any clock that only goes forward.
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
