//! Requests as clients other than kubectl send them, and responses as a kube-apiserver gives them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Cluster, request};
use http::{Method, StatusCode};
use mco_apiserver::Identity;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const THINGS: &str = "/apis/example.com/v1/things";

async fn with_definition() -> Cluster {
    let cluster = Cluster::start().await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}}}]},
    });
    let (status, body) = cluster.request(Method::POST, DEFINITIONS, definition).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    cluster
}

fn thing(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": {"a": "1"}})
}

#[tokio::test]
async fn clients_that_write_times_differently_could_not_replace_what_they_had_read() {
    let cluster = with_definition().await;
    let map = json!({"metadata": {"name": "x"}, "data": {"a": "1"}});
    for (collection, object) in [(CONFIG_MAPS, map), (THINGS, thing("x"))] {
        let (status, created) = cluster.request(Method::POST, collection, object).await;
        assert_eq!(status, StatusCode::CREATED, "{created}");
        let path = format!("{collection}/x");
        let text = created["metadata"]["creationTimestamp"].as_str().unwrap();
        let seconds = text.strip_suffix('Z').unwrap();
        for (at, notation) in ["+00:00", ".000Z", ".000000+00:00"].into_iter().enumerate() {
            let (_, mut read) = cluster.request(Method::GET, &path, Value::Null).await;
            read["metadata"]["creationTimestamp"] = json!(format!("{seconds}{notation}"));
            for manager in read["metadata"]["managedFields"].as_array_mut().unwrap() {
                let time = manager["time"].as_str().unwrap().replace('Z', notation);
                manager["time"] = json!(time);
            }
            read["metadata"]["labels"] = json!({"at": at.to_string()});
            let (status, body) = cluster.request(Method::PUT, &path, read).await;
            assert_eq!(status, StatusCode::OK, "{body}");
            assert_eq!(
                body["metadata"]["creationTimestamp"], text,
                "the stored text stays"
            );
            for manager in body["metadata"]["managedFields"].as_array().unwrap() {
                assert!(
                    !manager["time"].as_str().unwrap().contains(['+', '.']),
                    "{manager}"
                );
            }
        }
        let (_, mut read) = cluster.request(Method::GET, &path, Value::Null).await;
        read["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
        let (status, _) = cluster.request(Method::PUT, &path, read).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "another instant");
    }
}

#[tokio::test]
async fn a_dry_run_of_an_object_with_a_version_was_refused() {
    let cluster = Cluster::start().await;
    let object = |name: &str| json!({"metadata": {"name": name, "resourceVersion": "7"}});
    let dry = format!("{CONFIG_MAPS}?dryRun=All");
    for (what, path, object, expected) in [
        ("a dry run", dry.as_str(), object("x"), StatusCode::CREATED),
        (
            "a create",
            CONFIG_MAPS,
            object("x"),
            StatusCode::INTERNAL_SERVER_ERROR,
        ),
        (
            "an invalid object",
            CONFIG_MAPS,
            object("X_"),
            StatusCode::UNPROCESSABLE_ENTITY,
        ),
        (
            "version zero",
            CONFIG_MAPS,
            json!({"metadata": {"name": "x", "resourceVersion": "0"}}),
            StatusCode::CREATED,
        ),
    ] {
        let (status, body) = cluster.request(Method::POST, path, object).await;
        assert_eq!(status, expected, "{what}: {body}");
    }
}

#[tokio::test]
async fn version_zero_replaced_a_custom_resource_without_a_precondition() {
    let cluster = with_definition().await;
    cluster.request(Method::POST, THINGS, thing("x")).await;
    let mut object = thing("x");
    object["metadata"]["resourceVersion"] = json!("0");
    object["spec"]["a"] = json!("2");
    let (status, body) = cluster.request(Method::PUT, &format!("{THINGS}/x"), object).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let message = body["message"].as_str().unwrap();
    assert!(
        message.ends_with("metadata.resourceVersion: Invalid value: 0: must be specified for an update"),
        "{message}"
    );
}

#[tokio::test]
async fn a_get_at_a_revision_of_the_future_returned_the_present() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/default";
    let (status, body) = cluster
        .request(
            Method::GET,
            &format!("{path}?resourceVersion=999999"),
            Value::Null,
        )
        .await;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT, "{body}");
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .contains("Too large resource version: 999999")
    );
    let (status, _) = cluster
        .request(Method::GET, &format!("{path}?resourceVersion=1"), Value::Null)
        .await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn a_lease_without_microseconds_was_stored() {
    let cluster = Cluster::start().await;
    let lease = |time: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
            "spec": {"holderIdentity": "a", "renewTime": time}})
    };
    let (status, body) = cluster
        .request(Method::POST, LEASES, lease("2026-11-18T02:13:48+00:00"))
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let message = body["message"].as_str().unwrap();
    assert!(
        message.contains(r#"cannot parse "+00:00" as ".000000""#),
        "{message}"
    );
    let (status, body) = cluster
        .request(Method::POST, LEASES, lease("2026-11-18T02:13:48.000000+00:00"))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    assert_eq!(body["spec"]["renewTime"], "2026-11-18T02:13:48.000000Z");
}

#[tokio::test]
async fn a_put_of_a_collection_asked_for_a_name() {
    let cluster = with_definition().await;
    for collection in [CONFIG_MAPS, THINGS] {
        let (status, _) = cluster.request(Method::PUT, collection, thing("x")).await;
        assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{collection}");
    }
}

#[tokio::test]
async fn authorization_read_another_field_selector_than_the_list() {
    let cluster = Cluster::start().await;
    for name in ["a", "b"] {
        let node = json!({"metadata": {"name": name}});
        cluster.request(Method::POST, "/api/v1/nodes", node).await;
    }
    for (selector, expected) in [
        ("metadata.name%3Da", StatusCode::OK),
        ("metadata.name%3D%3Da", StatusCode::OK),
        ("metadata.name%3Db", StatusCode::FORBIDDEN),
        // One term whose value contains an escaped comma, which is not a second term.
        ("metadata.name!%3Dx%5C%2Cmetadata.name%3Da", StatusCode::FORBIDDEN),
        ("metadata.name!%3Da", StatusCode::FORBIDDEN),
    ] {
        let path = format!("/api/v1/nodes?fieldSelector={selector}");
        let service = cluster.server.service_as(Identity::node("a"));
        let (status, body) = request(service, Method::GET, &path, "application/json", &Value::Null).await;
        assert_eq!(status, expected, "{selector}: {body}");
    }
}
