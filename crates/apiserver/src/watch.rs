//! One watch: the events of a selection from a revision on.
//!
//! A watch has no queue. It holds a cursor into the store's bounded history and reads on when its client does. A client
//! that stops reading costs nothing, and expires when history has moved past its cursor. Frames in the stored form are
//! serialized once and shared by all watches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::ApiError;
use crate::present::{IncludeObject, Presenter, Representation};
use crate::selection::ObjectSelection;
use crate::store::{EventChange, ObjectPage, ObjectStore, StoreEvent, StoredObject};

/// The number of events that a watch reads from history at once, and so holds between two reads of its client.
const BATCH: usize = 128;

/// The start of a watch.
#[derive(Debug)]
pub enum WatchStart {
    /// The current objects, then what follows.
    Everything { page: ObjectPage, announce_end: bool },
    /// What follows a revision.
    After(u64),
    /// An error: the watch sends it and ends.
    Rejected(ApiError),
}

/// The parameters of a watch.
#[derive(Debug)]
pub struct WatchSpec {
    pub resource: Arc<str>,
    pub selection: ObjectSelection,
    pub presenter: Presenter,
    pub bookmarks: Option<Duration>,
    pub timeout: Duration,
}

#[derive(Debug)]
pub struct ObjectWatch {
    store: Arc<ObjectStore>,
    spec: WatchSpec,
    initial: VecDeque<Arc<StoredObject>>,
    announce_end: bool,
    read_to: u64,
    ready: VecDeque<Bytes>,
    tip: watch::Receiver<u64>,
    stop: watch::Receiver<bool>,
    deadline: Instant,
    next_bookmark: Option<Instant>,
    ended: bool,
    position: ReadPosition,
    table_started: bool,
}

/// Whether a watch has read all events of its resource.
#[derive(Clone, Copy, Debug)]
enum ReadPosition {
    Behind,
    Newest,
}

/// The reason why a waiting watch continues.
enum WakeReason {
    Changed,
    BookmarkDue,
    TimedOut,
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchEventType {
    Added,
    Modified,
    Deleted,
}

impl WatchEventType {
    fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

impl ObjectWatch {
    pub fn new(
        store: Arc<ObjectStore>,
        spec: WatchSpec,
        start: WatchStart,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let tip = store.subscribe(&spec.resource);
        let mut ready = VecDeque::new();
        let mut ended = false;
        let (initial, announce_end, read_to) = match start {
            WatchStart::After(revision) => (VecDeque::new(), false, revision),
            WatchStart::Everything { page, announce_end } => {
                (page.objects.into(), announce_end, page.revision)
            }
            WatchStart::Rejected(error) => {
                ready.push_back(error_frame(&error));
                ended = true;
                (VecDeque::new(), false, 0)
            }
        };
        let now = Instant::now();
        Self {
            store,
            initial,
            announce_end,
            read_to,
            ready,
            tip,
            stop,
            deadline: now + spec.timeout,
            next_bookmark: spec.bookmarks.map(|every| now + every),
            ended,
            position: ReadPosition::Behind,
            table_started: false,
            spec,
        }
    }

    /// Returns the next frame, or `None` at the end of the watch.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            if self.ended {
                return None;
            }
            if let Err(error) = self.fill() {
                self.ended = true;
                return Some(error_frame(&error));
            }
            if !self.ready.is_empty() || self.ended {
                continue;
            }
            match self.position {
                // A long stretch without a selected object must not occupy the thread.
                ReadPosition::Behind => tokio::task::yield_now().await,
                ReadPosition::Newest => self.wait().await,
            }
        }
    }

    /// Moves pending events into `ready`. Reads a limited number, and records whether others may follow.
    fn fill(&mut self) -> Result<(), ApiError> {
        self.position = ReadPosition::Behind;
        for _ in 0..BATCH {
            let Some(stored) = self.initial.pop_front() else {
                break;
            };
            if self.spec.selection.selects(&stored) {
                let frame = self.frame(WatchEventType::Added, &stored)?;
                self.ready.push_back(frame);
                return Ok(());
            }
        }
        if !self.initial.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut self.announce_end) {
            let frame = self.bookmark(Some("k8s.io/initial-events-end"));
            self.ready.push_back(frame);
            return Ok(());
        }
        let resource = Arc::clone(&self.spec.resource);
        // Marked as seen before reading, so that an event that arrives in between ends the next wait.
        self.tip.mark_unchanged();
        let news = self.store.events_after(&resource, self.read_to, BATCH)?;
        for event in &news.events {
            if let Some(frame) = self.send_event(event)? {
                self.ready.push_back(frame);
            }
        }
        self.read_to = news.read_to;
        if news.events.len() < BATCH {
            self.position = ReadPosition::Newest;
        }
        Ok(())
    }

    async fn wait(&mut self) {
        let bookmark_at = self.next_bookmark.unwrap_or(self.deadline);
        let woken = tokio::select! {
            changed = self.tip.changed() => if changed.is_ok() { WakeReason::Changed } else { WakeReason::Stopped },
            _ = self.stop.wait_for(|stop| *stop) => WakeReason::Stopped,
            () = tokio::time::sleep_until(self.deadline) => WakeReason::TimedOut,
            () = tokio::time::sleep_until(bookmark_at) => WakeReason::BookmarkDue,
        };
        match woken {
            WakeReason::Changed => {}
            WakeReason::Stopped => self.ended = true,
            WakeReason::TimedOut => {
                self.push_bookmark();
                self.ended = true;
            }
            WakeReason::BookmarkDue => {
                self.push_bookmark();
                self.next_bookmark = self.spec.bookmarks.map(|every| Instant::now() + every);
            }
        }
    }

    fn push_bookmark(&mut self) {
        if self.spec.bookmarks.is_none() {
            return;
        }
        // Reading first makes the bookmark as recent as the store. A failure surfaces at the next read.
        if self.fill().is_ok() {
            let frame = self.bookmark(None);
            self.ready.push_back(frame);
        }
    }

    /// Returns the event as this watch sends it, if the selection matches before or after the change.
    fn send_event(&mut self, event: &StoreEvent) -> Result<Option<Bytes>, ApiError> {
        let selection = &self.spec.selection;
        let before = event
            .previous
            .as_ref()
            .is_some_and(|previous| selection.selects(previous));
        let (event_type, stored) = match &event.change {
            EventChange::Put(stored) => match (before, selection.selects(stored)) {
                (false, false) => return Ok(None),
                (false, true) => (WatchEventType::Added, stored),
                (true, true) => (WatchEventType::Modified, stored),
                (true, false) => return self.left(event).map(Some),
            },
            EventChange::Removed(_) if !before => return Ok(None),
            EventChange::Removed(last) => (WatchEventType::Deleted, last),
        };
        if !self.spec.presenter.is_stored_form(stored) {
            return self.frame(event_type, stored).map(Some);
        }
        let natural = event_type != WatchEventType::Added || event.previous.is_none();
        let slot = if natural {
            &event.frames().natural
        } else {
            &event.frames().entered
        };
        Ok(Some(
            slot.get_or_init(|| frame(event_type, stored.json())).clone(),
        ))
    }

    /// The object still exists but is no longer selected: it is sent as deleted, at the revision of the change.
    fn left(&mut self, event: &StoreEvent) -> Result<Bytes, ApiError> {
        let Some(previous) = &event.previous else {
            return Err(ApiError::internal(
                "an event without a past cannot leave a selection",
            ));
        };
        if let Some(shared) = event.frames().left.get()
            && self.spec.presenter.is_stored_form(previous)
        {
            return Ok(shared.clone());
        }
        let gone = previous.at_revision(event.revision)?;
        if !self.spec.presenter.is_stored_form(&gone) {
            return self.frame(WatchEventType::Deleted, &gone);
        }
        Ok(event
            .frames()
            .left
            .get_or_init(|| frame(WatchEventType::Deleted, gone.json()))
            .clone())
    }

    fn frame(&mut self, event_type: WatchEventType, stored: &StoredObject) -> Result<Bytes, ApiError> {
        let mut object = self.spec.presenter.object(stored)?;
        if matches!(self.spec.presenter.form, Representation::Table(_)) {
            object = self.without_repeated_columns(&object)?;
        }
        Ok(frame(event_type, &object))
    }

    /// Only the first table of a watch contains the column definitions.
    fn without_repeated_columns(&mut self, table: &Bytes) -> Result<Bytes, ApiError> {
        if !std::mem::replace(&mut self.table_started, true) {
            return Ok(table.clone());
        }
        let mut table: serde_json::Value = serde_json::from_slice(table).map_err(ApiError::internal)?;
        table["columnDefinitions"] = serde_json::Value::Null;
        Ok(Bytes::from(table.to_string()))
    }

    fn bookmark(&self, annotation: Option<&str>) -> Bytes {
        let definition = &self.spec.presenter.definition;
        let (kind, api_version) = match self.spec.presenter.form {
            Representation::Metadata => ("PartialObjectMetadata".to_owned(), "meta.k8s.io/v1".to_owned()),
            Representation::Whole | Representation::Table(_) => {
                (definition.kind.clone(), definition.api_version())
            }
        };
        let mut object = json!({"kind": kind, "apiVersion": api_version,
            "metadata": {"resourceVersion": self.read_to.to_string()}});
        if let Some(annotation) = annotation {
            object["metadata"]["annotations"] = json!({annotation: "true"});
        }
        if let Representation::Table(include) = self.spec.presenter.form {
            let row = match include {
                IncludeObject::None => serde_json::Value::Null,
                IncludeObject::Metadata | IncludeObject::Object => object,
            };
            object = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": self.read_to.to_string()}, "columnDefinitions": null,
                "rows": [{"cells": [], "object": row}]});
        }
        let frame = json!({"type": "BOOKMARK", "object": object});
        Bytes::from(format!("{frame}\n"))
    }
}

fn frame(event_type: WatchEventType, object: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(object.len() + 40);
    bytes.extend_from_slice(b"{\"type\":\"");
    bytes.extend_from_slice(event_type.name().as_bytes());
    bytes.extend_from_slice(b"\",\"object\":");
    bytes.extend_from_slice(object);
    bytes.extend_from_slice(b"}\n");
    Bytes::from(bytes)
}

fn error_frame(error: &ApiError) -> Bytes {
    let frame = json!({"type": "ERROR", "object": error.status()});
    Bytes::from(format!("{frame}\n"))
}
