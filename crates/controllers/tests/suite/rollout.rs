//! Rollouts: concurrency, order and number of writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ListParams, PostParams};
use mco_api::MachineConfigPool;
use mco_api::vocabulary::names;
use mco_simulator::{Behaviour, SimulatedFailure};
use parking_lot::Mutex;
use serde_json::json;

use crate::cluster::{Cluster, DEADLINE, eventually, file_config, holds, message, refusing, target};
use crate::observer::Observer;

#[tokio::test(flavor = "multi_thread")]
async fn a_new_config_rolls_out_node_by_node_with_the_fewest_writes() {
    let cluster = Cluster::start(3, Behaviour::default()).await;
    let before = cluster.pool("worker").await;
    let masters_before = cluster.pool("master").await;
    let observer = Observer::start(cluster.api());
    // Writes of the installation do not count.
    cluster.at_rest().await;
    cluster.writes.reset();
    cluster
        .create_config(file_config("99-worker-test", "worker", "/etc/test", "hello"))
        .await;
    let new = cluster.retargeted("worker", &target(&before)).await;
    let after = cluster.updated("worker").await;
    // After the rollout nothing more is written, so the counts are final.
    cluster.at_rest().await;
    assert_eq!(target(&after), new);
    assert_eq!(observer.worst("worker"), 1, "one worker at a time");
    assert_eq!(
        observer.ever(),
        ["worker-0", "worker-1", "worker-2"],
        "and no control-plane node"
    );
    for worker in ["worker-0", "worker-1", "worker-2"] {
        let node = cluster.node(worker).await;
        assert_eq!(Cluster::annotation(&node, "currentConfig"), new);
        assert_eq!(Cluster::annotation(&node, "desiredConfig"), new);
        assert_eq!(Cluster::annotation(&node, "state"), "Done");
        assert_eq!(
            Cluster::annotation(&node, "drain-record"),
            "",
            "nothing is left behind"
        );
        let spec = node.spec.unwrap_or_default();
        assert_eq!(
            (spec.unschedulable, spec.taints),
            (None, None),
            "nothing is left behind"
        );
    }
    assert_eq!(target(&cluster.pool("master").await), target(&masters_before));
    // Desired config, cordon, drain response and uncordon are four; the taint of waiting nodes is the fifth.
    let writes = cluster.writes.snapshot();
    assert_eq!(cluster.writes.of("nodes"), 3 * 4 + 2, "{writes:#?}");
    assert_eq!(cluster.writes.of("machineconfigs"), 1, "{writes:#?}");
    assert_eq!(cluster.writes.of("machineconfigpools"), 1, "{writes:#?}");
    assert_eq!(cluster.writes.of("machineconfignodes"), 3, "{writes:#?}");
    // Two reports per node. These nodes request their drain as soon as they have a desired config, so that the first
    // report may conflict with the write of the desired config and be repeated.
    assert!(
        cluster.writes.of("machineconfignodes/status") <= 3 * (2 + 1),
        "{writes:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_are_away_as_the_pool_allows() {
    let cluster = Cluster::start(4, Behaviour::default()).await;
    for (index, limit) in [json!(2), json!("50%"), json!(1)].into_iter().enumerate() {
        let before = target(&cluster.pool("worker").await);
        let _: MachineConfigPool = cluster
            .patch("worker", json!({"spec": {"maxUnavailable": limit}}))
            .await;
        let observer = Observer::start(cluster.api());
        let name = format!("99-worker-{index}");
        cluster
            .create_config(file_config(&name, "worker", &format!("/etc/{index}"), "x"))
            .await;
        cluster.retargeted("worker", &before).await;
        cluster.updated("worker").await;
        let expected = if limit == json!(1) { 1 } else { 2 };
        assert_eq!(observer.worst("worker"), expected, "{limit}");
        assert_eq!(observer.ever().len(), 4, "{limit}");
    }
}

/// Taints are written in portions, and none may be left after the last reconcile.
#[tokio::test(flavor = "multi_thread")]
async fn every_node_of_a_large_pool_that_waits_is_marked() {
    let never = Behaviour {
        apply: DEADLINE * 2,
        ..Behaviour::default()
    };
    let cluster = Cluster::start(80, never).await;
    let before = target(&cluster.pool("worker").await);
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    let new = cluster.retargeted("worker", &before).await;
    eventually("all nodes but the one that goes wait", async || {
        let nodes = cluster.api::<Node>().list(&ListParams::default()).await.unwrap();
        let (sent, waiting): (Vec<Node>, Vec<Node>) = nodes
            .items
            .into_iter()
            .filter(|node| node.metadata.name.as_ref().unwrap().starts_with("worker"))
            .partition(|node| Cluster::annotation(node, "desiredConfig") == new);
        let marked = waiting.iter().filter(|node| {
            let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
            taints.any(|taint| taint.key == "UpdateInProgress")
        });
        (sent.len() == 1 && marked.count() == 79).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_pool_is_rendered_but_holds() {
    let cluster = Cluster::start(2, Behaviour::default()).await;
    let before = target(&cluster.pool("worker").await);
    let _: MachineConfigPool = cluster.patch("worker", json!({"spec": {"paused": true}})).await;
    let observer = Observer::start(cluster.api());
    let mut new = before.clone();
    // When the second is reported, the first was part of a plan.
    for name in ["99-worker-a", "99-worker-b"] {
        cluster
            .create_config(file_config(name, "worker", &format!("/etc/{name}"), "a"))
            .await;
        new = cluster.retargeted("worker", &new).await;
        let reported = format!("Pool is paused; will not update to MachineConfig {new}");
        let pool = cluster
            .pool_where("worker", &reported, |pool| message(pool, "Updating") == reported)
            .await;
        assert!(!holds(&pool, "Updating") && !holds(&pool, "Updated"));
    }
    assert_eq!(observer.ever(), [""; 0]);
    assert_eq!(observer.sent("worker-0"), [before]);
    let _: MachineConfigPool = cluster.patch("worker", json!({"spec": {"paused": false}})).await;
    let pool = cluster.updated("worker").await;
    assert_eq!(target(&pool), new);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_leaves_every_pool_loses_the_taint_of_its_update() {
    let cluster = Cluster::start(2, Behaviour::default()).await;
    let taint = json!([{"key": "UpdateInProgress", "effect": "PreferNoSchedule"}]);
    let _: k8s_openapi::api::core::v1::Node = cluster
        .patch(
            "worker-0",
            json!({
                "metadata": {"labels": {"node-role.kubernetes.io/worker": null}},
                "spec": {"taints": taint},
            }),
        )
        .await;
    eventually("the node is free of the taint", || async {
        let node = cluster.node("worker-0").await;
        let taints = node.spec.unwrap_or_default().taints.unwrap_or_default();
        taints.is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_changes_is_rendered_every_two_seconds() {
    let cluster = Cluster::start(1, Behaviour::default()).await;
    let _: MachineConfigPool = cluster.patch("worker", json!({"spec": {"paused": true}})).await;
    let renders = || cluster.renders("worker");
    let before = renders();
    let start = Instant::now();
    let mut last = String::new();
    // There is no quiet period, and it is rendered all the same.
    while renders() < before + 2 {
        assert!(
            start.elapsed() < DEADLINE,
            "a storm is not rendered while it lasts"
        );
        last = format!("99-worker-storm-{}", start.elapsed().as_millis());
        cluster
            .create_config(file_config(&last, "worker", &format!("/etc/{last}"), "x"))
            .await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cluster
        .pool_where("worker", "has the last config of the storm", |pool| {
            let sources = &pool.spec.configuration.source;
            sources.iter().any(|source| source.name.as_ref() == Some(&last))
        })
        .await;
    let (rendered, took) = (renders() - before, start.elapsed());
    // Relative to the measured time, so that a slow machine does not matter.
    assert!(
        rendered <= 2 + took.as_secs() / 2,
        "{rendered} renders in {took:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_fails_degrades_its_pool_and_a_better_config_repairs_it_outside_the_budget() {
    let bad_config: Arc<Mutex<String>> = Arc::default();
    let known = Arc::clone(&bad_config);
    let behaviour = Behaviour {
        fails: Some(Arc::new(move |node: &str, config: &str| {
            let fails = node == "worker-0" && config == *known.lock();
            fails.then(|| SimulatedFailure::Late("disk is full".to_owned()))
        })),
        ..Behaviour::default()
    };
    let cluster = Cluster::start(2, behaviour).await;
    let good = target(&cluster.pool("worker").await);
    let _: MachineConfigPool = cluster.patch("worker", json!({"spec": {"paused": true}})).await;
    cluster
        .create_config(file_config("99-worker-bad", "worker", "/etc/bad", "bad"))
        .await;
    let bad = cluster.retargeted("worker", &good).await;
    *bad_config.lock() = bad;
    let _: MachineConfigPool = cluster.patch("worker", json!({"spec": {"paused": false}})).await;
    let pool = cluster
        .pool_where("worker", "is degraded", |pool| holds(pool, "Degraded"))
        .await;
    assert!(
        message(&pool, "NodeDegraded").contains("Node worker-0 is reporting: \"disk is full\""),
        "{}",
        message(&pool, "NodeDegraded")
    );
    assert!(!holds(&cluster.pool("master").await, "Degraded"));
    // The failed node is cordoned and uses the whole budget; its repair must not wait for it.
    cluster.delete_config("99-worker-bad").await;
    let pool = cluster.updated("worker").await;
    assert_eq!(target(&pool), good);
    assert!(!holds(&pool, "Degraded"));
    let node = cluster.node("worker-0").await;
    assert_eq!(Cluster::annotation(&node, "state"), "Done");
    assert_eq!(node.spec.unwrap_or_default().unschedulable, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordon_that_a_person_made_keeps_a_node_back_and_is_never_lifted() {
    let cluster = Cluster::start(2, Behaviour::default()).await;
    let before = target(&cluster.pool("worker").await);
    let _: k8s_openapi::api::core::v1::Node = cluster
        .patch("worker-0", json!({"spec": {"unschedulable": true}}))
        .await;
    let _: MachineConfigPool = cluster
        .patch("worker", json!({"spec": {"maxUnavailable": 2}}))
        .await;
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    let new = cluster.retargeted("worker", &before).await;
    let pool = cluster
        .pool_where(
            "worker",
            "has updated the other node and reports what it waits for",
            |pool| {
                pool.status
                    .as_ref()
                    .is_some_and(|status| status.updated_machine_count == 1)
                    && message(pool, "Updating").contains("Nothing moves")
            },
        )
        .await;
    assert_eq!(
        message(&pool, "Updating"),
        format!(
            "All nodes are updating to MachineConfig {new}. Nothing moves: node worker-0 waits because it is cordoned"
        )
    );
    let _: k8s_openapi::api::core::v1::Node = cluster
        .patch("worker-0", json!({"spec": {"unschedulable": null}}))
        .await;
    cluster.updated("worker").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_control_plane_node_with_the_operator_goes_last_and_that_is_reported() {
    let cluster = Cluster::start(0, Behaviour::default()).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), names::NAMESPACE);
    let operator: Pod = serde_json::from_value(json!({
        "metadata": {"name": "operator", "labels": {"k8s-app": "machine-config-operator"}},
        "spec": {"nodeName": "master-0", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "registry.example/operator"}]},
    }))
    .unwrap();
    pods.create(&PostParams::default(), &operator).await.unwrap();
    let observer = Observer::start(cluster.api());
    let before = target(&cluster.pool("master").await);
    eventually("the observer sees the nodes", || async {
        (observer.sent("master-2") == [before.as_str()]).then_some(())
    })
    .await;
    cluster
        .create_config(file_config("99-master-a", "master", "/etc/a", "a"))
        .await;
    cluster.retargeted("master", &before).await;
    let reported = "Deferring update of machine config operator node master-0";
    cluster
        .event("master", "DeferringOperatorNodeUpdate", reported)
        .await;
    cluster.updated("master").await;
    let order = observer.order();
    assert_eq!(order.len(), 3, "{order:?}");
    assert_eq!(order.last().map(String::as_str), Some("master-0"), "{order:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn updated_nodes_are_reported_even_if_the_pools_status_cannot_be_written() {
    let mut cluster = Cluster::start(1, Behaviour::default()).await;
    cluster.stop_controllers().await;
    let client = refusing(cluster.counted_client(), |method, path| {
        *method == Method::PATCH && path.ends_with("/machineconfigpools/worker/status")
    });
    cluster.start_controllers_through(client, cluster.options());
    let before = target(&cluster.pool("worker").await);
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    let new = cluster.retargeted("worker", &before).await;
    let reported = format!("Targeted node worker-0 to MachineConfig: {new}");
    cluster.event("worker", "SetDesiredConfig", &reported).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_that_are_stopped_in_the_middle_go_on_where_they_were() {
    let mut cluster = Cluster::start(4, Behaviour::default()).await;
    let before = target(&cluster.pool("worker").await);
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    let new = cluster.retargeted("worker", &before).await;
    eventually("the first node is cordoned", || async {
        let node = cluster.node("worker-0").await;
        node.spec.unwrap_or_default().unschedulable
    })
    .await;
    cluster.stop_controllers().await;
    let observer = Observer::start(cluster.api());
    cluster.start_controllers();
    let pool = cluster.updated("worker").await;
    assert_eq!((target(&pool), observer.worst("worker")), (new, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_any_role_joins_the_pool_it_was_installed_for() {
    let cluster = Cluster::start(1, Behaviour::default()).await;
    let infra: MachineConfigPool = serde_json::from_value(json!({
        "metadata": {"name": "infra"},
        "spec": {
            "machineConfigSelector": {"matchExpressions": [{"key": "machineconfiguration.openshift.io/role",
                "operator": "In", "values": ["worker", "infra"]}]},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/infra": ""}},
        },
    }))
    .unwrap();
    cluster.create(&infra).await;
    let infra = cluster
        .pool_where("infra", "has a target", |pool| !pool.target_name().is_empty())
        .await;
    let worker = target(&cluster.pool("worker").await);
    let node = |name: &str, first: &str| -> Node {
        serde_json::from_value(json!({"metadata": {"name": name, "annotations": {
            "machineconfiguration.openshift.io/currentConfig": first,
            "machineconfiguration.openshift.io/desiredConfig": first,
            "machineconfiguration.openshift.io/state": "Done",
        }}}))
        .unwrap()
    };
    cluster.create(&node("new-infra", infra.target_name())).await;
    // As the daemon reports it, after the kubelet has registered the Node.
    let first = json!({"metadata": {"annotations": {
        "machineconfiguration.openshift.io/firstPivotConfig": infra.target_name()}}});
    let _: Node = cluster.patch("new-infra", first).await;
    let mut from_the_start = node("new-worker", &worker);
    let annotations = from_the_start.metadata.annotations.as_mut().unwrap();
    annotations.insert(
        "machineconfiguration.openshift.io/firstPivotConfig".to_owned(),
        worker,
    );
    cluster.create(&from_the_start).await;
    for (name, role) in [("new-infra", "infra"), ("new-worker", "worker")] {
        let label = format!("node-role.kubernetes.io/{role}");
        eventually(&format!("{name} has {label}"), || async {
            let labels = cluster.node(name).await.metadata.labels?;
            labels.contains_key(&label).then_some(())
        })
        .await;
    }
    cluster
        .pool_where("infra", "counts its node", |pool| {
            pool.status
                .as_ref()
                .is_some_and(|status| status.machine_count == 1)
        })
        .await;
}
