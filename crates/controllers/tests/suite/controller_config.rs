//! The ControllerConfig's status while the base configs are rendered.

use std::sync::Arc;

use futures::StreamExt as _;
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DeleteParams;
use kube::runtime::watcher::{self, Event, watcher};
use mco_api::{ControllerConfig, MachineConfigNode, MachineConfigPool};
use mco_simulator::{self as fleet, Behaviour, SimulatedNodeSpec};
use parking_lot::Mutex;
use serde_json::json;

use crate::cluster::{Cluster, VERSION, eventually, file_config, refusing, target};

/// Records the conditions that are True, each time they change.
fn watch(cluster: &Cluster) -> Arc<Mutex<Vec<String>>> {
    let notes: Arc<Mutex<Vec<String>>> = Arc::default();
    let taking = Arc::clone(&notes);
    let configs = cluster.api::<ControllerConfig>();
    tokio::spawn(async move {
        let mut events = watcher(configs, watcher::Config::default()).boxed();
        while let Some(Ok(event)) = events.next().await {
            let (Event::Apply(config) | Event::InitApply(config)) = event else {
                continue;
            };
            let status = config.status.unwrap_or_default();
            let reported = status.conditions.iter().filter(|one| one.status == "True");
            let reported: Vec<String> = reported
                .map(|one| format!("{}: {}", one.type_, one.message))
                .collect();
            let reported = reported.join(", ");
            let mut notes = taking.lock();
            if notes.last() != Some(&reported) {
                notes.push(reported);
            }
        }
    });
    notes
}

#[tokio::test(flavor = "multi_thread")]
async fn rendering_is_reported_while_it_runs_and_nothing_is_reported_twice() {
    let mut cluster = Cluster::prepare().await;
    let notes = watch(&cluster);
    eventually("the watch", || async { (!notes.lock().is_empty()).then_some(()) }).await;
    cluster.start_controllers();
    let story = |generation: i64, version: &str| {
        let towards = format!("towards ({generation}) generation using controller version {version}");
        [
            format!("TemplateControllerRunning: syncing {towards}"),
            format!("TemplateControllerCompleted: sync completed {towards}"),
        ]
    };
    let mut expected = vec![String::new()];
    expected.extend(story(1, VERSION));
    eventually("the first story", || async {
        (*notes.lock() == expected).then_some(())
    })
    .await;

    let change = json!({"spec": {"clusterDNSIP": "10.96.0.99"}});
    let _: ControllerConfig = cluster.patch("machine-config-controller", change).await;
    expected.extend(story(2, VERSION));
    eventually("the story of a change", || async {
        (*notes.lock() == expected).then_some(())
    })
    .await;

    cluster.updated("worker").await;
    let before = cluster.pool("worker").await;
    cluster.stop_controllers().await;
    cluster.start_controllers();
    // No pool is rendered before the base configs.
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    cluster.retargeted("worker", before.target_name()).await;
    cluster.at_rest().await;
    assert_eq!(*notes.lock(), expected, "a restart alone is no news");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_cannot_be_written_keeps_no_pool_from_being_rendered() {
    let mut cluster = Cluster::prepare().await;
    let client = refusing(cluster.counted_client(), |method, path| {
        *method == Method::PATCH && path.ends_with("/controllerconfigs/machine-config-controller/status")
    });
    cluster.start_controllers_through(client, cluster.options());
    cluster.updated("worker").await;
    assert_eq!(cluster.controller_config().await.status, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_config_that_comes_late_and_from_another_version_lets_nodes_go_on() {
    let mut cluster = Cluster::start(1, Behaviour::default()).await;
    let before = target(&cluster.pool("worker").await);
    let _: MachineConfigPool = cluster.patch("worker", json!({"spec": {"paused": true}})).await;
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    let after = cluster.retargeted("worker", &before).await;
    cluster.stop_controllers().await;
    let mut config = cluster.controller_config().await;
    let configs = cluster.api::<ControllerConfig>();
    let name = config.metadata.name.clone().unwrap();
    configs.delete(&name, &DeleteParams::default()).await.unwrap();
    let _: MachineConfigPool = cluster.patch("worker", json!({"spec": {"paused": false}})).await;
    cluster.start_controllers();
    // This write means that the template controller has begun, and all renders wait.
    fleet::create(&cluster.client, &[SimulatedNodeSpec::new("worker-1", "worker")])
        .await
        .unwrap();
    eventually("the new node has its object", || async {
        cluster
            .api::<MachineConfigNode>()
            .get_opt("worker-1")
            .await
            .unwrap()
    })
    .await;
    cluster.at_rest().await;

    let versions = config.metadata.annotations.take().unwrap();
    let versions = versions.into_iter().map(|(key, version)| {
        let version = version.replace(VERSION, "v-other");
        (key, version)
    });
    config.metadata = ObjectMeta {
        name: Some(name),
        annotations: Some(versions.collect()),
        ..ObjectMeta::default()
    };
    config.status = None;
    cluster.create(&config).await;
    eventually("the node has the target that was there", || async {
        let node = cluster.node("worker-0").await;
        (Cluster::annotation(&node, "currentConfig") == after).then_some(())
    })
    .await;
}
