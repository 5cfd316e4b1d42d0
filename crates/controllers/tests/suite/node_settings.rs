//! The cluster's node settings, and settings that are prohibited.

use mco_api::foreign::node::Node as NodeSettings;
use mco_api::{KubeletConfig, MachineConfigPool};
use serde_json::json;

use crate::cluster::{Cluster, eventually, target};
use crate::generated::file;

const CONFIG: &str = "97-worker-generated-kubelet";
const CONF: &str = "/etc/kubernetes/kubelet.conf";

fn settings(name: &str, profile: &str) -> NodeSettings {
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"workerLatencyProfile": profile}}))
        .unwrap()
}

async fn ask(cluster: &Cluster, profile: &str) {
    let _: NodeSettings = cluster
        .patch("cluster", json!({"spec": {"workerLatencyProfile": profile}}))
        .await;
}

async fn reports_every(cluster: &Cluster, interval: &str) {
    let line = format!("nodeStatusUpdateFrequency: {interval}\n");
    eventually(&format!("{CONFIG} has {line:?}"), || async {
        file(cluster, CONFIG, CONF).await.contains(&line).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_latency_profile_never_jumps_not_even_by_a_restart_and_other_names_have_no_effect() {
    const LOW: &str = "LowUpdateSlowReaction";
    const MEDIUM: &str = "MediumUpdateAverageReaction";
    let mut cluster = Cluster::prepare().await;
    cluster.define("Node", "nodes", "v1", "Cluster").await;
    cluster.create(&settings("cluster", "Default")).await;
    cluster.start_controllers();
    let before = target(&cluster.updated("worker").await);
    reports_every(&cluster, "10s").await;

    cluster.create(&settings("mine", LOW)).await;
    let misnamed = cluster
        .event("mine", "ActionProhibited", "must be \"cluster\"")
        .await;
    assert_eq!(misnamed.type_.as_deref(), Some("Normal"));
    assert_eq!(
        misnamed.note.as_deref(),
        Some(
            "The node.config.openshift.io \"mine\" is invalid: metadata.name Invalid value: \"mine\" : must be \"cluster\""
        )
    );

    ask(&cluster, LOW).await;
    let skipped = cluster.event("cluster", "ActionProhibited", "Skipping").await;
    assert_eq!(skipped.type_.as_deref(), Some("Normal"));
    assert_eq!(
        skipped.note.as_deref(),
        Some(
            "Skipping the Update Node event, name: cluster, transition not allowed from old WorkerLatencyProfile: \
             \"Default\" to new WorkerLatencyProfile: \"LowUpdateSlowReaction\""
        )
    );
    cluster.stop_controllers().await;
    cluster.start_controllers();
    // Another config of the same generator proves that it has read the settings again.
    let label = json!({"metadata": {"labels": {"custom-kubelet": "small"}}});
    let _: MachineConfigPool = cluster.patch("worker", label).await;
    let marker: KubeletConfig = serde_json::from_value(json!({
        "metadata": {"name": "marker"},
        "spec": {"logLevel": 4, "machineConfigPoolSelector": {"matchLabels": {"custom-kubelet": "small"}}},
    }))
    .unwrap();
    cluster.create(&marker).await;
    let with_marker = cluster.retargeted("worker", &before).await;
    for config in [CONFIG, &with_marker] {
        let conf = file(&cluster, config, CONF).await;
        assert!(
            conf.contains("nodeStatusUpdateFrequency: 10s\n"),
            "{config} {conf}"
        );
    }

    for (profile, interval) in [(MEDIUM, "20s"), (LOW, "1m0s")] {
        ask(&cluster, profile).await;
        reports_every(&cluster, interval).await;
    }
    ask(&cluster, "").await;
    cluster
        .event(
            "cluster",
            "ActionProhibited",
            "\"LowUpdateSlowReaction\" to new WorkerLatencyProfile: \"\"",
        )
        .await;
    reports_every(&cluster, "1m0s").await;
}
