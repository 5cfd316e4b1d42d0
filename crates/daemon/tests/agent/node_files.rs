//! Files with per-node values and with values of Secrets.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use k8s_openapi::api::core::v1::{Event, Node as KubeNode, Secret};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use mco_api::vocabulary::annotations::{
    NODE_FILES_PROBLEM, NODE_FILES_UPDATE, REBOOT_LOCK, REBOOT_REQUEST, node as annotation,
};
use mco_api::vocabulary::names::{self, NAMESPACE};
use mco_api::{MachineConfig, MachineConfigNode, MachineConfigPool};
use mco_core::config::node_files::SecretVersions;
use mco_core::config::parsed_config::SourceConfig;
use mco_core::config::remote::RemoteContents;
use mco_daemon::config::NodeConfig;
use mco_daemon::paths;
use serde_json::{Value, json};

use crate::log;
use crate::support::{config, file};
use crate::world::{World, has};

const KEY: &[u8] = b"the key of the cluster, 32 bytes";
const FIRST: &str = "correct-horse-battery-staple";
const SECOND: &str = "another-secret-after-rotation";
const PSK: &str = "/etc/vpn/psk";
const RACK: &str = "/etc/rack.conf";
const TEMPLATE: &str = "name=${node.name} rack=${node.label[\"rack\"]}\n";

fn secret(value: &str) -> Secret {
    serde_json::from_value(json!({
        "metadata": {"name": "vpn", "namespace": NAMESPACE, "labels": {"mco.dev/secret-files": "true"}},
        "data": {"psk": k8s_openapi::ByteString(value.as_bytes().to_vec())},
    }))
    .unwrap()
}

/// Returns a rendered config, as the controller renders it from one MachineConfig.
fn rendered(name: &str, annotations: &Value, files: &Value, secret_value: &str) -> NodeConfig {
    let source: MachineConfig = serde_json::from_value(json!({
        "metadata": {
            "name": "50-node",
            "labels": {"machineconfiguration.openshift.io/role": "worker"},
            "annotations": annotations,
        },
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}}},
    }))
    .unwrap();
    let versions = SecretVersions::of_secrets(KEY, [&secret(secret_value)]);
    let contents = RemoteContents::default().with_secrets(versions);
    let parsed = SourceConfig::with_contents(source, &contents).parsed.unwrap();
    let mut body = parsed.object.spec.config.clone().unwrap();
    body.as_object_mut().unwrap().remove("ignition");
    config(name, &body)
}

fn values(name: &str, template: &str) -> NodeConfig {
    let annotations = json!({"mco.dev/node-values": "true"});
    rendered(
        name,
        &annotations,
        &json!([file(RACK, template), file("/etc/a", "1\n")]),
        FIRST,
    )
}

fn with_secret(name: &str, value: &str) -> NodeConfig {
    let entries = json!([{"path": PSK, "secret": "vpn/psk"}]);
    let annotations = json!({"mco.dev/secret-files": entries.to_string()});
    rendered(name, &annotations, &json!([file("/etc/a", "1\n")]), value)
}

fn plain() -> NodeConfig {
    config(
        "rendered-worker-1",
        &json!({"storage": {"files": [file("/etc/a", "1\n")]}}),
    )
}

/// A cluster with the Secret, whose node is in the pool.
async fn with_pool(mut world: World) -> World {
    let key = json!({
        "metadata": {"name": names::secret::SECRET_VERSIONS_KEY, "namespace": NAMESPACE},
        "data": {"key": k8s_openapi::ByteString(KEY.to_vec())},
    });
    let secrets: Api<Secret> = Api::namespaced(world.client(), NAMESPACE);
    for one in [serde_json::from_value(key).unwrap(), secret(FIRST)] {
        secrets.create(&PostParams::default(), &one).await.unwrap();
    }
    world.label("node-role.kubernetes.io/worker", "").await;
    world.label("rack", "r1").await;
    let selector = json!({"spec": {"nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}}});
    patch_pool(&world, selector).await;
    world.start_daemon();
    world
}

async fn patch_pool(world: &World, patch: Value) {
    let pools = world.all::<MachineConfigPool>();
    let patched = pools
        .patch("worker", &PatchParams::default(), &Patch::Merge(patch))
        .await;
    patched.unwrap();
}

/// Makes a config one that was rendered for the pool.
async fn own(world: &World, config: &NodeConfig) {
    let pool = world.all::<MachineConfigPool>().get("worker").await.unwrap();
    let owner = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "name": "worker", "uid": pool.metadata.uid, "controller": true,
    }]}});
    let configs = world.all::<MachineConfig>();
    let owned = configs
        .patch(config.name(), &PatchParams::default(), &Patch::Merge(owner))
        .await;
    owned.unwrap();
}

async fn send(world: &World, config: &NodeConfig) {
    world.create_config(config).await;
    own(world, config).await;
    patch_pool(world, json!({"spec": {"configuration": {"name": config.name()}}})).await;
    world.target(config).await;
}

/// Grants a request, as the controller does within the budget.
async fn grant(world: &World) {
    let waits = |now: &crate::world::Annotations| {
        now.contains_key(REBOOT_REQUEST) && now.contains_key(NODE_FILES_UPDATE)
    };
    world.until_unanswered("a request for a turn", waits).await;
    let granted = json!({"metadata": {"annotations": {REBOOT_REQUEST: null, REBOOT_LOCK: "granted"}}});
    let nodes = world.all::<KubeNode>();
    nodes
        .patch(
            crate::world::NODE,
            &PatchParams::default(),
            &Patch::Merge(granted),
        )
        .await
        .unwrap();
}

async fn until_turn_is_over(world: &World) {
    world
        .until("the turn is over", |now| {
            has(now, annotation::STATE, "Done")
                && [REBOOT_REQUEST, REBOOT_LOCK, NODE_FILES_UPDATE]
                    .iter()
                    .all(|key| !now.contains_key(*key))
        })
        .await;
}

/// Returns the files below a directory that contain a text, encoded or not.
fn files_with(directory: &Path, text: &str, found: &mut Vec<String>) {
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(text);
    // Padding and the bytes around it depend on what is beside it.
    let encoded = encoded.trim_end_matches('=');
    let encoded = &encoded[..encoded.len() - 2];
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            files_with(&entry.path(), text, found);
        } else if let Ok(bytes) = fs::read(entry.path()) {
            let contents = String::from_utf8_lossy(&bytes);
            if contents.contains(text) || contents.contains(encoded) {
                found.push(entry.path().display().to_string());
            }
        }
    }
}

/// Asserts that a value is on the disk in this file alone, and nowhere in the API or in the log.
async fn assert_only_in(world: &World, value: &str, path: Option<&str>) {
    let mut found = Vec::new();
    files_with(world.root.path(), value, &mut found);
    let expected: Vec<String> = path
        .map(|path| world.path(path).display().to_string())
        .into_iter()
        .collect();
    assert_eq!(found, expected);
    let all = ListParams::default();
    let events: Api<Event> = Api::all(world.client());
    let objects = [
        serde_json::to_string(&events.list(&all).await.unwrap()).unwrap(),
        serde_json::to_string(&world.all::<KubeNode>().list(&all).await.unwrap()).unwrap(),
        serde_json::to_string(&world.all::<MachineConfig>().list(&all).await.unwrap()).unwrap(),
        serde_json::to_string(&world.all::<MachineConfigNode>().list(&all).await.unwrap()).unwrap(),
        serde_json::to_string(&world.all::<MachineConfigPool>().list(&all).await.unwrap()).unwrap(),
        log::text(),
    ];
    for object in objects {
        assert!(!object.contains(value), "{object}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_label_change_writes_the_file_again_in_the_turn_of_the_node() {
    let mut world = with_pool(World::installed(&plain()).await).await;
    world.until_done(&plain()).await;
    let config = values("rendered-worker-2", TEMPLATE);
    send(&world, &config).await;
    world.until_done(&config).await;
    assert_eq!(world.read(RACK), "name=worker-1 rack=r1\n");
    // The record on disk is of the rendered config, as other implementations read it.
    let current: MachineConfig = serde_json::from_str(&world.read(paths::CURRENT_CONFIG)).unwrap();
    assert_eq!(current.spec, config.object.spec);

    world.until_idle().await;
    world.label("rack", "r2").await;
    world
        .until_unanswered("a request for a turn", |now| now.contains_key(NODE_FILES_UPDATE))
        .await;
    assert_eq!(world.read(RACK), "name=worker-1 rack=r1\n", "it has no turn yet");
    assert!(has(&world.annotations().await, annotation::STATE, "Done"));
    grant(&world).await;
    until_turn_is_over(&world).await;
    assert_eq!(world.read(RACK), "name=worker-1 rack=r2\n");
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_of_an_expanded_file_is_found_and_healed() {
    let mut world = with_pool(World::installed(&plain()).await).await;
    world
        .annotate("machineconfiguration.openshift.io/drift-policy", "heal")
        .await;
    world.until_done(&plain()).await;
    let config = values("rendered-worker-2", TEMPLATE);
    send(&world, &config).await;
    world.until_done(&config).await;
    world.until_idle().await;
    world.write(RACK, TEMPLATE);
    world
        .eventually("the file is healed", async |world: &World| {
            world.read(RACK) == "name=worker-1 rack=r1\n"
        })
        .await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_the_node_lacks_is_refused_before_the_drain() {
    let mut world = with_pool(World::installed(&plain()).await).await;
    world.until_done(&plain()).await;
    let config = values("rendered-worker-2", "zone=${node.label[\"zone\"]}\n");
    send(&world, &config).await;
    world
        .until_failing(
            "Degraded",
            "/etc/rack.conf needs node.label[\"zone\"]: node worker-1 has no label zone",
        )
        .await;
    let now = world.annotations().await;
    assert!(
        !now.get(annotation::DESIRED_DRAIN)
            .is_some_and(|request| request.starts_with("drain-")),
        "{now:?}"
    );
    assert!(!world.path(RACK).exists());
    world.label("zone", "a").await;
    world.until_done(&config).await;
    assert_eq!(world.read(RACK), "zone=a\n");

    // A node that works keeps what it has.
    world.until_idle().await;
    let none = json!({"metadata": {"labels": {"zone": null}}});
    let nodes = world.all::<KubeNode>();
    nodes
        .patch(crate::world::NODE, &PatchParams::default(), &Patch::Merge(none))
        .await
        .unwrap();
    world
        .until_unanswered("the problem is reported", |now| {
            now.get(NODE_FILES_PROBLEM)
                .is_some_and(|text| text.contains("no label zone"))
        })
        .await;
    assert!(has(&world.annotations().await, annotation::STATE, "Done"));
    assert_eq!(world.read(RACK), "zone=a\n");
    assert!(!world.event_texts("NodeValuesMissing").await.is_empty());
    world.label("zone", "a").await;
    world
        .until_unanswered("the problem is gone", |now| !now.contains_key(NODE_FILES_PROBLEM))
        .await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_in_its_file_and_nowhere_else() {
    log::start();
    let mut world = with_pool(World::installed(&plain()).await).await;
    world.until_done(&plain()).await;
    let config = with_secret("rendered-worker-2", FIRST);
    send(&world, &config).await;
    world.until_done(&config).await;
    assert_eq!(world.read(PSK), FIRST);
    let mode = fs::metadata(world.path(PSK)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    world.until_idle().await;
    assert_only_in(&world, FIRST, Some(PSK)).await;

    // A rotation is another rendered config.
    let secrets: Api<Secret> = Api::namespaced(world.client(), NAMESPACE);
    let value = json!({"data": {"psk": k8s_openapi::ByteString(SECOND.as_bytes().to_vec())}});
    secrets
        .patch("vpn", &PatchParams::default(), &Patch::Merge(value))
        .await
        .unwrap();
    let rotated = with_secret("rendered-worker-3", SECOND);
    send(&world, &rotated).await;
    world.until_done(&rotated).await;
    assert_eq!(world.read(PSK), SECOND);
    world.until_idle().await;
    assert_only_in(&world, SECOND, Some(PSK)).await;
    assert_only_in(&world, FIRST, None).await;

    // A restarted daemon knows what the file should have without asking.
    world.stop_daemon().await;
    world.start_daemon();
    world.until_idle().await;
    world.write(PSK, "edited by hand");
    world
        .until_failing("Degraded", "content mismatch for file \"/etc/vpn/psk\"")
        .await;
    world.write(PSK, SECOND);
    world.until_done(&rotated).await;

    // Without the Secret in the config the file goes, with its record.
    let without = config_without("rendered-worker-4");
    send(&world, &without).await;
    world.until_done(&without).await;
    assert!(!world.path(PSK).exists() && !world.path(paths::NODE_FILES).exists());
    assert_only_in(&world, SECOND, None).await;
    world.stop_daemon().await;
}

fn config_without(name: &str) -> NodeConfig {
    config(name, &json!({"storage": {"files": [file("/etc/a", "1\n")]}}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healed_secret_is_fetched_again() {
    let mut world = with_pool(World::installed(&plain()).await).await;
    world
        .annotate("machineconfiguration.openshift.io/drift-policy", "heal")
        .await;
    world.until_done(&plain()).await;
    let config = with_secret("rendered-worker-2", FIRST);
    send(&world, &config).await;
    world.until_done(&config).await;
    world.until_idle().await;
    world.write(PSK, "edited by hand");
    world
        .eventually("the file is healed", async |world: &World| {
            world.read(PSK) == FIRST
        })
        .await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_that_the_pool_does_not_name_are_refused_before_the_drain() {
    let mut world = with_pool(World::installed(&plain()).await).await;
    world.until_done(&plain()).await;
    let config = with_secret("rendered-worker-2", FIRST);
    // The Node names it, which the daemon of a compromised node could write itself, but the pool does not.
    world.create_config(&config).await;
    own(&world, &config).await;
    world.target(&config).await;
    world
        .until_failing(
            "Degraded",
            "pool worker of node worker-1 does not use MachineConfig rendered-worker-2",
        )
        .await;
    let now = world.annotations().await;
    assert!(
        !now.get(annotation::DESIRED_DRAIN)
            .is_some_and(|request| request.starts_with("drain-")),
        "{now:?}"
    );
    assert!(!world.path(PSK).exists());
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_gets_its_files_in_its_turn() {
    let entries = json!([{"path": PSK, "secret": "vpn/psk", "mode": "0640", "owner": "root:wheel"}]);
    let annotations = json!({"mco.dev/secret-files": entries.to_string(), "mco.dev/node-values": "true"});
    let first = rendered(
        "rendered-worker-1",
        &annotations,
        &json!([file(RACK, TEMPLATE)]),
        FIRST,
    );
    // Ignition has written the lists, and nothing in place of the files.
    let world = World::installed(&first).await;
    own(&world, &first).await;
    let mut world = with_pool(world).await;
    world.until_done(&first).await;
    assert!(!world.path(RACK).exists() && !world.path(PSK).exists());
    grant(&world).await;
    until_turn_is_over(&world).await;
    assert_eq!(
        (world.read(RACK).as_str(), world.read(PSK).as_str()),
        ("name=worker-1 rack=r1\n", FIRST)
    );
    let mode = fs::metadata(world.path(PSK)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    world.stop_daemon().await;
}
