//! Keys and passwords of users that may be missing on the machine.

use std::fs;

use mco_api::vocabulary::annotations::node as annotation;
use mco_daemon::config::NodeConfig;
use mco_daemon::paths;
use serde_json::json;

use crate::support::{PASSWD, config, file, files};
use crate::world::World;

/// A config whose file needs a drain and a reboot, with or without a key.
fn rendered(number: u32, key: Option<&str>) -> NodeConfig {
    let mut body = files(&[file("/etc/a", &format!("{number}\n"))]);
    if let Some(key) = key {
        body["passwd"] = json!({"users": [{"name": "core", "sshAuthorizedKeys": [key]}]});
    }
    config(&format!("rendered-worker-{number}"), &body)
}

fn remove_core(world: &World) {
    world.write("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_for_a_missing_user_are_not_skipped_but_refused_before_the_drain() {
    let first = rendered(1, None);
    let second = rendered(2, Some("ssh-ed25519 A"));
    let mut world = World::installed(&first).await;
    remove_core(&world);
    world.start_daemon();
    world.until_done(&first).await;
    let boot = world.boot();
    world.publish_and_target(&second).await;
    world
        .until_failing(
            "Degraded",
            "user \"core\": this machine has no such user. Create it",
        )
        .await;
    let annotations = world.annotations().await;
    let request = annotations.get(annotation::DESIRED_DRAIN);
    assert!(
        !request.is_some_and(|request| request.starts_with("drain-")),
        "no drain was requested: {request:?}"
    );
    assert_eq!(world.read("/etc/a"), "1\n", "nothing was changed");
    assert_eq!(world.boot(), boot);

    world.write("/etc/passwd", PASSWD);
    world.until_done(&second).await;
    assert_eq!(world.read(paths::AUTHORIZED_KEYS), "ssh-ed25519 A\n");
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_already_has_keys_for_a_missing_user_still_gets_other_updates() {
    let first = rendered(1, Some("ssh-ed25519 A"));
    let second = rendered(2, Some("ssh-ed25519 A"));
    let third = rendered(3, Some("ssh-ed25519 B"));
    let mut world = World::new(&first).await;
    remove_core(&world);
    fs::remove_dir(world.path("/home/core")).unwrap();
    crate::install::install_config(&world.machine(), &first.object);
    world.start_daemon();
    world.until_done(&first).await;
    world.stop_daemon().await;
    world.start_daemon();
    world.until_idle().await;
    world.publish_and_target(&second).await;
    world.until_done(&second).await;
    world.publish_and_target(&third).await;
    world
        .until_failing("Degraded", "this machine has no such user")
        .await;
    world.target(&second).await;
    world.until_done(&second).await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_go_to_the_user_that_the_pool_names_beside_its_own() {
    let for_ubuntu = |number: u32, key: Option<&str>| {
        let mut config = rendered(number, key);
        let annotations = [("mco.dev/ssh-user".to_owned(), "ubuntu".to_owned())];
        config.object_mut().metadata.annotations = Some(annotations.into());
        config
    };
    let (first, second) = (rendered(1, None), for_ubuntu(2, Some("ssh-ed25519 A")));
    let mut world = World::installed(&first).await;
    world.start_daemon();
    world.until_done(&first).await;
    world.publish_and_target(&second).await;
    world
        .until_failing("Degraded", "user \"ubuntu\": this machine has no such user")
        .await;
    assert_eq!(world.read("/etc/a"), "1\n", "refused before the drain");
    world.write("/home/ubuntu/.ssh/authorized_keys", "ssh-rsa CLOUD me\n");
    world.write(
        "/etc/passwd",
        &format!("{PASSWD}ubuntu:x:1001:1001::/home/ubuntu:/bin/bash\n"),
    );
    world.until_done(&second).await;
    let keys = world.read("/home/ubuntu/.ssh/authorized_keys");
    assert!(
        keys.contains("ssh-ed25519 A\n") && keys.ends_with("ssh-rsa CLOUD me\n"),
        "{keys}"
    );
    assert!(!world.path(paths::AUTHORIZED_KEYS).exists());
    world.stop_daemon().await;
}
