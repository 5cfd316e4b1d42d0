//! Expiry of Events: they are deleted an hour after their last write, as a kube-apiserver does with its default
//! `--event-ttl`, and the oldest ones earlier when there are too many. All objects are in memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::target;
use crate::registry::{DeleteOptions, ObjectRegistry, WriteContext};
use crate::store::StoredObject;

pub(super) const RESOURCE: &str = "events";
const TTL: Duration = Duration::from_hours(1);
/// The maximum number of Events. A cluster of 5,000 nodes in the middle of a rollout has fewer within an hour.
const MAX_EVENTS: usize = 50_000;
const INTERVAL: Duration = Duration::from_mins(1);

pub(super) async fn run(registry: Arc<ObjectRegistry>, mut stopped: watch::Receiver<bool>) {
    let context = WriteContext::internal("event-ttl");
    let mut ages = RevisionAges::new(registry.store.revision());
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        let past_ttl = ages.past_ttl(registry.store.revision(), Instant::now());
        let events = registry.store.list(RESOURCE, "").objects;
        for expired in expired(&events, &past_ttl, registry.clock().now(), MAX_EVENTS) {
            let Some(target) = target(&registry, &expired.key, "") else {
                continue;
            };
            match registry
                .delete(&target, &context, &DeleteOptions::default())
                .await
            {
                Err(error) if !error.is_not_found() => {
                    tracing::debug!(%error, event = expired.key.name(), "an expired Event could not be deleted");
                }
                _ => {}
            }
        }
    }
}

/// The ages of revisions by the monotonic clock, which does not jump as the system clock can.
struct RevisionAges {
    at_start: u64,
    /// Revisions and when they were the newest ones, within the TTL.
    observed: VecDeque<(Instant, u64)>,
    past_ttl: u64,
}

/// Up to which revision objects are past the TTL.
struct PastTtl {
    /// By the time this process has observed.
    revision: u64,
    /// Objects up to this revision are older than the process; their age is that of their timestamps.
    at_start: u64,
}

impl RevisionAges {
    fn new(at_start: u64) -> Self {
        Self {
            at_start,
            observed: VecDeque::from([(Instant::now(), at_start)]),
            past_ttl: 0,
        }
    }

    fn past_ttl(&mut self, newest: u64, now: Instant) -> PastTtl {
        self.observed.push_back((now, newest));
        while let Some((at, revision)) = self.observed.front().copied()
            && now.saturating_duration_since(at) > TTL
        {
            self.past_ttl = revision;
            self.observed.pop_front();
        }
        PastTtl {
            revision: self.past_ttl,
            at_start: self.at_start,
        }
    }
}

/// Returns the Events that are past their TTL, and the oldest ones in excess of `max`.
fn expired<'e>(
    events: &'e [Arc<StoredObject>],
    past_ttl: &PastTtl,
    now: Timestamp,
    max: usize,
) -> Vec<&'e Arc<StoredObject>> {
    let ttl = i64::try_from(TTL.as_secs()).unwrap_or(i64::MAX);
    let mut by_revision: Vec<&Arc<StoredObject>> = events.iter().collect();
    by_revision.sort_by_key(|event| event.revision);
    let excess = by_revision.len().saturating_sub(max);
    // Revisions grow with time, so the first Event within its TTL ends the search.
    let old = by_revision.iter().skip(excess).take_while(|event| {
        if event.revision <= past_ttl.revision {
            return true;
        }
        let written = || event.value().ok().and_then(|object| last_write(&object));
        event.revision <= past_ttl.at_start
            && written().is_none_or(|written| now.as_second() - written.as_second() > ttl)
    });
    let count = excess + old.count();
    by_revision.truncate(count);
    by_revision
}

/// Returns the time of the last write that the managed fields record, else of the creation.
fn last_write(object: &Map<String, Value>) -> Option<Timestamp> {
    let metadata = object.get("metadata")?;
    let managed = metadata.get("managedFields").and_then(Value::as_array);
    let times = managed
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.get("time"));
    times
        .chain(metadata.get("creationTimestamp"))
        .filter_map(|time| time.as_str()?.parse().ok())
        .max()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::ObjectKey;

    fn event(revision: u64, created: &str, managed: Option<&str>) -> Arc<StoredObject> {
        let name = format!("e{revision}");
        let mut metadata = json!({"name": name, "namespace": "default", "creationTimestamp": created});
        if let Some(time) = managed {
            metadata["managedFields"] = json!([{"manager": "m", "operation": "Update", "time": time}]);
        }
        let object = json!({"kind": "Event", "apiVersion": "v1", "metadata": metadata});
        let key = ObjectKey::new(&Arc::from(RESOURCE), "default", &name);
        Arc::new(StoredObject::encode(key, revision, object.as_object().unwrap().clone()).unwrap())
    }

    #[test]
    fn events_were_kept_for_ever() {
        let events = [
            event(1, "2026-01-01T10:00:00Z", None),
            event(3, "2026-01-01T10:59:00Z", None),
            event(4, "2026-01-01T10:00:00Z", Some("2026-01-01T11:10:00Z")),
        ];
        let now = "2026-01-01T11:30:00Z".parse().unwrap();
        let past_ttl = PastTtl {
            revision: 0,
            at_start: 10,
        };
        let names = |max: usize| -> Vec<u64> {
            let found = expired(&events, &past_ttl, now, max);
            found.iter().map(|event| event.revision).collect()
        };
        assert_eq!(names(10), [1]);
        assert_eq!(names(1), [1, 3], "the oldest ones in excess");
    }

    #[test]
    fn a_clock_that_was_wrong_kept_events_for_years_or_removed_them_at_once() {
        let start = Instant::now();
        let mut ages = RevisionAges::new(2);
        let _ = ages.past_ttl(4, start + Duration::from_mins(10));
        let future = [
            event(1, "2036-01-01T10:00:00Z", None),
            event(4, "2026-01-01T10:00:00Z", None),
        ];
        let revisions = |past_ttl: &PastTtl, now: &str| -> Vec<u64> {
            let found = expired(&future, past_ttl, now.parse().unwrap(), 10);
            found.iter().map(|event| event.revision).collect()
        };
        let at = ages.past_ttl(4, start + Duration::from_mins(20));
        assert!(
            revisions(&at, "2026-01-01T10:20:00Z").is_empty(),
            "from the future"
        );
        assert_eq!(
            revisions(&at, "2040-01-01T00:00:00Z"),
            [1],
            "the clock jumped, and 4 is new"
        );
        let at = ages.past_ttl(4, start + Duration::from_mins(65));
        assert_eq!(
            revisions(&at, "2026-01-01T11:05:00Z"),
            [1],
            "an hour after the start"
        );
        let at = ages.past_ttl(4, start + Duration::from_mins(75));
        assert_eq!(revisions(&at, "2026-01-01T11:15:00Z"), [1, 4]);
        assert_eq!(
            revisions(&at, "1970-01-01T00:00:00Z"),
            [1, 4],
            "the clock went back"
        );
    }
}
