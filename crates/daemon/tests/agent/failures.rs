//! Updates that fail, and how they recover.

use kube::api::{Patch, PatchParams};
use mco_api::vocabulary::annotations::node as annotation;
use mco_api::{MachineConfigNode, MachineConfiguration};
use serde_json::json;

use crate::support::{config, file, files};
use crate::world::{NODE, World, has};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_without_a_way_is_unreconcilable_and_another_target_repairs_it() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let mut world = World::installed(&first).await;
    world.start_daemon();
    world.until_done(&first).await;
    let mut body = files(&[file("/etc/a", "1\n")]);
    body["storage"]["directories"] = json!([{"path": "/srv/x"}]);
    let impossible = config("rendered-worker-2", &body);
    world.publish_and_target(&impossible).await;
    world
        .until_failing("Unreconcilable", "ignition directories section contains changes")
        .await;
    let progress = world.progress().await;
    assert_eq!(progress["UpdatePrepared"].0, "Unknown");
    world.target(&first).await;
    world.until_done(&first).await;
    world.stop_daemon().await;
}

async fn irreconcilable_changes(world: &World) -> Vec<(String, String)> {
    let node = world.all::<MachineConfigNode>().get(NODE).await.unwrap();
    let changes = node.status.unwrap_or_default().irreconcilable_changes;
    changes
        .into_iter()
        .map(|change| (change.field_path, change.diff))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn irreconcilable_changes_are_refused_until_accepted_and_then_reported() {
    let with_disk = |device: &str, text: &str| {
        let mut body = files(&[file("/etc/a", text)]);
        body["storage"]["disks"] = json!([{"device": device, "wipeTable": true}]);
        body
    };
    let first = config("rendered-worker-1", &with_disk("/dev/sda", "1\n"));
    let second = config("rendered-worker-2", &with_disk("/dev/sdb", "2\n"));
    let third = config("rendered-worker-3", &with_disk("/dev/sda", "3\n"));
    let mut world = World::installed(&first).await;
    world.start_daemon();
    world.until_done(&first).await;
    world.until_idle().await;
    assert_eq!(irreconcilable_changes(&world).await, []);
    world.publish_and_target(&second).await;
    world
        .until_failing("Unreconcilable", "ignition disks section contains changes")
        .await;
    assert_eq!(world.read("/etc/a"), "1\n");

    world
        .create_value::<MachineConfiguration>(json!({
            "metadata": {"name": "cluster"},
            "spec": {"irreconcilableValidationOverrides": {"storage": ["Disks"]}},
        }))
        .await;
    world.until_done(&second).await;
    assert_eq!(world.read("/etc/a"), "2\n", "the rest of the config is followed");
    let observed = [(
        "spec.config.storage.disks[0].device".to_owned(),
        "- \"/dev/sda\"\n+ \"/dev/sdb\"".to_owned(),
    )];
    world
        .eventually("the difference is reported", async |world: &World| {
            irreconcilable_changes(world).await == observed
        })
        .await;
    world.stop_daemon().await;
    world.start_daemon();
    world.until_idle().await;
    assert_eq!(
        irreconcilable_changes(&world).await,
        observed,
        "also after a restart"
    );

    world.publish_and_target(&third).await;
    world.until_done(&third).await;
    world
        .eventually("no difference is left", async |world: &World| {
            irreconcilable_changes(world).await.is_empty()
        })
        .await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_does_not_reload_brings_the_old_config_back_until_it_does() {
    let first = config(
        "rendered-worker-1",
        &files(&[file("/etc/containers/policy.json", "1")]),
    );
    let second = config(
        "rendered-worker-2",
        &files(&[file("/etc/containers/policy.json", "2")]),
    );
    let mut world = World::installed(&first).await;
    world.start_daemon();
    world.until_done(&first).await;
    world.services.set_failing("crio.service", true);
    world.publish_and_target(&second).await;
    world
        .until_failing("Degraded", "crio.service is failed after reload crio.service")
        .await;
    assert_eq!(world.read("/etc/containers/policy.json"), "1");
    assert!(has(
        &world.annotations().await,
        annotation::CURRENT_CONFIG,
        first.name()
    ));
    world.services.set_failing("crio.service", false);
    world.until_done(&second).await;
    assert_eq!(world.read("/etc/containers/policy.json"), "2");
    assert!(
        world
            .event_reasons()
            .await
            .contains(&"FailedServiceReload".to_owned())
    );
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_that_does_not_exist_is_named_and_waited_for() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let second = config("rendered-worker-2", &files(&[file("/etc/a", "2\n")]));
    let mut world = World::installed(&first).await;
    world.start_daemon();
    world.until_done(&first).await;
    world.target(&second).await;
    world
        .until_failing(
            "Degraded",
            "machineconfig.machineconfiguration.openshift.io \"rendered-worker-2\" not found",
        )
        .await;
    world.create_config(&second).await;
    world.until_done(&second).await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declared_config_is_validated_before_the_machine_counts_as_up_to_date() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let mut world = World::new(&first).await;
    // The administrator sets the current config: the machine is validated, and adopted if it matches.
    world
        .annotate(
            "machineconfiguration.openshift.io/currentConfig",
            "rendered-worker-1",
        )
        .await;
    world.target(&first).await;
    world.start_daemon();
    world.until_failing("Degraded", "unexpected on-disk state").await;
    world.write("/etc/a", "1\n");
    world.until_done(&first).await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_administrators_policies_count_once_the_operator_has_seen_them() {
    let first = config("rendered-worker-1", &files(&[file("/etc/app/a", "1\n")]));
    let second = config("rendered-worker-2", &files(&[file("/etc/app/a", "2\n")]));
    let mut world = World::installed(&first).await;
    let restart = json!([{"type": "Restart", "restart": {"serviceName": "app.service"}}]);
    let policy = json!({"files": [{"path": "/etc/app", "actions": restart}]});
    world
        .create_value::<MachineConfiguration>(json!({
            "metadata": {"name": "cluster"},
            "spec": {"managementState": "Managed", "nodeDisruptionPolicy": policy},
        }))
        .await;
    let all = world.all::<MachineConfiguration>();
    let status = |observed: i64| {
        Patch::Merge(json!({"status": {
            "observedGeneration": observed,
            "nodeDisruptionPolicyStatus": {"clusterPolicies": {"files": policy["files"]}},
        }}))
    };
    all.patch_status("cluster", &PatchParams::default(), &status(0))
        .await
        .unwrap();
    world.start_daemon();
    world.until_done(&first).await;
    let boot = world.boot();
    world.publish_and_target(&second).await;
    world
        .until_activity_fails("NodeDisruptionPolicyStatus was not ready")
        .await;
    assert!(
        !has(&world.annotations().await, annotation::STATE, "Degraded"),
        "there is patience"
    );
    all.patch_status("cluster", &PatchParams::default(), &status(1))
        .await
        .unwrap();
    world.until_done(&second).await;
    assert_eq!(world.boot(), boot, "the policy says restart");
    let observed: Vec<String> = world
        .services
        .performed()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(observed, ["restart app.service"]);
    world.stop_daemon().await;
}
