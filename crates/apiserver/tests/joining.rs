//! How a machine comes in: a token for a pool, a name that nobody has, and a credential that lasts as long as its Node.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::Cluster;
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Full};
use mco_apiserver::Identity;
use serde_json::{Value, json};
use tower::ServiceExt as _;

const NODES: &str = "/api/v1/nodes";

/// A request that brings nothing but a token.
async fn ask(cluster: &Cluster, token: &str, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json")
        .body(Full::new(bytes::Bytes::from(body.to_string())))
        .unwrap();
    let response = cluster.server.anonymous_service().oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

/// What is shown to the server: the token without the fingerprint at its end.
async fn token(cluster: &Cluster) -> String {
    let body = json!({"pool": "worker", "labels": {"node-role.kubernetes.io/worker": ""}, "seconds": 60});
    let (status, issued) = cluster.request(Method::POST, "/join-tokens", body).await;
    assert_eq!(status, StatusCode::CREATED, "{issued}");
    let token = issued["token"]
        .as_str()
        .unwrap()
        .rsplit_once('.')
        .unwrap()
        .0
        .to_owned();
    assert!(token.starts_with(issued["id"].as_str().unwrap()));
    token
}

/// 32 bytes in the alphabet of URLs, of which the last letter holds only four bits.
fn credential(letter: &str) -> String {
    letter.repeat(42) + "A"
}

async fn join(cluster: &Cluster, token: &str, node: &str, letter: &str) -> StatusCode {
    let body = json!({"node": node, "credential": credential(letter)});
    ask(cluster, token, Method::POST, "/join", body).await.0
}

#[tokio::test]
async fn a_machine_gets_the_node_that_its_token_is_for_and_joining_again_changes_nothing() {
    let cluster = Cluster::start().await;
    let token = token(&cluster).await;
    for _ in 0..2 {
        let body = json!({"node": "lab-1", "credential": credential("a")});
        let (status, answer) = ask(&cluster, &token, Method::POST, "/join", body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(answer["pool"], "worker");
        let authority = answer["certificateAuthority"].as_str().unwrap();
        assert!(authority.contains("BEGIN CERTIFICATE"));
    }
    let own = format!("{NODES}/lab-1");
    let (status, node) = ask(&cluster, &credential("a"), Method::GET, &own, Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(node["metadata"]["labels"]["node-role.kubernetes.io/worker"], "");

    // The pool is not the machine's to choose.
    let promoted = json!({"metadata": {"name": "lab-1", "labels": {"node-role.kubernetes.io/master": ""}}});
    let (status, _) = ask(&cluster, &credential("a"), Method::PUT, &own, promoted).await;
    assert_eq!(status, StatusCode::FORBIDDEN);

    // Whoever deletes the Node shows the machine the door; the token lets it in again, or another in its place.
    let (status, _) = cluster.request(Method::DELETE, &own, Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = ask(&cluster, &credential("a"), Method::GET, &own, Value::Null).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert_eq!(join(&cluster, &token, "lab-1", "b").await, StatusCode::OK);
    let (status, _) = ask(&cluster, &credential("a"), Method::GET, &own, Value::Null).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let (status, _) = ask(&cluster, &credential("b"), Method::GET, &own, Value::Null).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn names_that_somebody_has_are_not_given_twice() {
    let cluster = Cluster::start().await;
    let token = token(&cluster).await;
    assert_eq!(join(&cluster, &token, "lab-1", "a").await, StatusCode::OK);
    assert_eq!(join(&cluster, &token, "lab-1", "b").await, StatusCode::CONFLICT);
    let body = json!({"metadata": {"name": "of-somebody"}});
    cluster.request(Method::POST, NODES, body).await;
    assert_eq!(
        join(&cluster, &token, "of-somebody", "c").await,
        StatusCode::CONFLICT,
        "a Node that never joined"
    );
    assert_eq!(
        join(&cluster, &token, "lab-2", "a").await,
        StatusCode::BAD_REQUEST,
        "one credential for two machines"
    );
    assert_eq!(
        join(&cluster, &token, "Not A Name", "d").await,
        StatusCode::UNPROCESSABLE_ENTITY
    );
    let (left, right) = tokio::join!(
        join(&cluster, &token, "lab-3", "e"),
        join(&cluster, &token, "lab-3", "f")
    );
    let mut both = [left, right];
    both.sort();
    assert_eq!(both, [StatusCode::OK, StatusCode::CONFLICT], "at the same moment");
}

#[tokio::test]
async fn nobody_comes_in_without_a_token_and_only_administrators_make_them() {
    let cluster = Cluster::start().await;
    let good = token(&cluster).await;
    for wrong in ["", "x", "x.y", &good[..good.len() - 1]] {
        let body = json!({"node": "lab-1", "credential": credential("a")});
        let (status, answer) = ask(&cluster, wrong, Method::POST, "/join", body).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{wrong}");
        assert!(answer["message"].as_str().unwrap().contains("not known here"));
    }
    for weak in ["", "short", &"!".repeat(43)] {
        let body = json!({"node": "lab-1", "credential": weak});
        let (status, _) = ask(&cluster, &good, Method::POST, "/join", body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{weak:?}");
    }
    let (status, _) = ask(&cluster, &good, Method::GET, NODES, Value::Null).await;
    assert_eq!(
        status,
        StatusCode::UNAUTHORIZED,
        "a join token is good for joining alone"
    );

    let node = cluster.server.issue_token(&Identity::node("a")).unwrap();
    let body = json!({"pool": "master", "labels": {}, "seconds": 60});
    let (status, _) = ask(&cluster, &node, Method::POST, "/join-tokens", body).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    for seconds in [0, -1, 366 * 24 * 3600] {
        let body = json!({"pool": "worker", "labels": {}, "seconds": seconds});
        let (status, _) = cluster.request(Method::POST, "/join-tokens", body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{seconds}");
    }

    let id = good.split('.').next().unwrap();
    let path = format!("/join-tokens/{id}");
    let (status, _) = cluster.request(Method::DELETE, &path, Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = cluster.request(Method::DELETE, &path, Value::Null).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(
        join(&cluster, &good, "lab-1", "a").await,
        StatusCode::UNAUTHORIZED
    );
}
