//! The only writer: assigns revisions, commits batches, then notifies readers and callers.
//!
//! Writes that arrive during a commit form the next batch, so that they share one flush. Nothing is visible or
//! acknowledged before it is durable.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex, RwLock};
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::StoreError;
use super::disk::{Disk, Effect};
use super::history::{Change, Event};
use super::object::{Key, Stored};
use super::state::State;

/// The maximum number of accepted writes that are not durable. More means that the disk has stopped.
const MOST_PENDING: usize = 16_384;

/// The precondition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    Absent,
    Revision(u64),
}

/// A change of one object.
#[derive(Debug)]
pub enum Write {
    Put(Map<String, Value>),
    Remove,
}

type Ack = oneshot::Sender<Result<Arc<Stored>, StoreError>>;

struct Accepted {
    event: Arc<Event>,
    ack: Ack,
}

#[derive(Default)]
struct Inbox {
    revision: u64,
    batch: Vec<Accepted>,
    /// The newest accepted state of every key that is not durable yet.
    pending: HashMap<Key, Pending>,
    closed: bool,
}

struct Pending {
    revision: u64,
    object: Option<Arc<Stored>>,
}

pub(super) struct Writer {
    inbox: Mutex<Inbox>,
    arrived: Condvar,
    state: Arc<RwLock<State>>,
}

impl Writer {
    /// Starts the writer's thread.
    pub fn start(
        disk: Disk,
        state: Arc<RwLock<State>>,
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
            .spawn(move || worker.run(&disk))
            .map_err(StoreError::Thread)?;
        Ok((writer, handle))
    }

    /// Returns the newest accepted version of an object, durable or not, on which an update must be based.
    pub fn latest(&self, key: &Key) -> Option<Arc<Stored>> {
        let inbox = self.inbox.lock();
        self.newest(&inbox, key)
    }

    /// Returns the revision of the newest accepted write, durable or not.
    pub fn accepted(&self) -> u64 {
        self.inbox.lock().revision
    }

    fn newest(&self, inbox: &Inbox, key: &Key) -> Option<Arc<Stored>> {
        match inbox.pending.get(key) {
            Some(pending) => pending.object.clone(),
            None => self.state.read().get(key),
        }
    }

    /// Accepts a write if its precondition holds. The receiver resolves when it is durable.
    pub fn submit(
        &self,
        key: Key,
        expect: Expect,
        write: Write,
    ) -> Result<oneshot::Receiver<Result<Arc<Stored>, StoreError>>, StoreError> {
        let (ack, receiver) = oneshot::channel();
        let mut inbox = self.inbox.lock();
        if inbox.closed {
            return Err(StoreError::Closed);
        }
        if inbox.batch.len() >= MOST_PENDING {
            return Err(StoreError::Overloaded);
        }
        let current = self.newest(&inbox, &key);
        match (expect, &current) {
            (Expect::Absent, Some(_)) => return Err(StoreError::Exists),
            (Expect::Revision(_), None) => return Err(StoreError::Missing),
            (Expect::Revision(wanted), Some(found)) if found.revision != wanted => {
                return Err(StoreError::Changed);
            }
            _ => {}
        }
        let revision = inbox.revision + 1;
        let (change, object) = match write {
            Write::Put(object) => {
                let stored = Arc::new(Stored::encode(key.clone(), revision, object)?);
                (Change::Put(Arc::clone(&stored)), Some(stored))
            }
            Write::Remove => {
                let last = current.as_ref().ok_or(StoreError::Missing)?;
                (Change::Removed(Arc::new(last.at_revision(revision)?)), None)
            }
        };
        inbox.revision = revision;
        inbox.pending.insert(key, Pending { revision, object });
        let event = Arc::new(Event::new(revision, change, current));
        inbox.batch.push(Accepted { event, ack });
        drop(inbox);
        self.arrived.notify_one();
        Ok(receiver)
    }

    pub fn close(&self) {
        self.inbox.lock().closed = true;
        self.arrived.notify_all();
    }

    fn run(&self, disk: &Disk) {
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

    fn flush(&self, disk: &Disk, batch: Vec<Accepted>) {
        let Some(last) = batch.last().map(|accepted| accepted.event.revision) else {
            return;
        };
        let effects: Vec<Effect> = batch.iter().map(|accepted| effect(&accepted.event)).collect();
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
        tracing::error!(%error, writes = batch.len(), "the store could not be written");
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

fn effect(event: &Event) -> Effect {
    match &event.change {
        Change::Put(stored) => Effect::Put(Arc::clone(stored)),
        Change::Removed(last) => Effect::Remove(last.key.clone()),
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Writer").finish_non_exhaustive()
    }
}
