//! The database file: current objects and the revision counter, nothing else.
//!
//! A batch is one transaction, which is on stable storage when [`StoreFile::commit`] returns. History for watches is in
//! memory only, as in a kube-apiserver's watch cache.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

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

#[derive(Debug)]
pub(super) struct StoreFile {
    database: Database,
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
        let database = Database::create(path).map_err(StoreError::open(path))?;
        // The file has all Secrets; redb creates it with the mode of the umask.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .map_err(|error| StoreError::open(path)(redb::Error::Io(error)))?;
        let disk = Self { database };
        disk.prepare().map_err(StoreError::open(path))?;
        Ok(disk)
    }

    fn prepare(&self) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
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

    pub fn load(&self) -> Result<LoadedFile, StoreError> {
        let transaction = self.database.begin_read().map_err(StoreError::disk)?;
        let counters = transaction.open_table(COUNTERS).map_err(StoreError::disk)?;
        let revision = counters
            .get(REVISION)
            .map_err(StoreError::disk)?
            .map_or(0, |revision| revision.value());
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
        let transaction = self.database.begin_write().map_err(StoreError::disk)?;
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
