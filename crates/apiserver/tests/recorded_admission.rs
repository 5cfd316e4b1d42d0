//! Admission policies and their validation equal those of a real kube-apiserver.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use bytes::Bytes;
use common::Cluster;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower::ServiceExt as _;

fn golden() -> Value {
    serde_json::from_str(include_str!("golden/admission.json")).expect("golden file")
}

/// Returns the path of an object's collection.
fn collection(object: &Value) -> String {
    let api_version = object["apiVersion"].as_str().unwrap();
    let root = if api_version == "v1" { "/api" } else { "/apis" };
    let kind = object["kind"].as_str().unwrap().to_lowercase();
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{kind}s"),
    };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/{api_version}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{api_version}/{plural}"),
    }
}

/// Plays a recorded request and returns code, warnings and body.
async fn play(cluster: &Cluster, case: &Value) -> (u16, Vec<String>, Value) {
    let mut request = Request::builder()
        .method(Method::from_bytes(case["method"].as_str().unwrap().as_bytes()).unwrap())
        .uri(case["path"].as_str().unwrap())
        .header(
            "content-type",
            case["type"].as_str().unwrap_or("application/json"),
        );
    if let Some(user) = case["as"].as_str() {
        request = request.header("impersonate-user", user);
    }
    let body = match &case["body"] {
        Value::Null => Bytes::new(),
        body => Bytes::from(body.to_string()),
    };
    let response = cluster
        .server
        .service()
        .oneshot(request.body(Full::new(body)).unwrap())
        .await
        .unwrap();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings
        .map(|warning| warning.to_str().unwrap().to_owned())
        .collect();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (
        code,
        warnings,
        serde_json::from_slice(&body).unwrap_or(Value::Null),
    )
}

/// Returns the recorded parts of a `Status`; causes have no order.
fn status(mut status: Value, case: &Value) -> Value {
    if let Some(causes) = status
        .pointer_mut("/details/causes")
        .and_then(Value::as_array_mut)
        && causes.len() > 1
    {
        causes.sort_by_key(Value::to_string);
        status["message"] = json!("several causes");
    }
    let mut text = status.to_string();
    if case["generated"] == true
        && let Some(name) = status.pointer("/details/name").and_then(Value::as_str)
    {
        text = text.replace(name, "GENERATED");
    }
    // The name of the administrator is that of the cluster.
    let mut kept: Value = serde_json::from_str(&text.replace("kubernetes-admin", "admin")).unwrap();
    let kept = kept.as_object_mut().unwrap();
    kept.retain(|field, _| ["message", "reason", "details"].contains(&field.as_str()));
    json!(kept)
}

async fn compare(cluster: &Cluster, cases: &Value, problems: &mut Vec<String>) {
    for case in cases.as_array().unwrap() {
        let (code, warnings, body) = play(cluster, case).await;
        let expected = case["code"].as_u64().unwrap();
        if u64::from(code) != expected {
            problems.push(format!("{}: {code} instead of {expected}: {body}", case["name"]));
            continue;
        }
        let recorded: Vec<String> = serde_json::from_value(case["warnings"].clone()).unwrap_or_default();
        if warnings != recorded {
            problems.push(format!(
                "{}: warnings {warnings:?} instead of {recorded:?}",
                case["name"]
            ));
        }
        if expected >= 400 {
            let (found, wanted) = (status(body, case), status(case["status"].clone(), case));
            if found != wanted {
                problems.push(format!("{}:\n  found  {found}\n  wanted {wanted}", case["name"]));
            }
        }
    }
}

async fn create(cluster: &Cluster, objects: &Value) {
    for object in objects.as_array().unwrap() {
        let (code, body) = cluster
            .request(Method::POST, &collection(object), object.clone())
            .await;
        assert_eq!(code, 201, "{}: {body}", object["metadata"]["name"]);
    }
}

#[tokio::test]
async fn policies_decide_as_recorded() {
    let golden = golden();
    let cluster = Cluster::start().await;
    create(&cluster, &golden["setup"]).await;
    create(&cluster, &golden["policies"]).await;
    let mut problems = Vec::new();
    assert!(golden["cases"].as_array().unwrap().len() > 45);
    compare(&cluster, &golden["cases"], &mut problems).await;
    assert!(
        problems.is_empty(),
        "{} differ:\n{}",
        problems.len(),
        problems.join("\n")
    );
}

#[tokio::test]
async fn policies_and_webhooks_that_cannot_be_enforced_are_rejected_as_recorded() {
    let golden = golden();
    let cluster = Cluster::start().await;
    let mut problems = Vec::new();
    assert!(golden["invalid"].as_array().unwrap().len() > 110);
    compare(&cluster, &golden["invalid"], &mut problems).await;
    assert!(
        problems.is_empty(),
        "{} differ:\n{}",
        problems.len(),
        problems.join("\n")
    );
}
