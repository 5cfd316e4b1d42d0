//! The admission policies of an installation hold on the embedded API.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use mco_api::NodeAdoption;
use mco_api::crd::Installable as _;
use mco_api::node_adoption::NodeAdoptionSpec;
use mco_apiserver::{ApiServer, ApiServerOptions, Identity};
use mco_operator::manifests;
use serde_json::{Value, json};

const DAEMON: &str = "system:serviceaccount:openshift-machine-config-operator:machine-config-daemon";
const NODE_CLAIM: &str = "authentication.kubernetes.io/node-name";

/// Applies objects as they are printed by `mco install`.
async fn apply(client: &kube::Client, objects: &[Value]) {
    for object in objects {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (group, version) = text("/apiVersion")
            .split_once('/')
            .unwrap_or(("", text("/apiVersion")));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind")));
        let api: Api<DynamicObject> = match text("/metadata/namespace") {
            "" => Api::all_with(client.clone(), &resource),
            namespace => Api::namespaced_with(client.clone(), namespace, &resource),
        };
        let parameters = PatchParams::apply("install").force();
        let applied = api
            .patch(text("/metadata/name"), &parameters, &Patch::Apply(object))
            .await;
        applied.unwrap_or_else(|error| panic!("{} {}: {error}", text("/kind"), text("/metadata/name")));
    }
}

/// Returns a client with the token of a daemon that runs on a node.
fn daemon<K>(server: &ApiServer, node: Option<&str>) -> Api<K>
where
    K: kube::Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>,
{
    let mut identity = Identity::new(DAEMON, &["system:serviceaccounts"]);
    if let Some(node) = node {
        identity
            .extra
            .insert(NODE_CLAIM.to_owned(), vec![node.to_owned()]);
    }
    Api::all(kube::Client::new(server.service_as(identity), "default"))
}

async fn patch(nodes: &Api<Node>, name: &str, change: Value) -> Result<(), (u16, String)> {
    let outcome = nodes
        .patch(name, &PatchParams::default(), &Patch::Merge(change))
        .await;
    match outcome {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err((status.code, status.message)),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_daemon_cannot_label_its_node_on_the_embedded_api() {
    let directory = tempfile::tempdir().unwrap();
    let server = ApiServer::open(directory.path(), ApiServerOptions::default())
        .await
        .unwrap();
    let client = kube::Client::new(server.service(), "default");
    apply(&client, &[manifests::namespace()]).await;
    apply(&client, &manifests::operands_access()).await;
    apply(&client, &manifests::guards()).await;
    let node = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    apply(&client, &[node("a"), node("b")]).await;

    let own = daemon(&server, Some("a"));
    let annotation = json!({"metadata": {"annotations": {"example.com/state": "Done"}}});
    assert_eq!(patch(&own, "a", annotation.clone()).await, Ok(()));
    let guarded = |message: &str| {
        format!(
            "nodes \"a\" is forbidden: ValidatingAdmissionPolicy 'machine-config-daemon-writes-its-own-node' with \
             binding 'machine-config-daemon-writes-its-own-node' denied request: {message}"
        )
    };
    let unchanged = "a machine-config-daemon may not change labels, finalizers, owners or spec of its node";
    for change in [
        json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
        json!({"metadata": {"finalizers": ["example.com/hold"]}}),
        json!({"spec": {"unschedulable": true}}),
    ] {
        assert_eq!(patch(&own, "a", change).await, Err((403, guarded(unchanged))));
    }

    let another = daemon(&server, Some("b"));
    let foreign = guarded("the machine-config-daemon of node b may not change a");
    assert_eq!(
        patch(&another, "a", annotation.clone()).await,
        Err((403, foreign))
    );
    let (code, message) = patch(&daemon(&server, None), "a", annotation).await.unwrap_err();
    assert_eq!(code, 422, "a token without the claim: {message}");

    let label = json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": ""}}});
    assert_eq!(patch(&Api::all(client), "a", label).await, Ok(()));
    server.shutdown().await;
}

#[tokio::test]
async fn a_daemon_writes_only_the_adoption_of_its_own_node() {
    let directory = tempfile::tempdir().unwrap();
    let server = ApiServer::open(directory.path(), ApiServerOptions::default())
        .await
        .unwrap();
    let client = kube::Client::new(server.service(), "default");
    let definition = json!(NodeAdoption::crd());
    apply(&client, &[manifests::namespace(), definition]).await;
    apply(&client, &manifests::operands_access()).await;
    apply(&client, &manifests::guards()).await;
    let own: Api<NodeAdoption> = daemon(&server, Some("a"));
    let create = async |name: &str| {
        let object = NodeAdoption::new(name, NodeAdoptionSpec::default());
        own.create(&PostParams::default(), &object).await
    };
    // The definition is served a moment after it was created.
    let mut created = create("a").await;
    for _ in 0..100 {
        if created.is_ok() {
            break;
        }
        tokio::task::yield_now().await;
        created = create("a").await;
    }
    created.unwrap();
    let status = Patch::Merge(json!({"status": {"phase": "Compared"}}));
    own.patch_status("a", &PatchParams::default(), &status)
        .await
        .unwrap();
    let foreign = create("b").await.unwrap_err().to_string();
    assert!(
        foreign.contains("the machine-config-daemon of node a may not change b"),
        "{foreign}"
    );
    let other: Api<NodeAdoption> = daemon(&server, Some("b"));
    let foreign = other.patch_status("a", &PatchParams::default(), &status).await;
    assert!(
        foreign
            .unwrap_err()
            .to_string()
            .contains("of node b may not change a")
    );
    server.shutdown().await;
}
