//! A new MachineConfig reaches every machine of its pool, one after the other.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::{self, Event, watcher};
use mco_testkit::fleet::Behaviour;

use crate::cluster::{Cluster, file_config, target};

#[tokio::test(flavor = "multi_thread")]
async fn a_new_config_rolls_out_node_by_node() {
    let cluster = Cluster::start(3, Behaviour::default()).await;
    let before = cluster.pool("worker").await;
    let masters_before = cluster.pool("master").await;
    // Follows all nodes and notes who is away at once.
    let nodes = cluster.api::<Node>();
    let watching = tokio::spawn(async move {
        let mut cordoned: BTreeSet<String> = BTreeSet::new();
        let mut worst = 0;
        let mut ever: BTreeSet<String> = BTreeSet::new();
        let mut events = watcher(nodes, watcher::Config::default()).boxed();
        while let Some(Ok(event)) = events.next().await {
            if let Event::Apply(node) | Event::InitApply(node) = event {
                let name = node.metadata.name.clone().unwrap();
                if node.spec.and_then(|spec| spec.unschedulable).unwrap_or_default() {
                    ever.insert(name.clone());
                    cordoned.insert(name);
                } else {
                    cordoned.remove(&name);
                }
                worst = worst.max(cordoned.len());
            }
            if cordoned.is_empty() && ever.len() == 3 {
                break;
            }
        }
        (worst, ever)
    });
    cluster.writes.reset();
    cluster
        .create_config(file_config("99-worker-test", "worker", "/etc/test", "hello"))
        .await;
    let new = cluster.retargeted("worker", &target(&before)).await;
    let after = cluster.updated("worker").await;
    assert_eq!(target(&after), new);
    let (worst, ever) = tokio::time::timeout(Duration::from_secs(10), watching)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(worst, 1, "one worker at a time");
    let workers = ["worker-0", "worker-1", "worker-2"].map(str::to_owned);
    assert_eq!(ever, workers.clone().into(), "and no control-plane node");
    for worker in workers {
        let node = cluster.node(&worker).await;
        assert_eq!(Cluster::annotation(&node, "currentConfig"), new);
        assert_eq!(Cluster::annotation(&node, "desiredConfig"), new);
        assert_eq!(Cluster::annotation(&node, "state"), "Done");
    }
    assert_eq!(target(&cluster.pool("master").await), target(&masters_before));
    println!("{:#?}", cluster.writes.snapshot());
}
