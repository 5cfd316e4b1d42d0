//! Requests that need much CPU time, and what they leave for other requests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use common::{Cluster, request};
use futures::future::join_all;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use mco_apiserver::Identity;
use serde_json::{Value, json};
use tower::ServiceExt as _;

const STRATEGIC: &str = "application/strategic-merge-patch+json";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A definition with one text field.
fn definition(field: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "slows.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster",
            "names": {"plural": "slows", "singular": "slow", "kind": "Slow", "listKind": "SlowList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {"text": field}}}}}}]},
    })
}

/// Polls `/readyz` until all heavy requests are done; returns how often it was answered before that.
async fn probes_until(cluster: &Cluster, done: &AtomicUsize, requests: usize) -> usize {
    let mut answered = 0;
    while done.load(Ordering::SeqCst) < requests {
        let probe = Request::builder()
            .uri("/readyz")
            .body(Full::new(Bytes::new()))
            .unwrap();
        let response = cluster.server.anonymous_service().oneshot(probe).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body().collect().await.unwrap();
        answered += 1;
        tokio::task::yield_now().await;
    }
    answered
}

/// Sends all requests at once, from tasks of their own, and returns their codes and the probes answered meanwhile.
async fn flood(
    cluster: &Arc<Cluster>,
    identity: &Identity,
    requests: Vec<(Method, String, &'static str, Value)>,
) -> (Vec<StatusCode>, usize) {
    let done = Arc::new(AtomicUsize::new(0));
    let count = requests.len();
    let sent = requests.into_iter().map(|(method, path, content_type, body)| {
        let (cluster, done, identity) = (Arc::clone(cluster), Arc::clone(&done), identity.clone());
        tokio::spawn(async move {
            let service = cluster.server.service_as(identity);
            let (status, _) = request(service, method, &path, content_type, &body).await;
            done.fetch_add(1, Ordering::SeqCst);
            status
        })
    });
    let sent: Vec<_> = sent.collect();
    // A task as well: the thread of the test itself is not one of the runtime's.
    let probed = Arc::clone(cluster);
    let probes = tokio::spawn(async move { probes_until(&probed, &done, count).await });
    let answered = probes.await.unwrap();
    let codes = join_all(sent).await.into_iter().map(Result::unwrap).collect();
    (codes, answered)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_large_patches_of_a_node_stopped_all_other_requests() {
    let cluster = Arc::new(Cluster::start().await);
    let condition = |at: usize| json!({"type": format!("c{at}"), "status": "True"});
    let length = 4_000;
    let conditions: Vec<Value> = (0..length).map(condition).collect();
    let node = json!({"metadata": {"name": "a"}, "status": {"conditions": conditions}});
    let (status, _) = cluster.request(Method::POST, "/api/v1/nodes", node).await;
    assert_eq!(status, StatusCode::CREATED);
    let reversed: Vec<Value> = (0..length).rev().map(condition).collect();
    let patch = json!({"status": {"$setElementOrder/conditions": reversed, "conditions": reversed}});
    let path = "/api/v1/nodes/a/status".to_owned();
    let patches = vec![(Method::PATCH, path, STRATEGIC, patch); 4];
    let (codes, answered) = flood(&cluster, &Identity::node("a"), patches).await;
    assert!(codes.iter().all(|code| *code == StatusCode::OK), "{codes:?}");
    // On the threads of the runtime, two patches leave no thread for a probe until one of them is done.
    assert!(answered > 10, "only {answered} probes were answered meanwhile");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_slow_patterns_stopped_all_other_requests() {
    let cluster = Arc::new(Cluster::start().await);
    let field = json!({"type": "string", "pattern": r"(\w{1,1000}){1,5}x"});
    let (status, body) = cluster
        .request(Method::POST, DEFINITIONS, definition(&field))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let slow = |name: usize| {
        let object = json!({"apiVersion": "example.com/v1", "kind": "Slow", "metadata": {"name": format!("s{name}")},
            "spec": {"text": "a".repeat(200_000)}});
        (
            Method::POST,
            "/apis/example.com/v1/slows".to_owned(),
            "application/json",
            object,
        )
    };
    let writer = Identity::admin();
    let (codes, answered) = flood(&cluster, &writer, (0..3).map(slow).collect()).await;
    let refused = StatusCode::UNPROCESSABLE_ENTITY;
    assert!(codes.iter().all(|code| *code == refused), "{codes:?}");
    assert!(answered > 10, "only {answered} probes were answered meanwhile");
}

#[tokio::test]
async fn a_pattern_that_is_too_complex_for_a_text_is_reported_with_its_field() {
    let cluster = Cluster::start().await;
    let field = json!({"type": "string", "pattern": r"(\w{1,1000}){1,5}x"});
    cluster
        .request(Method::POST, DEFINITIONS, definition(&field))
        .await;
    let object = json!({"apiVersion": "example.com/v1", "kind": "Slow", "metadata": {"name": "s"},
        "spec": {"text": "a".repeat(200_000)}});
    let (status, body) = cluster
        .request(Method::POST, "/apis/example.com/v1/slows", object)
        .await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let message = body["message"].as_str().unwrap();
    assert!(
        message.contains("spec.text: Invalid value: 200000: spec.text in body cannot be matched with")
            && message.contains("too complex for a text of 200000 bytes"),
        "{message}"
    );
}

#[tokio::test]
async fn patterns_of_a_definition_that_need_gigabytes_are_refused() {
    let cluster = Cluster::start().await;
    let alternatives: Vec<Value> = (0..100)
        .map(|at| json!({"pattern": format!(r"(\w{{1,1000}}){{1,5}}x{at}")}))
        .collect();
    let field = json!({"type": "string", "anyOf": alternatives});
    let (status, body) = cluster
        .request(Method::POST, DEFINITIONS, definition(&field))
        .await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
    let message = body["message"].as_str().unwrap();
    assert!(
        message.contains("patterns of the schema are too large together"),
        "{message}"
    );
}
