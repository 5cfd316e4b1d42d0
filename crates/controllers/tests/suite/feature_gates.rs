//! Feature gates that change while the controllers run.

use kube::api::{Patch, PatchParams, PostParams};
use mco_api::foreign::feature_gate::FeatureGate;
use serde_json::{Value, json};

use crate::cluster::{Cluster, eventually, target};
use crate::generated::file;

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
