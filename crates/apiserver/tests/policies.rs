//! Admission policies: what they apply to, and when.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Cluster, eventually, request};
use http::Method;
use mco_apiserver::{ApiServer, ApiServerOptions, Identity};
use serde_json::{Value, json};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn rule(group: &str, resources: &[&str], operations: &[&str]) -> Value {
    json!({"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": resources})
}

fn policy(name: &str, rule: &Value, expression: &str) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": expression, "message": "not allowed"}]}})
}

fn binding(name: &str) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}})
}

async fn enforce(cluster: &Cluster, policy: Value) {
    let name = policy["metadata"]["name"].as_str().unwrap().to_owned();
    let (code, body) = cluster.request(Method::POST, POLICIES, policy).await;
    assert_eq!(code, 201, "{body}");
    assert_eq!(
        cluster.request(Method::POST, BINDINGS, binding(&name)).await.0,
        201
    );
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}})
}

#[tokio::test]
async fn a_stored_policy_was_ignored() {
    let cluster = Cluster::start().await;
    enforce(
        &cluster,
        policy("no-maps", &rule("", &["configmaps"], &["CREATE"]), "false"),
    )
    .await;
    let (code, body) = cluster.request(Method::POST, MAPS, map("a")).await;
    assert_eq!(code, 422, "{body}");
    // Without its binding it has no effect; neither has a deleted policy.
    let path = format!("{BINDINGS}/no-maps");
    assert_eq!(cluster.request(Method::DELETE, &path, Value::Null).await.0, 200);
    assert_eq!(cluster.request(Method::POST, MAPS, map("a")).await.0, 201);
    assert_eq!(
        cluster
            .request(Method::POST, BINDINGS, binding("no-maps"))
            .await
            .0,
        201
    );
    assert_eq!(cluster.request(Method::POST, MAPS, map("b")).await.0, 422);
    let path = format!("{POLICIES}/no-maps");
    assert_eq!(cluster.request(Method::DELETE, &path, Value::Null).await.0, 200);
    assert_eq!(cluster.request(Method::POST, MAPS, map("b")).await.0, 201);
}

#[tokio::test]
async fn a_changed_policy_is_enforced_with_the_response_to_the_change() {
    let cluster = Cluster::start().await;
    enforce(
        &cluster,
        policy("maps", &rule("", &["configmaps"], &["CREATE"]), "true"),
    )
    .await;
    for (round, expression) in ["false", "true", "false"].into_iter().enumerate() {
        let patch = json!({"spec": {"validations": [{"expression": expression}]}});
        let path = format!("{POLICIES}/maps");
        let (code, body) = cluster.patch(&path, "application/merge-patch+json", patch).await;
        assert_eq!(code, 200, "{body}");
        let (code, body) = cluster
            .request(Method::POST, MAPS, map(&format!("m{round}")))
            .await;
        assert_eq!(code == 201, expression == "true", "{body}");
    }
}

#[tokio::test]
async fn policies_are_enforced_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let open = || ApiServer::open(directory.path(), ApiServerOptions::default());
    let server = open().await.unwrap();
    let send = async |server: &ApiServer, path: &str, body: Value| {
        request(server.service(), Method::POST, path, "application/json", &body).await
    };
    let denied = policy("no-maps", &rule("", &["configmaps"], &["CREATE"]), "false");
    assert_eq!(send(&server, POLICIES, denied).await.0, 201);
    assert_eq!(send(&server, BINDINGS, binding("no-maps")).await.0, 201);
    server.shutdown().await;
    drop(server);
    let server = open().await.unwrap();
    assert_eq!(send(&server, MAPS, map("a")).await.0, 422);
    server.shutdown().await;
}

#[tokio::test]
async fn an_expensive_policy_is_stopped_by_its_budget() {
    let cluster = Cluster::start().await;
    let expression =
        "object.data.all(a, object.data.all(b, object.data.all(c, object.data.all(d, a + b + c + d != ''))))";
    enforce(
        &cluster,
        policy("slow", &rule("", &["configmaps"], &["CREATE"]), expression),
    )
    .await;
    let mut object = map("a");
    object["data"] = (0..200)
        .map(|index| (format!("key-{index}"), json!("x")))
        .collect();
    let (code, body) = cluster.request(Method::POST, MAPS, object).await;
    assert_eq!(code, 422, "{body}");
    let message = body["message"].as_str().unwrap();
    assert!(message.contains("running out of cost budget"), "{message}");
}

#[tokio::test]
async fn access_checks_of_a_policy_are_bounded() {
    let cluster = Cluster::start().await;
    let expression = "object.data.all(a, authorizer.group('').resource('pods').check('get').allowed())";
    enforce(
        &cluster,
        policy("checks", &rule("", &["configmaps"], &["CREATE"]), expression),
    )
    .await;
    let mut object = map("few");
    object["data"] = json!({"a": "", "b": ""});
    assert_eq!(cluster.request(Method::POST, MAPS, object.clone()).await.0, 201);
    object["metadata"]["name"] = json!("many");
    object["data"] = (0..200)
        .map(|index| (format!("key-{index}"), json!("x")))
        .collect();
    let (code, body) = cluster.request(Method::POST, MAPS, object).await;
    assert_eq!(code, 422, "{body}");
}

#[tokio::test]
async fn an_eviction_is_not_reviewed_as_a_delete() {
    let cluster = Cluster::start().await;
    let pods = "/api/v1/namespaces/default/pods";
    for name in ["a", "b"] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        assert_eq!(cluster.request(Method::POST, pods, pod).await.0, 201);
    }
    enforce(
        &cluster,
        policy("no-deletes", &rule("", &["pods"], &["DELETE"]), "false"),
    )
    .await;
    let evict = async |name: &str| {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        cluster
            .request(Method::POST, &format!("{pods}/{name}/eviction"), eviction)
            .await
    };
    assert_eq!(
        cluster
            .request(Method::DELETE, &format!("{pods}/a"), Value::Null)
            .await
            .0,
        422
    );
    assert_eq!(evict("a").await.0, 201);
    enforce(
        &cluster,
        policy(
            "no-evictions",
            &rule("", &["pods/eviction"], &["CREATE"]),
            "false",
        ),
    )
    .await;
    let (code, body) = evict("b").await;
    assert_eq!(code, 422, "{body}");
    assert_eq!(
        cluster
            .request(Method::GET, &format!("{pods}/b"), Value::Null)
            .await
            .0,
        200
    );
}

#[tokio::test]
async fn the_namespace_controller_is_reviewed_under_its_name_in_kubernetes() {
    let cluster = Cluster::start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "doomed"}});
    assert_eq!(
        cluster
            .request(Method::POST, "/api/v1/namespaces", namespace)
            .await
            .0,
        201
    );
    let mut object = map("inside");
    object["metadata"]["namespace"] = json!("doomed");
    let inside = "/api/v1/namespaces/doomed/configmaps";
    assert_eq!(cluster.request(Method::POST, inside, object).await.0, 201);
    let only = "request.userInfo.username == 'system:serviceaccount:kube-system:namespace-controller'";
    enforce(
        &cluster,
        policy("no-deletes", &rule("", &["configmaps"], &["DELETE"]), only),
    )
    .await;
    let path = format!("{inside}/inside");
    assert_eq!(cluster.request(Method::DELETE, &path, Value::Null).await.0, 422);
    assert_eq!(
        cluster
            .request(Method::DELETE, "/api/v1/namespaces/doomed", Value::Null)
            .await
            .0,
        200
    );
    eventually("the namespace is gone", async || {
        cluster
            .request(Method::GET, "/api/v1/namespaces/doomed", Value::Null)
            .await
            .0
            == 404
    })
    .await;
}

#[tokio::test]
async fn a_policy_for_one_version_applies_to_writes_in_another() {
    let cluster = Cluster::start().await;
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object",
            "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Cluster",
        "names": {"plural": "widgets", "kind": "Widget"}, "versions": [version("v1", true), version("v2", false)]}});
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(cluster.request(Method::POST, crds, crd).await.0, 201);
    let v1 = json!({"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["widgets"]});
    let mut denied = policy("widgets", &v1, "false");
    denied["spec"]["validations"][0]["messageExpression"] =
        json!("object.apiVersion + ' ' + request.kind.version + ' ' + request.requestKind.version");
    enforce(&cluster, denied.clone()).await;
    let widget = json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": "w"}});
    let (code, body) = cluster
        .request(Method::POST, "/apis/example.com/v2/widgets", widget.clone())
        .await;
    assert_eq!(code, 422, "{body}");
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .ends_with("denied request: example.com/v1 v1 v2"),
        "{body}"
    );
    // An exact match does not apply.
    let patch = json!({"spec": {"matchConstraints": {"matchPolicy": "Exact"}}});
    let path = format!("{POLICIES}/widgets");
    assert_eq!(
        cluster
            .patch(&path, "application/merge-patch+json", patch)
            .await
            .0,
        200
    );
    let (code, body) = cluster
        .request(Method::POST, "/apis/example.com/v2/widgets", widget)
        .await;
    assert_eq!(code, 201, "{body}");
}

#[tokio::test]
async fn a_denied_write_changes_nothing() {
    let cluster = Cluster::start().await;
    assert_eq!(cluster.request(Method::POST, MAPS, map("a")).await.0, 201);
    let (_, before) = cluster
        .request(Method::GET, &format!("{MAPS}/a"), Value::Null)
        .await;
    enforce(
        &cluster,
        policy("no-maps", &rule("", &["configmaps"], &["*"]), "false"),
    )
    .await;
    let path = format!("{MAPS}/a");
    let changes = [
        (Method::PUT, "application/json"),
        (Method::PATCH, "application/merge-patch+json"),
        (Method::PATCH, "application/strategic-merge-patch+json"),
        (Method::DELETE, "application/json"),
    ];
    for (method, kind) in changes {
        let mut body = map("a");
        body["data"] = json!({"x": "y"});
        let body = if method == Method::DELETE {
            Value::Null
        } else {
            body
        };
        let (code, body) = request(cluster.server.service(), method.clone(), &path, kind, &body).await;
        assert_eq!(code, 422, "{method} {kind}: {body}");
    }
    let (code, _) = cluster.request(Method::DELETE, MAPS, Value::Null).await;
    assert_eq!(code, 422);
    assert_eq!(cluster.request(Method::GET, &path, Value::Null).await.1, before);
}

#[tokio::test]
async fn the_status_reports_the_enforced_generation() {
    let cluster = Cluster::start().await;
    enforce(
        &cluster,
        policy("maps", &rule("", &["configmaps"], &["CREATE"]), "true"),
    )
    .await;
    let path = format!("{POLICIES}/maps");
    let observed = async |generation: i64| {
        let (_, policy) = cluster.request(Method::GET, &path, Value::Null).await;
        policy["status"]["observedGeneration"] == generation && policy["metadata"]["generation"] == generation
    };
    eventually("generation 1", async || observed(1).await).await;
    let patch = json!({"spec": {"failurePolicy": "Ignore"}});
    assert_eq!(
        cluster
            .patch(&path, "application/merge-patch+json", patch)
            .await
            .0,
        200
    );
    eventually("generation 2", async || observed(2).await).await;
}

#[tokio::test]
async fn extra_fields_of_the_caller_are_visible_to_policies() {
    let cluster = Cluster::start().await;
    let expression =
        "'example.com/team' in request.userInfo.extra && request.userInfo.extra['example.com/team'] == ['a']";
    enforce(
        &cluster,
        policy("team", &rule("", &["configmaps"], &["CREATE"]), expression),
    )
    .await;
    let team = |team: &str| {
        let mut identity = Identity::admin();
        identity
            .extra
            .insert("example.com/team".to_owned(), vec![team.to_owned()]);
        cluster.server.service_as(identity)
    };
    let send = |service, name: &str| {
        let body = map(name);
        async move {
            request(service, Method::POST, MAPS, "application/json", &body)
                .await
                .0
        }
    };
    assert_eq!(send(team("a"), "a").await, 201);
    assert_eq!(send(team("b"), "b").await, 422);
    assert_eq!(send(cluster.server.service(), "c").await, 422);
}
