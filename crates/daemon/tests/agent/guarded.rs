//! Configs that would take the start of the kubelet or the container runtime away from a machine that existed before,
//! although their own text looks harmless.

use mco_api::vocabulary::annotations::node as annotation;
use mco_daemon::paths;
use serde_json::{Value, json};

use crate::adoption::{lay_out_kubeadm, machine_state};
use crate::support::{config, file, files};
use crate::world::World;

/// Forces a config on a kubeadm worker, and expects that it is refused because of this path.
async fn expect_refused(body: &Value, path: &str) {
    let first = config("rendered-worker-1", body);
    let mut world = World::new(&first).await;
    lay_out_kubeadm(&world);
    world.write(
        "/etc/systemd/system/kubelet.service.d/05-corp.conf",
        "[Service]\nEnvironment=A=B\n",
    );
    world.write(
        "/etc/systemd/system/k3s-agent.service",
        "[Service]\nExecStart=/usr/local/bin/k3s agent\n",
    );
    world.write(
        "/etc/default/kubelet",
        "KUBELET_EXTRA_ARGS=--kubeconfig=/etc/corp.conf\n",
    );
    let before = machine_state(&world);
    world.annotate(annotation::CURRENT_CONFIG, first.name()).await;
    world.target(&first).await;
    world.write(paths::FORCE_FILE, "");
    world.start_daemon();
    let reason = format!("{path} (it changes how the kubelet or the container runtime is started)");
    world.until_failing("Degraded", &reason).await;
    world.stop_daemon().await;
    assert_eq!(machine_state(&world), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_in_that_hides_the_one_of_kubeadm_is_refused() {
    let kubeadm = "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf";
    let dropin = json!({"name": "10-kubeadm.conf", "contents": "[Service]\nNice=1\n"});
    let units = json!({"systemd": {"units": [{"name": "kubelet.service", "dropins": [dropin]}]}});
    expect_refused(&units, kubeadm).await;
    expect_refused(&files(&[file(kubeadm, "[Service]\nNice=1\n")]), kubeadm).await;
    // The same name as another file that sets the command.
    let vendor = "/etc/systemd/system/service.d/20-vendor.conf";
    let units = files(&[file(vendor, "")]);
    let first = config("rendered-worker-1", &units);
    let mut world = World::new(&first).await;
    world.write(
        "/usr/lib/systemd/system/service.d/20-vendor.conf",
        "[Service]\nEnvironmentFile=/etc/vendor.env\n",
    );
    world.annotate(annotation::CURRENT_CONFIG, first.name()).await;
    world.target(&first).await;
    world.write(paths::FORCE_FILE, "");
    world.start_daemon();
    world.until_failing("Degraded", vendor).await;
    world.stop_daemon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_in_without_contents_deleted_the_one_of_the_administrator() {
    let units = json!({"systemd": {"units": [
        {"name": "kubelet.service", "dropins": [{"name": "05-corp.conf", "contents": ""}]},
    ]}});
    expect_refused(&units, "/etc/systemd/system/kubelet.service.d/05-corp.conf").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unmasking_deleted_the_unit_file_of_k3s() {
    let units = json!({"systemd": {"units": [{"name": "k3s-agent.service", "mask": false}]}});
    expect_refused(&units, "/etc/systemd/system/k3s-agent.service").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kubelets_arguments_are_not_replaced_where_they_name_its_credentials() {
    let body = files(&[file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--v=2\n")]);
    expect_refused(&body, "/etc/default/kubelet").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn additive_drop_ins_of_the_kubelet_are_applied_changed_and_removed() {
    let dropin = |contents: &str| {
        json!({"systemd": {"units": [{"name": "kubelet.service", "dropins": [
            {"name": "20-mco-config-dir.conf", "contents": contents},
        ]}]}})
    };
    let own = "[Service]\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml\"\n";
    let first = config("rendered-worker-1", &dropin(own));
    let mut world = World::new(&first).await;
    lay_out_kubeadm(&world);
    let before = machine_state(&world);
    world.annotate(annotation::CURRENT_CONFIG, first.name()).await;
    world.target(&first).await;
    world.write(paths::FORCE_FILE, "");
    world.start_daemon();
    world.until_done(&first).await;
    for (name, body) in [
        ("rendered-worker-2", dropin("[Service]\nNice=1\n")),
        ("rendered-worker-3", dropin("")),
        ("rendered-worker-4", json!({})),
    ] {
        let next = config(name, &body);
        world.publish_and_target(&next).await;
        world.until_done(&next).await;
    }
    world.stop_daemon().await;
    assert_eq!(machine_state(&world), before);
}
