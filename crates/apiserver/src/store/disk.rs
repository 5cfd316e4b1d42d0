//! The database file: current objects and the revision counter, nothing else.
//!
//! A batch is one transaction, which is on stable storage when [`StoreFile::commit`] returns. History for watches is in
//! memory only, as in a kube-apiserver's watch cache.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use redb::{Database, DatabaseError, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition};

use super::StoreError;
use super::object::{ObjectKey, StoredObject};

const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");
const REVISION: &str = "revision";
/// Incremented when the layout of the tables changes, so that an older binary rejects the file.
const LAYOUT: &str = "layout";
const LAYOUT_VERSION: u64 = 1;

/// Separates resource and path; no name may contain it.
const SEPARATOR: char = '\0';

/// How a database file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenMode {
    Create,
    /// Without creating it: a file that has disappeared must not be replaced by an empty one.
    Existing,
}

/// Opens the database; called again after an I/O error.
pub(super) type DatabaseOpener = Box<dyn Fn(OpenMode) -> Result<Database, DatabaseError> + Send>;

pub(super) struct StoreFile {
    path: PathBuf,
    opener: DatabaseOpener,
    /// `None` while it is being reopened, and after that failed.
    database: Option<Database>,
}

/// The content of the file at start.
#[derive(Debug)]
pub(super) struct LoadedFile {
    pub revision: u64,
    pub objects: Vec<StoredObject>,
}

/// One durable effect of a write.
#[derive(Debug)]
pub(super) enum DiskEffect {
    Put(Arc<StoredObject>),
    Remove(ObjectKey),
}

impl StoreFile {
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let failed = |error| StoreError::open(path)(redb::Error::Io(error));
        if !path.try_exists().map_err(failed)? {
            Self::create(path)?;
        }
        let file = path.to_owned();
        let disk = Self::open_with(path, Box::new(move |_| Database::open(&file)))?;
        // Older versions created it with the mode of the umask.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(disk)
    }

    /// Returns a database in memory, which is empty.
    pub fn in_memory() -> Result<Self, StoreError> {
        let opener = |_| Database::builder().create_with_backend(redb::backends::InMemoryBackend::new());
        Self::open_with(Path::new("memory"), Box::new(opener))
    }

    /// Creates the file under a temporary name first: redb does not open one whose creation a power failure has
    /// interrupted. The name is synced, because without it all acknowledged writes would be lost.
    fn create(path: &Path) -> Result<(), StoreError> {
        let failed = |error| StoreError::open(path)(redb::Error::Io(error));
        let temporary = path.with_extension("new");
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let file = temporary.clone();
        drop(Self::open_with(path, Box::new(move |_| Database::create(&file)))?);
        // The file will have all Secrets; redb creates it with the mode of the umask.
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let sync = || {
            fs::File::open(&temporary)?.sync_all()?;
            fs::rename(&temporary, path)?;
            sync_directory(path)
        };
        sync().map_err(failed)
    }

    /// Opens a database that the opener provides; the path is for messages.
    pub fn open_with(path: &Path, opener: DatabaseOpener) -> Result<Self, StoreError> {
        let database = opener(OpenMode::Create).map_err(StoreError::open(path))?;
        let disk = Self {
            path: path.to_owned(),
            opener,
            database: Some(database),
        };
        disk.prepare().map_err(StoreError::open(path))?;
        Ok(disk)
    }

    /// Returns the directory of the file.
    pub fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    fn database(&self) -> Result<&Database, redb::Error> {
        self.database.as_ref().ok_or(redb::Error::PreviousIo)
    }

    /// Opens the database again after an I/O error, and commits the durable state of what a failed commit changed.
    ///
    /// A failed commit can have reached the disk all the same. Its writes were refused, so they must not appear after a
    /// restart.
    pub fn reopen(&mut self, durable: &[DiskEffect], revision: u64) -> Result<(), StoreError> {
        // First, because the old database holds the lock of the file.
        self.database = None;
        let database = (self.opener)(OpenMode::Existing).map_err(StoreError::open(&self.path))?;
        self.database = Some(database);
        let found = self.stored_revision()?;
        if found < revision {
            self.database = None;
            return Err(StoreError::Replaced {
                path: self.path.clone(),
                found,
                revision,
            });
        }
        self.commit(durable, revision)
    }

    fn prepare(&self) -> Result<(), redb::Error> {
        let transaction = self.database()?.begin_write()?;
        {
            transaction.open_table(OBJECTS)?;
            let mut counters = transaction.open_table(COUNTERS)?;
            let found = counters.get(LAYOUT)?.map(|layout| layout.value());
            match found {
                None => {
                    counters.insert(LAYOUT, LAYOUT_VERSION)?;
                }
                Some(LAYOUT_VERSION) => {}
                Some(other) => {
                    return Err(redb::Error::Corrupted(format!(
                        "layout {other} was written by another version of this program, which supports layout {LAYOUT_VERSION}"
                    )));
                }
            }
        }
        transaction.commit()?;
        Ok(())
    }

    fn begin_read(&self) -> Result<ReadTransaction, StoreError> {
        let database = self.database().map_err(StoreError::disk)?;
        database.begin_read().map_err(StoreError::disk)
    }

    fn stored_revision(&self) -> Result<u64, StoreError> {
        let transaction = self.begin_read()?;
        let counters = transaction.open_table(COUNTERS).map_err(StoreError::disk)?;
        let revision = counters.get(REVISION).map_err(StoreError::disk)?;
        Ok(revision.map_or(0, |revision| revision.value()))
    }

    pub fn load(&self) -> Result<LoadedFile, StoreError> {
        let revision = self.stored_revision()?;
        let transaction = self.begin_read()?;
        let table = transaction.open_table(OBJECTS).map_err(StoreError::disk)?;
        let mut objects = Vec::new();
        for entry in table.iter().map_err(StoreError::disk)? {
            let (name, value) = entry.map_err(StoreError::disk)?;
            objects.push(decode(name.value(), value.value())?);
        }
        Ok(LoadedFile { revision, objects })
    }

    /// Writes a batch and its last revision, durably.
    pub fn commit(&self, effects: &[DiskEffect], revision: u64) -> Result<(), StoreError> {
        let database = self.database().map_err(StoreError::disk)?;
        let transaction = database.begin_write().map_err(StoreError::disk)?;
        {
            let mut objects = transaction.open_table(OBJECTS).map_err(StoreError::disk)?;
            for effect in effects {
                match effect {
                    DiskEffect::Put(stored) => {
                        objects
                            .insert(disk_key(&stored.key).as_str(), encode(stored).as_slice())
                            .map_err(StoreError::disk)?;
                    }
                    DiskEffect::Remove(key) => {
                        objects.remove(disk_key(key).as_str()).map_err(StoreError::disk)?;
                    }
                }
            }
            let mut counters = transaction.open_table(COUNTERS).map_err(StoreError::disk)?;
            counters.insert(REVISION, revision).map_err(StoreError::disk)?;
        }
        transaction.commit().map_err(StoreError::disk)
    }
}

impl std::fmt::Debug for StoreFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("StoreFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Makes the name of a new file durable.
fn sync_directory(file: &Path) -> std::io::Result<()> {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => fs::File::open(parent)?.sync_all(),
        _ => fs::File::open(".")?.sync_all(),
    }
}

fn disk_key(key: &ObjectKey) -> String {
    format!("{}{SEPARATOR}{}", key.resource, key.path)
}

fn encode(stored: &StoredObject) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(stored.json().len() + size_of::<u64>());
    bytes.extend_from_slice(&stored.revision.to_le_bytes());
    bytes.extend_from_slice(stored.json());
    bytes
}

fn decode(name: &str, value: &[u8]) -> Result<StoredObject, StoreError> {
    let damaged = || StoreError::NotAnObject {
        path: name.replace(SEPARATOR, "/"),
    };
    let (resource, path) = name.split_once(SEPARATOR).ok_or_else(damaged)?;
    let (revision, json) = value.split_first_chunk::<8>().ok_or_else(damaged)?;
    let key = ObjectKey {
        resource: Arc::from(resource),
        path: Arc::from(path),
    };
    StoredObject::decode(key, u64::from_le_bytes(*revision), Bytes::copy_from_slice(json))
}
