//! Machines that existed before they met this cluster: nothing on them changes that was not asked for, and what was
//! there before comes back.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Arc;

use k8s_openapi::ByteString;
use mco_api::controller_config::CONTROLLER_CONFIG_NAME;
use mco_api::node_adoption::NodeAdoptionStatus;
use mco_api::vocabulary::annotations::node as annotation;
use mco_api::vocabulary::annotations::{ADOPTION_REQUEST, CONFIRM_DEADLINE, HOOKS, STAGED_CONFIG};
use mco_api::{ControllerConfig, NodeAdoption};
use mco_core::rollout::pinned_images_on_node::CRIO_DROP_IN;
use mco_daemon::agent;
use mco_daemon::config::NodeConfig;
use mco_daemon::paths;
use serde_json::json;

use crate::images;
use crate::runtime::{Registry, image};
use crate::support::{Snapshot, config, file, files, snapshot};
use crate::world::{NODE, World, has};

const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\nclusters:\n- name: default-cluster\nusers:\n- name: default-auth\n  \
    user:\n    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem\n";

/// Lays the machine out like a worker of a kubeadm cluster on Ubuntu.
pub fn lay_out_kubeadm(world: &World) {
    world.write("/etc/kubernetes/kubelet.conf", KUBECONFIG);
    fs::set_permissions(
        world.path("/etc/kubernetes/kubelet.conf"),
        fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    world.write(
        "/usr/lib/systemd/system/kubelet.service",
        "[Service]\nExecStart=/usr/bin/kubelet\n[Install]\nWantedBy=multi-user.target\n",
    );
    world.write(
        "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf",
        "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf\n",
    );
    world.write("/etc/docker/certs.d/registry.corp:5000/ca.crt", "theirs\n");
    world.write("/etc/chrony.conf", "server ntp.corp\n");
    fs::create_dir_all(world.path("/etc/systemd/system/multi-user.target.wants")).unwrap();
    symlink(
        "/usr/lib/systemd/system/vendor.service",
        world.path("/etc/systemd/system/multi-user.target.wants/vendor.service"),
    )
    .unwrap();
}

/// The machine without the daemon's own state.
pub fn machine_state(world: &World) -> Snapshot {
    let mut all = snapshot(world.root.path());
    all.retain(|path, _| !path.starts_with(paths::STATE_DIRECTORY));
    all
}

async fn create_controller_config(world: &World) {
    let bytes = |text: &str| json!(ByteString(text.as_bytes().to_vec()));
    world
        .create_value::<ControllerConfig>(json!({
            "metadata": {"name": CONTROLLER_CONFIG_NAME},
            "spec": {
                "kubeAPIServerServingCAData": bytes("one\n"),
                "rootCAData": bytes("root\n"),
                "internalRegistryPullSecret": bytes("{\"auths\":{}}"),
                "images": {}, "ipFamilies": "IPv4", "clusterDNSIP": "10.0.0.10", "cloudProviderConfig": "",
                "additionalTrustBundle": null, "cloudProviderCAData": null, "proxy": null, "releaseImage": "r",
            },
        }))
        .await;
}

/// What an administrator wrote, which replaces and creates files, directories, links and units.
fn own_config() -> NodeConfig {
    let body = json!({
        "storage": {
            "files": [
                file("/etc/chrony.conf", "server ntp.example\n"),
                file("/etc/new/deep/a.conf", "new\n"),
            ],
            "directories": [{"path": "/var/lib/own", "mode": 0o700}],
            "links": [{"path": "/etc/link", "target": "/etc/motd"}],
        },
        "systemd": {"units": [
            {"name": "vendor.service", "enabled": false, "dropins": [{"name": "a.conf", "contents": "[Service]\nNice=1\n"}]},
            {"name": "own.service", "enabled": true,
             "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"},
        ]},
    });
    config("rendered-worker-1", &body)
}

fn names_kubelet_conf(name: &str) -> NodeConfig {
    let kubelet = file(
        "/etc/kubernetes/kubelet.conf",
        "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n",
    );
    config(name, &files(&[kubelet]))
}

async fn until_unmanaged(world: &World) {
    world
        .eventually("not managed", async |world: &World| {
            let activity = agent::read_activity(&world.machine().root).unwrap();
            activity.is_some_and(|activity| activity.doing.starts_with("not managed"))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_machine_that_no_pool_selects_nothing_is_written() {
    let first = own_config();
    let mut world = World::new(&first).await;
    world.delete_machine_config_node().await;
    lay_out_kubeadm(&world);
    create_controller_config(&world).await;
    let before = snapshot(world.root.path());
    world.start_daemon();
    until_unmanaged(&world).await;
    world.stop_daemon().await;
    // Once more, as after an upgrade.
    world.start_daemon();
    until_unmanaged(&world).await;
    world.stop_daemon().await;
    assert_eq!(snapshot(world.root.path()), before);
    let annotations = world.annotations().await;
    assert!(annotations.is_empty(), "{annotations:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declared_and_forced_config_gives_everything_back() {
    let first = own_config();
    let mut world = World::new(&first).await;
    lay_out_kubeadm(&world);
    create_controller_config(&world).await;
    let before = machine_state(&world);
    world.annotate(annotation::CURRENT_CONFIG, first.name()).await;
    world.target(&first).await;
    world.start_daemon();
    world.until_failing("Degraded", "unexpected on-disk state").await;
    assert_eq!(
        machine_state(&world),
        before,
        "a declared config changes nothing by itself"
    );
    world.write(paths::FORCE_FILE, "");
    world.until_done(&first).await;
    assert_eq!(world.read("/etc/chrony.conf"), "server ntp.example\n");
    assert!(
        !world
            .path("/etc/systemd/system/multi-user.target.wants/vendor.service")
            .exists()
    );
    let nothing = config("rendered-worker-2", &json!({}));
    world.publish_and_target(&nothing).await;
    world.until_done(&nothing).await;
    world.until_idle().await;
    world.stop_daemon().await;
    assert_eq!(machine_state(&world), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kubelets_credential_is_never_replaced_not_even_by_force() {
    let first = names_kubelet_conf("rendered-worker-1");
    let mut world = World::new(&first).await;
    lay_out_kubeadm(&world);
    let before = machine_state(&world);
    world.annotate(annotation::CURRENT_CONFIG, first.name()).await;
    world.target(&first).await;
    world.write(paths::FORCE_FILE, "");
    world.start_daemon();
    world
        .until_failing("Degraded", "/etc/kubernetes/kubelet.conf (it is a credential")
        .await;
    let annotations = world.annotations().await;
    assert_eq!(
        annotations.get(annotation::DESIRED_DRAIN),
        None,
        "refused before the drain"
    );
    assert_eq!(machine_state(&world), before);
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_explicit_allowance_lets_a_guarded_path_change_and_keeps_the_original() {
    let mut first = names_kubelet_conf("rendered-worker-1");
    let annotations = [(
        "mco.dev/allow-guarded-paths".to_owned(),
        "/etc/kubernetes/kubelet.conf".to_owned(),
    )];
    first.object_mut().metadata.annotations = Some(annotations.into());
    let mut world = World::new(&first).await;
    lay_out_kubeadm(&world);
    let before = machine_state(&world);
    world.annotate(annotation::CURRENT_CONFIG, first.name()).await;
    world.target(&first).await;
    world.write(paths::FORCE_FILE, "");
    world.start_daemon();
    world.until_done(&first).await;
    assert!(
        world
            .read("/etc/kubernetes/kubelet.conf")
            .contains("KubeletConfiguration")
    );
    let nothing = config("rendered-worker-2", &json!({}));
    world.publish_and_target(&nothing).await;
    world.until_done(&nothing).await;
    world.stop_daemon().await;
    assert_eq!(machine_state(&world), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_was_installed_from_its_config_has_no_guarded_paths() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let second = names_kubelet_conf("rendered-worker-2");
    let mut world = World::installed(&first).await;
    world.start_daemon();
    world.until_done(&first).await;
    world.publish_and_target(&second).await;
    world.until_done(&second).await;
    assert!(has(&world.annotations().await, annotation::STATE, "Done"));
    world.stop_daemon().await;
}

async fn status(world: &World) -> Option<NodeAdoptionStatus> {
    let found = world.all::<NodeAdoption>().get_opt(NODE).await.unwrap();
    found.and_then(|found| found.status)
}

async fn until_phase(world: &World, phase: &str, request: &str) -> NodeAdoptionStatus {
    world
        .eventually(&format!("{phase} for {request:?}"), async |world: &World| {
            world.answer_request().await;
            status(world)
                .await
                .is_some_and(|status| status.phase == phase && status.request == request)
        })
        .await;
    status(world).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_files_of_others_is_compared_and_left_alone() {
    let first = own_config();
    let mut world = World::new(&first).await;
    lay_out_kubeadm(&world);
    world.write("/var/lib/dpkg/info/chrony.list", "/etc/chrony.conf\n");
    let before = snapshot(world.root.path());
    world.start_daemon();
    let status = until_phase(&world, "Compared", "").await;
    world.stop_daemon().await;
    assert!(
        status.message.contains("not adopted by itself"),
        "{}",
        status.message
    );
    assert_eq!(
        (status.summary.replace, status.summary.remove),
        (1, 1),
        "{status:?}"
    );
    let chrony = status
        .differences
        .iter()
        .find(|found| found.path == "/etc/chrony.conf");
    let chrony = chrony.unwrap();
    assert_eq!(
        (chrony.action.as_str(), chrony.package.as_deref()),
        ("replace", Some("chrony"))
    );
    assert_eq!(chrony.found.as_ref().unwrap().size, Some(16));
    assert!(status.cost.reboot && status.cost.drain);
    assert_eq!(snapshot(world.root.path()), before);
    let annotations = world.annotations().await;
    assert!(annotations.is_empty(), "{annotations:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_differences_is_adopted_by_itself_and_not_rebooted() {
    let first = config(
        "rendered-worker-1",
        &files(&[
            file("/etc/motd", "welcome\n"),
            file("/etc/chrony.conf", "server ntp.corp\n"),
        ]),
    );
    let mut world = World::new(&first).await;
    lay_out_kubeadm(&world);
    let (before, boot) = (machine_state(&world), world.boot());
    world.start_daemon();
    until_phase(&world, "Adopted", "").await;
    world.target(&first).await;
    world.until_done(&first).await;
    assert_eq!(machine_state(&world), before);
    assert_eq!(world.boot(), boot, "what is already there costs nothing");
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_without_machine_configs_adopts_no_node_by_itself() {
    let first = config("rendered-worker-1", &json!({}));
    let mut world = World::new(&first).await;
    lay_out_kubeadm(&world);
    let before = snapshot(world.root.path());
    world.start_daemon();
    let status = until_phase(&world, "Compared", "").await;
    assert!(status.message.contains("names nothing yet"), "{}", status.message);
    assert_eq!(snapshot(world.root.path()), before);
    world.annotate(ADOPTION_REQUEST, "adopt 1").await;
    until_phase(&world, "Adopted", "adopt 1").await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adopted_node_is_released_to_exactly_what_it_was() {
    let first = own_config();
    let mut world = World::new(&first).await;
    lay_out_kubeadm(&world);
    create_controller_config(&world).await;
    // Files that an installation of ours would consume, or that others rely on.
    let theirs = [
        paths::IGNITION_PRESET,
        paths::ENCAPSULATED,
        paths::USER_CA,
        paths::KUBELET_CA,
        CRIO_DROP_IN,
    ];
    for path in theirs {
        world.write(path, "theirs\n");
    }
    let before = machine_state(&world);
    world.start_daemon();
    world.annotate(ADOPTION_REQUEST, "adopt 1").await;
    until_phase(&world, "Adopted", "adopt 1").await;
    world.target(&first).await;
    world.until_done(&first).await;
    assert_eq!(world.read("/etc/chrony.conf"), "server ntp.example\n");
    assert_eq!(world.read(paths::KUBELET_CA), "theirs\n", "no config names it");
    // A second config on top, whose files replace those of the first.
    let second = config(
        "rendered-worker-2",
        &files(&[
            file("/etc/chrony.conf", "server other.example\n"),
            file("/etc/b", "b\n"),
            file(paths::USER_CA, "ours\n"),
            file(paths::KUBELET_CA, "ours\n"),
            file(paths::CLOUD_CA, "ours\n"),
            file("/etc/docker/certs.d/registry.corp:5000/ca.crt", "ours\n"),
        ]),
    );
    world.publish_and_target(&second).await;
    world.until_done(&second).await;
    assert_eq!(world.read(paths::USER_CA), "ours\n");
    assert_eq!(world.read(CRIO_DROP_IN), "theirs\n");
    for annotation in [HOOKS, STAGED_CONFIG, CONFIRM_DEADLINE] {
        world.annotate(annotation, "5m").await;
    }
    assert!(
        !world.path("/etc/new").exists(),
        "created directories go with their files"
    );
    world.annotate(ADOPTION_REQUEST, "release 2").await;
    until_phase(&world, "Released", "release 2").await;
    world
        .until("no annotation of ours", |now| {
            !now.keys()
                .any(|key| key.contains("machineconfiguration.openshift.io") || key.contains("mco.dev"))
        })
        .await;
    assert_eq!(machine_state(&world), before);
    world.stop_daemon().await;
    world.start_daemon();
    until_unmanaged(&world).await;
    world.stop_daemon().await;
    assert_eq!(
        status(&world).await.unwrap().phase,
        "Released",
        "not adopted again by itself"
    );
    assert_eq!(machine_state(&world), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_left_the_images_pinned() {
    let first = own_config();
    let registry = Arc::new(Registry::default());
    let mut world = World::new(&first).await;
    world.runtime = Some(Arc::<Registry>::clone(&registry));
    lay_out_kubeadm(&world);
    world.write(CRIO_DROP_IN, "theirs\n");
    let before = machine_state(&world);
    let selector = json!({"nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}});
    images::patch_pool(&world, selector).await;
    world.label("node-role.kubernetes.io/worker", "").await;
    images::node_says(&world, "True", "100Gi").await;
    world.start_daemon();
    world.annotate(ADOPTION_REQUEST, "adopt 1").await;
    until_phase(&world, "Adopted", "adopt 1").await;
    world.target(&first).await;
    world.until_done(&first).await;
    images::create_set(&world, "base", &["quay.example/a"]).await;
    for release in ["release 2", "release 3"] {
        images::name_sets(&world, &["base"]).await;
        world
            .eventually("pinned", async |world: &World| {
                world.read(CRIO_DROP_IN).contains(&image("quay.example/a"))
            })
            .await;
        world.annotate(ADOPTION_REQUEST, release).await;
        until_phase(&world, "Released", release).await;
        assert_eq!(machine_state(&world), before);
        until_unmanaged(&world).await;
        // What was settled before the release counts no more.
        world.annotate(ADOPTION_REQUEST, "adopt 4").await;
        until_phase(&world, "Adopted", "adopt 4").await;
        world.target(&first).await;
        world.until_done(&first).await;
    }
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drifted_node_could_not_be_released() {
    let first = own_config();
    let mut world = World::new(&first).await;
    lay_out_kubeadm(&world);
    let before = machine_state(&world);
    world.start_daemon();
    world.annotate(ADOPTION_REQUEST, "adopt 1").await;
    until_phase(&world, "Adopted", "adopt 1").await;
    world.target(&first).await;
    world.until_done(&first).await;
    world.until_idle().await;
    world.write("/etc/chrony.conf", "server edited\n");
    world.until_failing("Degraded", "unexpected on-disk state").await;
    world.annotate(ADOPTION_REQUEST, "release 2").await;
    until_phase(&world, "Released", "release 2").await;
    world.stop_daemon().await;
    assert_eq!(machine_state(&world), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_cannot_be_compared_did_not_answer() {
    let first = own_config();
    let mut world = World::new(&first).await;
    world.write("/etc/chrony.conf/sources", "server ntp.corp\n");
    world.start_daemon();
    let unasked = until_phase(&world, "Failed", "").await;
    assert_eq!(unasked.pool, "worker");
    for request in ["compare 1", "adopt 2"] {
        world.annotate(ADOPTION_REQUEST, request).await;
        let status = until_phase(&world, "Failed", request).await;
        assert!(
            status.message.contains("/etc/chrony.conf exists and is"),
            "{}",
            status.message
        );
    }
    world.stop_daemon().await;
    assert!(!world.path(paths::STATE_DIRECTORY).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guarded_path_prevents_the_adoption_on_request_too() {
    let first = names_kubelet_conf("rendered-worker-1");
    let mut world = World::new(&first).await;
    lay_out_kubeadm(&world);
    let before = snapshot(world.root.path());
    world.start_daemon();
    world.annotate(ADOPTION_REQUEST, "adopt 1").await;
    let status = until_phase(&world, "Failed", "adopt 1").await;
    assert!(
        status
            .message
            .contains("/etc/kubernetes/kubelet.conf (it is a credential"),
        "{}",
        status.message
    );
    assert!(status.differences[0].guarded.is_some());
    assert_eq!(
        status.differences[0].found.as_ref().unwrap().sha256,
        None,
        "not world-readable"
    );
    world.stop_daemon().await;
    assert_eq!(snapshot(world.root.path()), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_installed_from_its_config_cannot_be_released() {
    let first = config("rendered-worker-1", &files(&[file("/etc/a", "1\n")]));
    let mut world = World::installed(&first).await;
    world.start_daemon();
    world.until_done(&first).await;
    world.annotate(ADOPTION_REQUEST, "release 1").await;
    let status = until_phase(&world, "Failed", "release 1").await;
    assert!(
        status.message.contains("installed from its config"),
        "{}",
        status.message
    );
    world.until_done(&first).await;
    assert_eq!(world.read("/etc/a"), "1\n");
    world.stop_daemon().await;
}
