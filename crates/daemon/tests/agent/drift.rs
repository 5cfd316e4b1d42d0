//! Drift of files on a node, per drift policy.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use mco_api::MachineConfigPool;
use mco_api::vocabulary::annotations::DRIFT_POLICY;
use mco_api::vocabulary::annotations::node as annotation;
use mco_daemon::config::NodeConfig;
use mco_daemon::paths;
use serde_json::json;

use crate::log;
use crate::support::{config, file, files};
use crate::world::{World, has};

async fn idle_world() -> (World, NodeConfig) {
    let first = config(
        "rendered-worker-1",
        &files(&[file("/etc/a", "1\n"), file("/etc/b", "1\n")]),
    );
    let mut world = World::installed(&first).await;
    world.start_daemon();
    world.until_done(&first).await;
    world.until_idle().await;
    (world, first)
}

/// Reported as drift before an update, although there was none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_that_a_starting_daemon_finds_has_an_event_of_its_own() {
    let (mut world, first) = idle_world().await;
    world.stop_daemon().await;
    world.write("/etc/a", "edited while no daemon was running\n");
    world.start_daemon();
    world
        .eventually("the event", async |world: &World| {
            let texts = world.event_texts("OnDiskStateValidationFailed").await;
            texts
                .iter()
                .any(|text| text.contains("content mismatch for file \"/etc/a\""))
        })
        .await;
    world
        .until_failing(
            "Degraded",
            "unexpected on-disk state validating against rendered-worker-1",
        )
        .await;
    world.write("/etc/a", "1\n");
    world.until_done(&first).await;
    world.stop_daemon().await;
}

async fn set_pool_policy(world: &World, policy: &str) {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {DRIFT_POLICY: policy}}}));
    world
        .all::<MachineConfigPool>()
        .patch("worker", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edited_file_degrades_the_node_and_putting_it_back_clears_that() {
    let (mut world, first) = idle_world().await;
    let boot = world.boot();
    world.write("/etc/a", "edited\n");
    world
        .until_failing("Degraded", "content mismatch for file \"/etc/a\"")
        .await;
    // The next validation names the config it was made against.
    world
        .until_failing(
            "Degraded",
            "unexpected on-disk state validating against rendered-worker-1: content mismatch for file \"/etc/a\"",
        )
        .await;
    assert_eq!(world.read("/etc/a"), "edited\n", "nothing is overwritten");
    world.write("/etc/a", "1\n");
    world.until_done(&first).await;
    assert_eq!(world.boot(), boot);
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_edited_files_both_must_be_right_again() {
    let (mut world, first) = idle_world().await;
    world.write("/etc/a", "edited\n");
    world.write("/etc/b", "edited\n");
    world
        .until_failing("Degraded", "content mismatch for file \"/etc/a\" (and 1 more)")
        .await;
    world.write("/etc/a", "1\n");
    world
        .until_failing(
            "Degraded",
            "against rendered-worker-1: content mismatch for file \"/etc/b\"",
        )
        .await;
    world.write("/etc/b", "1\n");
    world.until_done(&first).await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_of_a_drifted_node_waits_for_its_repair() {
    let (mut world, _) = idle_world().await;
    let second = config(
        "rendered-worker-2",
        &files(&[file("/etc/a", "2\n"), file("/etc/b", "1\n")]),
    );
    world.write("/etc/b", "edited\n");
    world.until_failing("Degraded", "/etc/b").await;
    world.publish_and_target(&second).await;
    world
        .until_failing("Degraded", "validating against rendered-worker-1")
        .await;
    assert_eq!(world.read("/etc/a"), "1\n");
    world.write("/etc/b", "1\n");
    world.until_done(&second).await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_force_file_overwrites_drains_and_boots() {
    let (mut world, first) = idle_world().await;
    world.write("/etc/a", "edited\n");
    world.until_failing("Degraded", "validating against").await;
    let boot = world.boot();
    world.write(paths::FORCE_FILE, "");
    world
        .until("drained", |now| {
            has(now, annotation::LAST_APPLIED_DRAIN, "drain-rendered-worker-1")
                || has(now, annotation::LAST_APPLIED_DRAIN, "uncordon-rendered-worker-1")
        })
        .await;
    world.until_done(&first).await;
    assert_eq!(world.read("/etc/a"), "1\n");
    assert_ne!(world.boot(), boot);
    assert!(!world.path(paths::FORCE_FILE).exists());
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_heals_puts_files_back_a_bounded_number_of_times() {
    let (mut world, _) = idle_world().await;
    set_pool_policy(&world, "heal").await;
    world.until_watching_again(0).await;
    for _ in 0..3 {
        let watches = world.watches_started().await;
        world.write("/etc/a", "edited\n");
        world
            .eventually("put back", async |world: &World| world.read("/etc/a") == "1\n")
            .await;
        assert!(has(&world.annotations().await, annotation::STATE, "Done"));
        world.until_watching_again(watches).await;
    }
    world.write("/etc/a", "edited\n");
    world.until_failing("Degraded", "/etc/a").await;
    assert!(
        world
            .event_reasons()
            .await
            .contains(&"ConfigDriftDetected".to_owned())
    );
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_ignores_drift_overwrites_it_with_the_next_update() {
    let (mut world, _) = idle_world().await;
    set_pool_policy(&world, "ignore").await;
    world.write("/etc/a", "edited\n");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(has(&world.annotations().await, annotation::STATE, "Done"));
    let second = config(
        "rendered-worker-2",
        &files(&[file("/etc/a", "2\n"), file("/etc/b", "1\n")]),
    );
    world.publish_and_target(&second).await;
    world.until_done(&second).await;
    assert_eq!(world.read("/etc/a"), "2\n");
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_at_run_time_and_the_monitor_are_in_the_log_and_not_only_events() {
    log::start();
    let mut secret = file("/etc/logged-secret", "old-s3cret\n");
    secret["mode"] = json!(0o600);
    let mut body = files(&[secret, file("/etc/logged-mode", "1\n")]);
    body["systemd"] =
        json!({"units": [{"name": "logged.service", "contents": "[Service]\nExecStart=/bin/true\n"}]});
    let first = config("rendered-worker-logged", &body);
    let mut world = World::installed(&first).await;
    world.start_daemon();
    world.until_done(&first).await;
    world.until_idle().await;
    assert!(log::count("Config Drift Monitor started, watching against rendered-worker-logged") > 0);

    let unit = "/etc/systemd/system/logged.service";
    for (path, drift, repair, cause) in [
        (
            "/etc/logged-secret",
            Box::new(|world: &World| world.write("/etc/logged-secret", "new-s3cret")) as Box<dyn Fn(&World)>,
            Box::new(|world: &World| world.write("/etc/logged-secret", "old-s3cret\n"))
                as Box<dyn Fn(&World)>,
            "content mismatch for file \"/etc/logged-secret\" (expected 11 bytes, found 10 bytes)",
        ),
        (
            "/etc/logged-mode",
            Box::new(|world: &World| set_mode(world, "/etc/logged-mode", 0o600)),
            Box::new(|world: &World| set_mode(world, "/etc/logged-mode", 0o644)),
            "mode mismatch for file: \"/etc/logged-mode\"; expected: -rw-r--r--/420/0644; received: -rw-------/384/0600",
        ),
        (
            unit,
            Box::new(move |world: &World| world.write(unit, "[Service]\n")),
            Box::new(move |world: &World| world.write(unit, "[Service]\nExecStart=/bin/true\n")),
            "content mismatch for file \"/etc/systemd/system/logged.service\" (expected 30 bytes, found 10 bytes)",
        ),
    ] {
        world.until_idle().await;
        drift(&world);
        world.until_failing("Degraded", path).await;
        let logged = format!("Config drift detected: {cause}");
        world
            .eventually(&logged, async |_: &World| log::count(&logged) > 0)
            .await;
        repair(&world);
        world.until_done(&first).await;
    }
    world.stop_daemon().await;
    assert!(log::count("Config Drift Monitor has shut down") > 0);
    assert!(!log::text().contains("s3cret"), "contents are not logged");
}

fn set_mode(world: &World, path: &str, mode: u32) {
    fs::set_permissions(world.path(path), fs::Permissions::from_mode(mode)).unwrap();
}
