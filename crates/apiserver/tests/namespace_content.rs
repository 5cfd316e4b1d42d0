//! What exists in every cluster and in every namespace without having been created by a client.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Cluster, DEADLINE};
use http::{Method, StatusCode};
use serde_json::{Value, json};

const SERVICE: &str = "/api/v1/namespaces/default/services/kubernetes";

/// Reads until the object fits.
async fn eventually(cluster: &Cluster, path: &str, fits: impl Fn(StatusCode, &Value) -> bool) -> Value {
    let reading = async {
        loop {
            let (status, body) = cluster.request(Method::GET, path, Value::Null).await;
            if fits(status, &body) {
                return body;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, reading).await.expect(path)
}

fn found(status: StatusCode, _: &Value) -> bool {
    status == StatusCode::OK
}

#[tokio::test]
async fn the_service_of_the_api_server_was_missing() {
    let cluster = Cluster::start().await;
    let (status, service) = cluster.request(Method::GET, SERVICE, Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{service}");
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(service["spec"]["ports"][0]["port"], 443);
}

#[tokio::test]
async fn the_first_namespaces_are_complete_before_the_first_request() {
    let cluster = Cluster::start().await;
    for namespace in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        for object in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
            let path = format!("/api/v1/namespaces/{namespace}/{object}");
            let (status, body) = cluster.request(Method::GET, &path, Value::Null).await;
            assert_eq!(status, StatusCode::OK, "{body}");
        }
    }
}

#[tokio::test]
async fn a_new_namespace_gets_a_service_account_and_the_certificates() {
    let cluster = Cluster::start().await;
    let namespace = json!({"metadata": {"name": "shop"}});
    let (status, body) = cluster
        .request(Method::POST, "/api/v1/namespaces", namespace)
        .await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let account = "/api/v1/namespaces/shop/serviceaccounts/default";
    eventually(&cluster, account, found).await;
    let path = "/api/v1/namespaces/shop/configmaps/kube-root-ca.crt";
    let map = eventually(&cluster, path, found).await;
    assert_eq!(map["data"]["ca.crt"], cluster.server.ca_bundle());

    // Both are restored.
    let deleted = cluster.request(Method::DELETE, account, Value::Null).await;
    assert_eq!(deleted.0, StatusCode::OK, "{}", deleted.1);
    eventually(&cluster, account, found).await;
    let other = json!({"data": {"ca.crt": "another", "more": "x"}});
    cluster.patch(path, "application/merge-patch+json", other).await;
    let bundle = json!({"ca.crt": cluster.server.ca_bundle()});
    let map = eventually(&cluster, path, |_, map| map["data"] == bundle).await;
    let description = map["metadata"]["annotations"]["kubernetes.io/description"].as_str();
    assert!(description.unwrap().contains("kubernetes.default.svc"), "{map}");
}

#[tokio::test]
async fn a_namespace_is_deleted_with_what_it_got() {
    let cluster = Cluster::start().await;
    let namespace = json!({"metadata": {"name": "shop"}});
    cluster
        .request(Method::POST, "/api/v1/namespaces", namespace)
        .await;
    eventually(
        &cluster,
        "/api/v1/namespaces/shop/configmaps/kube-root-ca.crt",
        found,
    )
    .await;
    let path = "/api/v1/namespaces/shop";
    let (status, body) = cluster.request(Method::DELETE, path, Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    // A client that reads the namespace right after finds it, and may complete the deletion itself.
    let (status, body) = cluster.request(Method::GET, path, Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(body["status"]["phase"], "Terminating");
    eventually(&cluster, path, |status, _| status == StatusCode::NOT_FOUND).await;
}
