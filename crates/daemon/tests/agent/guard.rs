//! Configs with which a node is not healthy: reverted by the daemon while it runs, and by the guard without it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mco_api::vocabulary::annotations::{CONFIRM_DEADLINE, node as annotation};
use mco_daemon::agent::AgentOptions;
use mco_daemon::config::NodeConfig;
use mco_daemon::guard::{self, GuardEnd, GuardOptions, GuardTiming};
use mco_daemon::once;
use mco_daemon::paths;
use mco_daemon::transaction::read_journal;
use mco_testkit::os_double::{OsDouble, OsTools};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{config, config_with, file, files};
use crate::world::{World, has};

const UNIT: &str = "/etc/systemd/system/mco-guard.service";
/// A file whose change reboots, and one whose change restarts a service.
const FILE: &str = "/etc/a";
const LIVE_FILE: &str = "/etc/containers/policy.json";

fn rendered(number: u32, path: &str, text: &str) -> NodeConfig {
    config(&format!("rendered-worker-{number}"), &files(&[file(path, text)]))
}

/// A kubelet that is healthy unless the file on its machine has the word "broken". Returns its endpoint.
async fn kubelet(file: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let is_broken = fs::read_to_string(&file).is_ok_and(|text| text.contains("broken"));
            let response = if is_broken {
                "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
            } else {
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
            };
            let _ = stream.write_all(response.as_bytes()).await;
        }
    });
    format!("http://{address}/healthz")
}

/// A program that runs on the machine, in place of this one.
fn program(world: &World) -> PathBuf {
    let path = world.root.path().join("program");
    fs::write(&path, "#!/bin/sh\n").unwrap();
    path
}

async fn options(world: &World, file: &str, deadline: Duration) -> AgentOptions {
    AgentOptions {
        health_deadline: deadline,
        guard: Some(GuardOptions {
            program: program(world),
            kubelet: kubelet(world.path(file)).await,
            api_server: None,
        }),
        ..AgentOptions::default()
    }
}

/// A node that is up to date with its first config, whose kubelet depends on the file.
async fn world(path: &str, deadline: Duration) -> (World, NodeConfig, AgentOptions) {
    let first = rendered(1, path, "1\n");
    let mut world = World::installed(&first).await;
    let options = options(&world, path, deadline).await;
    world.start_daemon_with(options.clone());
    world.until_done(&first).await;
    world.until_idle().await;
    (world, first, options)
}

async fn reboots(world: &World) -> usize {
    let reasons = world.event_reasons().await;
    reasons.iter().filter(|reason| *reason == "Reboot").count()
}

const LONG: Duration = Duration::from_hours(1);

fn quick() -> GuardTiming {
    GuardTiming {
        interval: Duration::from_millis(10),
        stable: Duration::ZERO,
    }
}

/// Ends the deadline of the change that is not confirmed.
fn expire(world: &World) {
    let mut journal: Value = serde_json::from_str(&world.read(paths::JOURNAL)).unwrap();
    journal["health"]["deadlineSeconds"] = json!(0);
    world.write(paths::JOURNAL, &journal.to_string());
}

async fn watch(world: &World) -> GuardEnd {
    let watched = guard::watch(Arc::new(world.machine()), quick());
    let watched = tokio::time::timeout(crate::world::DEADLINE, watched).await;
    watched.expect("the guard ends").unwrap()
}

fn is_clean(world: &World) -> bool {
    ![UNIT, paths::GUARD_PROGRAM, paths::JOURNAL]
        .iter()
        .any(|path| world.path(path).exists())
}

async fn until_waiting_for_health(world: &World) {
    world
        .eventually("waiting for the kubelet", async |world: &World| {
            world.answer_request().await;
            let activity = mco_daemon::agent::read_activity(&world.machine().root).unwrap();
            activity.is_some_and(|activity| activity.doing.contains("become healthy"))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_with_which_the_node_is_healthy_leaves_nothing_behind() {
    for path in [FILE, LIVE_FILE] {
        let (mut world, _, _) = world(path, LONG).await;
        let second = rendered(2, path, "2\n");
        world.publish_and_target(&second).await;
        world.until_done(&second).await;
        assert_eq!(world.read(path), "2\n");
        assert!(is_clean(&world), "{path}");
        assert!(!world.path("/etc/systemd/system/sysinit.target.wants").exists());
        assert_eq!(watch(&world).await, GuardEnd::NotNeeded);
        world.stop_daemon().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_that_breaks_the_kubelet_is_reverted_with_one_boot_and_not_tried_again() {
    for (path, boots) in [(FILE, 2), (LIVE_FILE, 1)] {
        let (mut world, first, options) = world(path, Duration::ZERO).await;
        let broken = rendered(2, path, "broken\n");
        world.publish_and_target(&broken).await;
        let because = "Reverted: the update to rendered-worker-2 was rolled back: the node did not become healthy \
                       within 0 s";
        world.until_failing("Degraded", because).await;
        world
            .until_failing("Degraded", "the kubelet is not healthy at")
            .await;
        assert_eq!(world.read(path), "1\n");
        assert!(is_clean(&world), "{path}");
        assert_eq!(reboots(&world).await, boots, "{path}");
        let events = world.event_reasons().await;
        assert!(events.iter().any(|reason| reason == "Reverted"), "{events:?}");
        if path == FILE {
            let uncordon = annotation::drain::uncordon(broken.name());
            world
                .until("the drained node takes work again", |now| {
                    has(now, annotation::LAST_APPLIED_DRAIN, &uncordon)
                })
                .await;
        }
        // Neither another process nor the way back to the former config forgets it.
        world.stop_daemon().await;
        world.target(&first).await;
        world.start_daemon_with(options);
        world.until_done(&first).await;
        world.target(&broken).await;
        world.until_failing("Degraded", because).await;
        assert_eq!(reboots(&world).await, boots, "{path}");
        let third = rendered(3, path, "3\n");
        world.publish_and_target(&third).await;
        world.until_done(&third).await;
        assert!(!world.path(paths::ROLLED_BACK).exists());
        world.stop_daemon().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_daemon_the_guard_reverts_the_config_once() {
    for path in [FILE, LIVE_FILE] {
        let (mut world, _, options) = world(path, LONG).await;
        let broken = rendered(2, path, "broken\n");
        world.publish_and_target(&broken).await;
        until_waiting_for_health(&world).await;
        assert!(world.path(UNIT).exists());
        assert!(
            world
                .path("/etc/systemd/system/sysinit.target.wants/mco-guard.service")
                .is_symlink()
        );
        world.stop_daemon().await;
        let before = world.boot();
        expire(&world);
        let GuardEnd::Reverted { config, because } = watch(&world).await else {
            panic!("{path}: the guard must revert");
        };
        assert_eq!(config, broken.name());
        assert!(because.contains("the kubelet is not healthy"), "{because}");
        let after = world.boot();
        assert_ne!(before, after, "{path}: one boot");
        assert_eq!(world.read(path), "1\n");
        // Nothing is guarded any more, so nothing can be reverted again.
        assert_eq!(watch(&world).await, GuardEnd::NotNeeded);
        assert_eq!(world.boot(), after, "{path}: no further boot");
        world.start_daemon_with(options);
        world
            .until_failing(
                "Degraded",
                "Reverted: the update to rendered-worker-2 was rolled back",
            )
            .await;
        assert!(is_clean(&world), "{path}");
        assert_eq!(world.boot(), after);
        world.stop_daemon().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guard_leaves_a_healthy_node_and_one_with_a_running_daemon_alone() {
    let (mut world, _, _) = world(FILE, LONG).await;
    let broken = rendered(2, FILE, "broken\n");
    world.publish_and_target(&broken).await;
    until_waiting_for_health(&world).await;
    world.stop_daemon().await;
    expire(&world);
    let before = world.boot();
    let machine = world.machine();
    let daemon = once::lock(&machine).unwrap();
    let guarded = guard::watch(Arc::new(world.machine()), quick());
    let guarded = tokio::time::timeout(Duration::from_millis(500), guarded).await;
    assert!(guarded.is_err(), "a daemon that holds the lock reverts it itself");
    drop(daemon);
    world.write(FILE, "repaired\n");
    assert_eq!(watch(&world).await, GuardEnd::Healthy);
    assert_eq!(world.boot(), before);
    assert_eq!(world.read(FILE), "repaired\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollback_that_was_interrupted_is_completed_at_once() {
    let (mut world, _, _) = world(FILE, LONG).await;
    let broken = rendered(2, FILE, "broken\n");
    world.publish_and_target(&broken).await;
    until_waiting_for_health(&world).await;
    world.stop_daemon().await;
    let mut journal: Value = serde_json::from_str(&world.read(paths::JOURNAL)).unwrap();
    journal["phase"] = json!("rollingBack");
    journal["swapping_began"] = json!(true);
    journal["because"] = json!("power was cut");
    world.write(paths::JOURNAL, &journal.to_string());
    let reverted = GuardEnd::Reverted {
        config: broken.name().to_owned(),
        because: "power was cut".to_owned(),
    };
    assert_eq!(watch(&world).await, reverted);
    assert_eq!(world.read(FILE), "1\n");
    assert_eq!(watch(&world).await, GuardEnd::NotNeeded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deadline_of_the_node_applies_and_what_was_ill_before_is_not_required() {
    let (mut world, _, _) = world(FILE, LONG).await;
    world.annotate(CONFIRM_DEADLINE, "7m").await;
    let broken = rendered(2, FILE, "broken\n");
    world.publish_and_target(&broken).await;
    until_waiting_for_health(&world).await;
    let journal = read_journal(&world.machine().root).unwrap().unwrap();
    assert_eq!(journal.health.unwrap().deadline(), Duration::from_mins(7));
    world.stop_daemon().await;

    // A node whose kubelet is ill already is not made worse, and its repair must be possible.
    let first = rendered(1, FILE, "broken\n");
    let mut world = World::installed(&first).await;
    let options = options(&world, FILE, Duration::ZERO).await;
    world.start_daemon_with(options);
    world.until_done(&first).await;
    let second = rendered(2, FILE, "also broken\n");
    world.publish_and_target(&second).await;
    world.until_done(&second).await;
    assert!(is_clean(&world));
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_daemon_the_guard_rolls_a_new_os_back_with_its_config() {
    const OLD: &str = "quay.io/openshift/os@sha256:aa11";
    const NEW: &str = "quay.io/openshift/os@sha256:bb22";
    let rendered = |number: u32, text: &str, image: &str| {
        let name = format!("rendered-worker-{number}");
        config_with(&name, &files(&[file(FILE, text)]), &json!({"osImageURL": image}))
    };
    let first = rendered(1, "1\n", OLD);
    let mut world = World::new(&first).await;
    let state = tempfile::tempdir().unwrap();
    let double = OsDouble::new(
        world.root.path(),
        state.path(),
        OsTools::RpmOstree,
        OLD,
        "sha256:aa11",
    );
    double.publish_digest(NEW, "sha256:bb22");
    world.double = Some(double.clone());
    crate::install::install_config(&world.machine(), &first.object);
    let options = options(&world, FILE, LONG).await;
    world.start_daemon_with(options.clone());
    world.until_done(&first).await;
    world.until_idle().await;
    let broken = rendered(2, "broken\n", NEW);
    world.publish_and_target(&broken).await;
    until_waiting_for_health(&world).await;
    assert_eq!(double.fact("booted", "digest"), "sha256:bb22");
    world.stop_daemon().await;
    expire(&world);
    // Into the previous deployment, which has the new files too, ...
    assert!(matches!(watch(&world).await, GuardEnd::Reverted { .. }));
    assert_eq!(double.fact("booted", "digest"), "sha256:aa11");
    assert_eq!(world.read(FILE), "broken\n");
    // ... and whose guard rolls them back at once.
    assert!(matches!(watch(&world).await, GuardEnd::Reverted { .. }));
    assert_eq!(world.read(FILE), "1\n");
    let after = world.boot();
    assert_eq!(watch(&world).await, GuardEnd::NotNeeded);
    assert_eq!(world.boot(), after);
    world.start_daemon_with(options);
    world
        .until_failing(
            "Degraded",
            "Reverted: the update to rendered-worker-2 was rolled back",
        )
        .await;
    assert_eq!(double.fact("booted", "digest"), "sha256:aa11");
    assert!(is_clean(&world));
    world.stop_daemon().await;
}
