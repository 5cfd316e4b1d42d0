//! What happened to one resource lately: the source of watches and of lists at a past revision.
//!
//! The history is bounded by count, size and age. There is no queue per watcher: each keeps a revision and reads on
//! from there, and one that falls behind the oldest event kept has expired.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::object::{Key, Stored};

/// How much of the past is kept, per resource.
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
pub struct Event {
    pub revision: u64,
    pub change: Change,
    pub previous: Option<Arc<Stored>>,
    at: Instant,
    frames: Frames,
}

/// What the change left behind.
#[derive(Debug)]
pub enum Change {
    Put(Arc<Stored>),
    /// The object as it last was, under the revision of its removal.
    Removed(Arc<Stored>),
}

/// Watch frames shared by every watcher that asks for the stored form.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    pub natural: OnceLock<Bytes>,
    pub entered: OnceLock<Bytes>,
    pub left: OnceLock<Bytes>,
}

impl Event {
    pub(super) fn new(revision: u64, change: Change, previous: Option<Arc<Stored>>) -> Self {
        Self {
            revision,
            change,
            previous,
            at: Instant::now(),
            frames: Frames::default(),
        }
    }

    /// The object the event is about, as it is after the event (or last was).
    pub fn object(&self) -> &Arc<Stored> {
        match &self.change {
            Change::Put(stored) | Change::Removed(stored) => stored,
        }
    }

    pub(crate) fn frames(&self) -> &Frames {
        &self.frames
    }

    fn weight(&self) -> usize {
        // `previous` is the object of an earlier event, mostly; counting it again keeps the bound honest when it is
        // not.
        self.object().weight() + self.previous.as_ref().map_or(0, |previous| previous.weight())
    }
}

/// A revision older than what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {asked} ({oldest})")]
pub struct Expired {
    pub asked: u64,
    pub oldest: u64,
}

#[derive(Debug)]
pub(super) struct History {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Every event after this revision is kept.
    floor: u64,
    /// Lists at revisions before this one are refused although the events to rebuild them may still be here.
    compacted: u64,
}

impl History {
    pub fn starting_at(floor: u64, compacted: u64) -> Self {
        Self {
            events: VecDeque::new(),
            bytes: 0,
            floor,
            compacted,
        }
    }

    pub fn push(&mut self, event: Arc<Event>, retention: &Retention) {
        self.bytes += event.weight();
        self.events.push_back(event);
        while self.events.len() > retention.events || self.bytes > retention.bytes && self.events.len() > 1 {
            self.drop_oldest();
        }
    }

    /// Forgets events older than the retention allows.
    pub fn expire(&mut self, retention: &Retention, now: Instant) {
        while let Some(oldest) = self.events.front() {
            if now.duration_since(oldest.at) < retention.age {
                break;
            }
            self.drop_oldest();
        }
    }

    /// Forgets everything up to and including a revision.
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

    /// Up to `limit` events after a revision, oldest first.
    pub fn after(&self, revision: u64, limit: usize) -> Result<Vec<Arc<Event>>, Expired> {
        check(revision, self.floor)?;
        let start = self.events.partition_point(|event| event.revision <= revision);
        Ok(self.events.iter().skip(start).take(limit).cloned().collect())
    }

    /// What differs between now and a past revision: for each changed path, the object of that time.
    pub fn undo(&self, revision: u64) -> Result<HashMap<Key, Option<Arc<Stored>>>, Expired> {
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

fn check(asked: u64, oldest: u64) -> Result<(), Expired> {
    if asked < oldest {
        return Err(Expired { asked, oldest });
    }
    Ok(())
}
