//! Updates in place of a node of a hosted cluster: the desired config is in a mounted ConfigMap.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use mco_api::vocabulary::annotations::node as annotation;
use mco_daemon::config::NodeConfig;
use mco_daemon::{paths, plan};
use serde_json::{Value, json};

use crate::support::{config, file, files};
use crate::world::{World, has};

const MOUNT: &str = "/etc/machine-config-daemon-desired-config";
const AUTH: &str = "/var/lib/kubelet/config.json";
const CA: &str = "/etc/kubernetes/kubelet-ca.crt";

/// A MachineConfig of a node pool with the contents of three files.
fn rendered(name: &str, a: &str, auth: &str, ca: &str) -> NodeConfig {
    config(name, &files(&[file("/etc/a", a), file(AUTH, auth), file(CA, ca)]))
}

/// The document that the server of a hosted cluster serves: here only the file with the MachineConfig.
fn served(config: &NodeConfig) -> Value {
    let text = serde_json::to_string(&*config.object).unwrap();
    json!({
        "ignition": {"version": "3.2.0"},
        "storage": {"files": [{
            "path": paths::INSTALLED_CONFIG,
            "mode": 0o644,
            "contents": {"source": format!("data:;base64,{}", STANDARD.encode(text))},
        }]},
    })
}

/// Mounts the ConfigMap as HyperShift writes it: base64 of the gzip, beside the hash.
fn mount(world: &World, config: &NodeConfig, hash: &str) {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(served(config).to_string().as_bytes()).unwrap();
    world.write(
        &format!("{MOUNT}/config"),
        &STANDARD.encode(gzip.finish().unwrap()),
    );
    world.write(&format!("{MOUNT}/hash"), hash);
}

/// A node that was installed from a config with the hash `h1`. As on every such node, the record of other nodes exists
/// and is empty.
async fn world(first: &NodeConfig) -> World {
    let world = World::new(first).await;
    let machine = world.machine();
    for step in plan::plan_installation(&machine, first).unwrap().steps {
        if let plan::PlanAction::Write { contents, .. } = step.action {
            let bytes = contents.bytes(&step.path).unwrap();
            world.write(step.path.as_str(), &String::from_utf8(bytes).unwrap());
        }
    }
    world.write(CA, "ca 1\n");
    world.write(paths::INSTALLED_CONFIG, &json!(&*first.object).to_string());
    world.write(paths::CURRENT_CONFIG, "");
    for path in ["/etc/a", AUTH, CA] {
        fs::set_permissions(world.path(path), fs::Permissions::from_mode(0o644)).unwrap();
    }
    world.annotate(annotation::CURRENT_CONFIG, "h1").await;
    world.annotate(annotation::DESIRED_CONFIG, "h1").await;
    world
}

async fn is_done(world: &World, hash: &str) {
    world
        .until(&format!("Done with {hash}"), |now| {
            has(now, annotation::STATE, "Done")
                && has(now, annotation::CURRENT_CONFIG, hash)
                && has(now, annotation::DESIRED_DRAIN, &format!("uncordon-{hash}"))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_in_place_drains_writes_reboots_and_asks_for_the_uncordon() {
    let first = rendered("rendered-pool-1", "1\n", "{}\n", "ca 1\n");
    let second = rendered("rendered-pool-2", "2\n", "{}\n", "ca 2\n");
    let mut world = world(&first).await;
    mount(&world, &second, "h2");
    world.start_hosted_daemon(MOUNT);
    // Nothing happens until the controller says so, although the ConfigMap is there.
    world.annotate(annotation::DESIRED_CONFIG, "h2").await;
    world
        .until_unanswered("the drain is requested", |now| {
            has(now, annotation::DESIRED_DRAIN, "drain-h2") && has(now, annotation::STATE, "Working")
        })
        .await;
    assert_eq!(world.read("/etc/a"), "1\n", "nothing is written before the drain");
    let boot = world.boot();
    // A restart while the node waits resumes.
    world.stop_daemon().await;
    world.start_hosted_daemon(MOUNT);
    world.annotate(annotation::LAST_APPLIED_DRAIN, "drain-h2").await;
    world
        .until_unanswered("the update is complete", |now| {
            has(now, annotation::STATE, "Done")
                && has(now, annotation::CURRENT_CONFIG, "h2")
                && has(now, annotation::DESIRED_DRAIN, "uncordon-h2")
        })
        .await;
    assert_eq!(world.read("/etc/a"), "2\n");
    assert_eq!(world.read(CA), "ca 2\n", "nothing else syncs the certificates");
    assert_ne!(world.boot(), boot, "the machine has rebooted");
    let record: Value = serde_json::from_str(&world.read(paths::HOSTED_CONFIG)).unwrap();
    assert_eq!(record["metadata"]["name"], "rendered-pool-2");

    // The next update starts from that record.
    let third = rendered("rendered-pool-3", "3\n", "{}\n", "ca 2\n");
    mount(&world, &third, "h3");
    world.annotate(annotation::DESIRED_CONFIG, "h3").await;
    is_done(&world, "h3").await;
    assert_eq!(world.read("/etc/a"), "3\n");
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_disrupts_nothing_needs_no_drain_and_no_reboot() {
    let first = rendered("rendered-pool-1", "1\n", "{}\n", "ca 1\n");
    let second = rendered("rendered-pool-2", "1\n", "{\"auths\":{}}\n", "ca 2\n");
    let mut world = world(&first).await;
    mount(&world, &second, "h2");
    let boot = world.boot();
    world.annotate(annotation::DESIRED_CONFIG, "h2").await;
    world.start_hosted_daemon(MOUNT);
    world
        .until_unanswered("the update is complete", |now| {
            assert!(!has(now, annotation::DESIRED_DRAIN, "drain-h2"), "{now:#?}");
            has(now, annotation::CURRENT_CONFIG, "h2") && has(now, annotation::DESIRED_DRAIN, "uncordon-h2")
        })
        .await;
    assert_eq!(world.read(AUTH), "{\"auths\":{}}\n");
    assert_eq!(world.read(CA), "ca 2\n");
    assert_eq!(world.boot(), boot);
    world.stop_daemon().await;
}

/// The kubelet updates the mount after the controller has set the annotation: the old contents under the new name would
/// be reported as the new config.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configmap_of_another_hash_is_not_applied_under_the_desired_one() {
    let first = rendered("rendered-pool-1", "1\n", "{}\n", "ca 1\n");
    let mut world = world(&first).await;
    mount(&world, &first, "h1");
    world.annotate(annotation::DESIRED_CONFIG, "h2").await;
    world.start_hosted_daemon(MOUNT);
    world
        .until_unanswered("the daemon works", |now| has(now, annotation::STATE, "Working"))
        .await;
    assert!(has(&world.annotations().await, annotation::CURRENT_CONFIG, "h1"));
    let second = rendered("rendered-pool-2", "2\n", "{}\n", "ca 1\n");
    mount(&world, &second, "h2");
    is_done(&world, "h2").await;
    assert_eq!(world.read("/etc/a"), "2\n");
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_are_reported_with_their_cause_and_retried() {
    let first = rendered("rendered-pool-1", "1\n", "{}\n", "ca 1\n");
    let mut world = world(&first).await;
    world.annotate(annotation::DESIRED_CONFIG, "h2").await;
    world.start_hosted_daemon(MOUNT);
    world
        .until_failing(
            "Degraded",
            "mount the ConfigMap with the keys config and hash there",
        )
        .await;
    // The same contents under another hash, on a machine that has drifted.
    world.write("/etc/a", "edited\n");
    mount(&world, &first, "h2");
    world
        .until_failing("Degraded", "content mismatch for file \"/etc/a\"")
        .await;
    world.write("/etc/a", "1\n");
    is_done(&world, "h2").await;
    assert!(has(&world.annotations().await, annotation::REASON, ""));

    let impossible = config(
        "rendered-pool-3",
        &json!({"storage": {"filesystems": [{"device": "/dev/x", "path": "/var", "format": "xfs"}]}}),
    );
    mount(&world, &impossible, "h3");
    world.annotate(annotation::DESIRED_CONFIG, "h3").await;
    world.until_failing("Degraded", "filesystems").await;
    assert_eq!(world.read("/etc/a"), "1\n");
    world.stop_daemon().await;
}
