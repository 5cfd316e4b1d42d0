//! Retry intervals of a drain, and when it is reported as blocked. Counted from the start recorded on the Node, so
//! that they survive a restart of the controller.

use std::fmt::Display;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mco_api::vocabulary::events;

use crate::rollout::Event;

/// Timeout of one attempt; remaining pods are left for the next.
pub const ATTEMPT: Duration = Duration::from_secs(90);
/// Interval between evictions that a budget rejects; budgets recover when a pod on another node becomes ready.
pub const EVICTION_RETRY: Duration = Duration::from_secs(5);
/// Interval between attempts while a drain may only be slow.
pub const RETRY: Duration = Duration::from_mins(1);
/// Interval between attempts once the drain counts as blocked.
pub const SLOW_RETRY: Duration = Duration::from_mins(5);
/// A drain that takes longer counts as blocked.
pub const SLOW_AFTER: Duration = Duration::from_mins(10);
/// A drain that takes longer is reported as failed, by the daemon and by the controller.
pub const OVERDUE_AFTER: Duration = Duration::from_hours(1);

/// The state of a drain that was attempted and is not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    Fresh,
    /// The drain is blocked.
    Slow,
    /// The drain needs an administrator.
    Overdue,
}

/// Returns the state of a drain that started at `since`. A start in the future, from another clock, counts as now.
pub fn pace(since: Timestamp, now: Timestamp) -> Pace {
    let running = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    if running > OVERDUE_AFTER {
        Pace::Overdue
    } else if running > SLOW_AFTER {
        Pace::Slow
    } else {
        Pace::Fresh
    }
}

impl Pace {
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
    pub fn event(self, node: &str, obstacles: &[impl Display]) -> Option<Event> {
        let (reason, message) = match self {
            Self::Fresh => return None,
            Self::Slow => (
                events::drain::DRAIN_THRESHOLD_EXCEEDED,
                format!("node {node}: drain has been failing for more than 10m0s. Will retry every 5m0s."),
            ),
            Self::Overdue => (
                events::drain::DRAIN_FAILED,
                format!("node {node}: drain exceeded timeout: 1h0m0s. Will continue to retry."),
            ),
        };
        let obstacles: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
        Some(Event::warning(
            reason,
            [message, obstacles.join("; ")].join(" ").trim_end().to_owned(),
        ))
    }
}
