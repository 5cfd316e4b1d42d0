//! The conditions of a MachineConfigNode if the node fails, and if the object is created late.

use std::fs;
use std::sync::{Arc, Mutex};

use futures::TryStreamExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use mco_api::MachineConfigNode;
use mco_daemon::config::NodeConfig;

use crate::support::{config, file, files};
use crate::world::{NODE, World};

/// Records every status of `NodeDegraded` since the call, without repetitions.
fn follow_node_degraded(world: &World) -> Arc<Mutex<Vec<String>>> {
    let only = watcher::Config::default().fields(&format!("metadata.name={NODE}"));
    let events = watcher(world.all::<MachineConfigNode>(), only).applied_objects();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&seen);
    tokio::spawn(events.try_for_each(move |node| {
        let conditions = node.status.unwrap_or_default().conditions;
        let degraded = conditions.into_iter().find(|one| one.type_ == "NodeDegraded");
        if let Some(status) = degraded.map(|one| one.status) {
            let mut all = all.lock().unwrap();
            if all.last() != Some(&status) {
                all.push(status);
            }
        }
        futures::future::ok(())
    }));
    seen
}

fn first() -> NodeConfig {
    config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]))
}

/// A config with a file where the machine has a directory.
fn blocked() -> NodeConfig {
    let entries = [file("/etc/a", "2\n"), file("/etc/blocked", "2\n")];
    config("rendered-worker-2", &files(&entries))
}

async fn idle_world() -> (World, NodeConfig) {
    let first = first();
    let mut world = World::installed(&first).await;
    world.start_daemon();
    world.until_done(&first).await;
    world.until_idle().await;
    (world, first)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_degraded_does_not_return_to_false_when_a_failing_update_is_tried_again() {
    let (mut world, _) = idle_world().await;
    world.until_condition("Updated", "True").await;
    let statuses = follow_node_degraded(&world);
    fs::create_dir(world.path("/etc/blocked")).unwrap();
    let second = blocked();
    world.publish_and_target(&second).await;
    world.until_failing("Degraded", "/etc/blocked").await;
    for _ in 0..2 {
        let attempts = world.watches_started().await;
        world.until_watching_again(attempts).await;
        let (status, message) = world.progress().await["NodeDegraded"].clone();
        assert_eq!(status, "True", "{message}");
        assert!(
            message.starts_with("Node worker-1 upgrade failure. /etc/blocked exists"),
            "{message}"
        );
    }
    world.stop_daemon().await;
    let attempts = world.watches_started().await;
    world.start_daemon();
    world.until_watching_again(attempts).await;
    assert_eq!(
        world.progress().await["NodeDegraded"].0,
        "True",
        "after a restart"
    );
    assert_eq!(
        *statuses.lock().unwrap(),
        ["False", "True"],
        "and never anything else"
    );

    fs::remove_dir(world.path("/etc/blocked")).unwrap();
    world.until_done(&second).await;
    world.until_condition("NodeDegraded", "False").await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_config_node_created_after_the_daemon_started_does_not_stay_without_status() {
    let first = first();
    let mut world = World::installed(&first).await;
    world.delete_machine_config_node().await;
    world.start_daemon();
    world.until_done(&first).await;
    world.until_idle().await;
    world.create_machine_config_node(&first).await;
    world.until_condition("Updated", "True").await;
    let object = world.all::<MachineConfigNode>().get(NODE).await.unwrap();
    let version = object.status.unwrap_or_default().config_version.unwrap();
    assert_eq!(
        (version.current.as_str(), version.desired.as_str()),
        (first.name(), first.name())
    );

    let second = config("rendered-worker-2", &files(&[file("/etc/a", "2\n")]));
    world.publish_and_target(&second).await;
    world.until_waiting_for("drain-rendered-worker-2").await;
    world.delete_machine_config_node().await;
    world.create_machine_config_node(&second).await;
    world.until_condition("UpdatePrepared", "True").await;
    assert_eq!(world.progress().await["Updated"].0, "False");
    world.until_done(&second).await;
    world.until_condition("Updated", "True").await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_config_node_created_while_the_node_is_degraded_says_so() {
    let (mut world, first) = idle_world().await;
    world.write("/etc/a", "edited");
    world.until_failing("Degraded", "unexpected on-disk state").await;
    world.delete_machine_config_node().await;
    world.create_machine_config_node(&first).await;
    world.until_condition("NodeDegraded", "True").await;
    let message = world.progress().await["NodeDegraded"].1.clone();
    assert!(
        message.contains("content mismatch for file \"/etc/a\""),
        "{message}"
    );
    world.write("/etc/a", "1\n");
    world.until_done(&first).await;
    world.until_condition("NodeDegraded", "False").await;
    world.stop_daemon().await;
}
