//! Updates that fail and whose rollback fails as well.

use std::fs;

use mco_api::vocabulary::annotations::node as annotation;
use mco_daemon::config::NodeConfig;
use mco_daemon::paths;
use serde_json::json;

use crate::support::{self, Breakage, BrokenOs, config_with, file, files};
use crate::world::{World, has};

fn rendered(number: u32, arguments: &[&str]) -> NodeConfig {
    let entries = [
        file("/etc/a", &format!("{number}\n")),
        file(&format!("/etc/only-{number}"), "x"),
    ];
    let spec = json!({"kernelArguments": arguments});
    config_with(&format!("rendered-worker-{number}"), &files(&entries), &spec)
}

async fn idle_world(first: &NodeConfig) -> (World, BrokenOs) {
    let os = BrokenOs::default();
    let mut world = World::new(first).await;
    world.broken_os = Some(os.clone());
    crate::install::install_config(&world.machine(), &first.object);
    world.start_daemon();
    world.until_done(first).await;
    world.until_idle().await;
    (world, os)
}

fn assert_nothing_is_left(world: &World) {
    assert_eq!(support::leftovers(world.root.path()), [""; 0]);
    assert!(!world.path(paths::JOURNAL).exists(), "a journal is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_tool_leaves_neither_staged_files_nor_a_journal_that_degrades_the_next_start() {
    let (first, second) = (rendered(1, &[]), rendered(2, &["nosmt"]));
    let (mut world, os) = idle_world(&first).await;
    os.set(Breakage {
        missing: true,
        ..Breakage::default()
    });
    world.publish_and_target(&second).await;
    world.until_failing("Degraded", "grubby is not installed").await;
    for _ in 0..2 {
        let attempts = world.watches_started().await;
        world.until_watching_again(attempts).await;
    }
    // Between two attempts, or during one, which then ends before the daemon does.
    world.stop_daemon().await;
    assert_nothing_is_left(&world);
    assert_eq!(world.read("/etc/a"), "1\n");
    world.target(&first).await;
    world.start_daemon();
    world.until_done(&first).await;
    world.until_idle().await;
    world.stop_daemon().await;
    world.start_daemon();
    world.until_idle().await;
    assert!(has(&world.annotations().await, annotation::STATE, "Done"));
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_not_done_while_a_failed_rollback_is_pending() {
    let (first, second) = (rendered(1, &[]), rendered(2, &["nosmt"]));
    let (mut world, os) = idle_world(&first).await;
    let obstacle = world.path("/etc/only-2");
    os.set(Breakage {
        discard_fails: true,
        obstacle: Some(obstacle.clone()),
        ..Breakage::default()
    });
    world.publish_and_target(&second).await;
    world
        .until_failing("Degraded", "error rolling back files writes: [grubby failed")
        .await;
    assert_eq!(
        world.read("/etc/a"),
        "1\n",
        "the files were brought back all the same"
    );
    assert_eq!(support::leftovers(world.root.path()), [""; 0]);
    fs::remove_dir(&obstacle).unwrap();

    world.target(&first).await;
    let attempts = world.watches_started().await;
    world.until_activity_fails("while recovering").await;
    world.stop_daemon().await;
    world.start_daemon();
    world.until_watching_again(attempts).await;
    assert!(world.path(paths::JOURNAL).exists());
    assert!(has(&world.annotations().await, annotation::STATE, "Degraded"));

    os.set(Breakage::default());
    world.until_done(&first).await;
    assert_nothing_is_left(&world);
    world.stop_daemon().await;
    world.start_daemon();
    world.until_idle().await;
    world.stop_daemon().await;
}
