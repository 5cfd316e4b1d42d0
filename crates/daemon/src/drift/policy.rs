//! The budget of automatic repairs under the drift policy `heal`.

use std::collections::VecDeque;
use std::time::Duration;

/// Repairs within [`HEALS_WITHIN`] before the node is Degraded instead.
const HEALS: usize = 3;
const HEALS_WITHIN: Duration = Duration::from_hours(1);

/// Rate limit of repairs: another program that keeps changing a file must not cause an endless loop.
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
