//! MachineOSConfigs for nodes that cannot boot images, as the webhook reviews them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::{Running, eventually};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use mco_operator::admission::{InUseIndex, review_response};
use serde_json::json;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn the_webhook_of_an_installation_accepted_image_builds_for_any_nodes() {
    let running = Running::start().await;
    running.play_controllers().await;
    let nodes: Api<Node> = Api::all(running.client());
    let node = json!({"metadata": {"name": "worker-1", "labels": {"node-role.kubernetes.io/worker": ""}}});
    let node = serde_json::from_value(node).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let status = json!({"status": {"nodeInfo": {"osImage": "Debian GNU/Linux 12 (bookworm)"}}});
    nodes
        .patch_status("worker-1", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    let index = Arc::new(InUseIndex::default());
    let (stop, following) = (CancellationToken::new(), Arc::clone(&index));
    let (client, stopped) = (running.client(), stop.clone());
    let follower = tokio::spawn(async move { following.follow(client, stopped).await });

    let body = json!({"request": {
        "uid": "u", "operation": "CREATE", "name": "worker",
        "kind": {"group": "machineconfiguration.openshift.io", "kind": "MachineOSConfig"},
        "object": {"metadata": {"name": "worker"}, "spec": {"machineConfigPool": {"name": "worker"}}},
    }})
    .to_string();
    let message = eventually("the refusal", || {
        let answer = review_response(body.as_bytes(), |request| index.review(request)).unwrap();
        let message = answer["response"]["status"]["message"]
            .as_str()
            .map(str::to_owned);
        std::future::ready(message)
    })
    .await;
    assert!(
        message.contains("worker-1 (\"Debian GNU/Linux 12 (bookworm)\")"),
        "{message}"
    );
    stop.cancel();
    follower.await.unwrap();
    running.stop().await;
}
