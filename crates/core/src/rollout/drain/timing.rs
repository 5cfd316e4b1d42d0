//! When a drain that did not succeed is tried again, and when somebody should be told. Counted from the start that is
//! recorded on the Node, so that a restarted controller goes on where it was.

use std::fmt::Display;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mco_api::vocabulary::events;

use crate::rollout::Event;

/// One attempt ends after this long; what is still there is left for the next.
pub const ATTEMPT: Duration = Duration::from_secs(90);
/// A budget is asked again after this long; budgets recover when a pod elsewhere becomes ready.
pub const EVICTION_RETRY: Duration = Duration::from_secs(5);
/// Between attempts, while a drain may still be merely slow.
pub const RETRY: Duration = Duration::from_mins(1);
/// Between attempts, once it is clear that something blocks.
pub const SLOW_RETRY: Duration = Duration::from_mins(5);
/// From here on something blocks.
pub const SLOW_AFTER: Duration = Duration::from_mins(10);
/// From here on the daemon reports a failure, and so do we.
pub const OVERDUE_AFTER: Duration = Duration::from_hours(1);

/// How a drain goes that was tried and is not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    Fresh,
    /// Something blocks.
    Slow,
    /// Somebody has to look at it.
    Overdue,
}

/// How a drain goes that began at `since`. A start in the future, by another clock, is fresh.
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

    /// The value of the metric that tells which nodes cannot be drained.
    pub fn is_alarming(self) -> bool {
        self == Self::Overdue
    }

    /// What to tell about the node, if anything: how long it takes and what is in the way.
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
