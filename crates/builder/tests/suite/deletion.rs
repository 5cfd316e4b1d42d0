//! Images in a real registry: whether they exist, which are deleted, and how the registry is reached.

use std::sync::atomic::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use mco_api::{ControllerConfig, MachineOSConfig};
use mco_core::generators::os_builds::BuildState;
use serde_json::{Value, json};

use crate::cluster::{CURRENT_BUILD, Cluster, eventually};
use crate::test_registry::{TestProxy, TestRegistry, UNRESOLVABLE};

/// Starts a builder that trusts the registry and keeps this many unused builds.
async fn cluster_with(registry: &TestRegistry, host: &str, proxy: Option<Value>, kept: usize) -> Cluster {
    let mut cluster = Cluster::prepare(host).await;
    let bundle = json!([{"file": host, "data": STANDARD.encode(&registry.authority)}]);
    let mut patch = json!({"spec": {"imageRegistryBundleUserData": bundle}});
    if let Some(proxy) = proxy {
        patch["spec"]["proxy"] = proxy;
    }
    let patched = cluster
        .all::<ControllerConfig>()
        .patch(
            "machine-config-controller",
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await;
    patched.unwrap();
    cluster.start_builder(kept);
    cluster
}

async fn node_with(cluster: &Cluster, image: &str) {
    let node = json!({"metadata": {
        "name": "worker-0",
        "labels": {"node-role.kubernetes.io/worker": ""},
        "annotations": {"machineconfiguration.openshift.io/currentImage": image},
    }});
    cluster.create(&cluster.all::<Node>(), node).await;
}

async fn delete_config(cluster: &Cluster) {
    let configs = cluster.all::<MachineOSConfig>();
    configs
        .delete("worker", &DeleteParams::background())
        .await
        .unwrap();
    eventually("the builds are deleted", async || {
        cluster.builds().await.is_empty().then_some(())
    })
    .await;
}

/// Builds an image per number, each from another Containerfile, and returns the builds and digests.
async fn build_images(cluster: &Cluster, registry: &TestRegistry, numbers: &[u32]) -> Vec<(String, String)> {
    let mut built: Vec<(String, String)> = Vec::new();
    for number in numbers {
        let before = cluster.current_build().await;
        cluster
            .set_containerfile(&format!("FROM configs AS final\nLABEL number={number}\n"))
            .await;
        let digest = registry.store(&number.to_string());
        built.push((cluster.build(&before, &digest).await, digest));
        // Retention compares times of creation, which have no fractions.
        let start = cluster
            .state(&built.last().unwrap().0, BuildState::Succeeded)
            .await;
        let created = start.metadata.creation_timestamp.unwrap().0;
        eventually("another second", async || {
            (k8s_openapi::jiff::Timestamp::now().as_second() > created.as_second()).then_some(())
        })
        .await;
    }
    built
}

#[tokio::test(flavor = "multi_thread")]
async fn old_builds_and_their_images_are_pruned_unless_they_are_used() {
    let Some(registry) = TestRegistry::start().await else {
        return;
    };
    let cluster = cluster_with(&registry, &registry.host(), None, 1).await;
    cluster.opt_in(json!({})).await;
    let first = registry.store("first");
    let first_build = cluster.build("", &first).await;
    node_with(&cluster, &cluster.image().await).await;
    let built = build_images(&cluster, &registry, &[1, 2, 3, 4]).await;
    let wanted = [&first_build, &built[2].0, &built[3].0];
    eventually("retention", async || {
        let builds = cluster.builds().await;
        let names = builds.iter().map(|one| one.metadata.name.as_ref().unwrap());
        (names.clone().count() == 3 && names.clone().all(|name| wanted.contains(&name))).then_some(())
    })
    .await;
    eventually("the images of pruned builds are deleted", async || {
        (!registry.has(&built[0].1) && !registry.has(&built[1].1)).then_some(())
    })
    .await;
    // On a node, kept as the newest unused one, and current.
    for digest in [&first, &built[2].1, &built[3].1] {
        assert!(registry.has(digest), "{digest}");
    }
    // Without its MachineOSConfig only the image of a node stays.
    delete_config(&cluster).await;
    eventually("unused images are deleted", async || {
        (!registry.has(&built[2].1) && !registry.has(&built[3].1)).then_some(())
    })
    .await;
    assert!(registry.has(&first));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_was_pruned_from_the_registry_is_built_again_under_the_same_name() {
    let Some(registry) = TestRegistry::start().await else {
        return;
    };
    let cluster = cluster_with(&registry, &registry.host(), None, 5).await;
    cluster.opt_in(json!({})).await;
    let image = registry.store("first");
    let first = cluster.build("", &image).await;
    cluster
        .rendered("rendered-worker-2", &json!({"osImageURL": "base:2"}))
        .await;
    cluster.retarget("rendered-worker-2").await;
    let second = cluster.build(&first, &registry.store("second")).await;
    cluster.reach("rendered-worker-2").await;

    // The registry has it: the way back needs no Job.
    cluster.retarget("rendered-worker-1").await;
    eventually("the first build is current again", async || {
        (cluster.current_build().await == first && cluster.image().await.ends_with(&image)).then_some(())
    })
    .await;
    let reused = cluster.state(&first, BuildState::Succeeded).await;
    let created = async || cluster.events().await["JobCreated"];
    assert_eq!(created().await, 2);
    cluster.retarget("rendered-worker-2").await;
    eventually("the second build is current again", async || {
        (cluster.current_build().await == second).then_some(())
    })
    .await;

    registry.remove(&image);
    cluster.retarget("rendered-worker-1").await;
    eventually("another build of the same name", async || {
        let found = cluster
            .all::<mco_api::MachineOSBuild>()
            .get_opt(&first)
            .await
            .unwrap()?;
        (found.metadata.uid != reused.metadata.uid).then_some(())
    })
    .await;
    let rebuilt = cluster.started(&second).await;
    assert_eq!(rebuilt, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_behind_a_refusal_is_neither_used_nor_built_again() {
    let Some(registry) = TestRegistry::start().await else {
        return;
    };
    let cluster = cluster_with(&registry, &registry.host(), None, 5).await;
    cluster.opt_in(json!({})).await;
    let first = cluster.build("", &registry.store("first")).await;
    cluster
        .rendered("rendered-worker-2", &json!({"osImageURL": "base:2"}))
        .await;
    cluster.retarget("rendered-worker-2").await;
    let second = cluster.build(&first, &registry.store("second")).await;
    cluster.reach("rendered-worker-2").await;
    cluster.push_secret("builder:another-password").await;
    cluster.retarget("rendered-worker-1").await;
    cluster.has_event("ConfigReconcileFailed").await;
    assert_eq!(cluster.current_build().await, second);
    assert!(cluster.jobs().await.is_empty());
    cluster.push_secret("builder:registry-password").await;
    // Another change enqueues it at once.
    cluster
        .patch_config(json!({"metadata": {"annotations": {"touched": "1"}}}))
        .await;
    eventually("the first build is current again", async || {
        (cluster.current_build().await == first).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_without_its_push_secret_is_deleted_and_its_image_stays() {
    let Some(registry) = TestRegistry::start().await else {
        return;
    };
    let cluster = cluster_with(&registry, &registry.host(), None, 5).await;
    cluster.opt_in(json!({})).await;
    let image = registry.store("first");
    cluster.build("", &image).await;
    let secrets = cluster.ours::<Secret>();
    secrets.delete("push", &DeleteParams::default()).await.unwrap();
    delete_config(&cluster).await;
    assert!(registry.has(&image));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_the_installation_outlives_its_build() {
    let Some(registry) = TestRegistry::start().await else {
        return;
    };
    let cluster = cluster_with(&registry, &registry.host(), None, 5).await;
    let image = registry.store("installed");
    let reference = format!("{}/os@{image}", registry.host());
    let annotation = "machineconfiguration.openshift.io/pre-built-image";
    cluster.opt_in(json!({annotation: reference})).await;
    eventually("the image is recorded", async || {
        let annotations = cluster.config().await.metadata.annotations.unwrap_or_default();
        (annotations.contains_key(CURRENT_BUILD) && !annotations.contains_key(annotation)).then_some(())
    })
    .await;
    let own = cluster.current_build().await;
    // A later image is ours, and deleted with its build.
    let later = registry.store("later");
    cluster
        .rendered("rendered-worker-2", &json!({"osImageURL": "base:2"}))
        .await;
    cluster.retarget("rendered-worker-2").await;
    cluster.build(&own, &later).await;
    delete_config(&cluster).await;
    eventually("the later image is deleted", async || {
        (!registry.has(&later)).then_some(())
    })
    .await;
    assert!(registry.has(&image));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_the_installation_was_pruned_with_a_build_that_had_used_it_again() {
    let Some(registry) = TestRegistry::start().await else {
        return;
    };
    let cluster = cluster_with(&registry, &registry.host(), None, 0).await;
    let image = registry.store("installed");
    let reference = format!("{}/os@{image}", registry.host());
    let annotation = "machineconfiguration.openshift.io/pre-built-image";
    cluster.opt_in(json!({annotation: reference})).await;
    eventually("the image is recorded", async || {
        let annotations = cluster.config().await.metadata.annotations.unwrap_or_default();
        (annotations.contains_key(CURRENT_BUILD) && !annotations.contains_key(annotation)).then_some(())
    })
    .await;
    let mut current = cluster.current_build().await;
    for number in [2, 3] {
        let name = format!("rendered-worker-{number}");
        let files = json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": "/etc/a", "contents": {"source": format!("data:,{number}")}}]}});
        let spec = json!({"osImageURL": "base:1", "config": files});
        cluster.rendered(&name, &spec).await;
        cluster.retarget(&name).await;
        current = eventually("the image is used again", async || {
            let now = cluster.current_build().await;
            (now != current && cluster.image().await == reference).then_some(now)
        })
        .await;
        cluster.reach(&name).await;
    }
    cluster
        .rendered("rendered-worker-4", &json!({"osImageURL": "base:2"}))
        .await;
    cluster.retarget("rendered-worker-4").await;
    let later = registry.store("later");
    let own = cluster.build(&current, &later).await;
    eventually("the builds with the image are pruned", async || {
        let builds = cluster.builds().await;
        (builds.len() == 1 && builds[0].metadata.name.as_ref() == Some(&own)).then_some(())
    })
    .await;
    delete_config(&cluster).await;
    eventually("the later image is deleted", async || {
        (!registry.has(&later)).then_some(())
    })
    .await;
    assert!(registry.has(&image));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_is_reached_through_the_proxy_of_the_cluster() {
    let Some(registry) = TestRegistry::start().await else {
        return;
    };
    let proxy = TestProxy::start(registry.address).await;
    let host = format!("{UNRESOLVABLE}:{}", registry.address.port());
    let settings = json!({
        "httpsProxy": format!("http://user:p%40ss@{}", proxy.address), "noProxy": ".cluster.local,10.0.0.0/8",
    });
    let cluster = cluster_with(&registry, &host, Some(settings), 5).await;
    cluster.opt_in(json!({})).await;
    let image = registry.store("first");
    cluster.build("", &image).await;
    delete_config(&cluster).await;
    eventually("the image is deleted", async || {
        (!registry.has(&image)).then_some(())
    })
    .await;
    assert!(proxy.tunnels.load(Ordering::SeqCst) > 0);

    // What the proxy does not serve is reached directly.
    let settings = json!({
        "httpsProxy": format!("http://{}", proxy.address), "noProxy": "127.0.0.0/8",
    });
    let cluster = cluster_with(&registry, &registry.host(), Some(settings), 5).await;
    cluster.opt_in(json!({})).await;
    let image = registry.store("second");
    cluster.build("", &image).await;
    let before = proxy.tunnels.load(Ordering::SeqCst);
    delete_config(&cluster).await;
    eventually("the image is deleted", async || {
        (!registry.has(&image)).then_some(())
    })
    .await;
    assert_eq!(proxy.tunnels.load(Ordering::SeqCst), before);
}
