//! Certificates are synced from the cluster without a drain, a reboot or a config.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use mco_api::ControllerConfig;
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::vocabulary::annotations::{SERVICE_CA_ROTATE, node as annotation};
use mco_api::vocabulary::names;
use mco_daemon::paths;
use mco_host::systemd::ServiceAction;
use serde_json::{Value, json};

use crate::support::{config, file, files};
use crate::world::{Annotations, World, has};

fn bytes(text: &str) -> Value {
    json!(ByteString(text.as_bytes().to_vec()))
}

const ONE: &str = "-----BEGIN CERTIFICATE-----\n\
    MIIBkTCCATegAwIBAgIURNLyeW+y18LqyyQ2oTAgLo9+v0QwCgYIKoZIzj0EAwIw\n\
    HTEbMBkGA1UEAwwSa3ViZS1hcGlzZXJ2ZXItb25lMCAXDTI2MTExOTA2MDUxNloY\n\
    DzIxMjYxMDI2MDYwNTE2WjAdMRswGQYDVQQDDBJrdWJlLWFwaXNlcnZlci1vbmUw\n\
    WTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATgoks/QNeSgH7CS7byxPYX2exvilmG\n\
    jBs2Le0E0QC2/UwcKVKimUrsOMBAiBBMnj5pv8YWEVF/Bd25B1nq0MFao1MwUTAd\n\
    BgNVHQ4EFgQU+vgQ5lxVhYSOSQlCTq+aY4vOxO0wHwYDVR0jBBgwFoAU+vgQ5lxV\n\
    hYSOSQlCTq+aY4vOxO0wDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBF\n\
    AiEA7qhvdN0fG2DGVZb8tZXFy6bQHgztTSodmcuFfKRP1U4CIEWsWijFoX33tnMV\n\
    EfQHCFdMyzdnDcoOuW5e5dZItv9d\n\
    -----END CERTIFICATE-----\n";
const TWO: &str = "-----BEGIN CERTIFICATE-----\n\
    MIIBkDCCATegAwIBAgIUeqtwYXKxIAz8gP8wpbxG9WYBseQwCgYIKoZIzj0EAwIw\n\
    HTEbMBkGA1UEAwwSa3ViZS1hcGlzZXJ2ZXItdHdvMCAXDTI2MTExOTA2MDUxNloY\n\
    DzIxMjYxMDI2MDYwNTE2WjAdMRswGQYDVQQDDBJrdWJlLWFwaXNlcnZlci10d28w\n\
    WTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATMB4mMjHpv0S4dhh0Yhzx6W7hZsUx4\n\
    GZOxw1cmHFL9HusBY7Tdec6LZ7plv3P5c6sNz/WtcHZRO5MhVHI3wCRvo1MwUTAd\n\
    BgNVHQ4EFgQUZVFsyyAaumpAR2i8Ler92sicvWcwHwYDVR0jBBgwFoAUZVFsyyAa\n\
    umpAR2i8Ler92sicvWcwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNHADBE\n\
    AiAjH0xAHTisYhKH4vnnKOY7VUJmR+QUgYNUDBtsZSs3kAIgFV92qF2DA80VT39B\n\
    TbX7liWQQGZqaxlcFkEKYDCb8DA=\n\
    -----END CERTIFICATE-----\n";

fn kubeconfig(authority: &str) -> String {
    let data = bytes(authority);
    format!(
        "clusters:\n- cluster:\n    server: https://api-int:6443\n    certificate-authority-data: {}\n  name: local\n\
         contexts:\n- context: {{cluster: local, user: kubelet}}\n  name: kubelet\ncurrent-context: kubelet\n",
        data.as_str().unwrap()
    )
}

/// The operator reported the rotation, and no daemon followed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_of_the_api_servers_ca_reaches_the_kubelet_with_one_restart() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let mut world = World::installed(&first).await;
    let kubeconfigs = [paths::BOOTSTRAP_KUBECONFIG, paths::KUBELET_KUBECONFIG];
    for path in kubeconfigs {
        world.write(path, &kubeconfig(ONE));
    }
    let published: Api<ConfigMap> = Api::namespaced(world.client(), names::NAMESPACE);
    let map = |bundle: &str| json!({"metadata": {"name": "kubeconfig-data"}, "binaryData": {"ca-bundle.crt": bytes(bundle)}});
    let created = serde_json::from_value(map(ONE)).unwrap();
    published.create(&PostParams::default(), &created).await.unwrap();
    world
        .create_value::<ControllerConfig>(json!({
            "metadata": {"name": CONTROLLER_CONFIG_NAME, "annotations": {SERVICE_CA_ROTATE: "false"}},
            "spec": {
                "kubeAPIServerServingCAData": bytes("one\n"), "rootCAData": bytes("root\n"),
                "images": {}, "ipFamilies": "IPv4", "clusterDNSIP": "10.0.0.10", "cloudProviderConfig": "",
                "additionalTrustBundle": null, "cloudProviderCAData": null, "proxy": null, "releaseImage": "r",
            },
        }))
        .await;
    world.start_daemon();
    world.until_done(&first).await;
    world.until_idle().await;
    let settings = world.all::<ControllerConfig>();
    let rotate = async |world: &World, value: &str| {
        let patch =
            Patch::Merge(json!({"metadata": {"annotations": {SERVICE_CA_ROTATE: value, "at": value}}}));
        let changed = settings
            .patch(CONTROLLER_CONFIG_NAME, &PatchParams::default(), &patch)
            .await
            .unwrap();
        let version = changed.metadata.resource_version.unwrap();
        let synced = |now: &Annotations| has(now, annotation::LAST_SYNCED_CONTROLLER_CONFIG, &version);
        world.until("synced", synced).await;
    };
    let restart = ServiceAction::Restart("kubelet.service".to_owned());
    let restarts = |world: &World| {
        world
            .services
            .performed()
            .iter()
            .filter(|one| **one == restart)
            .count()
    };
    rotate(&world, "").await;
    assert_eq!(restarts(&world), 0, "it is trusted already");

    let both = format!("{ONE}{TWO}");
    let rotated = Patch::Merge(map(&both));
    published
        .patch("kubeconfig-data", &PatchParams::default(), &rotated)
        .await
        .unwrap();
    for reported in ["true", "false", "true"] {
        rotate(&world, reported).await;
        for path in kubeconfigs {
            assert_eq!(world.read(path), kubeconfig(&both), "{path}");
        }
        assert_eq!(restarts(&world), 1, "{reported}");
    }
    let now = world.annotations().await;
    assert!(has(&now, annotation::STATE, "Done"));
    world.stop_daemon().await;
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
