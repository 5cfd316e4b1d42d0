//! From the first start to updates with and without a reboot, and across restarts of the daemon.

use mco_api::vocabulary::annotations::node as annotation;
use mco_daemon::paths;
use mco_host::os::OperatingSystem as _;
use mco_host::os::SimulatedOs;
use serde_json::json;

use crate::install;
use crate::support::{self, config, config_with, file, files};
use crate::world::{World, has};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_introduces_itself_and_is_not_disturbed() {
    let first = config_with(
        "rendered-worker-1",
        &files(&[file("/etc/a", "1\n")]),
        &json!({"osImageURL": "registry.example/os@sha256:1", "kernelArguments": ["nosmt"], "extensions": ["usbguard"]}),
    );
    let mut world = World::installed(&first).await;
    let boot = world.boot();
    world.start_daemon();
    world.until_done(&first).await;
    world.until_idle().await;
    let now = world.annotations().await;
    assert!(has(&now, annotation::FIRST_PIVOT_CONFIG, first.name()));
    assert!(has(&now, annotation::DESIRED_CONFIG, first.name()));
    assert_eq!(now.get(annotation::DESIRED_DRAIN), None, "no drain was requested");
    assert_eq!(world.boot(), boot, "the first boot was complete before");
    assert!(!world.path(paths::NODE_ANNOTATIONS).exists());
    assert!(world.path(paths::NODE_ANNOTATIONS_DONE).exists());
    assert!(world.path(paths::ENCAPSULATED_DONE).exists());
    // The first boot stored an incomplete config; now it is complete.
    let stored = mco_daemon::disk::current_config(&world.machine().root).unwrap();
    assert_eq!(
        stored.map(|config| config.object.spec.clone()),
        Some(first.object.spec.clone())
    );
    let state = SimulatedOs.state(&world.machine().root).unwrap();
    assert_eq!(state.image.as_deref(), Some("registry.example/os@sha256:1"));
    assert_eq!(state.kernel_arguments, ["nosmt"]);
    assert_eq!(state.packages, ["usbguard"]);
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_boot_only_when_they_must_and_say_so() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let second = config("rendered-worker-2", &files(&[file("/etc/a", "2\n")]));
    let covered = config(
        "rendered-worker-3",
        &files(&[file("/etc/a", "2\n"), file("/etc/containers/policy.json", "{}")]),
    );
    let mut world = World::installed(&first).await;
    world.start_daemon();
    world.until_done(&first).await;

    // A file without a policy: drained, applied, rebooted, validated, uncordoned.
    let before = world.boot();
    world.publish_and_target(&second).await;
    world.until_done(&second).await;
    let now = world.annotations().await;
    assert_eq!(world.read("/etc/a"), "2\n");
    assert_ne!(world.boot(), before, "the change needs a boot");
    assert!(has(
        &now,
        annotation::LAST_APPLIED_DRAIN,
        "uncordon-rendered-worker-2"
    ));
    assert!(has(&now, annotation::REASON, ""));
    assert!(has(&now, annotation::POST_CONFIG_ACTION, ""));

    // A file with a policy: the service is reloaded, without reboot or drain.
    let before = world.boot();
    world.publish_and_target(&covered).await;
    world.until_done(&covered).await;
    assert_eq!(world.boot(), before);
    let reported: Vec<String> = world
        .services
        .performed()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(reported, ["reload crio.service"]);
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_the_other_implementation_is_taken_over_without_a_boot() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let mut world = World::new(&first).await;
    world.write("/etc/a", "1\n");
    world.write(
        paths::CURRENT_CONFIG,
        &serde_json::to_string(&*first.object).unwrap(),
    );
    world.write(paths::CURRENT_IMAGE, "");
    world.write(paths::NODE_ANNOTATIONS_DONE, "{}");
    for (key, value) in [
        (annotation::CURRENT_CONFIG, first.name()),
        (annotation::DESIRED_CONFIG, first.name()),
        (annotation::STATE, "Done"),
    ] {
        world.annotate(key, value).await;
    }
    let before = support::snapshot(world.root.path());
    let annotations = world.annotations().await;
    world.start_daemon();
    world.until_idle().await;
    assert_eq!(world.annotations().await, annotations, "nothing was to be said");
    assert_eq!(
        support::snapshot(world.root.path()),
        before,
        "nothing was to be done"
    );
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_boot_that_the_other_implementation_asked_for_is_acknowledged() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let mut world = World::new(&first).await;
    world.write("/etc/a", "1\n");
    world.write(
        paths::CURRENT_CONFIG,
        &serde_json::to_string(&*first.object).unwrap(),
    );
    for (key, value) in [
        (annotation::CURRENT_CONFIG, "rendered-worker-0"),
        (annotation::DESIRED_CONFIG, first.name()),
        (annotation::STATE, "Working"),
        (annotation::DESIRED_DRAIN, "drain-rendered-worker-1"),
        (annotation::LAST_APPLIED_DRAIN, "drain-rendered-worker-1"),
        (annotation::POST_CONFIG_ACTION, annotation::REBOOTING),
    ] {
        world.annotate(key, value).await;
    }
    let boot = world.boot();
    world.start_daemon();
    world.until_done(&first).await;
    assert!(has(
        &world.annotations().await,
        annotation::POST_CONFIG_ACTION,
        ""
    ));
    assert_eq!(world.boot(), boot);
    world.stop_daemon().await;
}

/// The documented difference was only written where no copy was on the disk, which never happens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_machine_records_how_its_config_differs_from_the_clusters() {
    let installed = config("rendered-worker-0", &files(&[file("/etc/a", "0\n")]));
    let rendered = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let mut world = World::new(&rendered).await;
    install::install_config(&world.machine(), &installed.object);
    world.start_daemon();
    world.until_done(&installed).await;
    // The Node is Done from its first annotations on, before the configs are compared.
    world
        .eventually("the difference is recorded", async |world| {
            world.path(paths::BOOTSTRAP_DIFF).exists()
        })
        .await;
    assert!(world.read(paths::BOOTSTRAP_DIFF).contains("/etc/a"));
    world.target(&rendered).await;
    world.until_done(&rendered).await;
    assert_eq!(world.read("/etc/a"), "1\n");
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_that_has_vanished_is_taken_from_the_disk() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let second = config("rendered-worker-2", &files(&[file("/etc/a", "2\n")]));
    let mut world = World::installed(&first).await;
    world
        .all::<mco_api::MachineConfig>()
        .delete(first.name(), &kube::api::DeleteParams::default())
        .await
        .unwrap();
    world.start_daemon();
    world.until_idle().await;
    world.publish_and_target(&second).await;
    world.until_done(&second).await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_was_stopped_before_the_boot_goes_on_with_it() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let second = config("rendered-worker-2", &files(&[file("/etc/a", "2\n")]));
    let mut world = World::installed(&first).await;
    world.start_daemon();
    world.until_done(&first).await;
    world.create_config(&second).await;
    world.stop_daemon().await;

    // Another process applies the config and exits before the machine reboots.
    let outcome = mco_daemon::once::apply(
        &world.machine(),
        &second,
        mco_daemon::once::RebootPolicy::Never,
        &mco_daemon::transaction::Uninterrupted,
    );
    assert!(matches!(
        outcome,
        Ok(mco_daemon::once::OnceOutcome::NeedsReboot { .. })
    ));
    world.target(&second).await;
    let boot = world.boot();
    world.start_daemon();
    world.until_done(&second).await;
    assert_ne!(world.boot(), boot, "Done before the boot would be a lie");
    world.stop_daemon().await;
}
