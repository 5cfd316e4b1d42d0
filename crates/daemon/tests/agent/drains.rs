//! Drain and uncordon requests to the controller.

use mco_api::vocabulary::annotations::node as annotation;
use mco_api::vocabulary::topology;
use serde_json::json;

use crate::support::{config, file, files};
use crate::world::{World, has};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_changes_before_the_node_is_drained_and_done_comes_after_work_may_come_back() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let second = config("rendered-worker-2", &files(&[file("/etc/a", "2\n")]));
    let mut world = World::installed(&first).await;
    world.start_daemon();
    world.until_done(&first).await;
    let boot = world.boot();

    world.publish_and_target(&second).await;
    world
        .until_unanswered("the drain is asked for", |now| {
            has(now, annotation::DESIRED_DRAIN, "drain-rendered-worker-2")
        })
        .await;
    // The request survives a restart of the daemon.
    world.stop_daemon().await;
    world.start_daemon();
    world.until_waiting_for("drain-rendered-worker-2").await;
    let now = world.annotations().await;
    assert!(has(&now, annotation::STATE, "Working"));
    assert_eq!(world.read("/etc/a"), "1\n");
    assert_eq!(world.boot(), boot);

    world.answer_request().await;
    world
        .until_unanswered("work may come back", |now| {
            has(now, annotation::DESIRED_DRAIN, "uncordon-rendered-worker-2")
        })
        .await;
    world.until_waiting_for("uncordon-rendered-worker-2").await;
    let now = world.annotations().await;
    assert_eq!(world.read("/etc/a"), "2\n");
    assert!(has(&now, annotation::STATE, "Working"), "not Done yet");
    assert!(has(&now, annotation::CURRENT_CONFIG, first.name()));

    world.until_done(&second).await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_the_whole_control_plane_is_not_drained() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let second = config("rendered-worker-2", &files(&[file("/etc/a", "2\n")]));
    let mut world = World::installed(&first).await;
    world
        .annotate(annotation::CONTROL_PLANE_TOPOLOGY, topology::SINGLE_REPLICA)
        .await;
    world.label("node-role.kubernetes.io/control-plane", "").await;
    world.start_daemon();
    world.until_done(&first).await;
    world.publish_and_target(&second).await;
    world
        .until_unanswered("updated without a drain", |now| {
            has(now, annotation::DESIRED_DRAIN, "uncordon-rendered-worker-2")
        })
        .await;
    assert_eq!(world.read("/etc/a"), "2\n");
    world.until_done(&second).await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_taken_back_while_draining_is_given_up() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let second = config("rendered-worker-2", &files(&[file("/etc/a", "2\n")]));
    let mut world = World::installed(&first).await;
    world.start_daemon();
    world.until_done(&first).await;
    let boot = world.boot();
    world.publish_and_target(&second).await;
    world.until_waiting_for("drain-rendered-worker-2").await;
    world.target(&first).await;
    world.until_waiting_for("uncordon-rendered-worker-1").await;
    world.until_done(&first).await;
    assert_eq!(world.read("/etc/a"), "1\n");
    assert_eq!(world.boot(), boot);
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_that_takes_an_hour_is_a_failure_that_ends_with_the_drain() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let second = config("rendered-worker-2", &files(&[file("/etc/a", "2\n")]));
    let mut world = World::installed(&first).await;
    world.start_daemon();
    world.until_done(&first).await;
    world.publish_and_target(&second).await;
    world.until_waiting_for("drain-rendered-worker-2").await;
    world.stop_daemon().await;
    // The activity record carries the start time across a restart.
    world.age_activity("2020-01-01T00:00:00Z");
    world.start_daemon();
    world
        .until_unanswered("too long", |now| {
            has(now, annotation::STATE, "Degraded")
                && now[annotation::REASON]
                    == "failed to drain node: worker-1 after 1 hour. Please see machine-config-controller logs for more information"
        })
        .await;
    // The reason names pod and budget as soon as the controller reports them, and follows later changes.
    for obstacle in [
        "pod shop/db-0 (budget shop/db allows 0 disruptions)",
        "pod shop/web (budget shop/web allows 0 disruptions)",
    ] {
        let record = json!({
            "request": "drain-rendered-worker-2", "since": "2020-01-01T00:00:00Z", "cordon": "made", "waitingFor": obstacle,
        });
        world
            .annotate(annotation::DRAIN_RECORD, &record.to_string())
            .await;
        world
            .until_unanswered(obstacle, |now| {
                now[annotation::REASON].starts_with("failed to drain node: worker-1 after 1 hour.")
                    && now[annotation::REASON].ends_with(&format!("; the drain waits for {obstacle}"))
            })
            .await;
    }
    world.until_done(&second).await;
    world.stop_daemon().await;
}
