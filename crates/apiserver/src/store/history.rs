//! The recent events of one resource: the source of watches and of lists at a past revision.
//!
//! The history is bounded by count, size and age. There is no queue per watcher: each holds a revision and reads on
//! from there. A watcher behind the oldest event has expired.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::object::{ObjectKey, StoredObject};

/// The bounds of the history, per resource.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    pub events: usize,
    pub bytes: usize,
    pub age: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            // Enough for every node of the largest supported fleet to change three times while a watcher reconnects.
            events: 16_384,
            bytes: 48 << 20,
            // A paged list must be finishable; Kubernetes compacts on the same scale.
            age: Duration::from_mins(10),
        }
    }
}

/// One change of one object.
#[derive(Debug)]
pub struct StoreEvent {
    pub revision: u64,
    pub change: EventChange,
    pub previous: Option<Arc<StoredObject>>,
    at: Instant,
    frames: WatchFrames,
}

/// The result of the change.
#[derive(Debug)]
pub enum EventChange {
    Put(Arc<StoredObject>),
    /// The object as it last was, under the revision of its removal.
    Removed(Arc<StoredObject>),
}

/// Watch frames shared by all watchers of the stored form.
#[derive(Debug, Default)]
pub(crate) struct WatchFrames {
    pub natural: OnceLock<Bytes>,
    pub entered: OnceLock<Bytes>,
    pub left: OnceLock<Bytes>,
}

impl StoreEvent {
    pub(super) fn new(revision: u64, change: EventChange, previous: Option<Arc<StoredObject>>) -> Self {
        Self {
            revision,
            change,
            previous,
            at: Instant::now(),
            frames: WatchFrames::default(),
        }
    }

    /// Returns the object after the event, or its last state.
    pub fn object(&self) -> &Arc<StoredObject> {
        match &self.change {
            EventChange::Put(stored) | EventChange::Removed(stored) => stored,
        }
    }

    pub(crate) fn frames(&self) -> &WatchFrames {
        &self.frames
    }

    fn weight(&self) -> usize {
        // `previous` is mostly the object of an earlier event. Counting it again keeps the bound valid if it is not.
        self.object().weight() + self.previous.as_ref().map_or(0, |previous| previous.weight())
    }
}

/// A revision older than what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {asked} ({oldest})")]
pub struct ExpiredRevision {
    pub asked: u64,
    pub oldest: u64,
}

#[derive(Debug)]
pub(super) struct EventHistory {
    events: VecDeque<Arc<StoreEvent>>,
    bytes: usize,
    /// Every event after this revision is kept.
    floor: u64,
    /// Lists at older revisions are rejected, even if the events to rebuild them still exist.
    compacted: u64,
}

impl EventHistory {
    pub fn starting_at(floor: u64, compacted: u64) -> Self {
        Self {
            events: VecDeque::new(),
            bytes: 0,
            floor,
            compacted,
        }
    }

    pub fn push(&mut self, event: Arc<StoreEvent>, retention: &Retention) {
        self.bytes += event.weight();
        self.events.push_back(event);
        while self.events.len() > retention.events || self.bytes > retention.bytes && self.events.len() > 1 {
            self.drop_oldest();
        }
    }

    /// Removes events older than the retention.
    pub fn expire(&mut self, retention: &Retention, now: Instant) {
        while let Some(oldest) = self.events.front() {
            if now.duration_since(oldest.at) < retention.age {
                break;
            }
            self.drop_oldest();
        }
    }

    /// Removes everything up to and including a revision.
    pub fn compact(&mut self, revision: u64) {
        while self
            .events
            .front()
            .is_some_and(|event| event.revision <= revision)
        {
            self.drop_oldest();
        }
        self.compacted = self.compacted.max(revision);
    }

    fn drop_oldest(&mut self) {
        if let Some(event) = self.events.pop_front() {
            self.bytes = self.bytes.saturating_sub(event.weight());
            self.floor = event.revision;
        }
    }

    /// Returns up to `limit` events after a revision, oldest first.
    pub fn after(&self, revision: u64, limit: usize) -> Result<Vec<Arc<StoreEvent>>, ExpiredRevision> {
        check(revision, self.floor)?;
        let start = self.events.partition_point(|event| event.revision <= revision);
        Ok(self.events.iter().skip(start).take(limit).cloned().collect())
    }

    /// Returns the differences from now to a past revision: the old object of each changed path.
    pub fn undo(
        &self,
        revision: u64,
    ) -> Result<HashMap<ObjectKey, Option<Arc<StoredObject>>>, ExpiredRevision> {
        check(revision, self.floor.max(self.compacted))?;
        let mut then = HashMap::new();
        for event in self
            .events
            .iter()
            .rev()
            .take_while(|event| event.revision > revision)
        {
            then.insert(event.object().key.clone(), event.previous.clone());
        }
        Ok(then)
    }
}

fn check(asked: u64, oldest: u64) -> Result<(), ExpiredRevision> {
    if asked < oldest {
        return Err(ExpiredRevision { asked, oldest });
    }
    Ok(())
}
