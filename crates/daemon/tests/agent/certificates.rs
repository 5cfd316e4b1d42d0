//! Certificates are synced from the cluster without a drain, a reboot or a config.

use k8s_openapi::ByteString;
use kube::api::{Patch, PatchParams};
use mco_api::ControllerConfig;
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::vocabulary::annotations::node as annotation;
use mco_daemon::paths;
use serde_json::{Value, json};

use crate::support::{config, file, files};
use crate::world::{World, has};

fn bytes(text: &str) -> Value {
    json!(ByteString(text.as_bytes().to_vec()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_certificate_is_on_disk_and_nothing_else_happens() {
    let first = config(
        "rendered-worker-1",
        &files(&[
            file("/etc/a", "1\n"),
            file(paths::KUBELET_CA, "of the installation\n"),
        ]),
    );
    let mut world = World::installed(&first).await;
    world
        .create_value::<ControllerConfig>(json!({
            "metadata": {"name": CONTROLLER_CONFIG_NAME},
            "spec": {
                "kubeAPIServerServingCAData": bytes("one\n"),
                "rootCAData": bytes("root\n"),
                "internalRegistryPullSecret": bytes("{\"auths\":{}}"),
                "imageRegistryBundleData": [{"file": "registry.example..5000", "data": bytes("registry")}],
                "images": {}, "ipFamilies": "IPv4", "clusterDNSIP": "10.0.0.10", "cloudProviderConfig": "",
                "additionalTrustBundle": null, "cloudProviderCAData": null, "proxy": null, "releaseImage": "r",
            },
        }))
        .await;
    world.start_daemon();
    world.until_done(&first).await;
    world.until_idle().await;
    let settings = world.all::<ControllerConfig>();
    let version = settings.get(CONTROLLER_CONFIG_NAME).await.unwrap().metadata;
    let version = version.resource_version.unwrap();
    // Files are written one by one; the annotation comes last.
    world
        .until("the first certificates", |now| {
            has(now, annotation::LAST_SYNCED_CONTROLLER_CONFIG, &version)
        })
        .await;
    assert_eq!(world.read(paths::KUBELET_CA), "one\n");
    assert_eq!(world.read(paths::MERGED_PULL_SECRET), "{\"auths\":{}}\n");
    assert_eq!(
        world.read("/etc/docker/certs.d/registry.example:5000/ca.crt"),
        "registry\n"
    );

    let boot = world.boot();
    let patch = Patch::Merge(json!({"spec": {"kubeAPIServerServingCAData": bytes("two\n")}}));
    let changed = settings
        .patch(CONTROLLER_CONFIG_NAME, &PatchParams::default(), &patch)
        .await
        .unwrap();
    let version = changed.metadata.resource_version.unwrap();
    world
        .until("synced", |now| {
            has(now, annotation::LAST_SYNCED_CONTROLLER_CONFIG, &version)
        })
        .await;
    assert_eq!(world.read(paths::KUBELET_CA), "two\n");
    let now = world.annotations().await;
    assert!(has(&now, annotation::STATE, "Done"));
    assert_eq!(now.get(annotation::DESIRED_DRAIN), None);
    assert_eq!(world.boot(), boot);

    // The config's own copy is older, and an update must not restore it.
    let second = config(
        "rendered-worker-2",
        &files(&[
            file("/etc/a", "2\n"),
            file(paths::KUBELET_CA, "of the installation\n"),
        ]),
    );
    world.publish_and_target(&second).await;
    world.until_done(&second).await;
    assert_eq!(world.read(paths::KUBELET_CA), "two\n");
    world.stop_daemon().await;
}
