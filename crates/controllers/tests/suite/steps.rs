//! The steps of an update in a MachineConfigNode.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use mco_api::MachineConfigNode;
use mco_simulator::Behaviour;
use parking_lot::Mutex;

use crate::cluster::{Cluster, eventually, file_config, target};

/// Records every condition that becomes True or Unknown, in the order of the writes.
fn watch(cluster: &Cluster, node: &str) -> Arc<Mutex<Vec<String>>> {
    let story: Arc<Mutex<Vec<String>>> = Arc::default();
    let recording = Arc::clone(&story);
    let only = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let mut events = watcher(cluster.api::<MachineConfigNode>(), only).boxed();
    tokio::spawn(async move {
        let mut known: BTreeMap<String, String> = BTreeMap::new();
        while let Some(Ok(event)) = events.next().await {
            let (Event::Apply(object) | Event::InitApply(object)) = event else {
                continue;
            };
            for condition in object.status.unwrap_or_default().conditions {
                let before = known.insert(condition.type_.clone(), condition.status.clone());
                if before.as_ref() != Some(&condition.status) && condition.status != "False" {
                    recording
                        .lock()
                        .push(format!("{} {}", condition.type_, condition.status));
                }
            }
        }
    });
    story
}

#[tokio::test(flavor = "multi_thread")]
async fn the_steps_of_an_update_are_shown_in_their_order_and_the_last_word_is_that_it_is_over() {
    let behaviour = Behaviour {
        report_steps: true,
        ..Behaviour::default()
    };
    let cluster = Cluster::start(2, behaviour).await;
    let before = target(&cluster.pool("worker").await);
    let stories = ["worker-0", "worker-1"].map(|node| (node, watch(&cluster, node)));
    cluster
        .create_config(file_config("99-worker-a", "worker", "/etc/a", "a"))
        .await;
    cluster.retargeted("worker", &before).await;
    cluster.updated("worker").await;
    for (node, story) in &stories {
        eventually(&format!("{node} shows that its update is over"), || async {
            let reported = story.lock();
            (reported.last().map(String::as_str) == Some("Updated True") && reported.len() > 1).then_some(())
        })
        .await;
    }
    cluster.at_rest().await;
    for (node, story) in stories {
        assert_eq!(
            *story.lock(),
            [
                "UpdatePrepared True",
                "UpdateExecuted Unknown",
                "Cordoned True",
                "Drained True",
                "AppliedFilesAndOS Unknown",
                "UpdateExecuted True",
                "AppliedFilesAndOS True",
                "RebootedNode Unknown",
                "RebootedNode True",
                "Resumed True",
                "UpdateComplete True",
                "Uncordoned True",
                "Updated True",
            ],
            "{node}"
        );
    }
}
