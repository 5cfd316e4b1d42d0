use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

fn open(directory: &tempfile::TempDir, retention: Retention) -> ObjectStore {
    ObjectStore::open(&directory.path().join("store.redb"), retention).unwrap()
}

fn pods() -> Arc<str> {
    Arc::from("pods")
}

fn object(name: &str, value: u64) -> Map<String, Value> {
    let object =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": name}, "value": value});
    object.as_object().cloned().unwrap()
}

async fn put(store: &ObjectStore, namespace: &str, name: &str, value: u64) -> Arc<StoredObject> {
    let key = ObjectKey::new(&pods(), namespace, name);
    let expect = store.latest(&key).map_or(Precondition::Absent, |stored| {
        Precondition::Revision(stored.revision)
    });
    store
        .write(key, expect, StoreWrite::Put(object(name, value)))
        .await
        .unwrap()
}

fn names(page: &ObjectPage) -> Vec<String> {
    page.objects
        .iter()
        .map(|stored| stored.key.path.to_string())
        .collect()
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_reopening_and_revisions_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, Retention::default());
    put(&store, "a", "x", 1).await;
    let last = put(&store, "a", "x", 2).await;
    let key = ObjectKey::new(&pods(), "a", "y");
    put(&store, "a", "y", 1).await;
    store
        .write(key.clone(), Precondition::Revision(3), StoreWrite::Remove)
        .await
        .unwrap();
    drop(store);

    let store = open(&directory, Retention::default());
    assert_eq!(store.revision(), 4);
    let found = store.get(&last.key).unwrap();
    assert_eq!((found.revision, found.json()), (2, last.json()));
    assert!(store.get(&key).is_none());
    assert_eq!(put(&store, "a", "z", 1).await.revision, 5);
}

#[tokio::test]
async fn a_write_with_a_wrong_expectation_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, Retention::default());
    put(&store, "a", "x", 1).await;
    let key = ObjectKey::new(&pods(), "a", "x");
    let write = |key: &ObjectKey, expect| store.write(key.clone(), expect, StoreWrite::Put(object("x", 9)));
    assert!(matches!(
        write(&key, Precondition::Absent).await,
        Err(StoreError::Exists)
    ));
    assert!(matches!(
        write(&key, Precondition::Revision(7)).await,
        Err(StoreError::Changed)
    ));
    let other = ObjectKey::new(&pods(), "a", "gone");
    assert!(matches!(
        write(&other, Precondition::Revision(7)).await,
        Err(StoreError::Missing)
    ));
    assert_eq!(store.revision(), 1);
}

#[tokio::test]
async fn only_one_of_many_racing_updates_of_one_version_wins() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&directory, Retention::default()));
    let first = put(&store, "a", "x", 0).await;
    let racers = (1..=20).map(|value| {
        let (store, key) = (Arc::clone(&store), first.key.clone());
        tokio::spawn(async move {
            store
                .write(
                    key,
                    Precondition::Revision(1),
                    StoreWrite::Put(object("x", value)),
                )
                .await
                .is_ok()
        })
    });
    let won = futures::future::join_all(racers).await;
    assert_eq!(won.into_iter().filter(|won| *won.as_ref().unwrap()).count(), 1);
}

#[tokio::test]
async fn a_namespace_is_not_mistaken_for_one_it_is_a_prefix_of() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, Retention::default());
    for (namespace, name) in [("a", "x"), ("a-b", "x"), ("ab", "x")] {
        put(&store, namespace, name, 1).await;
    }
    assert_eq!(names(&store.list("pods", "a")), ["a/x"]);
    assert_eq!(names(&store.list("pods", "")), ["a-b/x", "a/x", "ab/x"]);
}

#[tokio::test]
async fn history_is_bounded_and_older_revisions_expire() {
    let directory = tempfile::tempdir().unwrap();
    let retention = Retention {
        events: 3,
        ..Retention::default()
    };
    let store = open(&directory, retention);
    for value in 0..10 {
        put(&store, "a", "x", value).await;
    }
    assert_eq!(store.events_after("pods", 7, 10).unwrap().events.len(), 3);
    assert_eq!(
        store.events_after("pods", 6, 10).unwrap_err(),
        ExpiredRevision { asked: 6, oldest: 7 }
    );
    store.compact(9);
    assert_eq!(
        store.events_after("pods", 8, 10).unwrap_err(),
        ExpiredRevision { asked: 8, oldest: 9 }
    );
    assert!(store.list_at("pods", "", 8, None).is_err());
    assert_eq!(store.events_after("pods", 9, 10).unwrap().events.len(), 1);
}

#[tokio::test]
async fn owners_find_their_dependents() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, Retention::default());
    let mut child = object("child", 1);
    child["metadata"]["ownerReferences"] =
        json!([{"uid": "parent", "kind": "Pod", "name": "parent", "apiVersion": "v1"}]);
    let key = ObjectKey::new(&pods(), "a", "child");
    store
        .write(key.clone(), Precondition::Absent, StoreWrite::Put(child))
        .await
        .unwrap();
    assert_eq!(store.dependents("parent").len(), 1);
    assert_eq!(store.by_uid("child").unwrap().key, key);
    store
        .write(key, Precondition::Revision(1), StoreWrite::Remove)
        .await
        .unwrap();
    assert!(store.dependents("parent").is_empty() && store.by_uid("child").is_none());
}

#[derive(Clone, Debug)]
enum ModelStep {
    Put(u8, u64),
    Remove(u8),
}

fn steps() -> impl Strategy<Value = Vec<ModelStep>> {
    let step = prop_oneof![
        3 => (0..6_u8, any::<u64>()).prop_map(|(name, value)| ModelStep::Put(name, value)),
        1 => (0..6_u8).prop_map(ModelStep::Remove),
    ];
    prop::collection::vec(step, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A list at a past revision is the list of that time, and events lead from it to the current state.
    #[test]
    fn the_past_can_be_listed_as_it_was(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async move {
            let directory = tempfile::tempdir().unwrap();
            let store = open(&directory, Retention::default());
            let mut past: Vec<BTreeMap<String, u64>> = vec![BTreeMap::new()];
            for step in steps {
                let mut now = past.last().cloned().unwrap();
                match step {
                    ModelStep::Put(name, value) => {
                        let name = format!("n{name}");
                        put(&store, "a", &name, value).await;
                        now.insert(format!("a/{name}"), value);
                    }
                    ModelStep::Remove(name) => {
                        let key = ObjectKey::new(&pods(), "a", &format!("n{name}"));
                        let Some(stored) = store.get(&key) else { continue };
                        store.write(key.clone(), Precondition::Revision(stored.revision), StoreWrite::Remove).await.unwrap();
                        now.remove(&*key.path);
                    }
                }
                past.push(now);
            }
            for (revision, then) in past.iter().enumerate() {
                let page = store.list_at("pods", "", revision as u64, None).unwrap();
                let found: BTreeMap<String, u64> = page
                    .objects
                    .iter()
                    .map(|stored| (stored.key.path.to_string(), stored.value().unwrap()["value"].as_u64().unwrap()))
                    .collect();
                assert_eq!(&found, then, "at revision {revision}");
                let mut replayed = found;
                for event in store.events_after("pods", revision as u64, usize::MAX)
                    .unwrap()
                    .events
                {
                    let path = event.object().key.path.to_string();
                    match &event.change {
                        EventChange::Put(stored) => { replayed.insert(path, stored.value().unwrap()["value"].as_u64().unwrap()); }
                        EventChange::Removed(_) => { replayed.remove(&path); }
                    }
                }
                assert_eq!(&replayed, past.last().unwrap());
            }
        });
    }
}
