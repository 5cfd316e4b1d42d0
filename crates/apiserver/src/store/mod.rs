//! A revisioned store of JSON objects in one file.
//!
//! Every change has a revision from one total order. Current objects are in memory, with the recent history for watches
//! and paged lists. A write is acknowledged when it is on stable storage. The store is independent of Kubernetes kinds,
//! of HTTP and of authorization.

mod disk;
mod history;
mod object;
mod state;
mod writer;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

pub use history::{EventChange, ExpiredRevision, Retention, StoreEvent};
pub use object::{ObjectKey, ObjectMetaView, OwnerReference, StoredObject, write_type_meta};
pub use state::{EventBatch, ObjectPage};
pub use writer::{Precondition, StoreWrite};

use disk::StoreFile;
use state::StoreState;
use writer::StoreWriter;

/// Longer than any flush of a working disk.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// The reason why the store rejected a write or failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("opening the store {path}: {source}")]
    Open {
        path: PathBuf,
        #[source]
        source: Box<redb::Error>,
    },
    #[error("the store {path} is in use by another process")]
    InUse { path: PathBuf },
    #[error("reading or writing the store: {0}")]
    Disk(#[source] Box<redb::Error>),
    #[error("starting the store's writer: {0}")]
    Thread(#[source] std::io::Error),
    #[error("encoding {path}: {source}")]
    Encode {
        path: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("{path} is not a JSON object with metadata")]
    NotAnObject { path: String },
    #[error("the object already exists")]
    Exists,
    #[error("the object does not exist")]
    Missing,
    #[error("the object has changed")]
    Changed,
    /// The disk is full or fails. The store opens its file again until a write succeeds.
    #[error(
        "the store in the data directory {directory} cannot be written: {cause}; reads are served, and writes are \
             accepted again once the directory can be written, without a restart"
    )]
    Unwritable { directory: PathBuf, cause: String },
    #[error(
        "the file {path} has revision {found}, which is older than revision {revision} in memory: it was replaced"
    )]
    Replaced {
        path: PathBuf,
        found: u64,
        revision: u64,
    },
    #[error("{path} has {bytes} bytes, and at most {limit} are stored")]
    TooLarge {
        path: String,
        bytes: usize,
        limit: usize,
    },
    #[error("too many writes are waiting for the disk")]
    Overloaded,
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    fn disk(error: impl Into<redb::Error>) -> Self {
        Self::Disk(Box::new(error.into()))
    }

    fn open<E: Into<redb::Error>>(path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |error| match error.into() {
            redb::Error::DatabaseAlreadyOpen => Self::InUse { path },
            source => Self::Open {
                path,
                source: Box::new(source),
            },
        }
    }
}

/// The store: cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct ObjectStore {
    state: Arc<RwLock<StoreState>>,
    writer: Arc<StoreWriter>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl ObjectStore {
    /// Opens the file, or creates it.
    pub fn open(path: &Path, retention: Retention) -> Result<Self, StoreError> {
        Self::start(StoreFile::open(path)?, retention)
    }

    /// Returns an empty store in memory. It has no thread: a write is complete when its future is polled for the first
    /// time, so that a program with one thread is deterministic.
    pub fn in_memory(retention: Retention) -> Result<Self, StoreError> {
        let state = Arc::new(RwLock::new(StoreState::load(0, Vec::new(), retention)));
        let writer = StoreWriter::inline(StoreFile::in_memory()?, Arc::clone(&state));
        Ok(Self {
            state,
            writer,
            thread: Mutex::new(None),
        })
    }

    fn start(disk: StoreFile, retention: Retention) -> Result<Self, StoreError> {
        let loaded = disk.load()?;
        let state = Arc::new(RwLock::new(StoreState::load(
            loaded.revision,
            loaded.objects,
            retention,
        )));
        let (writer, thread) = StoreWriter::start(disk, Arc::clone(&state))?;
        Ok(Self {
            state,
            writer,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Applies one change and returns once it is durable and visible.
    pub async fn write(
        &self,
        key: ObjectKey,
        expect: Precondition,
        write: StoreWrite,
    ) -> Result<Arc<StoredObject>, StoreError> {
        let durable = self.writer.submit(key, expect, write)?;
        durable.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Returns the durable version of an object.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<StoredObject>> {
        self.state.read().get(key)
    }

    /// Returns the newest accepted version of an object, which may not be durable yet.
    pub fn latest(&self, key: &ObjectKey) -> Option<Arc<StoredObject>> {
        self.writer.latest(key)
    }

    /// Returns the newest durable revision.
    pub fn revision(&self) -> u64 {
        self.state.read().revision
    }

    pub fn by_uid(&self, uid: &str) -> Option<Arc<StoredObject>> {
        self.state.read().by_uid(uid)
    }

    /// Returns the objects with this uid among their owners.
    pub fn dependents(&self, uid: &str) -> Vec<Arc<StoredObject>> {
        self.state.read().dependents(uid)
    }

    /// Takes the objects whose relations changed since the last call.
    pub fn take_gc_candidates(&self) -> BTreeSet<ObjectKey> {
        self.state.write().take_gc_candidates()
    }

    pub fn add_gc_candidate_again(&self, key: ObjectKey) {
        self.state.write().add_gc_candidate_again(key);
    }

    /// Returns the resources that have at least one object.
    pub fn resource_names(&self) -> Vec<Arc<str>> {
        self.state.read().resource_names()
    }

    pub fn count(&self, resource: &str) -> usize {
        self.state.read().count(resource)
    }

    /// Returns all objects of a resource; an empty namespace means all namespaces.
    pub fn list(&self, resource: &str, namespace: &str) -> ObjectPage {
        self.state.read().list(resource, namespace)
    }

    /// Returns at most one object, as a list.
    pub fn get_page(&self, key: &ObjectKey) -> ObjectPage {
        let state = self.state.read();
        ObjectPage {
            revision: state.revision,
            objects: state.get(key).into_iter().collect(),
        }
    }

    /// Returns the objects of a resource at a past revision, from a path on.
    pub fn list_at(
        &self,
        resource: &str,
        namespace: &str,
        revision: u64,
        from: Option<&str>,
    ) -> Result<ObjectPage, ExpiredRevision> {
        self.state.read().list_at(resource, namespace, revision, from)
    }

    pub fn events_after(
        &self,
        resource: &str,
        revision: u64,
        limit: usize,
    ) -> Result<EventBatch, ExpiredRevision> {
        self.state.read().events_after(resource, revision, limit)
    }

    /// Waits until a revision is durable and visible.
    pub async fn reached(&self, revision: u64) {
        let mut tip = self.state.read().tip();
        // The sender lives as long as the store, so waiting cannot fail while `self` is borrowed.
        let _ = tip.wait_for(|tip| *tip >= revision).await;
    }

    /// Waits until a version from [`ObjectStore::latest`] is durable and visible. Fails if it has been replaced or its
    /// write was refused.
    pub async fn durable(&self, stored: &Arc<StoredObject>) -> Result<(), StoreError> {
        let mut refusals = self.writer.refusals();
        // After subscribing, so that a refusal is either seen here or received.
        let latest = self.latest(&stored.key);
        if latest.is_none_or(|latest| latest.revision != stored.revision) {
            return Err(StoreError::Changed);
        }
        tokio::select! {
            () = self.reached(stored.revision) => Ok(()),
            _ = refusals.changed() => Err(StoreError::Changed),
        }
    }

    /// Waits until everything accepted so far is visible, so that the cause of an error can be read.
    pub async fn settled(&self) {
        let mut refusals = self.writer.refusals();
        let accepted = self.writer.accepted();
        tokio::select! {
            _ = tokio::time::timeout(SETTLE_TIMEOUT, self.reached(accepted)) => {}
            // What was refused never becomes visible.
            _ = refusals.changed() => {}
        }
    }

    /// Returns the reason why writes are refused at the moment.
    pub fn outage(&self) -> Option<String> {
        self.writer.outage()
    }

    /// Returns a channel that changes with every revision.
    pub fn tip(&self) -> watch::Receiver<u64> {
        self.state.read().tip()
    }

    /// Returns a channel that changes with every event of the resource.
    pub fn subscribe(&self, resource: &Arc<str>) -> watch::Receiver<u64> {
        self.state.write().subscribe(resource)
    }

    /// Removes history that is older than the retention.
    pub fn expire(&self) {
        self.state.write().expire(Instant::now());
    }

    /// Returns the newest compacted revision.
    pub fn compacted(&self) -> u64 {
        self.state.read().compacted()
    }

    /// Compacts history up to a revision; earlier watches and lists then expire.
    pub fn compact(&self, revision: u64) {
        self.state.write().compact(revision);
    }

    /// Completes accepted writes and releases the file.
    pub fn close(&self) {
        self.writer.close();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of the writer has already been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod outage_tests;
#[cfg(test)]
mod power_tests;
#[cfg(test)]
mod tests;
