//! Retry intervals of a drain, and when it is reported as blocked. Counted from the start recorded on the Node, so
//! that they survive a restart of the controller.

use std::fmt::Display;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mco_api::vocabulary::events;

use super::request::DrainVerb;
use crate::config::go_duration;
use crate::rollout::PlannedEvent;

/// Timeout of one attempt; remaining pods are left for the next.
pub const ATTEMPT: Duration = Duration::from_secs(90);
/// Interval between evictions that a budget rejects; budgets recover when a pod on another node becomes ready.
pub const EVICTION_RETRY: Duration = Duration::from_secs(5);
/// Interval between attempts while a drain may only be slow.
pub const RETRY: Duration = Duration::from_mins(1);
/// Interval between attempts once the drain counts as blocked.
pub const SLOW_RETRY: Duration = Duration::from_mins(5);
/// A drain that fails for longer than this is reported as blocked.
pub const SLOW_AFTER: Duration = Duration::from_mins(10);
/// The drain timeout: a drain that takes longer is reported as failed by controller and daemon. Both go on trying.
pub const DRAIN_TIMEOUT: Duration = Duration::from_hours(1);
/// The uncordon timeout, after which the daemon reports a failure.
pub const UNCORDON_TIMEOUT: Duration = Duration::from_mins(10);

/// Returns when a request that began at `start` has timed out.
pub fn deadline(verb: DrainVerb, start: Timestamp) -> Timestamp {
    let timeout = match verb {
        DrainVerb::Drain => DRAIN_TIMEOUT,
        DrainVerb::Uncordon => UNCORDON_TIMEOUT,
    };
    start.checked_add(timeout).unwrap_or(Timestamp::MAX)
}

/// The state of a drain that was attempted and is not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DrainPace {
    Fresh,
    /// The drain is blocked.
    Slow,
    /// The drain needs an administrator.
    Overdue,
}

/// Returns the state of a drain that started at `since`. A start in the future, from another clock, counts as now.
pub fn pace(since: Timestamp, now: Timestamp) -> DrainPace {
    let running = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    if running > DRAIN_TIMEOUT {
        DrainPace::Overdue
    } else if running > SLOW_AFTER {
        DrainPace::Slow
    } else {
        DrainPace::Fresh
    }
}

impl DrainPace {
    pub fn retry_after(self) -> Duration {
        match self {
            Self::Fresh => RETRY,
            Self::Slow | Self::Overdue => SLOW_RETRY,
        }
    }

    /// Whether the metric of nodes that cannot be drained is set.
    pub fn is_alarming(self) -> bool {
        self == Self::Overdue
    }

    /// Returns the event about the node, if one is due: the duration of the drain and what blocks it.
    pub fn event(self, node: &str, obstacles: &[impl Display]) -> Option<PlannedEvent> {
        let (reason, message) = match self {
            Self::Fresh => return None,
            Self::Slow => (
                events::drain::DRAIN_THRESHOLD_EXCEEDED,
                format!(
                    "node {node}: drain has been failing for more than {}. Will retry every {}.",
                    go_duration::of(SLOW_AFTER),
                    go_duration::of(SLOW_RETRY)
                ),
            ),
            Self::Overdue => (
                events::drain::DRAIN_FAILED,
                format!(
                    "node {node}: drain exceeded timeout: {}. Will continue to retry.",
                    go_duration::of(DRAIN_TIMEOUT)
                ),
            ),
        };
        let obstacles: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
        Some(PlannedEvent::warning(
            reason,
            [message, obstacles.join("; ")].join(" ").trim_end().to_owned(),
        ))
    }
}
