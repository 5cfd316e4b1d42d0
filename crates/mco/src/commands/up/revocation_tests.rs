//! Tests of revoked access: deleted Nodes, and the limits of join tokens.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use mco_apiserver::http::ApiBody;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::access_tests::{NODES, TestCluster, credential, join, limited_token, token, with_token};

const DEADLINE: Duration = Duration::from_secs(30);

async fn watch_own_node(cluster: &TestCluster, credential: &str, node: &str) -> ApiBody {
    let query = format!("watch=true&timeoutSeconds=31536000&fieldSelector=metadata.name%3D{node}");
    let request = Request::get(format!("{NODES}?{query}"))
        .header("authorization", format!("Bearer {credential}"))
        .body(Empty::<Bytes>::new())
        .unwrap();
    let response = cluster.server.anonymous_service().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body()
}

/// Returns the next event, or `None` at the end of the watch.
async fn next(body: &mut ApiBody) -> Option<Value> {
    let frame = tokio::time::timeout(DEADLINE, body.frame()).await.unwrap()?;
    Some(serde_json::from_slice(&frame.unwrap().into_data().unwrap()).unwrap())
}

async fn status(cluster: &TestCluster, credential: &str, node: &str) -> StatusCode {
    let path = format!("{NODES}/{node}");
    with_token(cluster, credential, Method::GET, &path, Value::Null)
        .await
        .0
}

#[tokio::test]
async fn a_deleted_nodes_open_watch_ends() {
    let cluster = TestCluster::start().await;
    let token = token(&cluster).await;
    for (node, letter) in [("lab-1", "a"), ("lab-2", "b")] {
        assert_eq!(join(&cluster, &token, node, letter).await, StatusCode::OK);
    }
    let mut deleted = watch_own_node(&cluster, &credential("a"), "lab-1").await;
    let mut other = watch_own_node(&cluster, &credential("b"), "lab-2").await;
    assert_eq!(next(&mut deleted).await.unwrap()["type"], "ADDED");
    assert_eq!(next(&mut other).await.unwrap()["type"], "ADDED");

    let path = format!("{NODES}/lab-1");
    assert_eq!(
        cluster.request(Method::DELETE, &path, Value::Null).await.0,
        StatusCode::OK
    );
    let again = json!({"metadata": {"name": "lab-1"}});
    assert_eq!(
        cluster.request(Method::POST, NODES, again).await.0,
        StatusCode::CREATED
    );
    assert_eq!(next(&mut deleted).await, None, "no event after the revocation");

    let note = json!({"metadata": {"annotations": {"x": "y"}}});
    let path = format!("{NODES}/lab-2");
    assert_eq!(
        cluster.request(Method::PATCH, &path, note).await.0,
        StatusCode::OK
    );
    assert_eq!(next(&mut other).await.unwrap()["type"], "MODIFIED");
}

#[tokio::test]
async fn a_terminating_node_has_no_open_watch() {
    let cluster = TestCluster::start().await;
    let token = token(&cluster).await;
    assert_eq!(join(&cluster, &token, "lab-1", "a").await, StatusCode::OK);
    let path = format!("{NODES}/lab-1");
    let finalizer = json!({"metadata": {"finalizers": ["example.io/hold"]}});
    assert_eq!(
        cluster.request(Method::PATCH, &path, finalizer).await.0,
        StatusCode::OK
    );
    let mut watch = watch_own_node(&cluster, &credential("a"), "lab-1").await;
    assert_eq!(next(&mut watch).await.unwrap()["type"], "ADDED");
    cluster.request(Method::DELETE, &path, Value::Null).await;
    assert_eq!(next(&mut watch).await, None);
}

#[tokio::test]
async fn a_node_of_the_same_name_revived_an_old_credential() {
    let cluster = TestCluster::start().await;
    let token = token(&cluster).await;
    assert_eq!(join(&cluster, &token, "lab-1", "a").await, StatusCode::OK);
    assert_eq!(status(&cluster, &credential("a"), "lab-1").await, StatusCode::OK);
    let path = format!("{NODES}/lab-1");
    cluster.request(Method::DELETE, &path, Value::Null).await;
    assert_eq!(
        status(&cluster, &credential("a"), "lab-1").await,
        StatusCode::UNAUTHORIZED
    );
    let promoted = json!({"metadata": {"name": "lab-1", "labels": {"node-role.kubernetes.io/master": ""}}});
    assert_eq!(
        cluster.request(Method::POST, NODES, promoted).await.0,
        StatusCode::CREATED
    );
    assert_eq!(
        status(&cluster, &credential("a"), "lab-1").await,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(join(&cluster, &token, "lab-1", "a").await, StatusCode::CONFLICT);
}

#[tokio::test]
async fn the_token_of_a_deleted_node_is_removed_from_the_file() {
    let cluster = TestCluster::start().await;
    let token = token(&cluster).await;
    assert_eq!(join(&cluster, &token, "lab-1", "a").await, StatusCode::OK);
    let entries = || {
        let text = std::fs::read_to_string(cluster.path().join("tokens.json")).unwrap();
        text.matches("system:node:lab-1").count()
    };
    assert_eq!(entries(), 1);
    cluster
        .request(Method::DELETE, &format!("{NODES}/lab-1"), Value::Null)
        .await;
    let removed = async {
        while entries() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, removed).await.unwrap();
}

#[tokio::test]
async fn a_revoked_machine_joined_again_with_a_used_token() {
    let cluster = TestCluster::start().await;
    let once = limited_token(&cluster, json!({"maxUses": 1})).await;
    assert_eq!(join(&cluster, &once, "lab-1", "a").await, StatusCode::OK);
    assert_eq!(
        join(&cluster, &once, "lab-1", "a").await,
        StatusCode::OK,
        "a retry after a lost response"
    );
    assert_eq!(
        join(&cluster, &once, "lab-2", "b").await,
        StatusCode::UNAUTHORIZED
    );
    cluster
        .request(Method::DELETE, &format!("{NODES}/lab-1"), Value::Null)
        .await;
    assert_eq!(
        join(&cluster, &once, "lab-1", "a").await,
        StatusCode::UNAUTHORIZED,
        "a new join"
    );

    let twice = limited_token(&cluster, json!({"maxUses": 2, "nodeNames": "lab-*"})).await;
    assert_eq!(
        join(&cluster, &twice, "master-1", "c").await,
        StatusCode::BAD_REQUEST
    );
    assert_eq!(join(&cluster, &twice, "lab-1", "a").await, StatusCode::OK);
    assert_eq!(status(&cluster, &credential("a"), "lab-1").await, StatusCode::OK);
    let (code, listed) = cluster.request(Method::GET, "/join-tokens", Value::Null).await;
    assert_eq!(code, StatusCode::OK);
    let items = listed["items"].as_array().unwrap();
    let of = |token: &str| {
        items
            .iter()
            .find(|item| token.starts_with(item["id"].as_str().unwrap()))
            .unwrap()
    };
    assert_eq!(
        (&of(&once)["uses"], &of(&once)["maxUses"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(
        (&of(&twice)["uses"], &of(&twice)["nodeNames"]),
        (&json!(1), &json!("lab-*"))
    );
    assert!(!listed.to_string().contains("hash"), "{listed}");
    let (code, _) = with_token(
        &cluster,
        &credential("a"),
        Method::GET,
        "/join-tokens",
        Value::Null,
    )
    .await;
    assert_eq!(code, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_failed_join_uses_no_token() {
    let cluster = TestCluster::start().await;
    let once = limited_token(&cluster, json!({"maxUses": 1})).await;
    assert_eq!(
        join(&cluster, &once, "Not A Name", "a").await,
        StatusCode::UNPROCESSABLE_ENTITY
    );
    assert_eq!(join(&cluster, &once, "lab-1", "a").await, StatusCode::OK);
}
