//! What the operator does for image builds: the builder runs while it is needed, and has what it reads.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Running, eventually};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use mco_api::{MachineConfig, MachineOSBuild, MachineOSConfig};
use mco_operator::{OperandMode, OperatorOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const NAMESPACE: &str = "openshift-machine-config-operator";
const PRE_BUILT: &str = "machineconfiguration.openshift.io/pre-built-image";
const IMAGE: &str =
    "registry.example.com/os@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let object: K = serde_json::from_value(object).unwrap();
    // The operator installs the kinds and creates its namespace.
    eventually("the object is created", || async {
        api.create(&PostParams::default(), &object).await.ok()
    })
    .await
}

/// Creates a Secret in a namespace of the cluster's configuration.
async fn create_secret(client: &Client, namespace: &str, name: &str, type_: &str, data: Value) {
    let object = json!({"metadata": {"name": namespace}});
    create::<Namespace>(&Api::all(client.clone()), object).await;
    let object = json!({"metadata": {"name": name}, "type": type_, "stringData": data});
    create::<Secret>(&Api::namespaced(client.clone(), namespace), object).await;
}

async fn with_pull_secret(client: Client) -> Client {
    let credentials = json!({".dockerconfigjson": "{\"auths\":{}}"});
    let type_ = "kubernetes.io/dockerconfigjson";
    create_secret(&client, "openshift-config", "pull-secret", type_, credentials).await;
    client
}

async fn opt_in(client: &Client, annotations: Value) {
    let object = json!({
        "metadata": {"name": "worker", "annotations": annotations},
        "spec": {
            "machineConfigPool": {"name": "worker"},
            "imageBuilder": {"imageBuilderType": "Job"},
            "renderedImagePushSecret": {"name": "push"},
            "renderedImagePushSpec": "registry.example.com/os:latest",
        },
    });
    create::<MachineOSConfig>(&Api::all(client.clone()), object).await;
}

async fn opt_out(client: &Client) {
    let configs: Api<MachineOSConfig> = Api::all(client.clone());
    configs
        .delete("worker", &DeleteParams::background())
        .await
        .unwrap();
}

#[tokio::test]
async fn the_builder_is_deployed_while_there_is_something_to_build_or_to_clean_up() {
    let options = OperatorOptions {
        workloads: OperandMode::Deployed,
        image: "localhost/mco:test".to_owned(),
        ..OperatorOptions::new("0.1.0")
    };
    let running = Running::behind(options, with_pull_secret).await;
    let client = running.client();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let find = || async { deployments.get_opt("machine-os-builder").await.unwrap() };
    eventually("the controller's Deployment", || async {
        deployments.get_opt("machine-config-controller").await.unwrap()
    })
    .await;
    assert!(find().await.is_none());

    opt_in(&client, json!({})).await;
    let builder = eventually("the builder's Deployment", find).await;
    let spec = builder.spec.unwrap();
    assert_eq!(spec.replicas, Some(1));
    let pod = spec.template.spec.unwrap();
    assert_eq!(pod.service_account_name.as_deref(), Some("machine-os-builder"));
    assert_eq!(pod.containers[0].image.as_deref(), Some("localhost/mco:test"));

    // An administrator's change is undone.
    let patch = Patch::Merge(json!({"spec": {"replicas": 0}}));
    deployments
        .patch("machine-os-builder", &PatchParams::default(), &patch)
        .await
        .unwrap();
    eventually("the builder is scaled up again", || async {
        (find().await?.spec?.replicas == Some(1)).then_some(())
    })
    .await;

    // A build of a deleted MachineOSConfig is cleaned up by the builder. The copy of the pull secret goes before.
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let copy = || async { secrets.get_opt("global-pull-secret-copy").await.unwrap() };
    eventually("the copy of the pull secret", copy).await;
    let build = json!({
        "metadata": {"name": "worker-1"},
        "spec": {
            "machineConfig": {"name": "rendered-worker-1"}, "machineOSConfig": {"name": "worker"},
            "renderedImagePushSpec": "registry.example.com/os:worker-1",
        },
    });
    let builds: Api<MachineOSBuild> = Api::all(client.clone());
    create(&builds, build).await;
    opt_out(&client).await;
    // Another step of the same sync shows that the deletion was seen: the copy of the pull secret goes first.
    eventually("the operator has seen the deletion", || async {
        copy().await.is_none().then_some(())
    })
    .await;
    assert!(find().await.is_some());
    builds.delete("worker-1", &DeleteParams::default()).await.unwrap();
    eventually("the builder's Deployment is deleted", || async {
        find().await.is_none().then_some(())
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn builds_have_copies_of_the_pull_secret_and_of_the_subscriptions() {
    let running = Running::behind(OperatorOptions::new("0.1.0"), async |client| {
        let client = with_pull_secret(client).await;
        let entitlement = json!({"entitlement.pem": "first"});
        create_secret(
            &client,
            "openshift-config-managed",
            "etc-pki-entitlement",
            "Opaque",
            entitlement,
        )
        .await;
        client
    })
    .await;
    let client = running.client();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let find = |name: &'static str| {
        let secrets = secrets.clone();
        async move { secrets.get_opt(name).await.ok().flatten() }
    };
    opt_in(&client, json!({})).await;
    let copied = eventually("the entitlement", || find("etc-pki-entitlement-worker")).await;
    assert!(copied.data.unwrap().contains_key("entitlement.pem"));
    let owner = &copied.metadata.owner_references.unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.name.as_str()),
        ("MachineConfigPool", "worker")
    );
    assert_ne!(owner.controller, Some(true));
    let pull = eventually("the pull secret", || find("global-pull-secret-copy")).await;
    assert_eq!(pull.type_.as_deref(), Some("kubernetes.io/dockerconfigjson"));
    assert!(
        find("etc-pki-entitlement-master").await.is_none(),
        "that pool builds no image"
    );

    // Renewed subscriptions reach the next build.
    let source: Api<Secret> = Api::namespaced(client.clone(), "openshift-config-managed");
    let patch = Patch::Merge(json!({"stringData": {"entitlement.pem": "renewed"}}));
    source
        .patch("etc-pki-entitlement", &PatchParams::default(), &patch)
        .await
        .unwrap();
    eventually("the renewed entitlement", || async {
        let data = find("etc-pki-entitlement-worker").await?.data?;
        (data["entitlement.pem"].0 == b"renewed").then_some(())
    })
    .await;
    opt_out(&client).await;
    for name in ["etc-pki-entitlement-worker", "global-pull-secret-copy"] {
        eventually("the copies are deleted", || async {
            find(name).await.is_none().then_some(())
        })
        .await;
    }
    running.stop().await;
}

#[tokio::test]
async fn an_image_of_the_installation_is_part_of_its_pool_until_the_pool_opts_out() {
    let running = Running::start().await;
    let client = running.client();
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let name = "10-prebuiltimage-osimageurl-worker";
    opt_in(&client, json!({PRE_BUILT: IMAGE})).await;
    let found = eventually("the MachineConfig", || async {
        configs.get_opt(name).await.unwrap()
    })
    .await;
    assert_eq!(found.spec.os_image_url, IMAGE);
    assert_eq!(found.metadata.annotations.unwrap()[PRE_BUILT], IMAGE);
    let labels = found.metadata.labels.unwrap();
    assert_eq!(labels["machineconfiguration.openshift.io/role"], "worker");
    // A user's MachineConfig that has the annotation stays.
    let other = json!({
        "metadata": {"name": "50-other", "annotations": {PRE_BUILT: IMAGE}},
        "spec": {"config": {"ignition": {"version": "3.5.0"}}},
    });
    create(&configs, other).await;

    // Once it is seeded, the image is not in the annotation any more.
    let objects: Api<MachineOSConfig> = Api::all(client.clone());
    let seeded = json!({"type": "Seeded", "status": "True", "reason": "PreBuiltImageSeeded", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = Patch::Merge(json!({"status": {"conditions": [seeded]}}));
    objects
        .patch_status("worker", &PatchParams::default(), &status)
        .await
        .unwrap();
    let annotations = Patch::Merge(json!({"metadata": {"annotations": {PRE_BUILT: null}}}));
    objects
        .patch("worker", &PatchParams::default(), &annotations)
        .await
        .unwrap();
    configs.delete(name, &DeleteParams::default()).await.unwrap();
    eventually("the operator reports what is missing", || async {
        let text = reported(&client).await?;
        (text.contains(name) && text.contains("MachineOSConfig \"worker\"")).then_some(())
    })
    .await;
    let restored = json!({
        "metadata": {"name": name, "annotations": {PRE_BUILT: IMAGE}}, "spec": {"osImageURL": IMAGE},
    });
    create(&configs, restored).await;
    opt_out(&client).await;
    eventually("the MachineConfig is deleted", || async {
        configs.get_opt(name).await.unwrap().is_none().then_some(())
    })
    .await;
    assert!(configs.get_opt("50-other").await.unwrap().is_some());
    running.stop().await;
}

/// Returns the messages of the ClusterOperator's conditions.
async fn reported(client: &Client) -> Option<String> {
    let request = http::Request::get("/apis/config.openshift.io/v1/clusteroperators/machine-config")
        .body(Vec::new())
        .unwrap();
    let operator: Value = client.request(request).await.ok()?;
    let conditions = operator["status"]["conditions"].as_array()?.iter();
    let messages = conditions.filter_map(|one| one["message"].as_str());
    Some(messages.collect::<Vec<_>>().join("\n"))
}
