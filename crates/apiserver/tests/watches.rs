//! Limits of watches: slow readers, expired revisions, selections that objects enter and leave.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Cluster, DEADLINE};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use mco_apiserver::ApiServerOptions;
use mco_apiserver::http::ApiBody;
use mco_apiserver::store::Retention;
use serde_json::{Value, json};
use tower::ServiceExt as _;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn open(cluster: &Cluster, query: &str) -> ApiBody {
    let request = Request::builder()
        .uri(format!("{MAPS}?watch=true&{query}"))
        .body(Empty::<bytes::Bytes>::new())
        .unwrap();
    let response = cluster.server.service().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body()
}

/// Returns the next event, or `None` at the end of the watch.
async fn next(body: &mut ApiBody) -> Option<Value> {
    let frame = tokio::time::timeout(DEADLINE, body.frame())
        .await
        .expect("an event in time")?;
    Some(serde_json::from_slice(&frame.unwrap().into_data().unwrap()).unwrap())
}

async fn write(cluster: &Cluster, name: &str, label: &str, size: usize) {
    let body = json!({"metadata": {"labels": {"team": label}}, "data": {"x": "y".repeat(size)}});
    let (status, _) = cluster
        .patch(
            &format!("{MAPS}/{name}"),
            "application/merge-patch+json",
            body.clone(),
        )
        .await;
    if status == StatusCode::NOT_FOUND {
        let mut body = body;
        body["metadata"]["name"] = json!(name);
        assert_eq!(
            cluster.request(Method::POST, MAPS, body).await.0,
            StatusCode::CREATED
        );
    }
}

#[tokio::test]
async fn a_watcher_that_stops_reading_expires() {
    let retention = Retention {
        events: 50,
        ..Retention::default()
    };
    let cluster = Cluster::with(ApiServerOptions {
        retention,
        ..ApiServerOptions::default()
    })
    .await;
    let start = cluster.server.registry().store.revision();
    let mut slow = open(&cluster, &format!("resourceVersion={start}")).await;
    for index in 0..400 {
        write(&cluster, "a", &format!("v{index}"), 10).await;
    }
    let event = next(&mut slow).await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert_eq!(event["object"]["reason"], "Expired");
    assert!(next(&mut slow).await.is_none(), "nothing follows an error");
}

#[tokio::test]
async fn watchers_that_stop_reading_hold_no_memory() {
    let retention = Retention {
        events: 100,
        bytes: 1 << 20,
        ..Retention::default()
    };
    let cluster = Cluster::with(ApiServerOptions {
        retention,
        ..ApiServerOptions::default()
    })
    .await;
    let start = cluster.server.registry().store.revision();
    let mut stalled = Vec::new();
    for _ in 0..100 {
        stalled.push(open(&cluster, &format!("resourceVersion={start}")).await);
    }
    for index in 0..50 {
        write(&cluster, "a", &format!("v{index}"), 50_000).await;
    }
    let before = resident_bytes();
    // 20 MB of events, of which a hundred queues would hold two gigabytes.
    for index in 0..400 {
        write(&cluster, "a", &format!("w{index}"), 50_000).await;
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "grew by {grown} bytes");
    drop(stalled);
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test]
async fn objects_enter_and_leave_a_selection() {
    let cluster = Cluster::start().await;
    let mut selected = open(&cluster, "labelSelector=team%3Dred").await;
    write(&cluster, "a", "blue", 1).await;
    write(&cluster, "a", "red", 1).await;
    write(&cluster, "a", "red", 2).await;
    write(&cluster, "a", "blue", 2).await;
    write(&cluster, "a", "red", 3).await;
    assert_eq!(
        cluster
            .request(Method::DELETE, &format!("{MAPS}/a"), Value::Null)
            .await
            .0,
        StatusCode::OK
    );
    let mut reported = Vec::new();
    let mut last = 0;
    for _ in 0..5 {
        let event = next(&mut selected).await.unwrap();
        let revision: u64 = event["object"]["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        assert!(revision > last, "revisions only grow");
        last = revision;
        let data = event["object"]["data"]["x"].as_str().unwrap().len();
        reported.push(format!(
            "{} {} {data}",
            event["type"].as_str().unwrap(),
            event["object"]["metadata"]["labels"]["team"].as_str().unwrap()
        ));
    }
    // An object that leaves the selection is sent as it last was in it.
    assert_eq!(
        reported,
        [
            "ADDED red 1",
            "MODIFIED red 2",
            "DELETED red 2",
            "ADDED red 3",
            "DELETED red 3"
        ]
    );
}

#[tokio::test]
async fn a_list_at_a_compacted_revision_expires_with_a_token_to_continue() {
    let cluster = Cluster::start().await;
    for name in ["a", "b", "c"] {
        write(&cluster, name, "x", 1).await;
    }
    let (_, first) = cluster
        .request(Method::GET, &format!("{MAPS}?limit=1"), Value::Null)
        .await;
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    write(&cluster, "d", "x", 1).await;
    let store = &cluster.server.registry().store;
    store.compact(store.revision());
    let (status, gone) = cluster
        .request(
            Method::GET,
            &format!("{MAPS}?limit=1&continue={token}"),
            Value::Null,
        )
        .await;
    assert_eq!((status, &gone["reason"]), (StatusCode::GONE, &json!("Expired")));
    let onward = gone["metadata"]["continue"].as_str().unwrap();
    let (status, rest) = cluster
        .request(Method::GET, &format!("{MAPS}?continue={onward}"), Value::Null)
        .await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        rest["items"].as_array().unwrap().len(),
        4,
        "b and c, the certificates of the API server, and d which came later"
    );
}

#[tokio::test]
async fn bookmarks_come_when_nothing_else_does_and_the_watch_ends_in_time() {
    let cluster = Cluster::with(ApiServerOptions {
        bookmark_interval: std::time::Duration::from_millis(100),
        ..ApiServerOptions::default()
    })
    .await;
    let query = "allowWatchBookmarks=true&timeoutSeconds=1&resourceVersion=1";
    let mut watch = open(&cluster, query).await;
    write(&cluster, "elsewhere", "x", 1).await;
    let mut bookmarks = 0;
    while let Some(event) = next(&mut watch).await {
        if event["type"] == "BOOKMARK" {
            bookmarks += 1;
            assert_eq!(event["object"]["kind"], "ConfigMap");
        }
    }
    assert!(
        bookmarks >= 2,
        "one on the way and one at the end, got {bookmarks}"
    );
}

#[tokio::test]
async fn a_streamed_list_ends_with_a_bookmark() {
    let cluster = Cluster::start().await;
    write(&cluster, "a", "x", 1).await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = open(&cluster, query).await;
    for name in ["a", "kube-root-ca.crt"] {
        let event = next(&mut watch).await.unwrap();
        assert_eq!(event["type"], "ADDED");
        assert_eq!(event["object"]["metadata"]["name"], name);
    }
    let end = next(&mut watch).await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(
        end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    write(&cluster, "b", "x", 1).await;
    assert_eq!(next(&mut watch).await.unwrap()["object"]["metadata"]["name"], "b");
}

#[tokio::test]
async fn a_watch_waited_in_the_middle_of_a_history_without_selected_events() {
    let cluster = Cluster::start().await;
    let start = cluster.server.registry().store.revision();
    for index in 0..300 {
        write(&cluster, "other", &format!("v{index}"), 1).await;
    }
    write(&cluster, "wanted", "mine", 1).await;
    let query = format!("resourceVersion={start}&labelSelector=team%3Dmine");
    let event = next(&mut open(&cluster, &query).await).await.unwrap();
    assert_eq!(event["object"]["metadata"]["name"], "wanted");
    for index in 0..300 {
        write(&cluster, &format!("o{index}"), "other", 1).await;
    }
    let query = "labelSelector=team%3Dmine&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut initial = open(&cluster, query).await;
    assert_eq!(
        next(&mut initial).await.unwrap()["object"]["metadata"]["name"],
        "wanted"
    );
    assert_eq!(next(&mut initial).await.unwrap()["type"], "BOOKMARK");
}
