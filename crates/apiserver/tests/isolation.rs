//! Authorization: nodes access their own objects only, and requests without credentials are rejected.
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

/// Sends a request with a node's token, over a connection without a client certificate.
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

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

async fn check(cases: Vec<(&str, Method, &str, Value, StatusCode)>) {
    let cluster = with_two_nodes().await;
    let token = cluster.server.issue_token(&Identity::node("a")).unwrap();
    for (what, method, path, body, expected) in cases {
        let status = with_token(&cluster, &token, method, path, body).await;
        assert_eq!(status, expected, "{what}");
    }
}

#[tokio::test]
async fn a_node_token_writes_its_own_node_and_no_other() {
    let note = json!({"metadata": {"annotations": {"x": "y"}}});
    let status = json!({"status": {"phase": "x"}});
    let taints = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    let finalizer = json!({"metadata": {"finalizers": ["example.io/hold"]}});
    let named = |name: &str| json!({"metadata": {"name": name}});
    let (own, own_status) = ("/api/v1/nodes/a", "/api/v1/nodes/a/status");
    let (other, other_status) = ("/api/v1/nodes/b", "/api/v1/nodes/b/status");
    let (ok, made, no) = (StatusCode::OK, StatusCode::CREATED, StatusCode::FORBIDDEN);
    check(vec![
        ("its own node", Method::PATCH, own, note.clone(), ok),
        ("its own status", Method::PATCH, own_status, status.clone(), ok),
        ("another node", Method::PATCH, other, note, no),
        ("another's status", Method::PATCH, other_status, status, no),
        ("its own taints", Method::PATCH, own, taints, no),
        (
            "creating another node",
            Method::POST,
            "/api/v1/nodes",
            named("c"),
            no,
        ),
        ("its own lease", Method::POST, LEASES, named("a"), made),
        ("another's lease", Method::POST, LEASES, named("b"), no),
        ("deleting itself", Method::DELETE, own, Value::Null, no),
        (
            "a finalizer that would keep its access",
            Method::PATCH,
            own,
            finalizer,
            no,
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_node_forged_the_events_of_others() {
    const EVENTS: &str = "/api/v1/namespaces/default/events";
    let cluster = with_two_nodes().await;
    let token = cluster.server.issue_token(&Identity::node("a")).unwrap();
    let event = |name: &str, instance: &str| {
        json!({"metadata": {"name": name, "namespace": "default"}, "reason": "Reboot", "message": "x", "type": "Normal",
            "involvedObject": {"kind": "Node", "name": "b"},
            "reportingComponent": "machine-config-daemon", "reportingInstance": instance, "source": {"host": instance}})
    };
    let (status, _) = cluster.request(Method::POST, EVENTS, event("of-b", "b")).await;
    assert_eq!(status, StatusCode::CREATED);
    let message = json!({"message": "forged"});
    let taken_over = json!({"message": "forged", "reportingInstance": "a", "source": {"host": "a"}});
    let (of_a, of_b) = (format!("{EVENTS}/of-a"), format!("{EVENTS}/of-b"));
    for (what, method, path, body, expected) in [
        (
            "its own event",
            Method::POST,
            EVENTS,
            event("of-a", "a"),
            StatusCode::CREATED,
        ),
        (
            "its own event again",
            Method::PATCH,
            &of_a,
            message.clone(),
            StatusCode::OK,
        ),
        (
            "in the name of another",
            Method::POST,
            EVENTS,
            event("c", "b"),
            StatusCode::FORBIDDEN,
        ),
        (
            "in no name",
            Method::POST,
            EVENTS,
            event("d", ""),
            StatusCode::FORBIDDEN,
        ),
        (
            "another's event",
            Method::PATCH,
            &of_b,
            message,
            StatusCode::FORBIDDEN,
        ),
        (
            "another's event as its own",
            Method::PATCH,
            &of_b,
            taken_over,
            StatusCode::FORBIDDEN,
        ),
    ] {
        assert_eq!(
            with_token(&cluster, &token, method, path, body).await,
            expected,
            "{what}"
        );
    }
}

#[tokio::test]
async fn impersonating_one_user_does_not_yield_its_groups() {
    let cluster = Cluster::start().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "as-bob"}, "rules": [
        {"apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"], "verbs": ["impersonate"]}]});
    let binding = json!({"metadata": {"name": "as-bob"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "as-bob"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]});
    for (path, body) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let (status, _) = cluster
            .request(Method::POST, &format!("{rbac}/{path}"), body)
            .await;
        assert_eq!(status, StatusCode::CREATED);
    }
    let token = cluster.server.issue_token(&Identity::new("alice", &[])).unwrap();
    let secrets = "/api/v1/namespaces/default/secrets";
    for (headers, expected) in [
        (vec![("impersonate-user", "bob")], "User \"bob\" cannot list"),
        (
            vec![
                ("impersonate-user", "bob"),
                ("impersonate-group", "system:masters"),
            ],
            "User \"alice\" cannot impersonate resource \"groups\"",
        ),
        (
            vec![("impersonate-user", "eve")],
            "User \"alice\" cannot impersonate resource \"users\"",
        ),
        (vec![("impersonate-group", "system:masters")], "Impersonate-User"),
    ] {
        let answer = impersonating(&cluster, &token, secrets, &headers).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(message.contains(expected), "{headers:?}: {message}");
    }
}

async fn impersonating(cluster: &Cluster, token: &str, path: &str, headers: &[(&str, &str)]) -> Value {
    use http_body_util::{BodyExt as _, Full};
    use tower::ServiceExt as _;
    let mut request = http::Request::builder()
        .uri(path)
        .header("authorization", format!("Bearer {token}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(bytes::Bytes::new())).unwrap();
    let response = cluster.server.anonymous_service().oneshot(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn a_node_token_reads_what_concerns_its_node() {
    let (ok, no) = (StatusCode::OK, StatusCode::FORBIDDEN);
    let itself = "/api/v1/nodes?fieldSelector=metadata.name%3Da";
    let secrets = "/api/v1/namespaces/default/secrets";
    let cases = [
        ("its own node", "/api/v1/nodes/a", ok),
        ("another node", "/api/v1/nodes/b", no),
        ("all nodes", "/api/v1/nodes", no),
        ("a list of itself", itself, ok),
        ("secrets", secrets, no),
        ("discovery", "/apis", ok),
        ("metrics", "/metrics", no),
    ];
    let cases = cases.map(|(what, path, expected)| (what, Method::GET, path, Value::Null, expected));
    check(cases.into()).await;
}

#[tokio::test]
async fn a_node_cannot_set_restricted_labels() {
    let cluster = Cluster::start().await;
    let token = cluster.server.issue_token(&Identity::node("a")).unwrap();
    let node = |labels: Value| json!({"metadata": {"name": "a", "labels": labels}});
    let trusted = node(json!({"node-restriction.kubernetes.io/vault": "yes"}));
    let plain = node(json!({"kubernetes.io/arch": "amd64"}));
    let nodes = "/api/v1/nodes";
    for (object, expected) in [
        (trusted.clone(), StatusCode::FORBIDDEN),
        (plain, StatusCode::CREATED),
    ] {
        assert_eq!(
            with_token(&cluster, &token, Method::POST, nodes, object).await,
            expected
        );
    }
    let own = "/api/v1/nodes/a";
    assert_eq!(
        with_token(&cluster, &token, Method::PATCH, own, trusted).await,
        StatusCode::FORBIDDEN
    );
}

#[tokio::test]
async fn no_resource_is_served_without_credentials() {
    let cluster = Cluster::start().await;
    let mut asked = 0;
    for definition in cluster.server.registry().catalog().definitions() {
        let root = match definition.group.as_str() {
            "" => format!("/api/{}", definition.version),
            group => format!("/apis/{group}/{}", definition.version),
        };
        let all = format!("{root}/{}", definition.plural);
        let mut paths = vec![
            all.clone(),
            format!("{all}?watch=true"),
            format!("{all}/x"),
            format!("{all}/x/status"),
            format!("{root}/namespaces/default/{}", definition.plural),
            format!("{root}/namespaces/default/{}/x", definition.plural),
        ];
        paths.push(root);
        for path in paths {
            for method in [
                Method::GET,
                Method::POST,
                Method::PUT,
                Method::PATCH,
                Method::DELETE,
                Method::HEAD,
                Method::OPTIONS,
            ] {
                let (status, _) = request(
                    cluster.server.anonymous_service(),
                    method.clone(),
                    &path,
                    "application/json",
                    &json!({}),
                )
                .await;
                assert_eq!(status, StatusCode::UNAUTHORIZED, "{method} {path}");
                asked += 1;
            }
        }
    }
    assert!(asked > 500, "{asked}");
}

#[tokio::test]
async fn only_health_is_served_without_credentials() {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_review_that_is_not_an_object_ended_the_process() {
    let cluster = Cluster::start().await;
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    for body in [json!([]), json!("x"), json!(1)] {
        let (status, _) = cluster.request(Method::POST, path, body.clone()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
    }
    let (status, _) = cluster.request(Method::POST, path, json!({})).await;
    assert_eq!(status, StatusCode::CREATED);
}
