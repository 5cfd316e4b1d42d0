//! The steps of an update with the feature gate `ImageModeStatusReporting`, which changes while the daemon runs.

use kube::api::{Api, Patch, PatchParams};
use mco_api::MachineConfigNode;
use mco_api::crd::CustomResourceDefinition;
use mco_api::foreign::feature_gate::FeatureGate;
use mco_api::vocabulary::annotations::node as annotation;
use mco_daemon::agent::AgentOptions;
use serde_json::{Value, json};

use crate::os_images::{NEW, OLD, rendered, world};
use crate::world::{NODE, World};

const IMAGE: &str = "registry.example.com/built@sha256:\
                     aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// Serves FeatureGates, and the definition of MachineConfigNodes of a cluster with the gate.
async fn define(world: &World) {
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "featuregates.config.openshift.io"},
        "spec": {
            "group": "config.openshift.io",
            "scope": "Cluster",
            "names": {"kind": "FeatureGate", "listKind": "FeatureGateList", "plural": "featuregates",
                "singular": "featuregate"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    }))
    .unwrap();
    world.create(&definition).await;
    let images = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definitions: Api<CustomResourceDefinition> = world.all();
    let name = "machineconfignodes.machineconfiguration.openshift.io";
    let patch: Patch<()> = Patch::Json(
        serde_json::from_value(json!([{
            "op": "add",
            "path": "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/configImage",
            "value": images,
        }]))
        .unwrap(),
    );
    definitions
        .patch(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
    world
        .eventually("FeatureGates are served", async |world: &World| {
            world
                .all::<FeatureGate>()
                .list(&kube::api::ListParams::default())
                .await
                .is_ok()
        })
        .await;
    world
        .create_value::<FeatureGate>(json!({"metadata": {"name": "cluster"}}))
        .await;
}

async fn set(world: &World, list: &str) {
    let mut gates = json!({"version": "1", "enabled": [], "disabled": []});
    gates[list] = json!([{"name": "ImageModeStatusReporting"}]);
    let patch = Patch::Merge(json!({"status": {"featureGates": [gates]}}));
    let api = world.all::<FeatureGate>();
    api.patch_status("cluster", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// The conditions of writing an update that a MachineConfigNode has, with their statuses.
async fn writing(world: &World) -> Vec<String> {
    let all = world.progress().await;
    let shown = all
        .into_iter()
        .filter(|(type_, _)| type_.contains("Applied") || type_.contains("Pulled"));
    shown
        .map(|(type_, (status, _))| format!("{type_} {status}"))
        .collect()
}

async fn images(world: &World) -> Value {
    let object = world.all::<MachineConfigNode>().get(NODE).await.unwrap();
    json!(object.status.unwrap_or_default().config_image)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gate_changes_the_steps_of_the_next_update_without_a_restart() {
    let (mut world, _double, _state) = world(AgentOptions::default()).await;
    define(&world).await;
    set(&world, "enabled").await;
    let second = rendered(2, NEW);
    world.publish_and_target(&second).await;
    world.until_waiting_for("drain-rendered-worker-2").await;
    assert_eq!(
        writing(&world).await,
        [
            "AppliedFiles False",
            "AppliedOSImage False",
            "ImagePulledFromRegistry True"
        ],
        "the image is pulled before the drain"
    );
    // The gate changes during the update, which keeps its steps.
    set(&world, "disabled").await;
    world.until_waiting_for_uncordon().await;
    assert_eq!(
        writing(&world).await,
        [
            "AppliedFiles True",
            "AppliedOSImage True",
            "ImagePulledFromRegistry True"
        ]
    );
    world.until_done(&second).await;
    world.until_condition("Updated", "True").await;

    let third = rendered(3, NEW);
    world.publish_and_target(&third).await;
    world.until_waiting_for("drain-rendered-worker-3").await;
    assert_eq!(writing(&world).await, ["AppliedFilesAndOS False"]);
    world.until_done(&third).await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_cannot_be_pulled_is_a_failed_step_of_its_own() {
    let (mut world, _double, _state) = world(AgentOptions::default()).await;
    define(&world).await;
    set(&world, "enabled").await;
    let second = rendered(2, "quay.io/openshift/none@sha256:ff");
    world.publish_and_target(&second).await;
    world.until_failing("Degraded", "manifest unknown").await;
    world.until_condition("NodeDegraded", "True").await;
    let (status, message) = world.progress().await["ImagePulledFromRegistry"].clone();
    assert_eq!(status, "False");
    assert!(
        message.contains("could not pull the image") && message.contains("manifest unknown"),
        "{message}"
    );
    assert_eq!(
        writing(&world).await,
        [
            "AppliedFiles False",
            "AppliedOSImage False",
            "ImagePulledFromRegistry False"
        ]
    );
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_built_image_is_reported_with_the_gate() {
    let (mut world, double, _state) = world(AgentOptions::default()).await;
    double.publish_digest(IMAGE, IMAGE.split('@').next_back().unwrap());
    define(&world).await;
    set(&world, "enabled").await;
    assert_eq!(images(&world).await, Value::Null);
    let second = rendered(2, OLD);
    world.create_config(&second).await;
    world.annotate(annotation::DESIRED_IMAGE, IMAGE).await;
    world.target(&second).await;
    world.until_done(&second).await;
    world.until_condition("Updated", "True").await;
    assert_eq!(
        images(&world).await,
        json!({"currentImage": IMAGE, "desiredImage": IMAGE})
    );
    world.stop_daemon().await;
}
