//! Feature gates that change while the controllers run.

use kube::api::{Patch, PatchParams, PostParams};
use mco_api::foreign::feature_gate::FeatureGate;
use mco_api::{ContainerRuntimeConfig, MachineConfig, MachineConfigNode};
use mco_simulator::Behaviour;
use serde_json::{Value, json};

use crate::cluster::{Cluster, eventually, file_config, target};
use crate::generated::{file, file_of};

const CONFIG: &str = "98-worker-generated-kubelet";
const CONF: &str = "/etc/kubernetes/kubelet.conf";

fn gates(version: &str, enabled: &[&str], disabled: &[&str]) -> Value {
    let named = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Value>();
    json!({"version": version, "enabled": named(enabled), "disabled": named(disabled)})
}

async fn set(cluster: &Cluster, versions: &[Value]) {
    let patch = Patch::Merge(json!({"status": {"featureGates": versions}}));
    let api = cluster.api::<FeatureGate>();
    api.patch_status("cluster", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

async fn kubelet_has(cluster: &Cluster, line: &str) {
    eventually(&format!("{CONFIG} has {line:?}"), || async {
        file(cluster, CONFIG, CONF).await.contains(line).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gates_that_change_or_are_unknown_take_effect_without_a_restart() {
    let mut cluster = Cluster::prepare().await;
    cluster
        .define("FeatureGate", "featuregates", "v1", "Cluster")
        .await;
    let object: FeatureGate = serde_json::from_value(json!({"metadata": {"name": "cluster"}})).unwrap();
    cluster
        .api::<FeatureGate>()
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
    set(&cluster, &[gates("1", &["KubeletInventedHere"], &[])]).await;
    cluster.start_controllers();
    let first = target(&cluster.updated("worker").await);
    kubelet_has(&cluster, "KubeletInventedHere: true\n").await;

    set(&cluster, &[gates("1", &[], &["KubeletInventedHere"])]).await;
    kubelet_has(&cluster, "KubeletInventedHere: false\n").await;
    let second = cluster.retargeted("worker", &first).await;

    // No entry is of this release: what is in force stays, and the problem is reported.
    set(
        &cluster,
        &[gates("2", &["KubeletInventedHere"], &[]), gates("3", &[], &[])],
    )
    .await;
    eventually("the problem is reported", || async {
        let status = cluster.controller_config().await.status?;
        let failing = status
            .conditions
            .into_iter()
            .find(|one| one.type_ == "TemplateControllerFailing")?;
        (failing.status == "True" && failing.message.contains("it has 2, 3")).then_some(())
    })
    .await;
    assert!(
        file(&cluster, CONFIG, CONF)
            .await
            .contains("KubeletInventedHere: false\n")
    );
    assert_eq!(target(&cluster.pool("worker").await), second);

    set(&cluster, &[gates("1", &["KubeletInventedHere"], &[])]).await;
    kubelet_has(&cluster, "KubeletInventedHere: true\n").await;
    assert_eq!(
        cluster.retargeted("worker", &second).await,
        first,
        "the same gates, the same config"
    );
}

/// Pools count their nodes by the MachineConfigNodes while `ImageModeStatusReporting` is enabled.
#[tokio::test(flavor = "multi_thread")]
async fn the_gate_of_image_mode_changes_how_nodes_are_counted_without_a_restart() {
    const GATE: &str = "ImageModeStatusReporting";
    let behaviour = Behaviour {
        report_steps: true,
        ..Behaviour::default()
    };
    let cluster = {
        let mut cluster = Cluster::prepare().await;
        cluster
            .define("FeatureGate", "featuregates", "v1", "Cluster")
            .await;
        let object: FeatureGate = serde_json::from_value(json!({"metadata": {"name": "cluster"}})).unwrap();
        let api = cluster.api::<FeatureGate>();
        api.create(&PostParams::default(), &object).await.unwrap();
        set(&cluster, &[gates("1", &[], &[GATE])]).await;
        cluster.start_controllers();
        cluster.start_nodes(2, behaviour).await;
        cluster
    };
    let counts = |expected: [i32; 2]| {
        let cluster = &cluster;
        async move {
            eventually(
                &format!("{expected:?} nodes are updated and degraded"),
                || async {
                    let status = cluster.pool("worker").await.status?;
                    ([status.updated_machine_count, status.degraded_machine_count] == expected).then_some(())
                },
            )
            .await;
        }
    };
    let report = |node: &'static str, type_: &'static str, status: &'static str| {
        let cluster = &cluster;
        async move {
            let api = cluster.api::<MachineConfigNode>();
            let mut object = api.get(node).await.unwrap().status.unwrap_or_default();
            for condition in &mut object.conditions {
                if condition.type_ == type_ {
                    status.clone_into(&mut condition.status);
                }
            }
            let patch = Patch::Merge(json!({"status": {"conditions": object.conditions}}));
            api.patch_status(node, &PatchParams::default(), &patch)
                .await
                .unwrap();
        }
    };
    // New nodes have nothing to report; after an update they do.
    let before = target(&cluster.pool("worker").await);
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    cluster.retargeted("worker", &before).await;
    cluster.updated("worker").await;
    for node in ["worker-0", "worker-1"] {
        eventually(&format!("{node} reports that it is updated"), || async {
            let object: MachineConfigNode = cluster.api().get(node).await.unwrap();
            let conditions = object.status?.conditions.into_iter();
            let mut updated = conditions.filter(|one| one.type_ == "Updated" && one.status == "True");
            updated.next().map(drop)
        })
        .await;
    }
    cluster.at_rest().await;
    counts([2, 0]).await;
    report("worker-0", "Updated", "False").await;
    report("worker-1", "NodeDegraded", "True").await;
    cluster.at_rest().await;
    counts([2, 0]).await;

    set(&cluster, &[gates("1", &[GATE], &[])]).await;
    counts([1, 1]).await;
    report("worker-0", "Updated", "True").await;
    counts([2, 1]).await;
    report("worker-1", "NodeDegraded", "False").await;
    counts([2, 0]).await;

    report("worker-0", "Updated", "False").await;
    counts([1, 0]).await;
    set(&cluster, &[gates("1", &[], &[GATE])]).await;
    counts([2, 0]).await;
}

/// A gate of a generator other than the kubelet's.
#[tokio::test(flavor = "multi_thread")]
async fn stores_follow_their_gate_without_a_restart() {
    const GATE: &str = "AdditionalStorageConfig";
    const STORE: &str = "/var/lib/prefetched-layers";
    let mut cluster = Cluster::prepare().await;
    cluster
        .define("FeatureGate", "featuregates", "v1", "Cluster")
        .await;
    let object: FeatureGate = serde_json::from_value(json!({"metadata": {"name": "cluster"}})).unwrap();
    cluster.create(&object).await;
    set(&cluster, &[gates("1", &[], &[GATE])]).await;
    let stores: ContainerRuntimeConfig = serde_json::from_value(json!({
        "metadata": {"name": "stores"},
        "spec": {
            "machineConfigPoolSelector": {"matchLabels": {
                "pools.operator.machineconfiguration.openshift.io/worker": "",
            }},
            "containerRuntimeConfig": {"pidsLimit": 2048, "additionalLayerStores": [{"path": STORE}]},
        },
    }))
    .unwrap();
    cluster.create(&stores).await;
    cluster.start_controllers();
    let shown = |expected: bool| {
        let cluster = &cluster;
        async move {
            eventually(&format!("the store is configured: {expected}"), || async {
                let name = "99-worker-generated-containerruntime";
                let config = cluster.api::<MachineConfig>().get_opt(name).await.unwrap()?;
                let storage = file_of(&config, "/etc/containers/storage.conf").unwrap_or_default();
                (storage.contains(STORE) == expected).then_some(())
            })
            .await;
        }
    };
    shown(false).await;
    set(&cluster, &[gates("1", &[GATE], &[])]).await;
    shown(true).await;
    set(&cluster, &[gates("1", &[], &[GATE])]).await;
    shown(false).await;
}
