//! A node reverts from an image that was built in the cluster.

use std::fs;

use kube::api::{Patch, PatchParams};
use mco_api::ControllerConfig;
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::vocabulary::annotations::node as annotation;
use mco_daemon::config::NodeConfig;
use mco_daemon::firstboot::{self, FirstBoot};
use mco_daemon::once::RebootPolicy;
use mco_daemon::{paths, validate};
use serde_json::{Value, json};

use crate::support::{config_with, file, files};
use crate::world::World;

const UNIT: &str = "/etc/systemd/system/machine-config-daemon-revert.service";
const LINK: &str = "/etc/systemd/system/multi-user.target.requires/machine-config-daemon-revert.service";
const BUILT: &str = "registry.example/built@sha256:2";

fn first() -> NodeConfig {
    let body = files(&[
        file("/etc/a", "1\n"),
        file(paths::PROXY_ENV, "HTTP_PROXY=http://p:1\n"),
    ]);
    config_with(
        "rendered-worker-1",
        &body,
        &json!({"osImageURL": "registry.example/base@sha256:1"}),
    )
}

async fn cluster_says(world: &World, images: Value) {
    let patch = Patch::Merge(json!({"spec": {"images": images}}));
    let all = world.all::<ControllerConfig>();
    all.patch(CONTROLLER_CONFIG_NAME, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// A node of an image-based system that runs a built image, in a cluster with a proxy.
async fn on_built_image() -> World {
    let mut world = World::installed(&first()).await;
    world.image_based = true;
    world
        .create_value::<ControllerConfig>(json!({
            "metadata": {"name": CONTROLLER_CONFIG_NAME},
            "spec": {
                "kubeAPIServerServingCAData": null, "rootCAData": null,
                "proxy": {"httpProxy": "http://p:1"},
                "images": {}, "ipFamilies": "IPv4", "clusterDNSIP": "10.0.0.10", "cloudProviderConfig": "",
                "additionalTrustBundle": null, "cloudProviderCAData": null, "releaseImage": "r",
            },
        }))
        .await;
    world.start_daemon();
    world.until_done(&first()).await;
    world.annotate(annotation::DESIRED_IMAGE, BUILT).await;
    world
        .until("the built image runs", |now| {
            now.get(annotation::CURRENT_IMAGE).map(String::as_str) == Some(BUILT)
        })
        .await;
    world
}

async fn leave(world: &World) {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation::DESIRED_IMAGE: null}}}));
    let nodes = world.all::<k8s_openapi::api::core::v1::Node>();
    nodes
        .patch(crate::world::NODE, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_a_built_image_takes_a_note_along_and_a_unit_that_obeys_it() {
    let mut world = on_built_image().await;
    leave(&world).await;
    world
        .until_failing("Degraded", "no machineConfigOperator among its images")
        .await;
    assert!(!world.path(UNIT).exists() && !world.path(paths::REVERT_CONFIG).exists());
    cluster_says(
        &world,
        json!({"machineConfigOperator": "registry.example/mco@sha256:9"}),
    )
    .await;
    world
        .until("the built image is left", |now| {
            !now.contains_key(annotation::CURRENT_IMAGE)
                && now.get(annotation::STATE).is_some_and(|it| it == "Done")
        })
        .await;
    world.stop_daemon().await;

    let unit = world.read(UNIT);
    assert!(
        unit.contains("EnvironmentFile=/etc/mco/proxy.env.backup\n"),
        "{unit}"
    );
    assert!(
        unit.contains("machine-config-daemon registry.example/mco@sha256:9 firstboot-complete-machineconfig"),
        "{unit}"
    );
    assert_eq!(fs::read_link(world.path(LINK)).unwrap().to_str(), Some(UNIT));
    assert_eq!(world.read(paths::PROXY_ENV_BACKUP), "HTTP_PROXY=http://p:1\n");
    let note: Value = serde_json::from_str(&world.read(paths::REVERT_CONFIG)).unwrap();
    assert_eq!(note["metadata"]["name"], "rendered-worker-1");

    // The files of the built image are gone with it, and the unit runs.
    fs::remove_file(world.path("/etc/a")).unwrap();
    let machine = world.machine();
    let outcome = firstboot::complete(&machine, RebootPolicy::Never).unwrap();
    let config = "rendered-worker-1".to_owned();
    assert_eq!(outcome, FirstBoot::NeedsReboot { config });
    assert_eq!(world.read("/etc/a"), "1\n");
    for gone in [UNIT, LINK, paths::REVERT_CONFIG, paths::PROXY_ENV_BACKUP] {
        assert!(fs::symlink_metadata(world.path(gone)).is_err(), "{gone}");
    }
    machine
        .power
        .reboot(&machine.root, "the boot it asked for")
        .unwrap();
    assert_eq!(
        firstboot::complete(&machine, RebootPolicy::Never).unwrap(),
        FirstBoot::NotNeeded
    );
    assert_eq!(validate::validate(&machine, &first()).unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_way_back_on_which_nothing_was_lost_needs_no_second_boot() {
    let mut world = on_built_image().await;
    cluster_says(
        &world,
        json!({"machineConfigOperator": "registry.example/mco@sha256:9"}),
    )
    .await;
    leave(&world).await;
    world
        .until("the built image is left", |now| {
            !now.contains_key(annotation::CURRENT_IMAGE)
        })
        .await;
    world.stop_daemon().await;
    let outcome = firstboot::complete(&world.machine(), RebootPolicy::Never).unwrap();
    let config = "rendered-worker-1".to_owned();
    assert_eq!(outcome, FirstBoot::Complete { config });
    assert!(!world.path(UNIT).exists() && !world.path(paths::REVERT_CONFIG).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_proxy_file_stops_the_way_back_before_anything_changed() {
    let mut world = on_built_image().await;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {
        "machineconfiguration.openshift.io/drift-policy": "ignore"}}}));
    let nodes = world.all::<k8s_openapi::api::core::v1::Node>();
    nodes
        .patch(crate::world::NODE, &PatchParams::default(), &patch)
        .await
        .unwrap();
    fs::remove_file(world.path(paths::PROXY_ENV)).unwrap();
    cluster_says(
        &world,
        json!({"machineConfigOperator": "registry.example/mco@sha256:9"}),
    )
    .await;
    leave(&world).await;
    world
        .until_failing("Degraded", "but /etc/mco/proxy.env does not exist")
        .await;
    assert!(!world.path(UNIT).exists() && !world.path(paths::REVERT_CONFIG).exists());
    world.stop_daemon().await;
}
