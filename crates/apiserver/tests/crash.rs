//! `kill -9` at any moment: acknowledged writes are durable, and revisions never decrease.
//!
//! The test runs itself again as the writer: a process that prints every acknowledged write.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mco_apiserver::store::{ObjectKey, ObjectStore, Precondition, Retention, StoreWrite};
use serde_json::{Value, json};

const ROUNDS: u64 = 200;
const DIRECTORY: &str = "MCO_CRASH_TEST_DIRECTORY";
const FILE: &str = "store.redb";
/// Enough writers to make batches of several writes common.
const WRITERS: u64 = 6;
/// Each writer cycles through its names and removes the object every so many times.
const NAMES: u64 = 5;
const REMOVAL: u64 = 7;

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(&Arc::from("nodes"), "", name)
}

/// Not a test of its own: the child process, which writes until it is killed.
#[test]
fn writer_process() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let store = Arc::new(ObjectStore::open(&Path::new(&directory).join(FILE), Retention::default()).unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let writers = (0..WRITERS).map(|writer| tokio::spawn(write_for_ever(Arc::clone(&store), writer)));
        futures::future::join_all(writers).await;
    });
}

async fn write_for_ever(store: Arc<ObjectStore>, writer: u64) {
    for count in 0.. {
        let name = format!("w{writer}-{}", count % NAMES);
        let current = store.latest(&key(&name));
        let stored = match current {
            Some(current) if count % REMOVAL == REMOVAL - 1 => {
                let expect = Precondition::Revision(current.revision);
                let gone = store.write(key(&name), expect, StoreWrite::Remove).await.unwrap();
                say(&format!("removed {name} {}", gone.revision));
                continue;
            }
            current => {
                let expect = current.map_or(Precondition::Absent, |current| {
                    Precondition::Revision(current.revision)
                });
                let object = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "uid": name}, "count": count});
                let Value::Object(object) = object else {
                    unreachable!()
                };
                store
                    .write(key(&name), expect, StoreWrite::Put(object))
                    .await
                    .unwrap()
            }
        };
        say(&format!("put {name} {} {count}", stored.revision));
    }
}

/// One line in one write, so that the reader sees whole acknowledgements only.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("ACK {line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// The acknowledgements of the writer, newest last for each name.
#[derive(Default)]
struct Acknowledged {
    objects: BTreeMap<String, (u64, Option<u64>)>,
    newest: u64,
}

impl Acknowledged {
    fn hear(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let (name, revision, count) = match words.as_slice() {
            ["ACK", "put", name, revision, count] => (
                *name,
                revision.parse::<u64>().unwrap(),
                Some(count.parse().unwrap()),
            ),
            ["ACK", "removed", name, revision] => (*name, revision.parse().unwrap(), None),
            _ => return,
        };
        self.newest = self.newest.max(revision);
        let known = self.objects.entry(name.to_owned()).or_insert((0, None));
        if revision > known.0 {
            *known = (revision, count);
        }
    }
}

#[test]
fn no_acknowledged_write_is_lost_in_two_hundred_crashes() {
    if std::env::var(DIRECTORY).is_ok() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = Acknowledged::default();
    let mut total = 0;
    for round in 0..ROUNDS {
        // Delays that differ between rounds without a random source: 3 to 42 milliseconds after the first write.
        let patience = Duration::from_millis(3 + round * 7919 % 40);
        total += run_and_kill(directory.path(), patience, &mut acknowledged);
        check(directory.path(), &acknowledged, round);
    }
    assert!(
        total > usize::try_from(ROUNDS).unwrap(),
        "the writers wrote only {total} times"
    );
}

fn run_and_kill(directory: &Path, patience: Duration, acknowledged: &mut Acknowledged) -> usize {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writer_process", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let id = child.id();
    let (mut heard, mut killer) = (0, None);
    while let Some(Ok(line)) = lines.next() {
        if !line.starts_with("ACK") {
            continue;
        }
        heard += 1;
        acknowledged.hear(&line);
        // The clock starts with the first acknowledgement, so that every round writes.
        killer.get_or_insert_with(|| {
            std::thread::spawn(move || {
                std::thread::sleep(patience);
                // Only this child, by its number.
                Command::new("kill")
                    .args(["-9", &id.to_string()])
                    .status()
                    .unwrap();
            })
        });
    }
    child.wait().unwrap();
    heard
}

fn check(directory: &Path, acknowledged: &Acknowledged, round: u64) {
    let store = ObjectStore::open(&directory.join(FILE), Retention::default()).unwrap();
    assert!(
        store.revision() >= acknowledged.newest,
        "round {round}: revisions went back"
    );
    for (name, (revision, count)) in &acknowledged.objects {
        match (store.get(&key(name)), count) {
            // A later write may be durable although its acknowledgement was lost.
            (Some(found), _) if found.revision > *revision => {}
            (Some(found), Some(count)) => {
                assert_eq!(found.revision, *revision, "round {round}: {name}");
                assert_eq!(
                    found.value().unwrap()["count"],
                    json!(count),
                    "round {round}: {name}"
                );
            }
            (None, None) => {}
            // Valid only if the writer's next step with this name was to remove it.
            (None, Some(count)) => assert!(
                (count + NAMES) % REMOVAL == REMOVAL - 1,
                "round {round}: {name} is lost"
            ),
            (Some(_), None) => panic!("round {round}: {name} is back from the dead"),
        }
    }
}
