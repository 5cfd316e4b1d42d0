//! RBAC: a caller grants only permissions that it has itself, whichever way it writes the role or binding.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Cluster, request};
use http::{Method, StatusCode};
use mco_apiserver::{ApiService, Identity};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const JSON: &str = "application/json";

/// Returns a cluster in which alice writes roles and bindings and reads ConfigMaps.
async fn cluster() -> Cluster {
    let cluster = Cluster::start().await;
    let rules = json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"],
            "verbs": ["get", "create", "update", "patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]},
    ]);
    let role = json!({"metadata": {"name": "writer"}, "rules": rules});
    post(&cluster, "clusterroles", role).await;
    post(
        &cluster,
        "clusterrolebindings",
        binding("writer", "writer", "alice"),
    )
    .await;
    let own = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    post(
        &cluster,
        "clusterroles",
        json!({"metadata": {"name": "held"}, "rules": own}),
    )
    .await;
    cluster
}

async fn post(cluster: &Cluster, plural: &str, object: Value) {
    let (status, answer) = cluster
        .request(Method::POST, &format!("{RBAC}/{plural}"), object)
        .await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
}

fn binding(name: &str, role: &str, user: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({"metadata": {"name": name}, "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}]})
}

fn role(name: &str, rules: &Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": rules})
}

fn alice(cluster: &Cluster) -> ApiService {
    cluster.server.service_as(Identity::new("alice", &[]))
}

#[tokio::test]
async fn a_writer_of_bindings_became_cluster_admin() {
    let cluster = cluster().await;
    let path = format!("{RBAC}/clusterrolebindings");
    let (status, answer) = request(
        alice(&cluster),
        Method::POST,
        &path,
        JSON,
        &binding("mine", "cluster-admin", "alice"),
    )
    .await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert_eq!(
        answer["message"],
        "clusterrolebindings.rbac.authorization.k8s.io \"mine\" is forbidden: user \"alice\" \
         (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}"
    );
    let (status, answer) = request(
        alice(&cluster),
        Method::POST,
        &path,
        JSON,
        &binding("mine", "held", "bob"),
    )
    .await;
    assert_eq!(status, StatusCode::CREATED, "what alice has herself: {answer}");
    let (status, answer) = request(
        alice(&cluster),
        Method::POST,
        &path,
        JSON,
        &binding("gone", "missing", "bob"),
    )
    .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(
        answer["message"],
        "clusterroles.rbac.authorization.k8s.io \"missing\" not found"
    );
}

#[tokio::test]
async fn a_role_is_not_escalated_by_update_patch_or_apply() {
    let cluster = cluster().await;
    let roles = format!("{RBAC}/clusterroles");
    let own = format!("{roles}/held");
    let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let configmaps = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    let (no, ok) = (StatusCode::FORBIDDEN, StatusCode::OK);
    let json_patch = json!([{"op": "replace", "path": "/rules", "value": secrets}]);
    let apply = format!("{own}?fieldManager=t&force=true");
    let new = format!("{roles}/new?fieldManager=t");
    let aggregated = json!({"metadata": {"name": "sum"}, "aggregationRule": {"clusterRoleSelectors": [{}]}});
    for (what, method, path, content_type, body, expected) in [
        ("create", Method::POST, &roles, JSON, role("x", &secrets), no),
        ("update", Method::PUT, &own, JSON, role("held", &secrets), no),
        (
            "merge patch",
            Method::PATCH,
            &own,
            "application/merge-patch+json",
            json!({"rules": secrets}),
            no,
        ),
        (
            "JSON patch",
            Method::PATCH,
            &own,
            "application/json-patch+json",
            json_patch,
            no,
        ),
        (
            "strategic merge patch",
            Method::PATCH,
            &own,
            "application/strategic-merge-patch+json",
            json!({"rules": secrets}),
            no,
        ),
        (
            "apply",
            Method::PATCH,
            &apply,
            "application/apply-patch+yaml",
            role("held", &secrets),
            no,
        ),
        (
            "apply of a new role",
            Method::PATCH,
            &new,
            "application/apply-patch+yaml",
            role("new", &secrets),
            no,
        ),
        ("aggregation", Method::POST, &roles, JSON, aggregated, no),
        (
            "a label",
            Method::PATCH,
            &own,
            "application/merge-patch+json",
            json!({"metadata": {"labels": {"a": "b"}}}),
            ok,
        ),
        (
            "permissions of her own",
            Method::PUT,
            &own,
            JSON,
            role("held", &configmaps),
            ok,
        ),
    ] {
        let (status, answer) = request(alice(&cluster), method, path, content_type, &body).await;
        assert_eq!(status, expected, "{what}: {answer}");
    }
}

#[tokio::test]
async fn the_verbs_escalate_and_bind_allow_it() {
    let cluster = cluster().await;
    let rules = json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": ["chosen"],
            "verbs": ["escalate", "bind"]},
    ]);
    post(
        &cluster,
        "clusterroles",
        json!({"metadata": {"name": "granter"}, "rules": rules}),
    )
    .await;
    post(
        &cluster,
        "clusterrolebindings",
        binding("granter", "granter", "alice"),
    )
    .await;
    let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let (roles, bindings) = (
        format!("{RBAC}/clusterroles"),
        format!("{RBAC}/clusterrolebindings"),
    );
    for (expected, path, body) in [
        (StatusCode::CREATED, &roles, role("chosen", &secrets)),
        (StatusCode::FORBIDDEN, &roles, role("another", &secrets)),
        (StatusCode::CREATED, &bindings, binding("chosen", "chosen", "bob")),
        (
            StatusCode::FORBIDDEN,
            &bindings,
            binding("admin", "cluster-admin", "bob"),
        ),
    ] {
        let (status, answer) = request(alice(&cluster), Method::POST, path, JSON, &body).await;
        assert_eq!(status, expected, "{answer}");
    }
}
