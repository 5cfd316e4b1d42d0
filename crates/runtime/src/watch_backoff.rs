//! Backoff between the attempts of a watch.
//!
//! kube's `default_backoff` is reset by every event, and its watcher emits `Event::Init` before each attempt to list. A
//! list that keeps failing, as for a kind that the cluster does not serve, would be retried every second.

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use kube::runtime::watcher::{self, Event};

use crate::error::is_not_found;
use crate::jitter::random_per_mille;

/// An API server that restarts is back within seconds, and every component waits for it.
const TRANSIENT: DelayRange = DelayRange {
    first: Duration::from_millis(800),
    doubled_until: Duration::from_secs(10),
    max: Duration::from_secs(10),
};

/// A kind that the cluster does not serve is installed with the component, within half a minute, or rarely. Its
/// CustomResourceDefinition is found within the longest delay, at less than one request per minute for all kinds of a
/// component together.
const UNSERVED_KIND: DelayRange = DelayRange {
    first: Duration::from_secs(1),
    doubled_until: Duration::from_secs(16),
    max: Duration::from_mins(10),
};

/// Permissions come with the component too, or from an administrator who waits for the effect.
const FORBIDDEN: DelayRange = DelayRange {
    first: Duration::from_secs(1),
    doubled_until: Duration::from_secs(16),
    max: Duration::from_mins(1),
};

/// Delays that double up to a limit, and are the longest from then on.
struct DelayRange {
    first: Duration,
    doubled_until: Duration,
    max: Duration,
}

/// Returns the events of a watch, with a pause after each error. Consecutive pauses grow exponentially until objects are
/// received or a list is complete.
pub fn with_backoff<K: Send + 'static>(
    events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send,
) -> impl Stream<Item = Result<Event<K>, watcher::Error>> + Send {
    let start = BackoffState {
        events: Box::pin(events),
        failures: 0,
        pause: None,
    };
    stream::unfold(start, async |mut state| {
        if let Some(pause) = state.pause.take() {
            tokio::time::sleep(pause).await;
        }
        let event = state.events.next().await?;
        match &event {
            Ok(Event::Init) => {}
            Ok(_) => state.failures = 0,
            Err(error) => {
                state.pause = Some(with_jitter(retry_delay(error, state.failures)));
                state.failures = state.failures.saturating_add(1);
            }
        }
        Some((event, state))
    })
}

struct BackoffState<S> {
    events: Pin<Box<S>>,
    failures: u32,
    pause: Option<Duration>,
}

/// Only a list that fails means that the kind is unknown: a watch that fails keeps the objects, because it resumes
/// without a new list.
pub(crate) fn is_unserved_kind(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(source) if is_not_found(source))
}

fn is_forbidden(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 403,
        _ => false,
    }
}

fn retry_delay(error: &watcher::Error, failures: u32) -> Duration {
    let range = if is_unserved_kind(error) {
        UNSERVED_KIND
    } else if is_forbidden(error) {
        FORBIDDEN
    } else {
        TRANSIENT
    };
    let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
    let delay = range.first.saturating_mul(factor);
    if delay <= range.doubled_until {
        delay
    } else {
        range.max
    }
}

/// Returns between three quarters of the delay and all of it, so that components do not retry together.
fn with_jitter(delay: Duration) -> Duration {
    delay * (3_000 + random_per_mille()) / 4_000
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::core::Status;
    use tokio::time::Instant;

    use super::*;

    fn failed_list(code: u16) -> Result<Event<Node>, watcher::Error> {
        let status = Status::failure("not served", "NotFound").with_code(code);
        Err(watcher::Error::InitialListFailed(kube::Error::Api(Box::new(
            status,
        ))))
    }

    /// Returns when each event arrived, in seconds.
    async fn arrivals(events: Vec<Result<Event<Node>, watcher::Error>>) -> Vec<u64> {
        let start = Instant::now();
        with_backoff(stream::iter(events))
            .map(|_| start.elapsed().as_secs())
            .collect()
            .await
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_of_an_unserved_kind_is_not_retried_every_second() {
        let attempts = (0..20).flat_map(|_| [Ok(Event::Init), failed_list(404)]);
        let arrivals = arrivals(attempts.collect()).await;
        let in_the_second_half_hour = arrivals.iter().filter(|at| (1800..3600).contains(*at));
        assert!(in_the_second_half_hour.count() <= 2 * 4, "{arrivals:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_component_with_many_unserved_kinds_is_quiet_after_half_a_minute() {
        for _ in 0..8 {
            let attempts = (0..20).flat_map(|_| [Ok(Event::Init), failed_list(404)]);
            let arrivals = arrivals(attempts.collect()).await;
            assert!(!arrivals.iter().any(|at| (32..450).contains(at)), "{arrivals:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_granted_permission_is_used_within_a_minute() {
        let attempts = (0..20).flat_map(|_| [Ok(Event::Init), failed_list(403)]);
        let arrivals = arrivals(attempts.collect()).await;
        let pauses: Vec<u64> = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.iter().all(|pause| *pause <= 60), "{arrivals:?}");
        assert!(pauses.iter().any(|pause| *pause >= 44), "{arrivals:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_returns_is_found_within_ten_seconds() {
        let attempts = (0..20).flat_map(|_| [Ok(Event::Init), failed_list(503)]);
        let arrivals = arrivals(attempts.collect()).await;
        let pauses: Vec<u64> = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.iter().all(|pause| *pause <= 10), "{arrivals:?}");
        assert!(pauses.iter().any(|pause| *pause >= 6), "{arrivals:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_complete_list_resets_the_backoff() {
        let failures = || (0..10).flat_map(|_| [Ok(Event::Init), failed_list(503)]);
        let events = failures()
            .chain([
                Ok(Event::Init),
                Ok(Event::InitDone),
                failed_list(503),
                Ok(Event::Init),
            ])
            .collect();
        let arrivals = arrivals(events).await;
        let last = &arrivals[arrivals.len() - 2..];
        assert!(last[1] - last[0] <= 1, "{arrivals:?}");
    }
}
