//! The registry CAs of machines, on a cluster that has an Image.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;

use common::{Running, eventually, refusing};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use mco_api::ControllerConfig;
use mco_api::crd::CustomResourceDefinition;
use mco_api::foreign::cluster_operator::ClusterOperator;
use mco_api::foreign::image::Image;
use mco_operator::OperatorOptions;
use serde_json::{Value, json};

const MANAGED: &str = "openshift-config-managed";
const MERGED: &str = "merged-trusted-image-registry-ca";

async fn config_map(client: &Client, namespace: &str, name: &str, data: &Value) {
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    maps.create(&PostParams::default(), &map).await.unwrap();
}

/// Creates the kind Image, and an Image.
async fn create_image(client: &Client, spec: &Value) {
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "images.config.openshift.io"},
        "spec": {
            "group": "config.openshift.io",
            "names": {"kind": "Image", "listKind": "ImageList", "plural": "images", "singular": "image"},
            "scope": "Cluster",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    }))
    .unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .unwrap();
    let image: Image =
        serde_json::from_value(json!({"metadata": {"name": "cluster"}, "spec": spec})).unwrap();
    let images: Api<Image> = Api::all(client.clone());
    eventually("the kind Image", || async {
        images.create(&PostParams::default(), &image).await.ok()
    })
    .await;
}

/// Creates the ConfigMap of OpenShift, with entries that another client merged before.
async fn furnish(client: Client) -> Client {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in ["openshift-config", MANAGED] {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
    }
    config_map(
        &client,
        "openshift-config",
        "mine",
        &json!({"registry.example.com..5000": "mine"}),
    )
    .await;
    config_map(
        &client,
        MANAGED,
        "image-registry-ca",
        &json!({"image-registry.svc..5000": "own"}),
    )
    .await;
    config_map(&client, MANAGED, MERGED, &json!({"gone.example.com": "stale"})).await;
    create_image(&client, &json!({"additionalTrustedCA": {"name": "mine"}})).await;
    client
}

async fn controller_config(running: &Running) {
    let configs: Api<ControllerConfig> = Api::all(running.client());
    eventually("the ControllerConfig", || async {
        configs.get_opt("machine-config-controller").await.ok().flatten()
    })
    .await;
}

/// Returns whether the ClusterOperator reports a problem with the ConfigMap.
async fn complains(running: &Running) -> Option<bool> {
    let operators: Api<ClusterOperator> = Api::all(running.client());
    let found = operators.get_opt("machine-config").await.unwrap()?;
    let conditions = found.status?.conditions;
    let found = conditions.into_iter().find(|one| one.type_ == "Degraded")?;
    Some(found.message.contains(MERGED))
}

#[tokio::test]
async fn an_image_on_a_cluster_without_a_place_for_authorities_stops_nothing() {
    let running = Running::behind(OperatorOptions::new("0.1.0"), async |client| {
        let sources = json!({"registrySources": {"insecureRegistries": ["registry.example.com"]}});
        create_image(&client, &sources).await;
        client
    })
    .await;
    controller_config(&running).await;
    running.play_controllers().await;
    let operators: Api<ClusterOperator> = Api::all(running.client());
    eventually("an operator that has done all", || async {
        let found = operators.get_opt("machine-config").await.unwrap()?;
        (!found.status?.versions.is_empty()).then_some(())
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn authorities_that_cannot_be_published_do_not_keep_them_from_machines() {
    let running = Running::behind(OperatorOptions::new("0.1.0"), async |client| {
        let client = furnish(client).await;
        refusing(client, MERGED)
    })
    .await;
    controller_config(&running).await;
    eventually("the complaint", || async {
        complains(&running).await.filter(|complains| *complains)
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn all_registries_authorities_are_in_one_place_and_follow_the_image() {
    let running = Running::behind(OperatorOptions::new("0.1.0"), furnish).await;
    let maps: Api<ConfigMap> = Api::namespaced(running.client(), MANAGED);
    let merged = |expected: &'static [(&str, &str)]| {
        let maps = maps.clone();
        async move {
            let expected: BTreeMap<String, String> = expected
                .iter()
                .map(|(file, authority)| ((*file).to_owned(), (*authority).to_owned()))
                .collect();
            let found = maps.get(MERGED).await.unwrap().data.unwrap_or_default();
            (found == expected).then_some(())
        }
    };
    let both = &[
        ("image-registry.svc..5000", "own"),
        ("registry.example.com..5000", "mine"),
    ];
    eventually("both", || merged(both)).await;

    let images: Api<Image> = Api::all(running.client());
    let patch = Patch::Merge(json!({"spec": {"additionalTrustedCA": null}}));
    images
        .patch("cluster", &PatchParams::default(), &patch)
        .await
        .unwrap();
    eventually("the cluster's own alone", || {
        merged(&[("image-registry.svc..5000", "own")])
    })
    .await;
    running.stop().await;
}

/// Returns the hosts for which nodes get credentials to pull OS images.
async fn hosts(running: &Running) -> Option<Vec<String>> {
    let configs: Api<ControllerConfig> = Api::all(running.client());
    let config = configs.get_opt("machine-config-controller").await.unwrap()?;
    let merged = config.spec.internal_registry_pull_secret?;
    let merged: Value = serde_json::from_slice(&merged.0).unwrap();
    Some(merged["auths"].as_object().unwrap().keys().cloned().collect())
}

#[tokio::test]
async fn nodes_get_credentials_of_the_clusters_registry_as_soon_as_it_and_they_exist() {
    const NAMESPACE: &str = "openshift-machine-config-operator";
    let running = Running::behind(OperatorOptions::new("0.1.0"), furnish).await;
    controller_config(&running).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(running.client(), NAMESPACE);
    eventually("the service account", || async {
        accounts.get_opt("machine-os-puller").await.unwrap()
    })
    .await;
    assert_eq!(hosts(&running).await, None, "the cluster has no registry");

    let operators: Api<ClusterOperator> = Api::all(running.client());
    let registry = serde_json::from_value(json!({"metadata": {"name": "image-registry"}})).unwrap();
    operators.create(&PostParams::default(), &registry).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(running.client(), NAMESPACE);
    let credentials = |host: &str| -> Secret {
        serde_json::from_value(json!({
            "metadata": {"name": "machine-os-puller-dockercfg"}, "type": "kubernetes.io/dockercfg",
            "stringData": {".dockercfg": format!("{{\"{host}\": {{\"auth\": \"c2E6dA==\"}}}}")},
        }))
        .unwrap()
    };
    secrets
        .create(&PostParams::default(), &credentials("registry.svc:5000"))
        .await
        .unwrap();
    let patch = Patch::Merge(json!({"imagePullSecrets": [{"name": "machine-os-puller-dockercfg"}]}));
    accounts
        .patch("machine-os-puller", &PatchParams::default(), &patch)
        .await
        .unwrap();
    eventually("the credentials", || async {
        (hosts(&running).await? == ["registry.svc:5000"]).then_some(())
    })
    .await;

    let rotated = Patch::Merge(credentials("172.30.0.1:5000"));
    secrets
        .patch("machine-os-puller-dockercfg", &PatchParams::default(), &rotated)
        .await
        .unwrap();
    eventually("the new credentials", || async {
        (hosts(&running).await? == ["172.30.0.1:5000"]).then_some(())
    })
    .await;
    running.stop().await;
}
