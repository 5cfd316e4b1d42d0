//! Targets of pools: nodes are updated only to targets that a render has set.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use k8s_openapi::api::core::v1::Node;
use mco_api::MachineConfigPool;
use mco_simulator::Behaviour;
use serde_json::{Value, json};

use crate::cluster::{Cluster, eventually, file_config, holds, message, refusing, target};
use crate::observer::Observer;

/// A patch of spec.configuration by another client.
fn foreign(pool: &MachineConfigPool) -> Value {
    json!({"spec": {"configuration": pool.spec.configuration}})
}

async fn undone(cluster: &Cluster, own: &str) {
    cluster
        .pool_where("worker", "has its own target again", |pool| target(pool) == own)
        .await;
    cluster.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_node_is_updated_to_a_target_of_another_client_not_even_after_a_restart() {
    let mut cluster = Cluster::start(2, Behaviour::default()).await;
    let old = cluster.pool("worker").await;
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    let own = cluster.retargeted("worker", &target(&old)).await;
    cluster.updated("worker").await;
    cluster.at_rest().await;
    let observer = Observer::start(cluster.api());
    eventually("the observer sees the nodes", || async {
        (observer.sent("worker-1") == [own.as_str()]).then_some(())
    })
    .await;
    let _: MachineConfigPool = cluster.patch("worker", foreign(&old)).await;
    undone(&cluster, &own).await;

    cluster.stop_controllers().await;
    let _: MachineConfigPool = cluster.patch("worker", foreign(&old)).await;
    cluster.start_controllers();
    undone(&cluster, &own).await;
    for node in ["worker-0", "worker-1"] {
        assert_eq!(observer.sent(node), [own.as_str()], "{node}");
    }
    assert_eq!(observer.ever(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_cannot_be_rendered_goes_on_to_its_last_good_target_also_after_a_restart() {
    let mut cluster = Cluster::start(2, Behaviour::default()).await;
    let old = cluster.pool("worker").await;
    let _: MachineConfigPool = cluster.patch("worker", json!({"spec": {"paused": true}})).await;
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    let good = cluster.retargeted("worker", &target(&old)).await;
    let bad = json!({
        "metadata": {"name": "99-worker-bad", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {"ignition": {"version": "9.9.9"}}},
    });
    cluster.create_config(bad).await;
    cluster
        .pool_where("worker", "cannot be rendered", |pool| {
            holds(pool, "RenderDegraded")
        })
        .await;
    cluster.stop_controllers().await;
    let _: MachineConfigPool = cluster.patch("worker", json!({"spec": {"paused": false}})).await;
    cluster.start_controllers();
    for node in ["worker-0", "worker-1"] {
        eventually(&format!("{node} has the last good config"), || async {
            let node = cluster.node(node).await;
            let is_there = Cluster::annotation(&node, "currentConfig") == good;
            (is_there && Cluster::annotation(&node, "state") == "Done").then_some(())
        })
        .await;
    }
    let pool = cluster.pool("worker").await;
    assert!(holds(&pool, "RenderDegraded"));
    cluster.at_rest().await;
    let observer = Observer::start(cluster.api());
    eventually("the observer sees the nodes", || async {
        (observer.sent("worker-1") == [good.as_str()]).then_some(())
    })
    .await;
    // A foreign target is replaced without a render.
    let _: MachineConfigPool = cluster.patch("worker", foreign(&old)).await;
    undone(&cluster, &good).await;
    for node in ["worker-0", "worker-1"] {
        assert_eq!(observer.sent(node), [good.as_str()], "{node}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_with_a_target_of_another_that_cannot_be_rendered_reports_it() {
    let cluster = Cluster::start(2, Behaviour::default()).await;
    let worker = cluster.pool("worker").await;
    let bad = json!({
        "metadata": {"name": "99-infra-bad", "labels": {"machineconfiguration.openshift.io/role": "infra"}},
        "spec": {"config": {"ignition": {"version": "9.9.9"}}},
    });
    cluster.create_config(bad).await;
    let _: Node = cluster
        .patch(
            "worker-0",
            json!({"metadata": {"labels": {"node-role.kubernetes.io/infra": ""}}}),
        )
        .await;
    // As by a user who edits a copy of the worker pool.
    let copy: MachineConfigPool = serde_json::from_value(json!({
        "metadata": {"name": "infra"},
        "spec": {
            "machineConfigSelector": {"matchExpressions": [
                {"key": "machineconfiguration.openshift.io/role", "operator": "In", "values": ["worker", "infra"]},
            ]},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/infra": ""}},
            "configuration": worker.spec.configuration,
        },
    }))
    .unwrap();
    cluster.create(&copy).await;
    let pool = cluster
        .pool_where("infra", "reports that it cannot be rendered", |pool| {
            holds(pool, "RenderDegraded") && holds(pool, "Degraded")
        })
        .await;
    assert!(message(&pool, "RenderDegraded").contains("99-infra-bad"));
    assert!(!holds(&pool, "Updated") && !holds(&pool, "Updating"));
    let status = pool.status.clone().unwrap();
    assert_eq!(Some(status.observed_generation), pool.metadata.generation);
    assert_eq!((status.machine_count, status.updated_machine_count), (1, 0));
    cluster.delete_config("99-infra-bad").await;
    let healed = cluster
        .pool_where("infra", "is healed", |pool| {
            holds(pool, "Updated") && !holds(pool, "RenderDegraded")
        })
        .await;
    assert!(target(&healed).starts_with("rendered-infra-"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_rendered_config_the_api_refuses_reports_it_until_it_is_accepted() {
    let mut cluster = Cluster::prepare().await;
    let refuses: Arc<AtomicBool> = Arc::default();
    let asked = Arc::clone(&refuses);
    let client = refusing(cluster.counted_client(), move |method, path| {
        let creates = *method == Method::POST && path.ends_with("/machineconfigs");
        creates && asked.load(Ordering::Relaxed)
    });
    cluster.start_controllers_through(client, cluster.options());
    let before = target(&cluster.updated("worker").await);
    cluster.updated("master").await;
    refuses.store(true, Ordering::Relaxed);
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    let pool = cluster
        .pool_where("worker", "reports that its config cannot be written", |pool| {
            holds(pool, "RenderDegraded") && holds(pool, "Degraded")
        })
        .await;
    let reported = message(&pool, "RenderDegraded");
    assert!(
        reported.contains("creating MachineConfig rendered-worker-") && reported.ends_with("not today"),
        "{reported}"
    );
    assert_eq!(target(&pool), before);
    refuses.store(false, Ordering::Relaxed);
    cluster.retargeted("worker", &before).await;
    cluster
        .pool_where("worker", "is healed", |pool| {
            !holds(pool, "RenderDegraded") && !holds(pool, "Degraded")
        })
        .await;
}
