//! The images of a node's PinnedImageSets: pulled, pinned and reported, independently of updates.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::api::{DeleteParams, Patch, PatchParams};
use mco_api::machine_config_node::PinnedImageSetStatus;
use mco_api::vocabulary::annotations::node as annotation;
use mco_api::{MachineConfigNode, MachineConfigPool, PinnedImageSet};
use mco_core::generators::registries::REGISTRIES_CONF;
use mco_core::rollout::pinned_images_on_node::{CRIO_DROP_IN, PULL_SECRET};
use mco_daemon::config::NodeConfig;
use mco_host::systemd::ServiceAction;
use serde_json::{Value, json};

use crate::runtime::{Registry, image};
use crate::support::{config, file, files};
use crate::world::{NODE, World, has};

const PROGRESSING: &str = "PinnedImageSetsProgressing";
const DEGRADED: &str = "PinnedImageSetsDegraded";

fn first() -> NodeConfig {
    config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]))
}

/// An idle worker with free storage, and a fake runtime.
async fn world() -> (World, Arc<Registry>) {
    world_where("True", "100Gi").await
}

/// The same with this Ready status and storage on the Node from the beginning.
async fn world_where(ready: &str, storage: &str) -> (World, Arc<Registry>) {
    let registry = Arc::new(Registry::default());
    let mut world = World::installed(&first()).await;
    world.runtime = Some(Arc::<Registry>::clone(&registry));
    patch_pool(
        &world,
        json!({"nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}}),
    )
    .await;
    let labels = Patch::Merge(json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": ""}}}));
    let nodes = world.all::<KubeNode>();
    nodes.patch(NODE, &PatchParams::default(), &labels).await.unwrap();
    node_says(&world, ready, storage).await;
    world.start_daemon();
    world.until_done(&first()).await;
    (world, registry)
}

pub async fn node_says(world: &World, ready: &str, storage: &str) {
    let status = json!({"status": {
        "conditions": [{"type": "Ready", "status": ready}],
        "allocatable": {"ephemeral-storage": storage},
    }});
    let nodes = world.all::<KubeNode>();
    let patch = Patch::Merge(status);
    nodes
        .patch_status(NODE, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

pub async fn patch_pool(world: &World, spec: Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    let pools = world.all::<MachineConfigPool>();
    pools
        .patch("worker", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// Sets the pool's PinnedImageSets as the controllers do.
pub async fn name_sets(world: &World, names: &[&str]) {
    let sets: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    patch_pool(world, json!({"pinnedImageSets": sets})).await;
}

fn pinned(images: &[&str]) -> Value {
    let images: Vec<Value> = images.iter().map(|name| json!({"name": image(name)})).collect();
    json!({"pinnedImages": images})
}

pub async fn create_set(world: &World, name: &str, images: &[&str]) {
    let set = json!({"metadata": {"name": name}, "spec": pinned(images)});
    world.create_value::<PinnedImageSet>(set).await;
}

async fn delete_set(world: &World, name: &str) {
    let sets = world.all::<PinnedImageSet>();
    sets.delete(name, &DeleteParams::default()).await.unwrap();
}

async fn statuses(world: &World) -> Vec<PinnedImageSetStatus> {
    let node = world.all::<MachineConfigNode>().get(NODE).await.unwrap();
    node.status.unwrap_or_default().pinned_image_sets
}

/// Waits until exactly these sets have this desired and current generation.
async fn until_kept(world: &World, expected: &[(&str, i32, Option<i32>)]) {
    let what = format!("{expected:?}");
    world
        .eventually(&what, async |world: &World| {
            let found = statuses(world).await;
            let found: Vec<(&str, i32, Option<i32>)> = found
                .iter()
                .map(|set| {
                    let desired = set.desired_generation.unwrap_or_default();
                    (set.name.as_str(), desired, set.current_generation)
                })
                .collect();
            found == expected
        })
        .await;
}

async fn until_condition(world: &World, type_: &str, status: &str, message: &str) {
    let what = format!("{type_}={status}: {message}");
    world
        .eventually(&what, async |world: &World| {
            let progress = world.progress().await;
            let found = progress.get(type_);
            found.is_some_and(|(found, text)| found == status && text.contains(message))
        })
        .await;
}

fn reloads(world: &World) -> usize {
    let reload = ServiceAction::Reload("crio.service".to_owned());
    let performed = world.services.performed();
    performed.iter().filter(|action| **action == reload).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_images_of_a_set_are_pulled_pinned_and_reported() {
    let (mut world, registry) = world().await;
    world.write(
        PULL_SECRET,
        r#"{"auths": {"mirror.example:5000": {"username": "me", "password": "x"}}}"#,
    );
    world.write(
        REGISTRIES_CONF,
        "[[registry]]\nlocation = \"quay.example\"\n[[registry.mirror]]\nlocation = \"mirror.example:5000\"\n",
    );
    create_set(&world, "base", &["quay.example/a", "quay.example/b"]).await;
    create_set(&world, "elsewhere", &["quay.example/c"]).await;
    name_sets(&world, &["base"]).await;
    until_kept(&world, &[("base", 1, Some(1))]).await;
    until_condition(&world, PROGRESSING, "False", "").await;
    until_condition(&world, DEGRADED, "False", "").await;
    let (a, b) = (image("quay.example/a"), image("quay.example/b"));
    let mut pulls = registry.pulls();
    pulls.sort();
    let credential = Some("me:x".to_owned());
    assert_eq!(pulls, [(a.clone(), credential.clone()), (b.clone(), credential)]);
    assert_eq!(
        world.read(CRIO_DROP_IN),
        format!("[crio]\n  [crio.image]\n    pinned_images = [\"{a}\", \"{b}\"]\n")
    );
    assert_eq!(reloads(&world), 1);

    // Another generation: only new images are pulled.
    let patch = Patch::Merge(json!({"spec": pinned(&["quay.example/b", "quay.example/d"])}));
    let sets = world.all::<PinnedImageSet>();
    sets.patch("base", &PatchParams::default(), &patch).await.unwrap();
    until_kept(&world, &[("base", 2, Some(2))]).await;
    assert_eq!(registry.pulled().len(), 3);
    assert!(
        !world.read(CRIO_DROP_IN).contains(&a),
        "no longer wanted, no longer kept"
    );
    assert_eq!(reloads(&world), 2);

    // A daemon that finds all images pinned does nothing.
    world.stop_daemon().await;
    world.start_daemon();
    name_sets(&world, &["base", "elsewhere"]).await;
    until_kept(&world, &[("base", 2, Some(2)), ("elsewhere", 1, Some(1))]).await;
    assert_eq!(registry.pulled().len(), 4);
    assert_eq!(reloads(&world), 3);

    name_sets(&world, &[]).await;
    until_kept(&world, &[]).await;
    assert!(!world.path(CRIO_DROP_IN).exists());
    assert_eq!(reloads(&world), 4);
    assert!(has(&world.annotations().await, annotation::STATE, "Done"));
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leftovers_of_sets_deleted_while_no_daemon_ran_are_removed() {
    let (mut world, _) = world().await;
    create_set(&world, "base", &["quay.example/a"]).await;
    name_sets(&world, &["base"]).await;
    until_kept(&world, &[("base", 1, Some(1))]).await;
    world.stop_daemon().await;
    name_sets(&world, &[]).await;
    delete_set(&world, "base").await;
    world.start_daemon();
    until_kept(&world, &[]).await;
    assert!(!world.path(CRIO_DROP_IN).exists());
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_made_again_under_its_old_name_begins_anew() {
    let (mut world, _) = world().await;
    create_set(&world, "base", &["quay.example/a"]).await;
    name_sets(&world, &["base"]).await;
    let patch = Patch::Merge(json!({"spec": pinned(&["quay.example/b"])}));
    let sets = world.all::<PinnedImageSet>();
    sets.patch("base", &PatchParams::default(), &patch).await.unwrap();
    until_kept(&world, &[("base", 2, Some(2))]).await;
    // The set is replaced while no daemon runs, and the pool keeps its reference.
    world.stop_daemon().await;
    delete_set(&world, "base").await;
    create_set(&world, "base", &["quay.example/c"]).await;
    world.start_daemon();
    until_kept(&world, &[("base", 1, Some(1))]).await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_without_a_runtime_says_so_and_its_config_goes_on() {
    let (mut world, registry) = world().await;
    registry.set_absent(Some("crictl is not installed"));
    create_set(&world, "base", &["quay.example/a"]).await;
    name_sets(&world, &["base"]).await;
    until_condition(
        &world,
        DEGRADED,
        "True",
        "no container runtime that supports pinned images: crictl is not installed",
    )
    .await;
    let failed = statuses(&world).await.remove(0);
    assert_eq!(
        (failed.desired_generation, failed.current_generation),
        (Some(1), None)
    );
    assert_eq!(failed.last_failed_generation, Some(1));
    assert!(failed.last_failed_generation_error.unwrap().contains("crictl"));
    let second = config("rendered-worker-2", &files(&[file("/etc/a", "2\n")]));
    world.publish_and_target(&second).await;
    world.until_done(&second).await;
    assert_eq!(world.progress().await["NodeDegraded"].0, "False");
    registry.set_absent(None);
    until_kept(&world, &[("base", 1, Some(1))]).await;
    until_condition(&world, DEGRADED, "False", "").await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_does_not_wait_for_a_pull() {
    let (mut world, registry) = world().await;
    registry.stall(true);
    create_set(&world, "base", &["quay.example/a"]).await;
    name_sets(&world, &["base"]).await;
    until_condition(&world, PROGRESSING, "True", "Pre-pulling 1 of 1 images").await;
    until_kept(&world, &[("base", 1, None)]).await;
    let second = config("rendered-worker-2", &files(&[file("/etc/a", "2\n")]));
    world.publish_and_target(&second).await;
    world.until_done(&second).await;
    assert_eq!(
        world.progress().await[PROGRESSING].0,
        "True",
        "an update resets nothing"
    );
    registry.stall(false);
    until_kept(&world, &[("base", 1, Some(1))]).await;
    until_condition(&world, PROGRESSING, "False", "").await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_ends_soon_though_a_pull_goes_on() {
    let (mut world, registry) = world().await;
    registry.stall(true);
    create_set(&world, "base", &["quay.example/a", "quay.example/b"]).await;
    name_sets(&world, &["base"]).await;
    world
        .eventually("pulling", async |_: &World| !registry.pulls().is_empty())
        .await;
    world.stop_daemon().await;
    registry.stall(false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_image_fails_its_own_set_only() {
    let (mut world, registry) = world().await;
    registry.refuse(&image("quay.example/bad"), Some("manifest unknown"));
    create_set(&world, "bad", &["quay.example/bad", "quay.example/b"]).await;
    create_set(&world, "good", &["quay.example/a"]).await;
    name_sets(&world, &["bad", "good"]).await;
    until_kept(&world, &[("bad", 1, None), ("good", 1, Some(1))]).await;
    until_condition(
        &world,
        DEGRADED,
        "True",
        "PinnedImageSet bad: image quay.example/bad@",
    )
    .await;
    let pins = world.read(CRIO_DROP_IN);
    assert!(
        pins.contains("quay.example/a@") && pins.contains("quay.example/b@"),
        "{pins}"
    );
    assert!(!pins.contains("quay.example/bad@"), "{pins}");
    registry.refuse(&image("quay.example/bad"), None);
    until_kept(&world, &[("bad", 1, Some(1)), ("good", 1, Some(1))]).await;
    until_condition(&world, DEGRADED, "False", "").await;
    assert!(world.read(CRIO_DROP_IN).contains("quay.example/bad@"));
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_wait_for_a_node_that_is_ready_and_has_room() {
    let (mut world, registry) = world_where("False", "20Gi").await;
    registry.set_size(4 << 30);
    create_set(&world, "base", &["quay.example/a"]).await;
    name_sets(&world, &["base"]).await;
    until_condition(&world, PROGRESSING, "True", "Waiting for the node to be Ready").await;
    assert_eq!(registry.pulled().len(), 0);
    node_says(&world, "True", "20Gi").await;
    until_condition(
        &world,
        DEGRADED,
        "True",
        "storage available is less than minimum required",
    )
    .await;
    assert_eq!(registry.pulled().len(), 0);
    node_says(&world, "True", "60Gi").await;
    until_kept(&world, &[("base", 1, Some(1))]).await;
    world.stop_daemon().await;
}
