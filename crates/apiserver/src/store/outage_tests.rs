//! A disk that fails, and works again.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::backends::InMemoryBackend;
use redb::{Database, StorageBackend};
use serde_json::{Map, Value, json};

use super::disk::StoreFile;
use super::*;

/// A disk in memory that survives its databases.
#[derive(Clone, Debug, Default)]
struct Disk {
    content: Arc<InMemoryBackend>,
    is_full: Arc<AtomicBool>,
    /// Syncs fail, after the data has been written.
    loses_syncs: Arc<AtomicBool>,
}

fn no_space() -> io::Error {
    io::Error::from(io::ErrorKind::StorageFull)
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, io::Error> {
        self.content.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.content.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.content.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        if self.is_full.load(Ordering::SeqCst) || self.loses_syncs.load(Ordering::SeqCst) {
            return Err(no_space());
        }
        self.content.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        if self.is_full.load(Ordering::SeqCst) {
            return Err(no_space());
        }
        self.content.write(offset, data)
    }
}

impl Disk {
    fn open(&self) -> ObjectStore {
        let disk = self.clone();
        let opener = move |_| Database::builder().create_with_backend(disk.clone());
        let file = StoreFile::open_with(Path::new("/data/store.redb"), Box::new(opener)).unwrap();
        ObjectStore::start(file, Retention::default()).unwrap()
    }
}

fn object(name: &str, value: u64) -> Map<String, Value> {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "value": value});
    object.as_object().cloned().unwrap()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(&Arc::from("pods"), "a", name)
}

async fn put(store: &ObjectStore, name: &str, value: u64) -> Result<Arc<StoredObject>, StoreError> {
    let expect = store.latest(&key(name)).map_or(Precondition::Absent, |stored| {
        Precondition::Revision(stored.revision)
    });
    store
        .write(key(name), expect, StoreWrite::Put(object(name, value)))
        .await
}

fn value(store: &ObjectStore, name: &str) -> Option<u64> {
    store.get(&key(name))?.value().unwrap()["value"].as_u64()
}

async fn recovered(store: &ObjectStore) {
    let waiting = async {
        while store.outage().is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting)
        .await
        .expect("writes are accepted again");
}

#[tokio::test]
async fn after_one_full_disk_all_writes_failed_until_a_restart() {
    let disk = Disk::default();
    let store = disk.open();
    put(&store, "x", 1).await.unwrap();
    disk.is_full.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        let refused = put(&store, "x", 2).await.unwrap_err();
        assert!(
            matches!(&refused, StoreError::Unwritable { directory, .. } if directory == Path::new("/data")),
            "{refused}"
        );
        assert!(refused.to_string().contains("no storage space"), "{refused}");
    }
    assert!(store.outage().is_some());
    assert_eq!(
        (store.revision(), value(&store, "x")),
        (1, Some(1)),
        "reads are served"
    );
    disk.is_full.store(false, Ordering::SeqCst);
    recovered(&store).await;
    let stored = put(&store, "x", 3).await.unwrap();
    assert_eq!((stored.revision, value(&store, "x")), (2, Some(3)));
    drop(store);
    let store = disk.open();
    assert_eq!((store.revision(), value(&store, "x")), (2, Some(3)));
}

#[tokio::test]
async fn refusals_waited_for_writes_that_never_became_visible() {
    let disk = Disk::default();
    let store = disk.open();
    put(&store, "x", 1).await.unwrap();
    disk.is_full.store(true, Ordering::SeqCst);
    let _ = put(&store, "y", 1).await.unwrap_err();
    let start = std::time::Instant::now();
    store.settled().await;
    assert!(start.elapsed() < SETTLE_TIMEOUT / 2, "{:?}", start.elapsed());
    assert!(store.latest(&key("y")).is_none());
}

#[tokio::test]
async fn a_refused_write_that_reached_the_disk_does_not_appear_after_a_restart() {
    let disk = Disk::default();
    let store = disk.open();
    put(&store, "x", 1).await.unwrap();
    disk.loses_syncs.store(true, Ordering::SeqCst);
    let _ = put(&store, "x", 2).await.unwrap_err();
    disk.loses_syncs.store(false, Ordering::SeqCst);
    recovered(&store).await;
    drop(store);
    let store = disk.open();
    assert_eq!((store.revision(), value(&store, "x")), (1, Some(1)));
}

#[tokio::test]
async fn a_version_whose_write_was_refused_is_not_reported_as_durable() {
    let disk = Disk::default();
    let store = disk.open();
    let first = put(&store, "x", 1).await.unwrap();
    store.durable(&first).await.unwrap();
    let pending = Arc::new(StoredObject::encode(key("x"), 2, object("x", 2)).unwrap());
    assert!(matches!(store.durable(&pending).await, Err(StoreError::Changed)));
}

#[tokio::test]
async fn a_file_that_disappeared_is_not_replaced_by_an_empty_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let mut file = StoreFile::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(file.reopen(&[], 0), Err(StoreError::Open { .. })));
    assert!(!path.exists());
    StoreFile::open(&path).unwrap();
    assert!(matches!(
        file.reopen(&[], 7),
        Err(StoreError::Replaced {
            found: 0,
            revision: 7,
            ..
        })
    ));
}
