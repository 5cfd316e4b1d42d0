//! Rollouts under a RolloutPolicy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use mco_api::MachineConfigPool;
use mco_api::rollout_policy::{RolloutPhase, RolloutPolicy, RolloutPolicyStatus};
use mco_simulator::{Behaviour, SimulatedFailure};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::cluster::{Cluster, eventually, file_config, message, target};

fn policy(spec: Value) -> RolloutPolicy {
    let mut spec = spec;
    spec["poolSelector"] = json!({"matchLabels": {"tier": "compute"}});
    serde_json::from_value(json!({"metadata": {"name": "workers"}, "spec": spec})).unwrap()
}

async fn status_where(
    cluster: &Cluster,
    what: &str,
    is: impl Fn(&RolloutPolicyStatus) -> bool,
) -> RolloutPolicyStatus {
    eventually(what, async || {
        let policy = cluster.api::<RolloutPolicy>().get("workers").await.unwrap();
        policy.status.filter(|status| is(status))
    })
    .await
}

/// Starts workers of which every third fails on any config but its first, all of which may be unavailable.
async fn cluster(workers: usize) -> Cluster {
    let first: Arc<Mutex<Option<String>>> = Arc::default();
    let known = Arc::clone(&first);
    let behaviour = Behaviour {
        fails: Some(Arc::new(move |node: &str, config: &str| {
            let first = known.lock().clone()?;
            let number: usize = node.strip_prefix("worker-")?.parse().ok()?;
            (number.is_multiple_of(3) && config != first)
                .then(|| SimulatedFailure::Late(format!("{node} cannot apply the config")))
        })),
        ..Behaviour::default()
    };
    let cluster = Cluster::start(workers, behaviour).await;
    let pool: MachineConfigPool = cluster
        .patch(
            "worker",
            json!({"metadata": {"labels": {"tier": "compute"}}, "spec": {"maxUnavailable": "100%"}}),
        )
        .await;
    *first.lock() = Some(target(&pool));
    cluster
}

async fn broken(cluster: &Cluster) -> Vec<String> {
    let nodes = cluster.api::<Node>().list(&ListParams::default()).await.unwrap();
    nodes
        .into_iter()
        .filter(|node| Cluster::annotation(node, "state") == "Degraded")
        .filter_map(|node| node.metadata.name)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_nodes_break_than_the_policy_allows() {
    let cluster = cluster(60).await;
    cluster
        .create(&policy(json!({"maxFailures": {"count": 2}})))
        .await;
    status_where(&cluster, "the policy is observed", |status| {
        status.phase == RolloutPhase::Done
    })
    .await;
    let before = target(&cluster.pool("worker").await);
    cluster.at_rest().await;
    cluster.writes.reset();
    cluster
        .create_config(file_config("99-worker-bad", "worker", "/etc/bad", "bad"))
        .await;
    cluster.retargeted("worker", &before).await;
    let status = status_where(&cluster, "the rollout halts", |status| {
        status.phase == RolloutPhase::Halted
    })
    .await;
    assert!(
        status
            .message
            .starts_with("pool worker: halted: 2 of 2 allowed failures, worker-"),
        "{}",
        status.message
    );
    let halted = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Halted")
        .unwrap();
    assert_eq!(halted.status, "True");
    cluster.at_rest().await;
    assert_eq!(
        broken(&cluster).await.len(),
        2,
        "though all 60 may be unavailable"
    );
    let updating = message(&cluster.pool("worker").await, "Updating");
    assert!(updating.contains("halted: 2 of 2 allowed failures"), "{updating}");
    cluster
        .event("worker", "RolloutHalted", "2 of 2 allowed failures")
        .await;
    // The status is written when a phase or the list of failures changes, and not for every node.
    let writes = cluster.writes.snapshot();
    assert!(cluster.writes.of("rolloutpolicies/status") <= 10, "{writes:#?}");

    // What failed no longer counts, so two more may fail.
    let failed = broken(&cluster).await;
    let bad = target(&cluster.pool("worker").await);
    let control = json!({"worker": {"target": bad, "acknowledged": failed}}).to_string();
    let annotations = json!({"metadata": {"annotations": {"mco.dev/rollout-control": control}}});
    let _: RolloutPolicy = cluster.patch("workers", annotations).await;
    eventually("two more nodes fail", async || {
        (broken(&cluster).await.len() == 4).then_some(())
    })
    .await;
    cluster.at_rest().await;
    assert_eq!(broken(&cluster).await.len(), 4);

    // The cause goes away.
    cluster.delete_config("99-worker-bad").await;
    cluster.updated("worker").await;
    assert_eq!(broken(&cluster).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_send_the_pool_back_to_its_former_config() {
    let cluster = cluster(7).await;
    let spec = json!({"maxFailures": {"count": 1, "action": "Revert"}, "waves": [{"limit": 4}]});
    cluster.create(&policy(spec)).await;
    status_where(&cluster, "the policy is observed", |status| {
        status.phase == RolloutPhase::Done
    })
    .await;
    let before = target(&cluster.pool("worker").await);
    cluster
        .create_config(file_config("99-worker-bad", "worker", "/etc/bad", "bad"))
        .await;
    cluster.retargeted("worker", &before).await;
    status_where(&cluster, "the rollout is reverted", |status| {
        status.phase == RolloutPhase::Reverted
    })
    .await;
    eventually("every node is back", async || {
        let nodes = cluster.api::<Node>().list(&ListParams::default()).await.unwrap();
        let back = |node: &Node| {
            let is = |key: &str, value: &str| Cluster::annotation(node, key) == value;
            is("currentConfig", &before) && is("desiredConfig", &before) && is("state", "Done")
        };
        let workers = |node: &&Node| {
            node.metadata
                .name
                .as_deref()
                .is_some_and(|name| name.starts_with("worker"))
        };
        nodes.iter().filter(workers).all(back).then_some(())
    })
    .await;
}

/// Answers every request with this status, and counts them.
async fn webhook(status: Arc<AtomicUsize>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/ok", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer).await;
            let status = status.load(Ordering::SeqCst);
            let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (url, count)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_holds_the_rollout_until_it_passes() {
    let status = Arc::new(AtomicUsize::new(403));
    let (url, asked) = webhook(Arc::clone(&status)).await;
    let cluster = Cluster::start(2, Behaviour::default()).await;
    let _: MachineConfigPool = cluster
        .patch("worker", json!({"metadata": {"labels": {"tier": "compute"}}}))
        .await;
    let gate = json!({"gates": [{"name": "ticket", "interval": "1s", "webhook": {"url": url}}]});
    cluster.create(&policy(gate)).await;
    status_where(&cluster, "the policy is observed", |status| {
        status.phase == RolloutPhase::Done
    })
    .await;
    assert_eq!(asked.load(Ordering::SeqCst), 0, "no node waits");
    let before = target(&cluster.pool("worker").await);
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    cluster.retargeted("worker", &before).await;
    let waiting = status_where(&cluster, "the gate holds", |status| {
        status.message.contains("403")
    })
    .await;
    assert_eq!(waiting.phase, RolloutPhase::Waiting);
    assert!(
        waiting
            .message
            .starts_with("pool worker: waits for gate ticket: the webhook answers 403"),
        "{}",
        waiting.message
    );
    for node in ["worker-0", "worker-1"] {
        assert_eq!(
            Cluster::annotation(&cluster.node(node).await, "desiredConfig"),
            before
        );
    }
    status.store(204, Ordering::SeqCst);
    cluster.updated("worker").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drained_nodes_get_no_traffic_and_are_not_removed_and_marks_of_others_stay() {
    const LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
    const PROTECTED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
    let cluster = Cluster::start(2, Behaviour::default()).await;
    let _: MachineConfigPool = cluster
        .patch("worker", json!({"metadata": {"labels": {"tier": "compute"}}}))
        .await;
    let protected = json!({"metadata": {"annotations": {PROTECTED: "true"}}});
    let _: Node = cluster.patch("worker-1", protected).await;
    let drain = json!({"drain": {"excludeFromLoadBalancers": "1s", "protectFromAutoscaler": true}});
    cluster.create(&policy(drain)).await;
    status_where(&cluster, "the policy is observed", |status| {
        status.phase == RolloutPhase::Done
    })
    .await;
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    let has = |node: &Node| {
        let label = node.metadata.labels.as_ref().and_then(|all| all.get(LABEL));
        let annotation = node
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(PROTECTED));
        (label.is_some(), annotation.is_some())
    };
    for name in ["worker-0", "worker-1"] {
        eventually("the node is excluded and protected", async || {
            (has(&cluster.node(name).await) == (true, true)).then_some(())
        })
        .await;
    }
    cluster.updated("worker").await;
    cluster.at_rest().await;
    assert_eq!(has(&cluster.node("worker-0").await), (false, false));
    assert_eq!(
        has(&cluster.node("worker-1").await),
        (false, true),
        "it was set before"
    );
}
