//! Generators and the enforcement of their configs while the API server is slow or refuses requests.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use http::{Method, Request};
use k8s_openapi::ClusterResourceScope;
use kube::api::DeleteParams;
use kube::client::Body;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource, ResourceExt as _};
use mco_api::{ControllerConfig, KubeletConfig, MachineConfig, MachineConfigPool};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::cluster::{Cluster, eventually, file_config, refusing, target};
use crate::generated::{file, file_of, kubelet_config, settled};

const CONTROLLER_CONFIG: &str = "machine-config-controller";
const KUBELET_CONF: &str = "/etc/kubernetes/kubelet.conf";

/// An API that responds to updates of MachineConfigs some time after watches have reported them.
fn slow_to_answer(client: Client) -> Client {
    const LATE: Duration = Duration::from_millis(50);
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let is_update =
                *request.method() == Method::PUT && request.uri().path().contains("/machineconfigs/");
            let answer = client.send(request).await;
            if is_update {
                tokio::time::sleep(LATE).await;
            }
            answer
        }
    });
    Client::new(service, "default")
}

/// Records the distinct states of each object.
type Histories = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

async fn histories<K>(cluster: &Cluster, look: impl Fn(&K) -> Option<String> + Send + 'static) -> Histories
where
    K: Resource<Scope = ClusterResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let histories = Histories::default();
    let taking = Arc::clone(&histories);
    let (listed, ready) = tokio::sync::oneshot::channel();
    let objects = cluster.api::<K>();
    tokio::spawn(async move {
        let mut listed = Some(listed);
        let mut events = watcher(objects, watcher::Config::default()).boxed();
        while let Some(Ok(event)) = events.next().await {
            match event {
                Event::Apply(object) | Event::InitApply(object) => {
                    let Some(state) = look(&object) else { continue };
                    let mut taking = taking.lock();
                    let history = taking.entry(object.name_any()).or_default();
                    if history.last() != Some(&state) {
                        history.push(state);
                    }
                }
                Event::InitDone => {
                    if let Some(listed) = listed.take() {
                        let _ = listed.send(());
                    }
                }
                Event::Init | Event::Delete(_) => {}
            }
        }
    });
    ready.await.unwrap();
    histories
}

/// Returns the cluster's DNS server in the kubelet configuration.
fn dns_of(config: &MachineConfig) -> Option<String> {
    let conf = file_of(config, KUBELET_CONF)?;
    let mut lines = conf.lines().skip_while(|line| !line.starts_with("clusterDNS:"));
    Some(lines.nth(1)?.trim_start_matches([' ', '-']).to_owned())
}

/// The two built-in pools and eight without a node.
async fn start_with_ten_pools() -> Cluster {
    let mut cluster = Cluster::prepare().await;
    for index in 0..8 {
        let name = format!("custom-{index}");
        let pool: MachineConfigPool = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "machineConfigSelector": {"matchExpressions": [
                    {"key": "machineconfiguration.openshift.io/role", "operator": "In", "values": ["worker", name]},
                ]},
                "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}},
            },
        }))
        .unwrap();
        cluster.create(&pool).await;
    }
    let client = slow_to_answer(cluster.counted_client());
    cluster.start_controllers_through(client, cluster.options());
    for index in 0..8 {
        cluster.updated(&format!("custom-{index}")).await;
    }
    for pool in ["master", "worker"] {
        cluster.updated(pool).await;
    }
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_generator_changes_is_not_taken_for_an_edit_and_reaches_all_its_configs() {
    let cluster = start_with_ten_pools().await;
    let before = cluster.controller_config().await.spec.cluster_dns_ip;
    let histories = histories::<MachineConfig>(&cluster, |config| {
        let generated = config.name_any().ends_with("-generated-kubelet");
        dns_of(config).filter(|_| generated)
    })
    .await;
    assert_eq!(histories.lock().len(), 20, "97 and 98 of ten pools");
    let after = "10.96.0.99";
    let change = json!({"spec": {"clusterDNSIP": after}});
    let _: ControllerConfig = cluster.patch(CONTROLLER_CONFIG, change).await;
    eventually("all configs are the new ones", || async {
        let histories = histories.lock();
        let mut last = histories.values().map(|history| history.last());
        last.all(|last| last.is_some_and(|last| last == after))
            .then_some(())
    })
    .await;
    cluster.updated("worker").await;
    cluster.at_rest().await;
    for (config, history) in histories.lock().iter() {
        assert_eq!(*history, [before.as_str(), after], "{config}");
    }
}

/// Returns the maximum of pods in the kubelet configuration of the pool.
async fn rendered_with(cluster: &Cluster, pool: &str, max_pods: u32) -> String {
    let line = format!("maxPods: {max_pods}\n");
    eventually(&format!("pool {pool} is rendered with {line:?}"), || async {
        let target = target(&cluster.pool(pool).await);
        let conf = file(cluster, &target, KUBELET_CONF).await;
        conf.contains(&line).then_some(target)
    })
    .await
}

/// The worker pool with a KubeletConfig for at most 11 pods.
async fn with_a_kubelet_config(cluster: &Cluster) -> String {
    let label = json!({"metadata": {"labels": {"custom-kubelet": "small"}}});
    let _: MachineConfigPool = cluster.patch("worker", label).await;
    let object = kubelet_config("first", "small", &json!({"maxPods": 11}));
    cluster.updated("worker").await;
    cluster.create(&object).await;
    rendered_with(cluster, "worker", 11).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_is_no_longer_generated_leaves_the_nodes_even_if_it_cannot_be_deleted() {
    let mut cluster = Cluster::prepare().await;
    let client = refusing(cluster.counted_client(), |method, path| {
        *method == Method::DELETE && path.ends_with("/99-worker-generated-kubelet-1")
    });
    cluster.start_controllers_through(client, cluster.options());
    let with_first = with_a_kubelet_config(&cluster).await;
    cluster
        .create(&kubelet_config("second", "small", &json!({"maxPods": 22})))
        .await;
    rendered_with(&cluster, "worker", 22).await;
    let objects = cluster.api::<KubeletConfig>();
    objects.delete("second", &DeleteParams::default()).await.unwrap();
    assert_eq!(rendered_with(&cluster, "worker", 11).await, with_first);
    let left: MachineConfig = cluster.api().get("99-worker-generated-kubelet-1").await.unwrap();
    assert_eq!(left.metadata.deletion_timestamp, None);
    // The others are not affected.
    let label = json!({"metadata": {"labels": {"custom-kubelet": "large"}}});
    let _: MachineConfigPool = cluster.patch("master", label).await;
    cluster
        .create(&kubelet_config("third", "large", &json!({"maxPods": 33})))
        .await;
    assert_eq!(last_condition(&settled(&cluster, "third").await).0, "Success");
    let second = objects.get("second").await.unwrap();
    assert_eq!(
        second.metadata.finalizers.unwrap(),
        ["99-worker-generated-kubelet-1"],
        "it stays as long as what was made from it"
    );
}

fn last_condition(object: &KubeletConfig) -> (String, String) {
    let status = object.status.clone().unwrap_or_default();
    let last = status.conditions.last().cloned().unwrap_or_default();
    (last.type_, last.message)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_whose_config_is_refused_hears_so_and_the_others_are_in_force() {
    let mut cluster = Cluster::prepare().await;
    let refuses: Arc<AtomicBool> = Arc::default();
    let asked = Arc::clone(&refuses);
    let client = refusing(cluster.counted_client(), move |method, path| {
        let touches = path.ends_with("/99-worker-generated-kubelet") && *method == Method::PUT;
        touches && asked.load(Ordering::Relaxed)
    });
    cluster.start_controllers_through(client, cluster.options());
    with_a_kubelet_config(&cluster).await;
    refuses.store(true, Ordering::Relaxed);
    let _: KubeletConfig = cluster
        .patch("first", json!({"spec": {"kubeletConfig": {"maxPods": 12}}}))
        .await;
    cluster
        .create(&kubelet_config("second", "small", &json!({"podPidsLimit": 4096})))
        .await;
    assert_eq!(last_condition(&settled(&cluster, "second").await).0, "Success");
    let reported = eventually("the first one reports why", || async {
        let reported = last_condition(&settled(&cluster, "first").await);
        (reported.0 == "Failure").then_some(reported.1)
    })
    .await;
    assert!(
        reported.contains("99-worker-generated-kubelet") && reported.ends_with("not today"),
        "{reported}"
    );
    refuses.store(false, Ordering::Relaxed);
    eventually("the first one is in force", || async {
        let reported = last_condition(&settled(&cluster, "first").await);
        (reported.0 == "Success").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_change_of_the_base_configuration_gives_every_pool_one_new_target() {
    let cluster = start_with_ten_pools().await;
    let histories = histories::<MachineConfigPool>(&cluster, |pool| Some(target(pool))).await;
    assert_eq!(histories.lock().len(), 10);
    let bundle = "IyBuZXcgYnVuZGxlCg==";
    let change = json!({"spec": {"clusterDNSIP": "10.96.0.99", "additionalTrustBundle": bundle}});
    let _: ControllerConfig = cluster.patch(CONTROLLER_CONFIG, change).await;
    let targets = eventually("every pool has another target", || async {
        let histories = histories.lock();
        let done = histories.values().all(|history| history.len() > 1);
        done.then(|| histories.clone())
    })
    .await;
    for (pool, history) in &targets {
        let config: MachineConfig = cluster.api().get(&history[1]).await.unwrap();
        assert_eq!(dns_of(&config).as_deref(), Some("10.96.0.99"), "{pool}");
        let bundle = file_of(&config, "/etc/pki/ca-trust/source/anchors/cluster-ca-bundle.crt");
        assert!(
            bundle.is_some_and(|bundle| bundle.contains("# new bundle")),
            "{pool}"
        );
    }
    cluster.at_rest().await;
    assert_eq!(*histories.lock(), targets, "and no other");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_marked_holds_nothing_up() {
    let mut cluster = Cluster::prepare().await;
    let client = refusing(cluster.counted_client(), |method, path| {
        *method == Method::PATCH && path.ends_with("/kubeletconfigs/stubborn")
    });
    cluster.start_controllers_through(client, cluster.options());
    let before = with_a_kubelet_config(&cluster).await;
    let stubborn = kubelet_config("stubborn", "small", &json!({"maxPods": 33}));
    cluster.create(&stubborn).await;
    let change = json!({"spec": {"clusterDNSIP": "10.96.0.99"}});
    let _: ControllerConfig = cluster.patch(CONTROLLER_CONFIG, change).await;
    let after = cluster.retargeted("worker", &before).await;
    let config: MachineConfig = cluster.api().get(&after).await.unwrap();
    assert_eq!(dns_of(&config).as_deref(), Some("10.96.0.99"));
    let conf = file_of(&config, KUBELET_CONF).unwrap();
    assert!(conf.contains("maxPods: 11\n"), "{conf}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selector_that_cannot_be_read_leaves_its_pools_what_they_had() {
    let mut cluster = Cluster::prepare().await;
    cluster.start_controllers();
    let before = with_a_kubelet_config(&cluster).await;
    let selector =
        json!({"matchLabels": null, "matchExpressions": [{"key": "custom-kubelet", "operator": "Maybe"}]});
    let _: KubeletConfig = cluster
        .patch("first", json!({"spec": {"machineConfigPoolSelector": selector}}))
        .await;
    let first = settled(&cluster, "first").await;
    let reported = first.status.unwrap().conditions.pop().unwrap();
    assert_eq!(reported.type_, "Failure");
    assert!(
        reported.message.contains("invalid label selector"),
        "{}",
        reported.message
    );
    assert_eq!(
        first.metadata.finalizers.unwrap(),
        ["99-worker-generated-kubelet"]
    );
    cluster.at_rest().await;
    assert_eq!(target(&cluster.pool("worker").await), before);
    let config = file(&cluster, "99-worker-generated-kubelet", KUBELET_CONF).await;
    assert!(config.contains("maxPods: 11\n"), "{config}");
    // Once it is valid again it applies, here to no pool.
    let selector = json!({"matchExpressions": null, "matchLabels": {"custom-kubelet": "other"}});
    let _: KubeletConfig = cluster
        .patch("first", json!({"spec": {"machineConfigPoolSelector": selector}}))
        .await;
    cluster.retargeted("worker", &before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_config_that_cannot_be_written_is_reported_until_it_can() {
    let mut cluster = Cluster::prepare().await;
    let (refuses, attempts): (Arc<AtomicBool>, Arc<AtomicUsize>) = Default::default();
    let (asked, counted) = (Arc::clone(&refuses), Arc::clone(&attempts));
    let client = refusing(cluster.counted_client(), move |method, path| {
        let refused =
            *method == Method::PUT && path.ends_with("/01-worker-kubelet") && asked.load(Ordering::Relaxed);
        counted.fetch_add(usize::from(refused), Ordering::Relaxed);
        refused
    });
    cluster.start_controllers_through(client, cluster.options());
    let before = target(&cluster.updated("worker").await);
    refuses.store(true, Ordering::Relaxed);
    let change = json!({"spec": {"clusterDNSIP": "10.96.0.99"}});
    let _: ControllerConfig = cluster.patch(CONTROLLER_CONFIG, change).await;
    let reported = |type_: &'static str| {
        let cluster = &cluster;
        eventually(type_, move || async move {
            let status = cluster.controller_config().await.status?;
            let mut holding = status.conditions.into_iter().filter(|one| one.status == "True");
            let one = holding.find(|one| one.type_ == type_)?;
            (status.observed_generation == 2).then_some(one.message)
        })
    };
    let message = reported("TemplateControllerFailing").await;
    let start = "failed to syncing towards (2) generation using controller version";
    assert!(message.starts_with(start), "{message}");
    assert!(
        message.contains("MachineConfig 01-worker-kubelet") && message.contains("not today"),
        "{message}"
    );
    let after = cluster.retargeted("worker", &before).await;
    let rendered = cluster.renders("worker");
    // A pool may have been rendered again meanwhile, by a retry with backoff.
    eventually("it is tried again and again", || async {
        (attempts.load(Ordering::Relaxed) > 11).then_some(())
    })
    .await;
    assert_eq!(
        cluster.renders("worker"),
        rendered,
        "and nothing is made anew for it"
    );
    refuses.store(false, Ordering::Relaxed);
    reported("TemplateControllerCompleted").await;
    let config: MachineConfig = cluster.api().get("01-worker-kubelet").await.unwrap();
    assert_eq!(dns_of(&config).as_deref(), Some("10.96.0.99"));
    cluster.at_rest().await;
    assert_eq!(target(&cluster.pool("worker").await), after);
}

/// An API that is slow to create MachineConfigs.
fn slow_to_create(client: Client) -> Client {
    const LATE: Duration = Duration::from_millis(400);
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            if *request.method() == Method::POST && request.uri().path().ends_with("/machineconfigs") {
                tokio::time::sleep(LATE).await;
            }
            client.send(request).await
        }
    });
    Client::new(service, "default")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_made_together_gives_one_target_however_slowly_generators_follow() {
    let mut cluster = Cluster::prepare().await;
    let label = json!({"metadata": {"labels": {"custom-kubelet": "small"}}});
    let _: MachineConfigPool = cluster.patch("worker", label).await;
    let client = slow_to_create(cluster.counted_client());
    cluster.start_controllers_through(client, cluster.options());
    let before = target(&cluster.updated("worker").await);
    cluster.at_rest().await;
    let histories = histories::<MachineConfigPool>(&cluster, |pool| {
        Some(target(pool)).filter(|target| !target.is_empty())
    })
    .await;

    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    cluster
        .create(&kubelet_config("first", "small", &json!({"maxPods": 11})))
        .await;
    let after = rendered_with(&cluster, "worker", 11).await;
    cluster.at_rest().await;
    assert_eq!(histories.lock()["worker"], [before, after]);

    let pool: MachineConfigPool = serde_json::from_value(json!({
        "metadata": {"name": "custom"},
        "spec": {"machineConfigSelector": {"matchExpressions": [
            {"key": "machineconfiguration.openshift.io/role", "operator": "In", "values": ["worker", "custom"]},
        ]}},
    }))
    .unwrap();
    cluster.create(&pool).await;
    let pool = cluster.updated("custom").await;
    cluster.at_rest().await;
    assert_eq!(histories.lock()["custom"], [target(&pool)]);
    let sources = pool.spec.configuration.source.iter();
    let generated = sources.filter(|source| source.name.as_deref() == Some("97-custom-generated-kubelet"));
    assert_eq!(generated.count(), 1);
}
