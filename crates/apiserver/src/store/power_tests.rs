//! Power failures of the disk of the store: the writes and syncs of the database are recorded, and the states that a
//! power failure may leave are opened again. Every acknowledged transaction is there, and no half of another one.
//!
//! `MCO_POWER=all` examines more states for each moment.

use std::collections::BTreeMap;
use std::io;

use parking_lot::Mutex as Lock;
use redb::{Database, StorageBackend};
use serde_json::{Value, json};

use super::disk::{DiskEffect, StoreFile};
use super::*;

#[derive(Clone, Debug)]
enum BlockOperation {
    SetLength(u64),
    Write(u64, Vec<u8>),
    Sync,
    /// A transaction was acknowledged.
    Acknowledged(u64),
}

/// A disk in memory that records what is written to it.
#[derive(Clone, Debug, Default)]
struct RecordedDisk {
    content: Arc<Lock<Vec<u8>>>,
    operations: Arc<Lock<Vec<BlockOperation>>>,
}

fn out_of_range() -> io::Error {
    io::Error::from(io::ErrorKind::UnexpectedEof)
}

impl StorageBackend for RecordedDisk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.content.lock().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let content = self.content.lock();
        let start = usize::try_from(offset).map_err(|_| out_of_range())?;
        let found = content.get(start..start + out.len()).ok_or_else(out_of_range)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        apply(&mut self.content.lock(), &BlockOperation::SetLength(len));
        self.operations.lock().push(BlockOperation::SetLength(len));
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.operations.lock().push(BlockOperation::Sync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let operation = BlockOperation::Write(offset, data.to_vec());
        apply(&mut self.content.lock(), &operation);
        self.operations.lock().push(operation);
        Ok(())
    }
}

fn apply(content: &mut Vec<u8>, operation: &BlockOperation) {
    match operation {
        BlockOperation::SetLength(length) => content.resize(usize::try_from(*length).unwrap(), 0),
        BlockOperation::Write(offset, data) => {
            let start = usize::try_from(*offset).unwrap();
            if content.len() < start + data.len() {
                content.resize(start + data.len(), 0);
            }
            content[start..start + data.len()].copy_from_slice(data);
        }
        BlockOperation::Sync | BlockOperation::Acknowledged(_) => {}
    }
}

impl RecordedDisk {
    fn open(&self) -> Result<StoreFile, StoreError> {
        let disk = self.clone();
        let opener = move |_| Database::builder().create_with_backend(disk.clone());
        StoreFile::open_with(Path::new("/data/store.redb"), Box::new(opener))
    }

    fn holding(content: Vec<u8>) -> Self {
        let disk = Self::default();
        *disk.content.lock() = content;
        disk
    }
}

/// The objects of each revision.
type Revisions = BTreeMap<u64, BTreeMap<String, Value>>;

/// A recorded run: the content at its start, what was written, and the objects of each revision.
struct Run {
    start: Vec<u8>,
    operations: Vec<BlockOperation>,
    revisions: Revisions,
}

/// Commits batches of one to five writes to a file that was created and closed, and records them. A file gets its name
/// only when its creation is durable.
fn record(batches: u64) -> Run {
    let disk = RecordedDisk::default();
    drop(disk.open().unwrap());
    disk.operations.lock().clear();
    let start = disk.content.lock().clone();
    let file = disk.open().unwrap();
    let mut current = BTreeMap::new();
    let mut revisions = Revisions::from([(0, BTreeMap::new())]);
    let mut revision = 0;
    for batch in 0..batches {
        let mut effects = Vec::new();
        for write in 0..=(batch % 5) {
            revision += 1;
            let name = format!("n{}", (batch + write * 3) % 7);
            let key = ObjectKey::new(&Arc::from("nodes"), "", &name);
            if current.contains_key(&name) && batch % 3 == 2 {
                current.remove(&name);
                effects.push(DiskEffect::Remove(key));
                continue;
            }
            let text = "x".repeat(usize::try_from(batch * 700 % 9000).unwrap());
            let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "text": text, "r": revision});
            current.insert(name, object.clone());
            let object = object.as_object().cloned().unwrap();
            effects.push(DiskEffect::Put(Arc::new(
                StoredObject::encode(key, revision, object).unwrap(),
            )));
        }
        revisions.insert(revision, current.clone());
        file.commit(&effects, revision).unwrap();
        disk.operations
            .lock()
            .push(BlockOperation::Acknowledged(revision));
    }
    let operations = disk.operations.lock().clone();
    Run {
        start,
        operations,
        revisions,
    }
}

/// A small seeded generator, so that every state can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// What becomes of each write that was not synced: lost, whole, or torn after a sector.
fn state(durable: &[u8], pending: &[BlockOperation], fates: impl Fn(usize) -> u64) -> Vec<u8> {
    const SECTOR: usize = 512;
    let mut content = durable.to_vec();
    for (index, operation) in pending.iter().enumerate() {
        match (fates(index), operation) {
            (0, _) => {}
            (2, BlockOperation::Write(offset, data)) => {
                let half = (data.len() / 2).next_multiple_of(SECTOR).min(data.len());
                apply(
                    &mut content,
                    &BlockOperation::Write(*offset, data[..half].to_vec()),
                );
            }
            _ => apply(&mut content, operation),
        }
    }
    content
}

/// Opens a state again. Returns its revision, or what is wrong with it.
fn reopen(content: Vec<u8>, acknowledged: u64, revisions: &Revisions) -> Result<u64, String> {
    let file = RecordedDisk::holding(content)
        .open()
        .map_err(|error| format!("does not open: {error}"))?;
    let loaded = file.load().map_err(|error| format!("cannot be read: {error}"))?;
    if loaded.revision < acknowledged {
        return Err(format!(
            "revision {} although {acknowledged} was acknowledged",
            loaded.revision
        ));
    }
    let expected = revisions
        .get(&loaded.revision)
        .ok_or_else(|| format!("revision {} is half a transaction", loaded.revision))?;
    let found: BTreeMap<String, Value> = loaded
        .objects
        .iter()
        .map(|object| {
            let value = Value::Object(object.value().unwrap().clone());
            (value["metadata"]["name"].as_str().unwrap().to_owned(), value)
        })
        .collect();
    let names = |objects: &BTreeMap<String, Value>| -> Vec<(String, u64)> {
        objects
            .iter()
            .map(|(name, object)| (name.clone(), object["r"].as_u64().unwrap()))
            .collect()
    };
    if names(&found) != names(expected) {
        return Err(format!("other objects than revision {}", loaded.revision));
    }
    Ok(loaded.revision)
}

/// Examines the states at every sync; returns how many there were, or the first that is wrong. One sync may be left out.
fn examine(run: &Run, without: Option<usize>, samples: u64) -> Result<usize, String> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut durable, mut pending) = (run.start.clone(), Vec::new());
    let (mut acknowledged, mut syncs, mut states) = (0, 0, 0);
    for operation in run.operations.iter().chain([&BlockOperation::Sync]) {
        match operation {
            BlockOperation::Acknowledged(revision) => acknowledged = *revision,
            BlockOperation::Sync => {
                let is_left_out = without == Some(syncs);
                syncs += 1;
                if is_left_out {
                    continue;
                }
                let last = pending.len().saturating_sub(1);
                let mut chosen: Vec<Vec<u64>> = vec![vec![0; pending.len()], vec![1; pending.len()]];
                // All combinations of lost and whole if there are few, and everything but one.
                if pending.len() <= 5 {
                    let all = 0..1_u64 << pending.len();
                    chosen
                        .extend(all.map(|bits| (0..pending.len()).map(|index| bits >> index & 1).collect()));
                }
                chosen.extend(
                    (0..pending.len().min(usize::try_from(samples).unwrap())).map(|lost| {
                        (0..pending.len())
                            .map(|index| u64::from(index != last - lost))
                            .collect()
                    }),
                );
                for _ in 0..samples {
                    chosen.push(pending.iter().map(|_| random.below(3)).collect());
                }
                for fates in chosen {
                    let content = state(&durable, &pending, |index| fates[index]);
                    states += 1;
                    reopen(content, acknowledged, &run.revisions).map_err(|error| {
                        format!("sync {syncs}, {fates:?} of {} writes: {error}", pending.len())
                    })?;
                }
                durable = state(&durable, &pending, |_| 1);
                pending.clear();
            }
            write => pending.push(write.clone()),
        }
    }
    Ok(states)
}

fn samples() -> u64 {
    match std::env::var("MCO_POWER").as_deref() {
        Ok("all") => 400,
        _ => 2,
    }
}

#[test]
fn after_a_power_failure_every_acknowledged_transaction_is_there() {
    let run = record(12);
    let states = examine(&run, None, samples()).unwrap();
    println!(
        "the store: {} recorded operations, {states} states opened again",
        run.operations.len()
    );
}

/// Syncs of a run without which nothing is lost, by number, with the reason.
const UNNEEDED: [(usize, &str); 1] = [(
    0,
    "on opening, redb syncs the mark that a repair is due; the header of the first transaction has it as well",
)];

#[test]
fn leaving_out_one_sync_of_the_store_is_found() {
    let run = record(4);
    examine(&run, None, 2).unwrap();
    let syncs = run
        .operations
        .iter()
        .filter(|operation| matches!(operation, BlockOperation::Sync))
        .count();
    let found: Vec<usize> = (0..syncs)
        .filter(|sync| examine(&run, Some(*sync), 4).is_err())
        .collect();
    println!("the store: leaving out {found:?} of {syncs} syncs is found");
    let (unneeded, reasons): (Vec<usize>, Vec<&str>) = UNNEEDED.into_iter().unzip();
    let needed: Vec<usize> = (0..syncs).filter(|sync| !unneeded.contains(sync)).collect();
    assert_eq!(found, needed, "unneeded are only: {reasons:?}");
}

#[test]
fn a_store_whose_creation_was_interrupted_by_a_power_failure_did_not_open_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    std::fs::write(path.with_extension("new"), [0; 5000]).unwrap();
    let file = StoreFile::open(&path).unwrap();
    file.commit(&[], 7).unwrap();
    drop(file);
    assert_eq!(StoreFile::open(&path).unwrap().load().unwrap().revision, 7);
    let names: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}
