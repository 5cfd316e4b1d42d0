//! A typical user's journey, from the first MachineConfig to a custom pool.

use k8s_openapi::api::core::v1::Node;
use mco_api::{MachineConfig, MachineConfigPool};
use mco_simulator::Behaviour;
use serde_json::json;

use crate::cluster::{Cluster, eventually, file_config, holds, message, target};
use crate::observer::Observer;

#[tokio::test(flavor = "multi_thread")]
async fn from_the_first_config_to_a_pool_of_ones_own() {
    let cluster = Cluster::start(3, Behaviour::default()).await;
    let observer = Observer::start(cluster.api());

    // A new MachineConfig; a new rendered one appears with the controller's version and the Ignition version.
    let worker = target(&cluster.pool("worker").await);
    cluster
        .create_config(file_config("99-worker-test", "worker", "/etc/test", "hello"))
        .await;
    let with_test = cluster.retargeted("worker", &worker).await;
    let updating = cluster
        .pool_where("worker", "is updating", |pool| {
            holds(pool, "Updating") && !holds(pool, "Updated")
        })
        .await;
    assert_eq!(
        updating.status.clone().unwrap().configuration.name(),
        worker,
        "CONFIG shows the old config"
    );
    let rendered: MachineConfig = cluster.api().get(&with_test).await.unwrap();
    let annotations = rendered.metadata.annotations.unwrap();
    assert_eq!(
        annotations["machineconfiguration.openshift.io/generated-by-controller-version"],
        crate::cluster::VERSION
    );
    assert_eq!(rendered.spec.config.unwrap()["ignition"]["version"], "3.5.0");
    let done = cluster.updated("worker").await;
    let status = done.status.clone().unwrap();
    assert_eq!(
        (
            status.machine_count,
            status.ready_machine_count,
            status.updated_machine_count,
            status.unavailable_machine_count,
            status.degraded_machine_count
        ),
        (3, 3, 3, 0, 0)
    );
    assert_eq!(
        message(&done, "Updated"),
        format!("All nodes are updated with MachineConfig {with_test}")
    );
    assert_eq!(observer.worst("worker"), 1);

    // A custom pool with an Ignition 2.2.0 config, and a node that is relabelled into it.
    let infra: MachineConfigPool = serde_json::from_value(json!({
        "metadata": {"name": "infra"},
        "spec": {
            "machineConfigSelector": {"matchExpressions": [
                {"key": "machineconfiguration.openshift.io/role", "operator": "In", "values": ["worker", "infra"]},
            ]},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/infra": ""}},
            "paused": false,
        },
    }))
    .unwrap();
    cluster.create(&infra).await;
    cluster
        .create_config(json!({
            "metadata": {"name": "50-infra", "labels": {"machineconfiguration.openshift.io/role": "infra"}},
            "spec": {"config": {
                "ignition": {"version": "2.2.0"},
                "storage": {"files": [
                    {"contents": {"source": "data:,test"}, "filesystem": "root", "mode": 420, "path": "/etc/testinfra"},
                ]},
            }},
        }))
        .await;
    let empty = cluster
        .pool_where("infra", "has a target with the old config in it", |pool| {
            pool.spec
                .configuration
                .source
                .iter()
                .any(|source| source.name.as_deref() == Some("50-infra"))
                && holds(pool, "Updated")
        })
        .await;
    assert_eq!(empty.status.clone().unwrap().machine_count, 0);
    let infra_target = target(&empty);
    let _: Node = cluster
        .patch(
            "worker-2",
            json!({"metadata": {"labels": {"node-role.kubernetes.io/infra": "", "node-role.kubernetes.io/worker": null}}}),
        )
        .await;
    let infra = cluster
        .pool_where("infra", "has the node", |pool| {
            holds(pool, "Updated")
                && pool
                    .status
                    .as_ref()
                    .is_some_and(|status| status.updated_machine_count == 1)
        })
        .await;
    assert_eq!(target(&infra), infra_target);
    let node = cluster.node("worker-2").await;
    assert_eq!(Cluster::annotation(&node, "currentConfig"), infra_target);
    cluster
        .pool_where("worker", "has one node less", |pool| {
            holds(pool, "Updated")
                && pool
                    .status
                    .as_ref()
                    .is_some_and(|status| status.machine_count == 2)
        })
        .await;
    eventually("the node's object has moved", || async {
        let object: mco_api::MachineConfigNode = cluster.api().get("worker-2").await.unwrap();
        (object.spec.pool.name == "infra").then_some(())
    })
    .await;

    // A node is forced to another config by its annotations while its pool is paused; then the pool updates it again.
    let _: MachineConfigPool = cluster.patch("worker", json!({"spec": {"paused": true}})).await;
    let forced = json!({"metadata": {"annotations": {
        "machineconfiguration.openshift.io/currentConfig": worker,
        "machineconfiguration.openshift.io/desiredConfig": worker,
    }}});
    let _: Node = cluster.patch("worker-0", forced).await;
    let held = cluster
        .pool_where("worker", "counts one node less as updated", |pool| {
            pool.status
                .as_ref()
                .is_some_and(|status| status.updated_machine_count == 1)
        })
        .await;
    assert!(message(&held, "Updating").starts_with("Pool is paused"));
    let _: MachineConfigPool = cluster.patch("worker", json!({"spec": {"paused": false}})).await;
    cluster.updated("worker").await;
    let node = cluster.node("worker-0").await;
    assert_eq!(Cluster::annotation(&node, "currentConfig"), with_test);
    assert_eq!(
        observer.sent("worker-0"),
        [worker.clone(), with_test.clone(), worker, with_test]
    );
    assert_eq!(observer.worst("worker"), 1, "never more than one at a time");
    assert_eq!(observer.worst("master"), 0, "and never a control-plane node");
}
