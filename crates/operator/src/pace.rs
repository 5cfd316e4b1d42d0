//! Backoff and resync interval of the operator.

use std::time::{Duration, Instant};

use crate::watches::Work;

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct SyncPace {
    /// The time of the last full sync, successful or not.
    everything: Instant,
    /// The current backoff; zero after a success.
    retry: Duration,
}

impl SyncPace {
    pub fn new(now: Instant) -> Self {
        Self {
            everything: now,
            retry: Duration::ZERO,
        }
    }

    /// Records a sync. One that only reported the status changes no backoff.
    pub fn done(&mut self, work: Work, is_well: bool, now: Instant) {
        if work == Work::Status {
            return;
        }
        self.everything = now;
        self.retry = if is_well {
            Duration::ZERO
        } else {
            (self.retry * 2).clamp(FIRST_RETRY, LAST_RETRY)
        };
    }

    pub fn since_everything(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.everything)
    }

    pub fn until_retry(&self, now: Instant) -> Duration {
        self.retry.saturating_sub(self.since_everything(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_that_keep_changing_do_not_keep_a_failed_step_from_its_retry() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let mut pace = SyncPace::new(start);
        pace.done(Work::Everything, false, at(0));
        for millis in [0, 300, 600, 900] {
            pace.done(Work::Status, false, at(millis));
            let left = Duration::from_millis(1000 - millis);
            assert_eq!(pace.until_retry(at(millis)), left, "{millis}");
        }
        assert_eq!(pace.until_retry(at(5000)), Duration::ZERO);
    }

    #[test]
    fn what_keeps_failing_is_tried_ever_less_often_until_it_works() {
        let now = Instant::now();
        let mut pace = SyncPace::new(now);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            pace.done(Work::Everything, false, now);
            assert_eq!(pace.until_retry(now), Duration::from_secs(seconds));
        }
        pace.done(Work::Everything, true, now);
        assert_eq!(
            pace.until_retry(now),
            Duration::ZERO,
            "a status that cannot be written"
        );
        pace.done(Work::Everything, false, now);
        assert_eq!(pace.until_retry(now), Duration::from_secs(1));
    }
}
