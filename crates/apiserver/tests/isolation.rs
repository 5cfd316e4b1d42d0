//! Who may do what: nodes keep to themselves, and nobody gets in without credentials.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Cluster, request};
use http::{Method, StatusCode};
use mco_apiserver::Identity;
use serde_json::{Value, json};

async fn with_two_nodes() -> Cluster {
    let cluster = Cluster::start().await;
    for name in ["a", "b"] {
        let (status, _) = cluster
            .request(Method::POST, "/api/v1/nodes", json!({"metadata": {"name": name}}))
            .await;
        assert_eq!(status, StatusCode::CREATED);
    }
    cluster
}

/// A request with a node's token, over a connection that brings no certificate.
async fn with_token(cluster: &Cluster, token: &str, method: Method, path: &str, body: Value) -> StatusCode {
    use http_body_util::Full;
    use tower::ServiceExt as _;
    let content_type = if method == Method::PATCH {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", content_type)
        .body(Full::new(bytes::Bytes::from(if body.is_null() {
            String::new()
        } else {
            body.to_string()
        })))
        .unwrap();
    cluster
        .server
        .anonymous_service()
        .oneshot(request)
        .await
        .unwrap()
        .status()
}

#[tokio::test]
async fn a_node_token_writes_its_own_node_and_no_other() {
    let cluster = with_two_nodes().await;
    let token = cluster.server.issue_token(&Identity::node("a")).unwrap();
    let note = json!({"metadata": {"annotations": {"x": "y"}}});
    let cases = [
        (
            "its own node",
            Method::PATCH,
            "/api/v1/nodes/a",
            note.clone(),
            StatusCode::OK,
        ),
        (
            "its own status",
            Method::PATCH,
            "/api/v1/nodes/a/status",
            json!({"status": {"phase": "x"}}),
            StatusCode::OK,
        ),
        (
            "another node",
            Method::PATCH,
            "/api/v1/nodes/b",
            note.clone(),
            StatusCode::FORBIDDEN,
        ),
        (
            "another's status",
            Method::PATCH,
            "/api/v1/nodes/b/status",
            note,
            StatusCode::FORBIDDEN,
        ),
        (
            "its own taints",
            Method::PATCH,
            "/api/v1/nodes/a",
            json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}),
            StatusCode::FORBIDDEN,
        ),
        (
            "reading another node",
            Method::GET,
            "/api/v1/nodes/b",
            Value::Null,
            StatusCode::FORBIDDEN,
        ),
        (
            "listing all nodes",
            Method::GET,
            "/api/v1/nodes",
            Value::Null,
            StatusCode::FORBIDDEN,
        ),
        (
            "listing itself",
            Method::GET,
            "/api/v1/nodes?fieldSelector=metadata.name%3Da",
            Value::Null,
            StatusCode::OK,
        ),
        (
            "creating another node",
            Method::POST,
            "/api/v1/nodes",
            json!({"metadata": {"name": "c"}}),
            StatusCode::FORBIDDEN,
        ),
        (
            "its own lease",
            Method::POST,
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
            json!({"metadata": {"name": "a"}}),
            StatusCode::CREATED,
        ),
        (
            "another's lease",
            Method::POST,
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
            json!({"metadata": {"name": "b"}}),
            StatusCode::FORBIDDEN,
        ),
        (
            "a secret",
            Method::GET,
            "/api/v1/namespaces/default/secrets",
            Value::Null,
            StatusCode::FORBIDDEN,
        ),
        (
            "deleting itself",
            Method::DELETE,
            "/api/v1/nodes/a",
            Value::Null,
            StatusCode::FORBIDDEN,
        ),
        ("discovery", Method::GET, "/apis", Value::Null, StatusCode::OK),
        (
            "metrics",
            Method::GET,
            "/metrics",
            Value::Null,
            StatusCode::FORBIDDEN,
        ),
    ];
    for (what, method, path, body, expected) in cases {
        assert_eq!(
            with_token(&cluster, &token, method, path, body).await,
            expected,
            "{what}"
        );
    }
}

#[tokio::test]
async fn nothing_but_health_is_told_to_strangers() {
    let cluster = Cluster::start().await;
    for path in ["/healthz", "/livez", "/readyz"] {
        let (status, _) = request(
            cluster.server.anonymous_service(),
            Method::GET,
            path,
            "",
            &Value::Null,
        )
        .await;
        assert_eq!(status, StatusCode::OK, "{path}");
    }
    for path in [
        "/",
        "/api",
        "/apis",
        "/version",
        "/metrics",
        "/openapi/v3",
        "/openapi/v2",
        "/api/v1/nodes",
        "/nonsense",
    ] {
        let (status, body) = request(
            cluster.server.anonymous_service(),
            Method::GET,
            path,
            "",
            &Value::Null,
        )
        .await;
        assert_eq!(
            (status, &body["reason"]),
            (StatusCode::UNAUTHORIZED, &json!("Unauthorized")),
            "{path}"
        );
    }
    assert_eq!(
        with_token(&cluster, "guess", Method::GET, "/healthz", Value::Null).await,
        StatusCode::UNAUTHORIZED
    );
}

#[tokio::test]
async fn a_revoked_token_is_worth_nothing() {
    let cluster = with_two_nodes().await;
    let token = cluster.server.issue_token(&Identity::node("a")).unwrap();
    assert_eq!(
        with_token(&cluster, &token, Method::GET, "/api/v1/nodes/a", Value::Null).await,
        StatusCode::OK
    );
    cluster.server.revoke_tokens("system:node:a").unwrap();
    let after = with_token(&cluster, &token, Method::GET, "/api/v1/nodes/a", Value::Null).await;
    assert_eq!(after, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_body_past_the_limit_is_refused() {
    let cluster = Cluster::start().await;
    let body = json!({"metadata": {"name": "big"}, "data": {"x": "y".repeat(4 << 20)}});
    let (status, answer) = cluster
        .request(Method::POST, "/api/v1/namespaces/default/configmaps", body)
        .await;
    assert_eq!(
        (status, &answer["reason"]),
        (StatusCode::PAYLOAD_TOO_LARGE, &json!("RequestEntityTooLarge"))
    );
}
