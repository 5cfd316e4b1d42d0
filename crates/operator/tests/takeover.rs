//! The operator replaces another implementation's workloads that have its operands' names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Running, eventually};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Namespace, PodSpec, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::PostParams;
use kube::{Api, Client};
use mco_api::crd::{CustomResourceDefinition, own_crds};
use mco_operator::{OperandMode, OperatorOptions};
use serde_json::{Value, json};

const NAMESPACE: &str = "openshift-machine-config-operator";

/// A workload of the Go implementation.
fn theirs(name: &str, extra: &Value) -> Value {
    let mut spec = json!({
        "selector": {"matchLabels": {"k8s-app": name}},
        "template": {
            "metadata": {"labels": {"k8s-app": name}},
            "spec": {
                "nodeSelector": {"node-role.kubernetes.io/master": ""},
                "containers": [
                    {"name": name, "image": "theirs", "command": ["/usr/bin/theirs"], "args": ["start"],
                     "volumeMounts": [{"name": "theirs", "mountPath": "/theirs"}]},
                    {"name": "kube-rbac-proxy", "image": "proxy", "ports": [{"containerPort": 9001}]},
                ],
                "volumes": [{"name": "theirs", "secret": {"secretName": "theirs"}}],
            },
        },
    });
    if let (Some(spec), Some(extra)) = (spec.as_object_mut(), extra.as_object()) {
        spec.extend(extra.clone());
    }
    let metadata = json!({"name": name, "namespace": NAMESPACE, "annotations": {"example.com/mine": "kept"}});
    json!({"metadata": metadata, "spec": spec})
}

/// Creates the Services of the release, with the addresses that the cluster assigned.
async fn create_their_services(client: &Client) {
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    for (name, address, ports) in [
        (
            "machine-config-daemon",
            "172.30.0.2",
            json!([{"name": "metrics", "port": 9001, "targetPort": 9001}, {"name": "health", "port": 8798}]),
        ),
        (
            "machine-config-server",
            "172.30.0.3",
            json!([{"name": "metrics", "port": 8797}]),
        ),
    ] {
        let service = json!({
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "type": "ClusterIP", "clusterIP": address, "clusterIPs": [address],
                "selector": {"k8s-app": name, "theirs": ""},
                "ports": ports,
            },
        });
        let service: Service = serde_json::from_value(service).unwrap();
        services.create(&PostParams::default(), &service).await.unwrap();
    }
}

async fn the_services_are_ours_and_keep_their_addresses(client: &Client) {
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    for (name, address, expected) in [
        (
            "machine-config-daemon",
            "172.30.0.2",
            &[("metrics", 9101)] as &[(&str, i32)],
        ),
        (
            "machine-config-server",
            "172.30.0.3",
            &[("ignition", 22623), ("metrics", 22627)],
        ),
    ] {
        let found = eventually(name, || async {
            let spec = services.get(name).await.unwrap().spec?;
            let ports: Vec<(String, i32)> = (spec.ports.clone()?.into_iter())
                .map(|port| (port.name.unwrap_or_default(), port.port))
                .collect();
            let expected = expected.iter().map(|(name, port)| ((*name).to_owned(), *port));
            (ports == expected.collect::<Vec<_>>()).then_some(spec)
        })
        .await;
        assert_eq!(found.cluster_ip.as_deref(), Some(address));
        assert_eq!(found.cluster_ips, Some(vec![address.to_owned()]));
        assert_eq!(
            found.selector,
            Some([("k8s-app".to_owned(), name.to_owned())].into())
        );
    }
}

fn is_ours(pod: &PodSpec, name: &str) {
    let containers: Vec<&str> = pod.containers.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(containers, [name]);
    let container = &pod.containers[0];
    assert_eq!(
        container.command.as_deref(),
        Some(&["/usr/bin/mco".to_owned()][..])
    );
    let volumes = pod.volumes.iter().flatten();
    assert!(!volumes.into_iter().any(|volume| volume.name == "theirs"));
    let mounts = container.volume_mounts.iter().flatten();
    assert!(!mounts.into_iter().any(|mount| mount.name == "theirs"));
    let selector = pod.node_selector.clone().unwrap_or_default();
    assert!(!selector.contains_key("node-role.kubernetes.io/master"));
}

#[tokio::test]
async fn another_implementations_workloads_become_ours_and_nothing_of_theirs_is_left() {
    let options = OperatorOptions {
        workloads: OperandMode::Deployed,
        image: "localhost/mco:test".to_owned(),
        ..OperatorOptions::new("0.1.0")
    };
    let running = Running::behind(options, async |client| {
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
        let deployment = theirs("machine-config-controller", &json!({"replicas": 1}));
        let deployment: Deployment = serde_json::from_value(deployment).unwrap();
        deployments
            .create(&PostParams::default(), &deployment)
            .await
            .unwrap();
        let sets: Api<DaemonSet> = Api::namespaced(client.clone(), NAMESPACE);
        let set: DaemonSet = serde_json::from_value(theirs(
            "machine-config-server",
            &json!({"updateStrategy": {"type": "OnDelete"}}),
        ))
        .unwrap();
        sets.create(&PostParams::default(), &set).await.unwrap();
        create_their_services(&client).await;
        client
    })
    .await;

    let deployments: Api<Deployment> = Api::namespaced(running.client(), NAMESPACE);
    let controller = eventually("the controller", || async {
        let found = deployments.get("machine-config-controller").await.unwrap();
        let spec = found.spec.clone()?.template.spec?;
        let image = spec.containers.first()?.image.clone();
        (image.as_deref() == Some("localhost/mco:test")).then_some((found, spec))
    })
    .await;
    is_ours(&controller.1, "machine-config-controller");
    let annotations = controller.0.metadata.annotations.unwrap();
    assert_eq!(
        annotations["example.com/mine"], "kept",
        "beside what runs, all stays"
    );
    let sets: Api<DaemonSet> = Api::namespaced(running.client(), NAMESPACE);
    let servers = eventually("the servers", || async {
        let pod = sets
            .get("machine-config-server")
            .await
            .unwrap()
            .spec?
            .template
            .spec?;
        let image = pod.containers.first()?.image.clone();
        (image.as_deref() == Some("localhost/mco:test")).then_some(pod)
    })
    .await;
    is_ours(&servers, "machine-config-server");
    the_services_are_ours_and_keep_their_addresses(&running.client()).await;
    running.stop().await;
}

/// The CRDs of a release: with other descriptions, and one reconciled by the cluster version operator.
fn their_definitions() -> Vec<CustomResourceDefinition> {
    fn reworded(value: &mut Value) {
        if let Some(Value::String(text)) = value.get_mut("description") {
            text.insert_str(0, "In other words: ");
        }
        match value {
            Value::Object(members) => members.values_mut().for_each(reworded),
            Value::Array(items) => items.iter_mut().for_each(reworded),
            _ => {}
        }
    }
    let mut definitions = Vec::new();
    for definition in own_crds() {
        let mut value = serde_json::to_value(definition).unwrap();
        reworded(&mut value);
        if value["metadata"]["name"]
            .as_str()
            .unwrap()
            .starts_with("controllerconfigs")
        {
            value["metadata"]["annotations"]["include.release.openshift.io/self-managed-high-availability"] =
                json!("true");
            let enums = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/description";
            *value.pointer_mut(enums).unwrap() = json!("another release's");
        }
        definitions.push(serde_json::from_value(value).unwrap());
    }
    definitions
}

#[tokio::test]
async fn definitions_and_accounts_of_another_implementation_were_rewritten_although_they_say_the_same() {
    let names: Vec<String> = (their_definitions().into_iter())
        .filter_map(|definition| definition.metadata.name)
        .collect();
    let running = Running::behind(OperatorOptions::new("0.1.0"), async move |client| {
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in their_definitions() {
            definitions
                .create(&PostParams::default(), &definition)
                .await
                .unwrap();
        }
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
        let account = json!({"metadata": {"name": "machine-config-daemon"}});
        let account: ServiceAccount = serde_json::from_value(account).unwrap();
        accounts.create(&PostParams::default(), &account).await.unwrap();
        client
    })
    .await;
    running.play_controllers().await;
    let roles: Api<ClusterRole> = Api::all(running.client());
    eventually("the steps after the definitions", || async {
        roles.get_opt("machine-config-daemon").await.unwrap()
    })
    .await;

    let definitions: Api<CustomResourceDefinition> = Api::all(running.client());
    for name in &names {
        let found = definitions.get(name).await.unwrap();
        let managers = found.metadata.managed_fields.unwrap_or_default();
        let ours = managers
            .iter()
            .any(|entry| entry.operation.as_deref() == Some("Apply"));
        assert!(!ours, "{name} was applied");
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(running.client(), NAMESPACE);
    let account = accounts.get("machine-config-daemon").await.unwrap();
    assert_eq!(account.metadata.labels, None);
    running.stop().await;
}
