//! The only writer: assigns revisions, commits batches, then notifies readers and callers.
//!
//! Writes that arrive during a commit form the next batch, so that they share one flush. Nothing is visible or
//! acknowledged before it is durable.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex, RwLock};
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::StoreError;
use super::disk::{DiskEffect, StoreFile};
use super::history::{EventChange, StoreEvent};
use super::object::{ObjectKey, StoredObject};
use super::state::StoreState;

/// The maximum number of accepted writes that are not durable. More means that the disk has stopped.
const MAX_PENDING: usize = 16_384;

/// The precondition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    Absent,
    Revision(u64),
}

/// A change of one object.
#[derive(Debug)]
pub enum StoreWrite {
    Put(Map<String, Value>),
    Remove,
}

type Ack = oneshot::Sender<Result<Arc<StoredObject>, StoreError>>;

struct Accepted {
    event: Arc<StoreEvent>,
    ack: Ack,
}

#[derive(Default)]
struct Inbox {
    revision: u64,
    batch: Vec<Accepted>,
    /// The newest accepted state of every key that is not durable yet.
    pending: HashMap<ObjectKey, PendingWrite>,
    closed: bool,
}

struct PendingWrite {
    revision: u64,
    object: Option<Arc<StoredObject>>,
}

pub(super) struct StoreWriter {
    inbox: Mutex<Inbox>,
    arrived: Condvar,
    state: Arc<RwLock<StoreState>>,
}

impl StoreWriter {
    /// Starts the writer's thread.
    pub fn start(
        disk: StoreFile,
        state: Arc<RwLock<StoreState>>,
    ) -> Result<(Arc<Self>, thread::JoinHandle<()>), StoreError> {
        let revision = state.read().revision;
        let writer = Arc::new(Self {
            inbox: Mutex::new(Inbox {
                revision,
                ..Inbox::default()
            }),
            arrived: Condvar::new(),
            state,
        });
        let worker = Arc::clone(&writer);
        let handle = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || {
                // Without its only writer the store accepts writes that never become durable.
                if catch_unwind(AssertUnwindSafe(|| worker.run(&disk))).is_err() {
                    tracing::error!("the store writer has panicked; ending the process");
                    std::process::abort();
                }
            })
            .map_err(StoreError::Thread)?;
        Ok((writer, handle))
    }

    /// Returns the newest accepted version of an object, durable or not, on which an update must be based.
    pub fn latest(&self, key: &ObjectKey) -> Option<Arc<StoredObject>> {
        let inbox = self.inbox.lock();
        self.newest(&inbox, key)
    }

    /// Returns the revision of the newest accepted write, durable or not.
    pub fn accepted(&self) -> u64 {
        self.inbox.lock().revision
    }

    fn newest(&self, inbox: &Inbox, key: &ObjectKey) -> Option<Arc<StoredObject>> {
        match inbox.pending.get(key) {
            Some(pending) => pending.object.clone(),
            None => self.state.read().get(key),
        }
    }

    /// Accepts a write if its precondition holds. The receiver resolves when it is durable.
    pub fn submit(
        &self,
        key: ObjectKey,
        expect: Precondition,
        write: StoreWrite,
    ) -> Result<oneshot::Receiver<Result<Arc<StoredObject>, StoreError>>, StoreError> {
        let (ack, receiver) = oneshot::channel();
        let mut inbox = self.inbox.lock();
        if inbox.closed {
            return Err(StoreError::Closed);
        }
        if inbox.batch.len() >= MAX_PENDING {
            return Err(StoreError::Overloaded);
        }
        let current = self.newest(&inbox, &key);
        match (expect, &current) {
            (Precondition::Absent, Some(_)) => return Err(StoreError::Exists),
            (Precondition::Revision(_), None) => return Err(StoreError::Missing),
            (Precondition::Revision(wanted), Some(found)) if found.revision != wanted => {
                return Err(StoreError::Changed);
            }
            _ => {}
        }
        let revision = inbox.revision + 1;
        let (change, object) = match write {
            StoreWrite::Put(object) => {
                let stored = Arc::new(StoredObject::encode(key.clone(), revision, object)?);
                stored.check_size()?;
                (EventChange::Put(Arc::clone(&stored)), Some(stored))
            }
            StoreWrite::Remove => {
                let last = current.as_ref().ok_or(StoreError::Missing)?;
                (EventChange::Removed(Arc::new(last.at_revision(revision)?)), None)
            }
        };
        inbox.revision = revision;
        inbox.pending.insert(key, PendingWrite { revision, object });
        let event = Arc::new(StoreEvent::new(revision, change, current));
        inbox.batch.push(Accepted { event, ack });
        drop(inbox);
        self.arrived.notify_one();
        Ok(receiver)
    }

    pub fn close(&self) {
        self.inbox.lock().closed = true;
        self.arrived.notify_all();
    }

    fn run(&self, disk: &StoreFile) {
        loop {
            let mut inbox = self.inbox.lock();
            while inbox.batch.is_empty() {
                if inbox.closed {
                    return;
                }
                self.arrived.wait(&mut inbox);
            }
            let batch = std::mem::take(&mut inbox.batch);
            drop(inbox);
            self.flush(disk, batch);
        }
    }

    fn flush(&self, disk: &StoreFile, batch: Vec<Accepted>) {
        let Some(last) = batch.last().map(|accepted| accepted.event.revision) else {
            return;
        };
        let effects: Vec<DiskEffect> = batch.iter().map(|accepted| effect(&accepted.event)).collect();
        match disk.commit(&effects, last) {
            Ok(()) => self.succeed(batch, last),
            Err(error) => self.fail(batch, &error),
        }
    }

    fn succeed(&self, batch: Vec<Accepted>, last: u64) {
        {
            // Both locks, in the order `submit` takes them: a key leaves `pending` exactly when `state` has it.
            let mut inbox = self.inbox.lock();
            let mut state = self.state.write();
            state.publish(batch.iter().map(|accepted| Arc::clone(&accepted.event)).collect());
            inbox.pending.retain(|_, pending| pending.revision > last);
        }
        for accepted in batch {
            // The caller may have gone away; its write is valid all the same.
            let _ = accepted.ack.send(Ok(Arc::clone(accepted.event.object())));
        }
    }

    /// Fails all accepted writes after a failed flush: they are based on state that was never stored.
    fn fail(&self, batch: Vec<Accepted>, error: &StoreError) {
        tracing::error!(%error, writes = batch.len(), "writing to the store failed");
        let later = {
            let mut inbox = self.inbox.lock();
            inbox.pending.clear();
            std::mem::take(&mut inbox.batch)
        };
        for accepted in batch.into_iter().chain(later) {
            let _ = accepted.ack.send(Err(StoreError::NotWritten(error.to_string())));
        }
    }
}

fn effect(event: &StoreEvent) -> DiskEffect {
    match &event.change {
        EventChange::Put(stored) => DiskEffect::Put(Arc::clone(stored)),
        EventChange::Removed(last) => DiskEffect::Remove(last.key.clone()),
    }
}

impl std::fmt::Debug for StoreWriter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Writer").finish_non_exhaustive()
    }
}
