//! Tests of the access to the embedded API that `mco up` adds: joining, and the rights of nodes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use mco_apiserver::auth::{Authorizer as _, RequestAttributes};
use mco_apiserver::{ApiServer, ApiServerOptions, ApiService, Identity};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::component_policy::ComponentPolicy;
use super::joining;
use super::node_policy::NodePolicy;

pub(super) const NODES: &str = "/api/v1/nodes";
const MACHINE_CONFIG_GROUP: &str = "machineconfiguration.openshift.io";

pub(super) struct TestCluster {
    pub server: ApiServer,
    // Dropped last: the server writes into it.
    directory: tempfile::TempDir,
}

impl TestCluster {
    pub async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = ApiServerOptions {
            admission: vec![Arc::new(NodePolicy)],
            authorizers: vec![Arc::new(NodePolicy), Arc::new(ComponentPolicy)],
            extra_routes: joining::routes(directory.path()).unwrap(),
            ..ApiServerOptions::default()
        };
        let server = ApiServer::open(directory.path(), options).await.unwrap();
        Self { server, directory }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Sends a request of the administrator.
    pub async fn request(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        send(self.server.service(), None, method, path, body).await
    }
}

/// Sends a request with a token, over a connection without a client certificate.
pub(super) async fn with_token(
    cluster: &TestCluster,
    token: &str,
    method: Method,
    path: &str,
    body: Value,
) -> (StatusCode, Value) {
    send(
        cluster.server.anonymous_service(),
        Some(token),
        method,
        path,
        body,
    )
    .await
}

async fn send(
    service: ApiService,
    token: Option<&str>,
    method: Method,
    path: &str,
    body: Value,
) -> (StatusCode, Value) {
    let content_type = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let bytes = match body {
        Value::Null => Bytes::new(),
        body => Bytes::from(body.to_string()),
    };
    let response = service
        .oneshot(request.body(Full::new(bytes)).unwrap())
        .await
        .unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

/// Returns a join token without the fingerprint at its end, as a machine sends it.
pub(super) async fn token(cluster: &TestCluster) -> String {
    limited_token(cluster, json!({})).await
}

/// Returns a join token with further limits.
pub(super) async fn limited_token(cluster: &TestCluster, limits: Value) -> String {
    let mut body = json!({"pool": "worker", "labels": {"node-role.kubernetes.io/worker": ""}, "seconds": 60});
    for (field, value) in limits.as_object().unwrap() {
        body[field] = value.clone();
    }
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

/// Returns 32 bytes in URL-safe base64, whose last letter holds only four bits.
pub(super) fn credential(letter: &str) -> String {
    letter.repeat(42) + "A"
}

pub(super) async fn join(cluster: &TestCluster, token: &str, node: &str, letter: &str) -> StatusCode {
    let body = json!({"node": node, "credential": credential(letter)});
    with_token(cluster, token, Method::POST, "/join", body).await.0
}

#[tokio::test]
async fn the_token_determines_the_labels_of_the_node_and_joining_is_idempotent() {
    let cluster = TestCluster::start().await;
    let token = token(&cluster).await;
    for _ in 0..2 {
        let body = json!({"node": "lab-1", "credential": credential("a")});
        let (status, answer) = with_token(&cluster, &token, Method::POST, "/join", body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(answer["pool"], "worker");
        let authority = answer["certificateAuthority"].as_str().unwrap();
        assert!(authority.contains("BEGIN CERTIFICATE"));
    }
    let own = format!("{NODES}/lab-1");
    let (status, node) = with_token(&cluster, &credential("a"), Method::GET, &own, Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(node["metadata"]["labels"]["node-role.kubernetes.io/worker"], "");

    // A machine cannot change its pool.
    let promoted = json!({"metadata": {"name": "lab-1", "labels": {"node-role.kubernetes.io/master": ""}}});
    let (status, _) = with_token(&cluster, &credential("a"), Method::PUT, &own, promoted).await;
    assert_eq!(status, StatusCode::FORBIDDEN);

    // Deleting the Node revokes the machine's access. The token is still valid, for this machine or another.
    let (status, _) = cluster.request(Method::DELETE, &own, Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = with_token(&cluster, &credential("a"), Method::GET, &own, Value::Null).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert_eq!(join(&cluster, &token, "lab-1", "b").await, StatusCode::OK);
    let (status, _) = with_token(&cluster, &credential("a"), Method::GET, &own, Value::Null).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let (status, _) = with_token(&cluster, &credential("b"), Method::GET, &own, Value::Null).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn a_name_in_use_is_rejected() {
    let cluster = TestCluster::start().await;
    let token = token(&cluster).await;
    assert_eq!(join(&cluster, &token, "lab-1", "a").await, StatusCode::OK);
    assert_eq!(join(&cluster, &token, "lab-1", "b").await, StatusCode::CONFLICT);
    let body = json!({"metadata": {"name": "not-joined"}});
    cluster.request(Method::POST, NODES, body).await;
    assert_eq!(
        join(&cluster, &token, "not-joined", "c").await,
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
async fn joining_requires_a_token_and_only_administrators_create_them() {
    let cluster = TestCluster::start().await;
    let good = token(&cluster).await;
    for wrong in ["", "x", "x.y", &good[..good.len() - 1]] {
        let body = json!({"node": "lab-1", "credential": credential("a")});
        let (status, answer) = with_token(&cluster, wrong, Method::POST, "/join", body).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{wrong}");
        assert!(
            answer["message"]
                .as_str()
                .unwrap()
                .contains("join token not found")
        );
    }
    for weak in ["", "short", &"!".repeat(43)] {
        let body = json!({"node": "lab-1", "credential": weak});
        let (status, _) = with_token(&cluster, &good, Method::POST, "/join", body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{weak:?}");
    }
    let (status, _) = with_token(&cluster, &good, Method::GET, NODES, Value::Null).await;
    assert_eq!(
        status,
        StatusCode::UNAUTHORIZED,
        "a join token is valid for joining only"
    );

    let node = cluster.server.issue_token(&Identity::node("a")).unwrap();
    let body = json!({"pool": "master", "labels": {}, "seconds": 60});
    let (status, _) = with_token(&cluster, &node, Method::POST, "/join-tokens", body).await;
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

#[tokio::test]
async fn a_node_reads_what_it_needs_and_writes_its_own_machine_config_node() {
    let cluster = with_machine_configs().await;
    let store = &cluster.server.registry().store;
    let cases = [
        (true, "get", "machineconfigs", "rendered-worker-1"),
        (false, "list", "machineconfigs", "rendered-worker-1"),
        (false, "watch", "machineconfigs", "rendered-worker-1"),
        (false, "get", "machineconfigs", "99-secret"),
        (false, "list", "machineconfigs", ""),
        (false, "patch", "machineconfigs", "rendered-worker-1"),
        (true, "list", "machineconfigpools", ""),
        (true, "watch", "pinnedimagesets", ""),
        (false, "patch", "pinnedimagesets", "base"),
        (true, "watch", "controllerconfigs", "machine-config-controller"),
        (false, "list", "controllerconfigs", ""),
        (false, "get", "osimagestreams", "cluster"),
        (true, "patch", "machineconfignodes/status", "a"),
        (false, "patch", "machineconfignodes/status", "b"),
    ];
    for (allowed, verb, resource, name) in cases {
        let (plural, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let wanted = RequestAttributes {
            verb: verb.to_owned(),
            group: MACHINE_CONFIG_GROUP.to_owned(),
            resource: plural.to_owned(),
            subresource: subresource.to_owned(),
            name: name.to_owned(),
            ..RequestAttributes::default()
        };
        let decision = NodePolicy
            .authorize(&Identity::node("a"), &wanted, store)
            .unwrap();
        assert_eq!(decision.is_allowed(), allowed, "{verb} {resource} {name}");
        let user = Identity::new("user", &[]);
        assert_eq!(NodePolicy.authorize(&user, &wanted, store), None);
    }
}

/// Returns a cluster with a worker node, and with the kinds of the machine config group that a node uses, without
/// schemas.
async fn with_machine_configs() -> TestCluster {
    let cluster = TestCluster::start().await;
    for (plural, kind) in [
        ("machineconfignodes", "MachineConfigNode"),
        ("machineconfigs", "MachineConfig"),
        ("machineconfigpools", "MachineConfigPool"),
    ] {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = json!({"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema}});
        let definition = json!({"metadata": {"name": format!("{plural}.machineconfiguration.openshift.io")},
            "spec": {"group": "machineconfiguration.openshift.io", "scope": "Cluster",
                "names": {"plural": plural, "kind": kind}, "versions": [version]}});
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let (status, answer) = cluster.request(Method::POST, path, definition).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }
    create(
        &cluster,
        "machineconfignodes",
        "MachineConfigNode",
        json!({"metadata": {"name": "b"}}),
    )
    .await;
    let mut uids = BTreeMap::new();
    for (pool, label) in [
        ("worker", "node-role.kubernetes.io/worker"),
        ("master", "node-role.kubernetes.io/master"),
        ("gpu", "example.io/gpu"),
        ("arm", "kubernetes.io/arch"),
    ] {
        let selector = json!({"matchLabels": {label: ""}});
        let spec = json!({"nodeSelector": selector, "configuration": {"name": format!("rendered-{pool}-1")}});
        let object = json!({"metadata": {"name": pool}, "spec": spec});
        let uid = create(&cluster, "machineconfigpools", "MachineConfigPool", object).await;
        uids.insert(pool, uid);
    }
    for (name, pool) in [
        ("rendered-worker-0", "worker"),
        ("rendered-worker-1", "worker"),
        ("rendered-master-1", "master"),
    ] {
        let owner = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "name": pool, "uid": uids[pool], "controller": true});
        let object = json!({"metadata": {"name": name, "ownerReferences": [owner]}});
        create(&cluster, "machineconfigs", "MachineConfig", object).await;
    }
    create(
        &cluster,
        "machineconfigs",
        "MachineConfig",
        json!({"metadata": {"name": "50-password"}}),
    )
    .await;
    let node = json!({"metadata": {"name": "a", "labels": {"node-role.kubernetes.io/worker": ""}}});
    let (status, answer) = cluster.request(Method::POST, NODES, node).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    cluster
}

/// Creates an object and returns its UID.
async fn create(cluster: &TestCluster, plural: &str, kind: &str, mut object: Value) -> Value {
    object["apiVersion"] = json!("machineconfiguration.openshift.io/v1");
    object["kind"] = json!(kind);
    let (status, answer) = cluster
        .request(Method::POST, &format!("{MACHINES}/{plural}"), object)
        .await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    answer["metadata"]["uid"].clone()
}

#[tokio::test]
async fn a_worker_read_the_config_of_the_control_plane() {
    let cluster = with_machine_configs().await;
    let token = cluster.server.issue_token(&Identity::node("a")).unwrap();
    let read = async |name: &str| {
        let path = format!("{MACHINES}/machineconfigs/{name}");
        with_token(&cluster, &token, Method::GET, &path, Value::Null)
            .await
            .0
    };
    let (ok, no) = (StatusCode::OK, StatusCode::FORBIDDEN);
    assert_eq!(read("rendered-worker-1").await, ok, "the target of its pool");
    assert_eq!(read("rendered-worker-0").await, no, "nothing refers to it");
    assert_eq!(read("rendered-master-1").await, no);
    for (name, expected) in [
        ("rendered-worker-0", ok),
        ("rendered-master-1", no),
        ("50-password", no),
        ("rendered-worker-9", StatusCode::NOT_FOUND),
    ] {
        let key = "machineconfiguration.openshift.io/desiredConfig";
        let annotations = json!({"metadata": {"annotations": {key: name}}});
        let own = format!("{NODES}/a");
        let (status, _) = with_token(&cluster, &token, Method::PATCH, &own, annotations).await;
        assert_eq!(status, ok);
        assert_eq!(read(name).await, expected, "its own annotation refers to {name}");
    }
}

#[tokio::test]
async fn a_node_put_itself_into_another_pool() {
    let cluster = with_machine_configs().await;
    let token = cluster.server.issue_token(&Identity::node("a")).unwrap();
    let own = format!("{NODES}/a");
    let (ok, no) = (StatusCode::OK, StatusCode::FORBIDDEN);
    for (label, value, expected) in [
        ("kubernetes.io/hostname", "a", ok),
        ("topology.kubernetes.io/zone", "z", ok),
        ("node-role.kubernetes.io/master", "", no),
        ("node-role.kubernetes.io/gpu", "", no),
        ("example.io/gpu", "", no),
        ("team", "x", no),
        ("kubernetes.io/arch", "amd64", ok),
        // A label of kubelets, by which a pool selects its nodes.
        ("kubernetes.io/arch", "", no),
    ] {
        let change = json!({"metadata": {"labels": {label: value}}});
        let (status, _) = with_token(&cluster, &token, Method::PATCH, &own, change).await;
        assert_eq!(status, expected, "{label}={value}");
    }
    let removed = json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": null}}});
    let (status, _) = with_token(&cluster, &token, Method::PATCH, &own, removed).await;
    assert_eq!(status, no);
}

const MACHINES: &str = "/apis/machineconfiguration.openshift.io/v1";

#[tokio::test]
async fn a_node_token_reaches_the_machine_configs_that_concern_it() {
    let cluster = with_machine_configs().await;
    let token = cluster.server.issue_token(&Identity::node("a")).unwrap();
    let own = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigNode",
        "metadata": {"name": "a"}});
    let mut others = own.clone();
    others["metadata"]["name"] = json!("c");
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Node", "name": "a"}, "reason": "R",
        "source": {"host": "a"}});
    let change = json!({"spec": {"x": "y"}});
    let (ok, made, no) = (StatusCode::OK, StatusCode::CREATED, StatusCode::FORBIDDEN);
    let (get, post, patch) = (Method::GET, Method::POST, Method::PATCH);
    let nothing = Value::Null;
    for (what, method, path, body, expected) in [
        ("its own machine", &post, "machineconfignodes", &own, made),
        ("changing it", &patch, "machineconfignodes/a", &change, ok),
        ("its status", &patch, "machineconfignodes/a/status", &change, ok),
        ("another machine", &post, "machineconfignodes", &others, no),
        ("changing another", &patch, "machineconfignodes/b", &change, no),
        ("reading another", &get, "machineconfignodes/b", &nothing, no),
        (
            "its config",
            &get,
            "machineconfigs/rendered-worker-1",
            &nothing,
            ok,
        ),
        (
            "what a user wrote",
            &get,
            "machineconfigs/50-password",
            &nothing,
            no,
        ),
        ("all configs", &get, "machineconfigs", &nothing, no),
        (
            "writing a config",
            &patch,
            "machineconfigs/rendered-worker-1",
            &change,
            no,
        ),
        ("its pool", &get, "machineconfigpools/worker", &nothing, ok),
        (
            "pausing its pool",
            &patch,
            "machineconfigpools/worker",
            &change,
            no,
        ),
    ] {
        let path = format!("{MACHINES}/{path}");
        let (status, _) = with_token(&cluster, &token, method.clone(), &path, body.clone()).await;
        assert_eq!(status, expected, "{what}");
    }
    let events = "/api/v1/namespaces/default/events";
    assert_eq!(with_token(&cluster, &token, post, events, event).await.0, made);
    assert_eq!(with_token(&cluster, &token, get, events, nothing).await.0, no);
}

#[tokio::test]
async fn a_component_read_every_secret_and_acted_as_any_user() {
    let cluster = TestCluster::start().await;
    let component = || cluster.server.service_as(Identity::component("operator"));
    for (expected, path) in [
        (StatusCode::OK, "openshift-machine-config-operator/secrets"),
        (StatusCode::NOT_FOUND, "openshift-config/secrets/pull-secret"),
        (StatusCode::FORBIDDEN, "openshift-config/secrets/other"),
        (StatusCode::FORBIDDEN, "default/secrets"),
    ] {
        let path = format!("/api/v1/namespaces/{path}");
        let (status, answer) = send(component(), None, Method::GET, &path, Value::Null).await;
        assert_eq!(status, expected, "{path}: {answer}");
    }
    let (status, _) = send(component(), None, Method::GET, "/api/v1/secrets", Value::Null).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let request = Request::get("/api/v1/nodes")
        .header("impersonate-user", "bob")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = component().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_node_filled_the_memory_with_events() {
    let cluster = TestCluster::start().await;
    for node in ["a", "b"] {
        let (status, _) = cluster
            .request(Method::POST, NODES, json!({"metadata": {"name": node}}))
            .await;
        assert_eq!(status, StatusCode::CREATED);
    }
    let events = "/api/v1/namespaces/default/events";
    let event = |node: &str| {
        json!({"metadata": {"generateName": "e-"}, "involvedObject": {"kind": "Node", "name": node}, "reason": "R",
            "source": {"host": node}})
    };
    let post = async |node: &str| {
        let service = cluster.server.service_as(Identity::node(node));
        send(service, None, Method::POST, events, event(node)).await
    };
    let mut created = 0;
    let rejected = loop {
        let (status, answer) = post("a").await;
        if status != StatusCode::CREATED {
            break (status, answer);
        }
        created += 1;
        assert!(created < 1000, "no limit");
    };
    assert_eq!(rejected.0, StatusCode::TOO_MANY_REQUESTS, "{}", rejected.1);
    assert_eq!(rejected.1["details"]["retryAfterSeconds"], 60);
    assert_eq!(post("b").await.0, StatusCode::CREATED);
}
