//! Whether control-plane nodes accept user workloads.

use k8s_openapi::api::core::v1::Node;
use kube::api::DeleteParams;
use mco_api::foreign::scheduler::Scheduler;
use mco_simulator::{self as fleet, SimulatedNodeSpec};
use serde_json::json;

use crate::cluster::{Cluster, eventually};

/// Returns the node's roles and the keys of its NoSchedule taints.
fn shape(node: &Node) -> (Vec<String>, Vec<String>) {
    let labels = node.metadata.labels.iter().flatten();
    let roles = labels.filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"));
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let taints = taints.filter(|taint| taint.effect == "NoSchedule");
    (
        roles.map(str::to_owned).collect(),
        taints.map(|taint| taint.key.clone()).collect(),
    )
}

async fn becomes(cluster: &Cluster, roles: &[&str], taints: &[&str]) {
    let what = format!("master-0 has the roles {roles:?} and the taints {taints:?}");
    eventually(&what, || async {
        let (has_roles, has_taints) = shape(&cluster.node("master-0").await);
        (has_roles == roles && has_taints == taints).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn control_plane_nodes_follow_the_schedulers_settings() {
    let mut cluster = Cluster::prepare().await;
    cluster.define("Scheduler", "schedulers", "v1", "Cluster").await;
    cluster.start_controllers();
    let machines = [
        SimulatedNodeSpec::new("master-0", "master"),
        SimulatedNodeSpec::new("worker-0", "worker"),
    ];
    fleet::create(&cluster.client, &machines).await.unwrap();
    becomes(&cluster, &["control-plane", "master"], &[]).await;
    let open: Scheduler = serde_json::from_value(json!({
        "metadata": {"name": "cluster"}, "spec": {"mastersSchedulable": true},
    }))
    .unwrap();
    cluster.create(&open).await;
    becomes(&cluster, &["control-plane", "master", "worker"], &[]).await;
    let _: Scheduler = cluster
        .patch("cluster", json!({"spec": {"mastersSchedulable": false}}))
        .await;
    let kept_away = ["node-role.kubernetes.io/master"];
    becomes(&cluster, &["control-plane", "master"], &kept_away).await;
    let _: Scheduler = cluster
        .patch("cluster", json!({"spec": {"mastersSchedulable": true}}))
        .await;
    becomes(&cluster, &["control-plane", "master", "worker"], &[]).await;
    let (roles, taints) = shape(&cluster.node("worker-0").await);
    assert_eq!(
        (roles, taints),
        (vec!["worker".to_owned()], vec![]),
        "a worker is not meant"
    );
    let schedulers = cluster.api::<Scheduler>();
    schedulers
        .delete("cluster", &DeleteParams::default())
        .await
        .unwrap();
    becomes(&cluster, &["control-plane", "master"], &kept_away).await;
}
