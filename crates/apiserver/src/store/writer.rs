//! The only writer: assigns revisions, commits batches, then notifies readers and callers.
//!
//! Writes that arrive during a commit form the next batch, so that they share one flush. Nothing is visible or
//! acknowledged before it is durable.
//!
//! After an I/O error, such as a full disk, writes are refused until the file has been opened again and written
//! successfully. Reads are served from memory meanwhile.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use serde_json::{Map, Value};
use tokio::sync::{oneshot, watch};

use super::StoreError;
use super::disk::{DiskEffect, StoreFile};
use super::history::{EventChange, StoreEvent};
use super::object::{ObjectKey, StoredObject};
use super::state::StoreState;

/// The maximum number of accepted writes that are not durable. More means that the disk has stopped.
const MAX_PENDING: usize = 16_384;

/// The time after a failed commit before the file is opened again. It doubles with each failure.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(200);
/// The longest time between two attempts, and so between free space and the next accepted write. Opening a file after a
/// failure reads all of it.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(3);

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
    /// Why writes are refused.
    outage: Option<String>,
    closed: bool,
}

/// The state of the writer after a failed commit.
struct Recovery {
    /// The keys whose durable state is written again.
    keys: HashSet<ObjectKey>,
    retry_at: Instant,
    delay: Duration,
}

/// What the writer does next.
enum WriterStep {
    Commit(Vec<Accepted>),
    Reopen,
    End,
}

struct PendingWrite {
    revision: u64,
    object: Option<Arc<StoredObject>>,
}

pub(super) struct StoreWriter {
    inbox: Mutex<Inbox>,
    arrived: Condvar,
    state: Arc<RwLock<StoreState>>,
    directory: PathBuf,
    /// Changes when accepted writes are refused.
    refusals: watch::Sender<u64>,
    /// Set if the caller of a write commits it, instead of the writer's thread.
    inline: Option<Mutex<StoreFile>>,
}

impl StoreWriter {
    /// Starts the writer's thread.
    pub fn start(
        disk: StoreFile,
        state: Arc<RwLock<StoreState>>,
    ) -> Result<(Arc<Self>, thread::JoinHandle<()>), StoreError> {
        let writer = Arc::new(Self::new(&disk, state));
        let worker = Arc::clone(&writer);
        let handle = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || {
                // Without its only writer the store accepts writes that never become durable.
                if catch_unwind(AssertUnwindSafe(|| worker.run(disk))).is_err() {
                    tracing::error!("the store writer has panicked; ending the process");
                    std::process::abort();
                }
            })
            .map_err(StoreError::Thread)?;
        Ok((writer, handle))
    }

    /// Returns a writer without a thread: each write is committed by its caller.
    pub fn inline(disk: StoreFile, state: Arc<RwLock<StoreState>>) -> Arc<Self> {
        let mut writer = Self::new(&disk, state);
        writer.inline = Some(Mutex::new(disk));
        Arc::new(writer)
    }

    fn new(disk: &StoreFile, state: Arc<RwLock<StoreState>>) -> Self {
        let revision = state.read().revision;
        Self {
            inbox: Mutex::new(Inbox {
                revision,
                ..Inbox::default()
            }),
            arrived: Condvar::new(),
            state,
            directory: disk.directory().to_owned(),
            refusals: watch::Sender::new(0),
            inline: None,
        }
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

    /// Returns a channel that changes when accepted writes are refused.
    pub fn refusals(&self) -> watch::Receiver<u64> {
        self.refusals.subscribe()
    }

    /// Returns the reason why writes are refused at the moment.
    pub fn outage(&self) -> Option<String> {
        self.inbox.lock().outage.clone()
    }

    fn unwritable(&self, cause: &str) -> StoreError {
        StoreError::Unwritable {
            directory: self.directory.clone(),
            cause: cause.to_owned(),
        }
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
        if let Some(cause) = &inbox.outage {
            return Err(self.unwritable(cause));
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
        match &self.inline {
            None => {
                self.arrived.notify_one();
            }
            Some(disk) => self.commit_inline(&disk.lock()),
        }
        Ok(receiver)
    }

    /// Commits what was accepted. A failure is final: only a disk comes back, and this store has none.
    fn commit_inline(&self, disk: &StoreFile) {
        let batch = std::mem::take(&mut self.inbox.lock().batch);
        let _ = self.flush(disk, batch);
    }

    pub fn close(&self) {
        self.inbox.lock().closed = true;
        self.arrived.notify_all();
    }

    fn run(&self, mut disk: StoreFile) {
        let mut recovery: Option<Recovery> = None;
        loop {
            match self.next_step(recovery.as_ref()) {
                WriterStep::End => return,
                WriterStep::Commit(batch) => recovery = self.flush(&disk, batch).err(),
                WriterStep::Reopen => {
                    recovery = recovery.and_then(|recovery| self.recover(&mut disk, recovery))
                }
            }
        }
    }

    /// Waits for writes, or during an outage for the time of the next attempt.
    fn next_step(&self, recovery: Option<&Recovery>) -> WriterStep {
        let mut inbox = self.inbox.lock();
        loop {
            if !inbox.batch.is_empty() {
                return WriterStep::Commit(std::mem::take(&mut inbox.batch));
            }
            if inbox.closed {
                return WriterStep::End;
            }
            match recovery {
                None => self.arrived.wait(&mut inbox),
                Some(recovery) => {
                    if self.arrived.wait_until(&mut inbox, recovery.retry_at).timed_out() {
                        return WriterStep::Reopen;
                    }
                }
            }
        }
    }

    fn flush(&self, disk: &StoreFile, batch: Vec<Accepted>) -> Result<(), Recovery> {
        let Some(last) = batch.last().map(|accepted| accepted.event.revision) else {
            return Ok(());
        };
        let effects: Vec<DiskEffect> = batch.iter().map(|accepted| effect(&accepted.event)).collect();
        match disk.commit(&effects, last) {
            Ok(()) => {
                self.succeed(batch, last);
                Ok(())
            }
            Err(error) => Err(self.fail(batch, &error)),
        }
    }

    /// Opens the file again. Returns `None` when writes are accepted again.
    fn recover(&self, disk: &mut StoreFile, recovery: Recovery) -> Option<Recovery> {
        let (effects, revision) = {
            let state = self.state.read();
            let durable = |key: &ObjectKey| match state.get(key) {
                Some(stored) => DiskEffect::Put(stored),
                None => DiskEffect::Remove(key.clone()),
            };
            let effects: Vec<DiskEffect> = recovery.keys.iter().map(durable).collect();
            (effects, state.revision)
        };
        match disk.reopen(&effects, revision) {
            Ok(()) => {
                tracing::info!(directory = %self.directory.display(), "the store can be written again");
                self.inbox.lock().outage = None;
                None
            }
            Err(error) => {
                let delay = (recovery.delay * 2).min(MAX_RETRY_DELAY);
                tracing::warn!(error = %cause_of(&error), retry = ?delay, "the store still cannot be written");
                self.inbox.lock().outage = Some(cause_of(&error));
                Some(Recovery {
                    keys: recovery.keys,
                    retry_at: Instant::now() + delay,
                    delay,
                })
            }
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

    /// Refuses all accepted writes after a failed flush: they are based on state that was never stored.
    fn fail(&self, batch: Vec<Accepted>, error: &StoreError) -> Recovery {
        let cause = cause_of(error);
        tracing::error!(error = %cause, writes = batch.len(), directory = %self.directory.display(),
            "writing to the store failed");
        let later = {
            let mut inbox = self.inbox.lock();
            inbox.pending.clear();
            // Refused revisions were never visible and are assigned again.
            inbox.revision = self.state.read().revision;
            inbox.outage = Some(cause.clone());
            std::mem::take(&mut inbox.batch)
        };
        self.refusals.send_modify(|refusals| *refusals += 1);
        let keys = batch
            .iter()
            .map(|accepted| accepted.event.object().key.clone())
            .collect();
        for accepted in batch.into_iter().chain(later) {
            let _ = accepted.ack.send(Err(self.unwritable(&cause)));
        }
        Recovery {
            keys,
            retry_at: Instant::now() + FIRST_RETRY_DELAY,
            delay: FIRST_RETRY_DELAY,
        }
    }
}

/// Returns the reason of the operating system where there is one, without the layers above it.
fn cause_of(error: &StoreError) -> String {
    match error {
        StoreError::Disk(source) | StoreError::Open { source, .. } => match &**source {
            redb::Error::Io(error) => error.to_string(),
            other => other.to_string(),
        },
        other => other.to_string(),
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
