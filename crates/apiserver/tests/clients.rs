//! kube's own watcher, controller and lease manager against the server in this process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Cluster, DEADLINE, eventually};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event as StoredEvent;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Finalizer, finalizer};
use kube::runtime::watcher::{self, watcher};
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;

fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("key".to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    }
}

/// Follows a watcher through its first list and one change.
async fn follow(config: watcher::Config) {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    maps.create(&PostParams::default(), &config_map("first", "1"))
        .await
        .unwrap();
    let mut events = watcher(maps.clone(), config).boxed();
    let mut seen = Vec::new();
    let reading = async {
        while let Some(event) = events.try_next().await.unwrap() {
            match event {
                watcher::Event::Init => seen.push("init".to_owned()),
                watcher::Event::InitApply(map) => seen.push(format!("listed {}", map.name_any())),
                watcher::Event::InitDone => {
                    seen.push("listed all".to_owned());
                    let patch = Patch::Merge(json!({"data": {"key": "2"}}));
                    maps.patch("first", &PatchParams::default(), &patch)
                        .await
                        .unwrap();
                }
                watcher::Event::Apply(map) => {
                    seen.push(format!(
                        "changed {} to {}",
                        map.name_any(),
                        map.data.unwrap()["key"]
                    ));
                    maps.delete("first", &DeleteParams::default()).await.unwrap();
                }
                watcher::Event::Delete(map) => {
                    seen.push(format!("deleted {}", map.name_any()));
                    return;
                }
            }
        }
    };
    tokio::time::timeout(DEADLINE, reading).await.unwrap();
    assert_eq!(
        seen,
        [
            "init",
            "listed first",
            "listed kube-root-ca.crt",
            "listed all",
            "changed first to 2",
            "deleted first"
        ]
    );
}

#[tokio::test]
async fn a_watcher_lists_and_then_watches() {
    follow(watcher::Config::default()).await;
}

#[tokio::test]
async fn a_watcher_streams_its_first_list() {
    follow(watcher::Config::default().streaming_lists()).await;
}

#[tokio::test]
async fn a_paged_list_is_complete_and_consistent() {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    for index in 0..10 {
        maps.create(&PostParams::default(), &config_map(&format!("m{index}"), "x"))
            .await
            .unwrap();
    }
    let first = maps.list(&ListParams::default().limit(4)).await.unwrap();
    assert_eq!(
        (first.items.len(), first.metadata.remaining_item_count),
        (4, Some(7)),
        "with the certificates of the API server"
    );
    maps.delete("m9", &DeleteParams::default()).await.unwrap();
    maps.create(&PostParams::default(), &config_map("m91", "new"))
        .await
        .unwrap();
    let mut names: Vec<String> = first.items.iter().map(kube::ResourceExt::name_any).collect();
    let mut token = first.metadata.continue_;
    while let Some(next) = token.filter(|token| !token.is_empty()) {
        let page = maps
            .list(&ListParams::default().limit(4).continue_token(&next))
            .await
            .unwrap();
        assert_eq!(page.metadata.resource_version, first.metadata.resource_version);
        names.extend(page.items.iter().map(kube::ResourceExt::name_any));
        token = page.metadata.continue_;
    }
    let own = (0..10).map(|index| format!("m{index}"));
    let expected: Vec<String> = std::iter::once("kube-root-ca.crt".to_owned())
        .chain(own)
        .collect();
    assert_eq!(names, expected, "the pages show the moment of the first one");
}

#[tokio::test]
async fn a_controller_reconciles_what_changes() {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&seen);
    let controller = Controller::new(maps.clone(), watcher::Config::default()).run(
        |_, counted: Arc<AtomicUsize>| async move {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Infallible>(Action::await_change())
        },
        |_, _, _| Action::requeue(Duration::from_secs(1)),
        counted,
    );
    let running = tokio::spawn(controller.for_each(|_| std::future::ready(())));
    maps.create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    eventually("the creation was reconciled", || async {
        seen.load(Ordering::SeqCst) >= 1
    })
    .await;
    let before = seen.load(Ordering::SeqCst);
    let patch = Patch::Merge(json!({"data": {"key": "2"}}));
    maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    eventually("the change was reconciled", || async {
        seen.load(Ordering::SeqCst) > before
    })
    .await;
    running.abort();
}

#[tokio::test]
async fn a_finalizer_holds_an_object_until_it_is_cleaned_up() {
    let cluster = Cluster::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    maps.create(&PostParams::default(), &config_map("held", "1"))
        .await
        .unwrap();
    let step = |expected: &'static str| {
        let maps = maps.clone();
        async move {
            let object = Arc::new(maps.get("held").await.unwrap());
            finalizer(&maps, "example.com/cleanup", object, |event| async move {
                let got = match event {
                    Finalizer::Apply(_) => "apply",
                    Finalizer::Cleanup(_) => "cleanup",
                };
                assert_eq!(got, expected);
                Ok::<_, Infallible>(Action::await_change())
            })
            .await
            .unwrap();
        }
    };
    step("apply").await;
    assert_eq!(
        maps.get("held").await.unwrap().finalizers(),
        ["example.com/cleanup"]
    );
    maps.delete("held", &DeleteParams::default()).await.unwrap();
    assert!(
        maps.get("held")
            .await
            .unwrap()
            .meta()
            .deletion_timestamp
            .is_some()
    );
    step("cleanup").await;
    assert!(maps.get_opt("held").await.unwrap().is_none());
}

#[tokio::test]
async fn a_recorder_publishes_events_that_both_groups_show() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let about = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    let reporter = Reporter {
        controller: "tester".to_owned(),
        instance: Some("tester-0".to_owned()),
    };
    let recorder = Recorder::new(client.clone(), reporter);
    let event = Event {
        type_: EventType::Normal,
        reason: "Tried".to_owned(),
        note: Some("it works".to_owned()),
        action: "Try".to_owned(),
        secondary: None,
    };
    // The second event is counted into the first as a series.
    for _ in 0..2 {
        recorder.publish(&event, &about.object_ref(&())).await.unwrap();
    }
    let modern: Api<StoredEvent> = Api::default_namespaced(client.clone());
    let found = modern.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].note.as_deref(), Some("it works"));
    assert_eq!(found[0].series.as_ref().map(|series| series.count), Some(2));
    let core: Api<k8s_openapi::api::core::v1::Event> = Api::default_namespaced(client);
    let about_it = ListParams::default().fields("involvedObject.name=a,reason=Tried");
    let found = core.list(&about_it).await.unwrap().items;
    assert_eq!(found[0].message.as_deref(), Some("it works"));
}

#[tokio::test]
async fn one_of_two_candidates_holds_the_lease_and_the_other_follows() {
    use kube_lease_manager::{LeaseCreateMode, LeaseManagerBuilder};
    let cluster = Cluster::start().await;
    let candidate = |identity: &'static str| {
        LeaseManagerBuilder::new(cluster.client(), "leader")
            .with_namespace("default")
            .with_create_mode(LeaseCreateMode::AutoCreate)
            .with_identity(identity)
            .with_duration(5)
            .with_grace(1)
            .build()
    };
    let (first, second) = (candidate("a").await.unwrap(), candidate("b").await.unwrap());
    assert!(first.changed().await.unwrap());
    let (second, running) = second.watch().await;
    assert!(!*second.borrow());
    first.release().await.unwrap();
    let mut follower = second.clone();
    tokio::time::timeout(DEADLINE, follower.wait_for(|leads| *leads))
        .await
        .unwrap()
        .unwrap();
    running.abort();
}
