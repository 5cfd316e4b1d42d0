//! Drains of nodes with pods that disruption budgets protect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use http::{Request, Response};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use mco_api::{MachineConfigNode, MachineConfigPool};
use mco_controllers::{Clock, DrainTiming, Options};
use mco_simulator::Behaviour;
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
            "has updated the two other nodes and reports what it waits for",
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
        "no client can evict it"
    );
    assert!(
        pods.get_opt("db-0").await.unwrap().is_some(),
        "the budget kept it"
    );
    // The budget is relaxed.
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
    record_says(&cluster, "worker-0", "budget shop/db allows 0 disruptions").await;
    let node = cluster.node("worker-0").await;
    assert_eq!(node.spec.unwrap_or_default().unschedulable, Some(true));
    cluster.delete_config("99-worker-a").await;
    let pool = cluster.updated("worker").await;
    assert_eq!(target(&pool), before);
    let node = cluster.node("worker-0").await;
    assert_eq!(node.spec.unwrap_or_default().unschedulable, None);
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "shop");
    assert!(pods.get_opt("db-0").await.unwrap().is_some(), "nothing was lost");
}

async fn namespace(cluster: &Cluster, name: &str) {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    cluster.create(&namespace).await;
}

/// A clock that can be advanced by seconds.
fn movable_clock() -> (Clock, Arc<AtomicI64>) {
    let ahead: Arc<AtomicI64> = Arc::default();
    let read = Arc::clone(&ahead);
    let clock =
        Clock::new(move || Timestamp::now() + SignedDuration::from_secs(read.load(Ordering::Relaxed)));
    (clock, ahead)
}

/// An API whose admission policy refuses the eviction of one pod.
fn denying(client: Client, pod: &'static str) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            if !request.uri().path().ends_with(&format!("/pods/{pod}/eviction")) {
                return client.send(request).await;
            }
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
                "message": "admission policy keep-it denies this",
            });
            let mut response = Response::new(Body::from(status.to_string().into_bytes()));
            *response.status_mut() = http::StatusCode::FORBIDDEN;
            Ok(response)
        }
    });
    Client::new(service, "default")
}

/// Waits for an event with this reason whose message contains all of these texts.
async fn expect_event(cluster: &Cluster, reason: &str, texts: &[&str]) {
    let events: Api<k8s_openapi::api::events::v1::Event> =
        Api::namespaced(cluster.client.clone(), mco_api::vocabulary::names::NAMESPACE);
    eventually(&format!("an event {reason} with {texts:?}"), || async {
        let events = events.list(&kube::api::ListParams::default()).await.unwrap();
        events
            .items
            .into_iter()
            .find(|event| {
                let note = event.note.as_deref().unwrap_or_default();
                event.reason.as_deref() == Some(reason) && texts.iter().all(|text| note.contains(text))
            })
            .map(|_| ())
    })
    .await;
}

async fn record_says(cluster: &Cluster, node: &str, text: &str) {
    eventually(&format!("the record of {node} contains {text}"), || async {
        let node = cluster.node(node).await;
        Cluster::annotation(&node, "drain-record")
            .contains(text)
            .then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_that_is_no_budgets_is_named_and_alarms_and_other_pods_go() {
    let mut cluster = Cluster::start(1, Behaviour::default()).await;
    cluster.stop_controllers().await;
    let (clock, ahead) = movable_clock();
    cluster.start_controllers_with(Options {
        drain_client: Some(denying(cluster.client.clone(), "kept")),
        clock,
        ..cluster.options()
    });
    namespace(&cluster, "shop").await;
    pod(&cluster, "shop", "kept", "worker-0", json!({})).await;
    pod(&cluster, "shop", "web", "worker-0", json!({})).await;
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    let refusal = "pod shop/kept (its eviction was rejected: admission policy keep-it denies this)";
    record_says(&cluster, "worker-0", refusal).await;
    expect_event(&cluster, "DrainBlocked", &[refusal]).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "shop");
    eventually("the other pod is gone", || async {
        pods.get_opt("web").await.unwrap().is_none().then_some(())
    })
    .await;
    ahead.store(2 * 3_600, Ordering::Relaxed);
    expect_event(&cluster, "DrainFailed", &["drain exceeded timeout", refusal]).await;
    let text = cluster.metrics.encode().unwrap();
    for line in [
        "mcc_drain_err{node=\"worker-0\"} 1",
        "mcc_drain_blocking_pods{node=\"worker-0\"} 1",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_never_leaves_is_named() {
    let mut cluster = Cluster::start(1, Behaviour::default()).await;
    cluster.stop_controllers().await;
    let (clock, ahead) = movable_clock();
    ahead.store(60, Ordering::Relaxed);
    cluster.start_controllers_with(Options {
        clock,
        ..cluster.options()
    });
    namespace(&cluster, "shop").await;
    let held = json!({"finalizers": ["example.com/backup"]});
    pod(&cluster, "shop", "held", "worker-0", held).await;
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    let held = "pod shop/held (it is being deleted since ";
    record_says(&cluster, "worker-0", held).await;
    expect_event(&cluster, "DrainBlocked", &[held, "held by example.com/backup"]).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "shop");
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    pods.patch("held", &PatchParams::default(), &release)
        .await
        .unwrap();
    cluster.updated("worker").await;
}

/// A pod on `worker-0` whose budget refuses evictions.
async fn kept_by_a_budget(cluster: &Cluster) -> Api<PodDisruptionBudget> {
    namespace(cluster, "shop").await;
    pod(cluster, "shop", "db", "worker-0", json!({})).await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client.clone(), "shop");
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "db"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "db"}}},
    }))
    .unwrap();
    budgets.create(&PostParams::default(), &budget).await.unwrap();
    budgets
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_drain_is_reported_before_it_raises_an_alert() {
    let mut cluster = Cluster::start(1, Behaviour::default()).await;
    cluster.stop_controllers().await;
    let (clock, ahead) = movable_clock();
    cluster.start_controllers_with(Options {
        clock,
        ..cluster.options()
    });
    kept_by_a_budget(&cluster).await;
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    let obstacle = "pod shop/db (budget shop/db allows 0 disruptions)";
    record_says(&cluster, "worker-0", obstacle).await;
    ahead.store(15 * 60, Ordering::Relaxed);
    let slow = "drain has been failing for more than 10m0s. Will retry every 5m0s.";
    expect_event(&cluster, "DrainThresholdExceeded", &[slow, obstacle]).await;
    let text = cluster.metrics.encode().unwrap();
    assert!(text.contains("mcc_drain_err{node=\"worker-0\"} 0"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nodes_reason_and_its_machine_config_node_say_what_the_drain_waits_for() {
    let cluster = Cluster::start(1, Behaviour::default()).await;
    let budgets = kept_by_a_budget(&cluster).await;
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    let waits = "the drain waits for pod shop/db (budget shop/db allows 0 disruptions)";
    eventually("the reason names pod and budget", || async {
        let node = cluster.node("worker-0").await;
        (Cluster::annotation(&node, "reason") == waits).then_some(())
    })
    .await;
    eventually("the MachineConfigNode names them", || async {
        let object: MachineConfigNode = cluster.api().get("worker-0").await.unwrap();
        let conditions = object.status.unwrap_or_default().conditions;
        let drained = conditions.into_iter().find(|one| one.type_ == "Drained")?;
        (drained.status == "Unknown" && drained.message.ends_with(waits)).then_some(())
    })
    .await;
    let room = Patch::Merge(json!({"spec": {"maxUnavailable": 1}}));
    budgets.patch("db", &PatchParams::default(), &room).await.unwrap();
    eventually("the reason is taken back with the end of the drain", || async {
        let node = cluster.node("worker-0").await;
        let drained = Cluster::annotation(&node, "lastAppliedDrain").starts_with("drain-");
        let given_back = Cluster::annotation(&node, "state") == "Done";
        (drained || given_back).then(|| assert_eq!(Cluster::annotation(&node, "reason"), ""))
    })
    .await;
    cluster.updated("worker").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_config_node_created_during_a_drain_does_not_miss_it() {
    let cluster = Cluster::start(1, Behaviour::default()).await;
    let budgets = kept_by_a_budget(&cluster).await;
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    let shows_drain = |but_not: Option<String>| {
        let objects: Api<MachineConfigNode> = cluster.api();
        async move {
            let object = objects.get_opt("worker-0").await.unwrap()?;
            if object.metadata.uid == but_not {
                return None;
            }
            let conditions = object.status.unwrap_or_default().conditions;
            let has = |type_: &str, status: &str| {
                conditions
                    .iter()
                    .any(|one| one.type_ == type_ && one.status == status)
            };
            (has("Cordoned", "True") && has("Drained", "Unknown")).then_some(object.metadata.uid)
        }
    };
    let first = eventually("the drain is reported", || shows_drain(None)).await;
    let objects: Api<MachineConfigNode> = cluster.api();
    objects
        .delete("worker-0", &DeleteParams::default())
        .await
        .unwrap();
    eventually("it is reported again", || shows_drain(first.clone())).await;
    let room = Patch::Merge(json!({"spec": {"maxUnavailable": 1}}));
    budgets.patch("db", &PatchParams::default(), &room).await.unwrap();
    cluster.updated("worker").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uncordon_during_a_blocked_drain_is_noticed_before_the_next_eviction_request() {
    let mut cluster = Cluster::start(1, Behaviour::default()).await;
    cluster.stop_controllers().await;
    let hours = Duration::from_hours(5);
    cluster.start_controllers_with(Options {
        drain: DrainTiming {
            attempt: hours,
            eviction_retry: hours,
            ..DrainTiming::default()
        },
        ..cluster.options()
    });
    kept_by_a_budget(&cluster).await;
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    record_says(&cluster, "worker-0", "budget shop/db").await;
    let uncordoned: Node = cluster
        .patch("worker-0", json!({"spec": {"unschedulable": null}}))
        .await;
    assert_eq!(uncordoned.spec.unwrap_or_default().unschedulable, None);
    eventually("the node is cordoned again", || async {
        cluster
            .node("worker-0")
            .await
            .spec
            .unwrap_or_default()
            .unschedulable
    })
    .await;
}

/// An API where another client cordons `worker-0` just before the drain controller's first write to it.
fn cordoning_first(client: Client) -> Client {
    let cordoned: Arc<AtomicBool> = Arc::default();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, cordoned) = (client.clone(), Arc::clone(&cordoned));
        async move {
            let uri = request.uri();
            let by_drain = uri
                .query()
                .is_some_and(|query| query.contains("fieldManager=machine-config-controller-drain"));
            if by_drain && uri.path().ends_with("/nodes/worker-0") && !cordoned.swap(true, Ordering::Relaxed)
            {
                let patch = Patch::Merge(json!({"spec": {"unschedulable": true}}));
                let nodes: Api<Node> = Api::all(client.clone());
                nodes.patch("worker-0", &PatchParams::default(), &patch).await?;
            }
            client.send(request).await
        }
    });
    Client::new(service, "default")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordon_of_another_client_just_before_ours_is_kept() {
    let mut cluster = Cluster::start(1, Behaviour::default()).await;
    cluster.stop_controllers().await;
    let client = cordoning_first(cluster.client.clone());
    cluster.start_controllers_through(client, cluster.options());
    let before = target(&cluster.pool("worker").await);
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    let new = cluster.retargeted("worker", &before).await;
    let node = eventually("the node has the new config", || async {
        let node = cluster.node("worker-0").await;
        let done = Cluster::annotation(&node, "state") == "Done"
            && Cluster::annotation(&node, "currentConfig") == new;
        done.then_some(node)
    })
    .await;
    assert_eq!(node.spec.unwrap_or_default().unschedulable, Some(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_controller_was_evicted_from_the_node_that_it_drained() {
    const NAMESPACE: &str = mco_api::vocabulary::names::NAMESPACE;
    let cluster = Cluster::start(1, Behaviour::default()).await;
    let label = json!({"labels": {"k8s-app": "machine-config-controller"}});
    pod(&cluster, NAMESPACE, "controller-a", "worker-0", label.clone()).await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "machine-config-controller"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"k8s-app": "machine-config-controller"}}},
    }))
    .unwrap();
    budgets.create(&PostParams::default(), &budget).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let update = async |name: &str| {
        let before = target(&cluster.pool("worker").await);
        cluster
            .create_config(file_config(name, "worker", &format!("/etc/{name}"), "a"))
            .await;
        cluster.retargeted("worker", &before).await;
        cluster.updated("worker").await;
    };
    update("99-worker-a").await;
    let kept = pods.get_opt("controller-a").await.unwrap();
    assert!(kept.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()));

    budgets
        .delete("machine-config-controller", &DeleteParams::default())
        .await
        .unwrap();
    pod(&cluster, NAMESPACE, "controller-b", "elsewhere", label).await;
    update("99-worker-b").await;
    assert!(
        pods.get_opt("controller-a").await.unwrap().is_none(),
        "another one took over"
    );
    assert!(pods.get_opt("controller-b").await.unwrap().is_some());
}
