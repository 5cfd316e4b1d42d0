//! OS images of a node in a cluster, against the double of rpm-ostree.

use std::fs;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::api::{Patch, PatchParams};
use mco_api::MachineConfigPool;
use mco_api::vocabulary::annotations::{STAGED_CONFIG, node as annotation};
use mco_api::vocabulary::taints;
use mco_daemon::agent::AgentOptions;
use mco_daemon::config::NodeConfig;
use mco_daemon::paths;
use mco_testkit::os_double::{OsDouble, OsTools};
use serde_json::{Value, json};

use crate::observability::{free_address, get};
use crate::support::{config_with, file, files};
use crate::world::{NODE, World, has};

pub const OLD: &str = "quay.io/openshift/os@sha256:aa11";
pub const NEW: &str = "quay.io/openshift/os@sha256:bb22";
const NEW_DIGEST: &str = "sha256:bb22";

pub fn rendered(number: u32, image: &str) -> NodeConfig {
    let body = files(&[file("/etc/a", &format!("{number}\n"))]);
    config_with(
        &format!("rendered-worker-{number}"),
        &body,
        &json!({"osImageURL": image}),
    )
}

/// A node that is up to date with its first config, and the doubles of its OS.
pub async fn world(options: AgentOptions) -> (World, OsDouble, tempfile::TempDir) {
    let first = rendered(1, OLD);
    let mut world = World::new(&first).await;
    let state = tempfile::tempdir().unwrap();
    let double = OsDouble::new(
        world.root.path(),
        state.path(),
        OsTools::RpmOstree,
        OLD,
        "sha256:aa11",
    );
    double.publish_digest(NEW, NEW_DIGEST);
    world.double = Some(double.clone());
    crate::install::install_config(&world.machine(), &first.object);
    world.start_daemon_with(options);
    world.until_done(&first).await;
    world.until_idle().await;
    (world, double, state)
}

async fn patch_status(world: &World, status: Value) {
    let nodes = world.all::<KubeNode>();
    let patch = Patch::Merge(json!({"status": status}));
    nodes
        .patch_status(NODE, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

fn drain_of(config: &NodeConfig) -> String {
    annotation::drain::drain(config.name())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_is_staged_before_the_drain_and_not_pulled_again_after_it() {
    let (mut world, double, _state) = world(AgentOptions::default()).await;
    let second = rendered(2, NEW);
    world.publish_and_target(&second).await;
    let drain = drain_of(&second);
    world
        .until_unanswered("the drain is requested", |now| {
            has(now, annotation::DESIRED_DRAIN, &drain)
        })
        .await;
    assert_eq!(double.fact("staged", "digest"), NEW_DIGEST);
    assert_eq!(world.read("/etc/a"), "1\n", "only the OS is staged");
    assert!(
        world.path("/run/ostree/staged-deployment-locked").exists(),
        "a shutdown must not boot it"
    );
    double.clear_log();
    world.until_done(&second).await;
    assert_eq!(double.fact("booted", "digest"), NEW_DIGEST);
    assert_eq!(world.read("/etc/a"), "2\n");
    let log = double.log();
    assert!(!log.iter().any(|line| line.contains(" rebase ")), "{log:#?}");
    assert!(
        log.contains(&"rpm-ostree cleanup -r".to_owned()),
        "the previous deployment is removed"
    );
    assert!(!world.path("/etc/systemd/system/mco-guard.service").exists());
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_cannot_be_used_fails_before_the_drain() {
    let (mut world, double, _state) = world(AgentOptions::default()).await;
    let second = rendered(2, "quay.io/openshift/none@sha256:ff");
    world.publish_and_target(&second).await;
    world.until_failing("Degraded", "manifest unknown").await;
    let now = world.annotations().await;
    assert!(
        !has(&now, annotation::DESIRED_DRAIN, &drain_of(&second)),
        "{now:#?}"
    );
    assert!(!double.has("staged"));
    assert_eq!(world.read("/etc/a"), "1\n");
    let third = rendered(3, NEW);
    world.publish_and_target(&third).await;
    world.until_done(&third).await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unhealthy_deployment_is_rolled_back_with_its_config_and_reported() {
    let options = AgentOptions {
        health_deadline: Duration::ZERO,
        ..AgentOptions::default()
    };
    let (mut world, double, _state) = world(options).await;
    let unready = json!([{"type": "Ready", "status": "False", "message": "CNI is missing"}]);
    patch_status(&world, json!({"conditions": unready})).await;
    let second = rendered(2, NEW);
    world.publish_and_target(&second).await;
    let because = "was rolled back: the node did not become healthy within 0 s after the boot of its new OS: the \
                   kubelet is not ready: CNI is missing";
    world.until_failing("Degraded", because).await;
    assert_eq!(double.fact("booted", "digest"), "sha256:aa11");
    assert_eq!(world.read("/etc/a"), "1\n");
    let uncordon = annotation::drain::uncordon(second.name());
    world
        .until("the node is uncordoned", |now| {
            has(now, annotation::LAST_APPLIED_DRAIN, &uncordon)
        })
        .await;
    let boots = double
        .log()
        .iter()
        .filter(|line| *line == "os-double boot")
        .count();
    assert_eq!(boots, 3, "into the new image, back, and again with the old files");
    let reasons = world.event_reasons().await;
    assert!(
        reasons.iter().any(|reason| reason == "OSRolledBack"),
        "{reasons:?}"
    );
    // The target is not attempted again, also by another process.
    world.stop_daemon().await;
    world.start_daemon();
    world.until_failing("Degraded", because).await;
    assert_eq!(double.fact("booted", "digest"), "sha256:aa11");
    // Another target is.
    patch_status(
        &world,
        json!({"conditions": [{"type": "Ready", "status": "True"}]}),
    )
    .await;
    let third = rendered(3, NEW);
    world.publish_and_target(&third).await;
    world.until_done(&third).await;
    assert!(!world.path(paths::ROLLED_BACK).exists());
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_deployment_waits_for_its_kubelet() {
    let (mut world, double, _state) = world(AgentOptions::default()).await;
    patch_status(
        &world,
        json!({"conditions": [{"type": "Ready", "status": "Unknown"}]}),
    )
    .await;
    let second = rendered(2, NEW);
    world.publish_and_target(&second).await;
    world
        .eventually("waiting for the kubelet", async |world: &World| {
            world.answer_request().await;
            let activity = mco_daemon::agent::read_activity(&world.machine().root).unwrap();
            activity.is_some_and(|activity| activity.doing.contains("become healthy"))
        })
        .await;
    assert!(
        double.has("rollback"),
        "the previous deployment is kept until then"
    );
    patch_status(
        &world,
        json!({"conditions": [{"type": "Ready", "status": "True"}]}),
    )
    .await;
    world.until_done(&second).await;
    assert!(!double.has("rollback"));
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_waits_for_its_turn_stages_the_next_image() {
    let (mut world, double, _state) = world(AgentOptions::default()).await;
    let second = rendered(2, NEW);
    world.create_config(&second).await;
    let pools = world.all::<MachineConfigPool>();
    let patch = Patch::Merge(json!({"spec": {"configuration": {"name": second.name()}}}));
    pools
        .patch("worker", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let taint = json!([{"key": taints::UPDATE_IN_PROGRESS, "effect": "PreferNoSchedule"}]);
    let nodes = world.all::<KubeNode>();
    let patch = Patch::Merge(json!({"spec": {"taints": taint}}));
    nodes.patch(NODE, &PatchParams::default(), &patch).await.unwrap();
    world
        .until_unanswered("the image is staged", |now| {
            has(now, STAGED_CONFIG, second.name())
        })
        .await;
    assert_eq!(double.fact("staged", "digest"), NEW_DIGEST);
    let now = world.annotations().await;
    assert!(
        has(&now, annotation::STATE, "Done") && !now.contains_key(annotation::DESIRED_DRAIN),
        "{now:#?}"
    );
    double.clear_log();
    world.target(&second).await;
    world.until_done(&second).await;
    assert!(
        !double.log().iter().any(|line| line.contains(" rebase ")),
        "{:#?}",
        double.log()
    );
    assert!(!world.annotations().await.contains_key(STAGED_CONFIG));
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_force_file_stages_an_image_that_does_not_run() {
    let (mut world, double, _state) = world(AgentOptions::default()).await;
    let second = rendered(2, NEW);
    world.publish_and_target(&second).await;
    world.until_done(&second).await;
    world.until_idle().await;
    // An administrator has rolled the machine back by hand.
    double.set_fact(
        "booted",
        "reference",
        &format!("ostree-unverified-registry:{OLD}\n"),
    );
    double.set_fact("booted", "digest", "sha256:aa11\n");
    world.write(paths::FORCE_FILE, "");
    world
        .eventually("the image runs again", async |world: &World| {
            world.answer_request().await;
            double.fact("booted", "digest") == NEW_DIGEST
        })
        .await;
    world.until_done(&second).await;
    world.until_idle().await;
    assert!(!world.path(paths::FORCE_FILE).exists());
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_finalization_is_annotated_and_ends_in_a_rollback() {
    let (mut world, double, _state) = world(AgentOptions::default()).await;
    double.write("boot-full", "");
    let second = rendered(2, NEW);
    world.publish_and_target(&second).await;
    world.until_failing("Degraded", "No space left on device").await;
    assert_eq!(world.read("/etc/a"), "1\n");
    let rebases = double
        .log()
        .iter()
        .filter(|line| line.contains(" rebase "))
        .count();
    assert_eq!(rebases, 3, "staged, and staged again twice");
    let texts = world.event_texts("FailedFinalization").await;
    assert!(
        texts.iter().any(|text| text.contains("No space left")),
        "{texts:?}"
    );
    // With space again, and another target or the force file, the node goes on.
    fs::remove_file(world.path(paths::ROLLED_BACK)).unwrap();
    double.remove("boot-full");
    world.until_done(&second).await;
    assert_eq!(double.fact("booted", "digest"), NEW_DIGEST);
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packages_that_no_config_has_layered_are_measured() {
    let first = rendered(1, OLD);
    let mut world = World::new(&first).await;
    let state = tempfile::tempdir().unwrap();
    let double = OsDouble::new(
        world.root.path(),
        state.path(),
        OsTools::RpmOstree,
        OLD,
        "sha256:aa11",
    );
    double.set_fact("booted", "packages", "usbguard\nhtop\n");
    world.double = Some(double);
    crate::install::install_config(&world.machine(), &first.object);
    let address = free_address().await;
    world.start_daemon_with(AgentOptions {
        listen: Some(address),
        ..AgentOptions::default()
    });
    world.until_done(&first).await;
    let metrics = get(address, "/metrics").await;
    assert!(
        metrics.contains("mcd_local_unsupported_packages{node=\"worker-1\"} 1"),
        "{metrics}"
    );
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_during_an_update_is_reported_at_once_and_the_step_completed() {
    let options = AgentOptions {
        grace: Duration::from_mins(10),
        ..AgentOptions::default()
    };
    let (mut world, double, _state) = world(options).await;
    double.write("block", "rpm-ostree rebase");
    let second = rendered(2, NEW);
    world.publish_and_target(&second).await;
    world
        .eventually("the pull has begun", async |_: &World| {
            double.log().iter().any(|line| line.contains(" rebase "))
        })
        .await;
    world.request_stop();
    world
        .eventually("the event", async |world: &World| {
            let reasons = world.event_reasons().await;
            reasons.iter().any(|reason| reason == "GotSigtermDuringUpdate")
        })
        .await;
    double.remove("block");
    world.stop_daemon().await;
    assert_eq!(
        double.fact("staged", "digest"),
        NEW_DIGEST,
        "the step was not cut off"
    );
    world.start_daemon();
    world.until_done(&second).await;
    world.stop_daemon().await;
}
