//! Backoff and resync interval of the operator.

use std::time::{Duration, Instant};

use crate::watches::Work;

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// Debounce of changes, which come in bursts.
const QUIET_PERIOD: Duration = Duration::from_millis(100);
const LONGEST_QUIET_PERIOD: Duration = Duration::from_secs(10);
/// Full syncs closer together than this are taken for one burst, whose debounce grows.
const BURST: Duration = Duration::from_secs(20);
/// The number of full syncs of a burst that are not delayed further: an installation needs several.
const PROMPT: u32 = 10;

/// The result of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoundResult {
    Complete,
    /// Everything was applied, but the report could not be written, which needs no other step again.
    NotReported,
    Failed,
}

#[derive(Debug)]
pub(crate) struct SyncPace {
    /// The time of the last full sync, successful or not.
    everything: Instant,
    /// The time of the last sync that failed or could not report.
    failed: Instant,
    /// The current backoff; zero after a success.
    retry: Duration,
    /// The number of full syncs in the current burst.
    burst: u32,
}

impl SyncPace {
    pub fn new(now: Instant) -> Self {
        Self {
            everything: now,
            failed: now,
            retry: Duration::ZERO,
            burst: 0,
        }
    }

    /// Returns how long changes are collected before the next sync. The period grows with the length of a burst, so that
    /// two clients that revert each other's writes, or an object that never becomes equal to its manifest, do not keep the
    /// operator and the API server busy.
    pub fn quiet_period(&self) -> Duration {
        let doublings = self.burst.saturating_sub(PROMPT).min(16);
        (QUIET_PERIOD * 2u32.pow(doublings)).min(LONGEST_QUIET_PERIOD)
    }

    /// Records a sync. One that is less than full does not shorten the backoff of a failed full one.
    pub fn done(&mut self, work: Work, result: RoundResult, now: Instant) {
        if work == Work::Everything {
            let follows = self.since_everything(now) < BURST;
            self.burst = if follows { self.burst.saturating_add(1) } else { 0 };
            self.everything = now;
        }
        match result {
            RoundResult::Complete => self.retry = Duration::ZERO,
            RoundResult::Failed if work != Work::Everything => {}
            RoundResult::Failed | RoundResult::NotReported => {
                self.retry = (self.retry * 2).clamp(FIRST_RETRY, LAST_RETRY);
                self.failed = now;
            }
        }
    }

    pub fn since_everything(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.everything)
    }

    pub fn until_retry(&self, now: Instant) -> Duration {
        self.retry
            .saturating_sub(now.saturating_duration_since(self.failed))
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
        pace.done(Work::Everything, RoundResult::Failed, at(0));
        for millis in [0, 300, 600, 900] {
            pace.done(Work::Status, RoundResult::Failed, at(millis));
            let left = Duration::from_millis(1000 - millis);
            assert_eq!(pace.until_retry(at(millis)), left, "{millis}");
        }
        assert_eq!(pace.until_retry(at(5000)), Duration::ZERO);
    }

    #[test]
    fn a_report_that_cannot_be_written_is_retried_with_backoff_and_without_a_full_sync() {
        let now = Instant::now();
        let mut pace = SyncPace::new(now);
        pace.done(Work::Everything, RoundResult::Complete, now);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            pace.done(Work::Status, RoundResult::NotReported, now);
            assert_eq!(pace.until_retry(now), Duration::from_secs(seconds));
        }
        pace.done(Work::Status, RoundResult::Complete, now);
        assert_eq!(pace.until_retry(now), Duration::ZERO);
    }

    #[test]
    fn an_endless_burst_of_full_syncs_slows_down_and_a_rest_ends_it() {
        let mut now = Instant::now();
        let mut pace = SyncPace::new(now);
        let mut syncs = 0;
        let end = now + Duration::from_mins(10);
        while now < end {
            now += pace.quiet_period();
            pace.done(Work::Everything, RoundResult::Complete, now);
            syncs += 1;
        }
        assert!(syncs < 90, "{syncs} full syncs in ten minutes");
        pace.done(Work::Status, RoundResult::Complete, now + BURST);
        pace.done(Work::Everything, RoundResult::Complete, now + BURST);
        assert_eq!(pace.quiet_period(), QUIET_PERIOD);
    }

    #[test]
    fn what_keeps_failing_is_tried_ever_less_often_until_it_works() {
        let now = Instant::now();
        let mut pace = SyncPace::new(now);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            pace.done(Work::Everything, RoundResult::Failed, now);
            assert_eq!(pace.until_retry(now), Duration::from_secs(seconds));
        }
        pace.done(Work::Everything, RoundResult::Complete, now);
        assert_eq!(pace.until_retry(now), Duration::ZERO);
        pace.done(Work::Everything, RoundResult::Failed, now);
        assert_eq!(pace.until_retry(now), Duration::from_secs(1));
    }
}
