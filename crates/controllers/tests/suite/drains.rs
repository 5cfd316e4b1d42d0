//! Draining nodes that run pods, with budgets that say no.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use mco_api::MachineConfigPool;
use mco_testkit::fleet::Behaviour;
use serde_json::{Value, json};

use crate::cluster::{Cluster, eventually, file_config, message, target};

async fn pod(cluster: &Cluster, namespace: &str, name: &str, node: &str, extra: Value) {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    let mut pod = json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "registry.example/app"}]},
    });
    if let Some(metadata) = extra.as_object() {
        for (key, value) in metadata {
            pod["metadata"][key] = value.clone();
        }
    }
    let pod: Pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let running =
        json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(running))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_says_no_is_named_and_others_go_on_and_it_ends_when_the_budget_allows() {
    let cluster = Cluster::start(3, Behaviour::default()).await;
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some("shop".to_owned());
    cluster.create(&namespace).await;
    pod(
        &cluster,
        "shop",
        "db-0",
        "worker-0",
        json!({"labels": {"app": "db"}}),
    )
    .await;
    pod(&cluster, "shop", "web", "worker-1", json!({})).await;
    let mirror = json!({"annotations": {"kubernetes.io/config.mirror": "x"}});
    pod(&cluster, "shop", "static-web", "worker-1", mirror).await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client.clone(), "shop");
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "db"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
    }))
    .unwrap();
    budgets.create(&PostParams::default(), &budget).await.unwrap();
    eventually("the budget is counted", || async {
        let status = budgets.get("db").await.unwrap().status?;
        (status.current_healthy == Some(1)).then_some(())
    })
    .await;
    let _: MachineConfigPool = cluster
        .patch("worker", json!({"spec": {"maxUnavailable": 2}}))
        .await;
    let before = target(&cluster.pool("worker").await);
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    let new = cluster.retargeted("worker", &before).await;
    let pool = cluster
        .pool_where(
            "worker",
            "has updated the two other nodes and says what it waits for",
            |pool| {
                pool.status
                    .as_ref()
                    .is_some_and(|status| status.updated_machine_count == 2)
                    && message(pool, "Updating").contains("Nothing moves")
            },
        )
        .await;
    let expected = "waits for pod shop/db-0 (budget shop/db allows 0 disruptions)";
    assert_eq!(
        message(&pool, "Updating"),
        format!("All nodes are updating to MachineConfig {new}. Nothing moves: node worker-0 {expected}")
    );
    let node = cluster.node("worker-0").await;
    assert!(
        Cluster::annotation(&node, "drain-record").contains("budget shop/db allows 0 disruptions"),
        "{node:?}"
    );
    let text = cluster.metrics.encode().unwrap();
    assert!(
        text.contains("mcc_drain_blocking_pods{node=\"worker-0\"} 1"),
        "{text}"
    );
    let events: Api<k8s_openapi::api::events::v1::Event> =
        Api::namespaced(cluster.client.clone(), mco_api::vocabulary::names::NAMESPACE);
    eventually("an event names pod and budget", || async {
        let events = events.list(&kube::api::ListParams::default()).await.unwrap();
        events
            .items
            .into_iter()
            .find(|event| {
                event.reason.as_deref() == Some("DrainBlocked")
                    && event
                        .note
                        .as_deref()
                        .is_some_and(|note| note.contains("shop/db-0") && note.contains("shop/db "))
            })
            .map(|_| ())
    })
    .await;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "shop");
    assert!(pods.get_opt("web").await.unwrap().is_none(), "it was evicted");
    assert!(
        pods.get_opt("static-web").await.unwrap().is_some(),
        "nobody can evict it"
    );
    assert!(
        pods.get_opt("db-0").await.unwrap().is_some(),
        "the budget kept it"
    );
    // Somebody gives the budget more room.
    let patch = json!({"spec": {"minAvailable": 0}});
    budgets
        .patch("db", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    cluster.updated("worker").await;
    assert!(pods.get_opt("db-0").await.unwrap().is_none());
    assert!(!cluster.metrics.encode().unwrap().contains("node=\"worker-0\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_target_is_taken_back_during_a_blocked_drain_is_given_back() {
    let cluster = Cluster::start(1, Behaviour::default()).await;
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some("shop".to_owned());
    cluster.create(&namespace).await;
    pod(
        &cluster,
        "shop",
        "db-0",
        "worker-0",
        json!({"labels": {"app": "db"}}),
    )
    .await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client.clone(), "shop");
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "db"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "db"}}},
    }))
    .unwrap();
    budgets.create(&PostParams::default(), &budget).await.unwrap();
    let before = target(&cluster.pool("worker").await);
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    cluster.retargeted("worker", &before).await;
    eventually("the node is cordoned", || async {
        cluster
            .node("worker-0")
            .await
            .spec
            .unwrap_or_default()
            .unschedulable
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    cluster.delete_config("99-worker-a").await;
    let pool = cluster.updated("worker").await;
    assert_eq!(target(&pool), before);
    let node = cluster.node("worker-0").await;
    assert_eq!(node.spec.unwrap_or_default().unschedulable, None);
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "shop");
    assert!(pods.get_opt("db-0").await.unwrap().is_some(), "nothing was lost");
}
